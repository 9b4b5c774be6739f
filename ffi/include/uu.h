/* uu.h - the universal unwinder, for C.
 *
 * Link with -luunwind, or find the functions in libuunwind.so.0 with dlsym. Each function says whether it may be called
 * in a signal handler. Unless said otherwise, functions that can fail return 0 or a negative errno; none sets errno.
 *
 * A process has one registry, that of libuunwind.so.0: what is registered in it is seen by everybody who walks, and `uu
 * record` uses it, too. libuunwind.a is for programs whose own walks are the only ones: linked into the program (not
 * into an object that is unloaded), it is a second registry beside that of a libuunwind.so.0 in the same process; each
 * sees only the windows, marks and frame records that it was given. It looks for uu/libuunwind-setup.so in the
 * program's folder. The program still needs the dynamic loader, which says where objects are: linked with -static, its
 * stacks end after the first frames, or follow frame pointers alone. This interface is young: before version 1.0 it may
 * still change. uu_abi() returns the version that a library has.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_H
#define UU_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this header describes. */
#define UU_ABI 1u

/* The interface that the library has. Thread-safe, async-signal-safe. */
uint32_t uu_abi(void);

/* ---- Stacks ------------------------------------------------------------------------------------------------------ */

/* A frame word, as uu_capture() writes it: flags in bits 63..60, kind in bits 59..56, address in bits 55..0. */
#define UU_FRAME_ADDRESS(word) ((word) & 0x00ffffffffffffffu)
#define UU_FRAME_KIND(word) (((word) >> 56) & 0xfu)
#define UU_FRAME_NATIVE 1u                         /* a machine frame in a loaded object, or in code that was not
                                                      registered */
#define UU_FRAME_SEMANTIC 2u                       /* a frame of an interpreted language: a second word follows, its
                                                      position. uu_walk() writes it */
#define UU_FRAME_WINDOW 3u                         /* a machine frame in a window: a second word follows, with the
                                                      window's generation in its upper half. uu_capture() writes no
                                                      other kinds */
#define UU_FRAME_OMITTED 4u                        /* frames were left out here: the low 32 bits say how many */
#define UU_FRAME_GENERATION(second_word) ((uint32_t)((second_word) >> 32))
#define UU_FRAME_INTERPRETER (UINT64_C(1) << 62)   /* a native frame of an interpreter, whose semantic frames, if any,
                                                      stand just before it */
#define UU_FRAME_EXACT (UINT64_C(1) << 60)         /* an interrupted instruction; otherwise a return address: the call
                                                      is before it, so look up address - 1 */
#define UU_FRAME_BY_FRAME_POINTER (UINT64_C(1) << 61) /* found by a frame pointer, or at the stack pointer: its callee
                                                      has no unwind information, and callers may be missing */

/* Why a walk ended. Numbers never change their meaning. */
enum uu_stop {
    UU_STOP_COMPLETE = 1,          /* the outermost frame was reached */
    UU_STOP_START_SYMBOL = 2,      /* a function that begins a stack was reached (makecontext) */
    UU_STOP_FRAME_POINTER_END = 3, /* a chain of frame pointers ended */
    UU_STOP_SWITCHED_STACK = 4,    /* the base of a stack that user code switches to (fiber, greenlet) was reached */
    UU_STOP_DOUBTFUL = 5,          /* as one of those above, but a frame pointer may have skipped callers */
    UU_STOP_TOO_MANY_FRAMES = 10,  /* more than 4,096 (uu_walk(): 1,048,576); those nearest the leaf were kept */
    UU_STOP_BUFFER_FULL = 11,      /* more than `capacity`; those nearest the leaf were kept */
    UU_STOP_ENDED_BY_CALLBACK = 12, /* `frame` of a uu_request returned another number than 0 */
    UU_STOP_NO_OWNER = 20,         /* no object and no window covers an address */
    UU_STOP_NO_RULE = 21,          /* an object has no unwind information for an address */
    UU_STOP_BAD_UNWIND_INFO = 22,  /* damaged unwind information */
    UU_STOP_UNSUPPORTED_RULE = 23, /* a rule that this version does not know */
    UU_STOP_UNKNOWN_REGISTER = 24, /* a rule needs a register that is lost */
    UU_STOP_BAD_CFA = 25,          /* the stack does not grow towards the root */
    UU_STOP_NULL_RETURN_ADDRESS = 26, /* zero, and nothing shows that a stack begins there: it was overwritten */
    UU_STOP_OPAQUE_WINDOW = 27,    /* a window says: stop here */
    UU_STOP_PLUGIN_LOST = 28,      /* the unwinder that steps this code does not know the caller */
    UU_STOP_NOT_CODE = 29,         /* what should be a return address lies outside of code, or after no call; it is not
                                      reported */
    UU_STOP_STACK_IN_TRANSIT = 30, /* the interrupted instructions replace the stack: an exception's delivery, a stack
                                      switch */
    UU_STOP_OBJECT_MISSING = 31,   /* only in reports on stacks that were copied: an object's file is missing */
    UU_STOP_UNREADABLE_STACK = 50,
    UU_STOP_UNREADABLE_UNWIND_INFO = 51,
    UU_STOP_WORD_LEFT_OUT = 52,    /* only in reports on stacks that were copied: a word is not in the copy */
    UU_STOP_STACK_CUT = 53,        /* the same: the copy was cut */
    UU_STOP_FAULT = 60,            /* also: this thread is inside a walk already */
    UU_STOP_WATCHDOG = 61,
    UU_STOP_PLUGIN_NONSENSE = 62,  /* ends no walk; counted under the plugin's name */
    UU_STOP_TOO_MANY_THREADS = 63, /* more than 65,536 threads at once have called uu_capture(), or no memory */
    UU_STOP_SIGNAL_BLOCKED = 64,   /* uu_walk_thread(): the thread blocks the signal by which it is asked */
    UU_STOP_THREAD_ASLEEP = 65,    /* uu_walk_thread(): the thread is in an uninterruptible sleep, or stopped */
    UU_STOP_NO_ANSWER = 66,        /* uu_walk_thread(): no answer in time, for no reason that the kernel reports */
    UU_STOP_UNALIGNED_ARGUMENT = 67 /* uu_capture(): `frames` or `ucontext` is no multiple of 8 */
};

/* Captures the native stack of the calling thread into `frames`, leaf first, at most `capacity` words. Returns the
 * number of words written: one for each frame, two for a frame in a window; where `frames` is null or `capacity` 0,
 * that is 0, and the reason UU_STOP_BUFFER_FULL; where `frames` or `ucontext` is no multiple of 8, it is 0, and the
 * reason UU_STOP_UNALIGNED_ARGUMENT. `*stop`, unless `stop` is null, is set to the reason why the walk ended (enum
 * uu_stop).
 *
 * `ucontext`: null, and the first frame is the caller; or the third argument of a signal handler that the kernel has
 * entered on this thread and that is still running, and the first frame is the interrupted one. Where something else
 * calls the handler, later and from elsewhere (ThreadSanitizer's runtime does), the interrupted stack is another one by
 * then: null is right, or no capture.
 *
 * Thread-safe. Async-signal-safe: no allocation, no lock. Unless uu_handle_faults() was called, the kernel is asked for
 * each page before it is read: of the stack that the thread was started on once, else at each capture; not at all where
 * stack and addresses were met before. What another thread unmaps in between, or takes away by making a mapped file
 * shorter, faults then, as does a word of an active frame that the program made unreadable. In a handler that
 * interrupted the recorder's walk of the same thread it returns 0 and UU_STOP_FAULT. A thread's first call takes a
 * place in a table. Where more than 2,048 threads are alive that have called it, the table grows by mmap(2) to 65,536
 * places; beyond, and where mmap fails, it returns 0 and UU_STOP_TOO_MANY_THREADS. A handler that may have interrupted
 * another capture may call it, also where it swaps contexts and that capture goes on later; so may the child of
 * clone(2) with CLONE_VM while its parent lives: both share a place. A handler that may leave an interrupted capture
 * for good, as by siglongjmp(3), is to be followed by uu_capture_abandoned(). Up to 7 KiB of stack. */
size_t uu_capture(uint64_t *frames, size_t capacity, const void *ucontext, uint16_t *stop);

/* Says that captures and walks (uu_capture(), uu_walk()) of the calling thread that a handler interrupted were left, by
 * siglongjmp(3) or in any other way, and do not go on. A capture that was looking at windows when it was left may else
 * count as one under way until its place on the stack is used for something else: other threads' grace periods do not
 * end then (uu_synchronize() returns -ETIMEDOUT), and this one's calls may return -EDEADLK. To be called where
 * siglongjmp() comes back to; not where a capture of this thread still goes on: in a handler that has interrupted one,
 * or while a context that a handler swapped out of one is suspended. Does nothing if no capture was left, and inside
 * the recorder's walk. Thread-safe, async-signal-safe. */
void uu_capture_abandoned(void);

/* A request for the whole stack of the calling thread: native frames, those in windows, and those of interpreted
 * languages, as `uu record` shows them. Zero the structure, set `size` to sizeof(struct uu_request), and what is
 * wanted. */
struct uu_request {
    uint32_t size;           /* sizeof(struct uu_request) */
    uint32_t flags;          /* UU_WALK_* */
    const void *ucontext;    /* as that of uu_capture() */
    uint64_t *frames;        /* where frames are written, leaf first; or null */
    size_t capacity;         /* words that `frames` has room for */
    uint32_t skip;           /* frames nearest the leaf that are left out, of those that are wanted */
    uint32_t reserved;       /* zero */
    /* Or null. Called with each frame that is wanted, leaf first, and its words, 1 or 2; `frames` has it then, too.
       Another result than 0 ends the request. Runs inside this call: it must not walk, and must be async-signal-safe
       where uu_walk() is called in a handler. It may call uu_describe() and uu_stack_id(). */
    int (*frame)(void *user, const uint64_t *words, size_t count);
    void *user;              /* its first argument */
    size_t words;            /* out: words written to `frames` */
    uint32_t count;          /* out: frames */
    uint16_t stop;           /* out: why the walk, or the request, ended: enum uu_stop */
    uint16_t doubt;          /* out: UU_DOUBT_*; 0: nothing is missing below `stop`, but for UU_FRAME_OMITTED */
    /* Or null. With `frames`: where each frame's CFA (canonical frame address) is written, one for each frame and at
       most `capacity` of them: the stack pointer of its caller when it returns. 0: it has none, as frames of languages,
       those that stand for others left out, and an outermost frame whose caller no unwind information describes. Such a
       walk takes nothing over from the last one, and takes longer. uu_walk() only. A request of the size up to here has
       no CFAs. */
    uint64_t *cfas;
};
/* flags: the kinds that are wanted; without one of them, all. UU_FRAME_OMITTED always comes. */
#define UU_WALK_NATIVE 1u
#define UU_WALK_WINDOW 2u
#define UU_WALK_SEMANTIC 4u
#define UU_WALK_NO_INTERPRETER 8u  /* frames with UU_FRAME_INTERPRETER, the interpreter's own, are left out */
#define UU_WALK_PROBED 16u         /* memory is probed before it is read, as without uu_handle_faults(): where SIGSEGV
                                      or SIGBUS is blocked */
#define UU_WALK_TRUST_PLUGINS 32u  /* where memory is probed, plugins without UU_PLUGIN_CHECKED_READS are called, too: a
                                      fault of theirs is the program's */
/* doubt */
#define UU_DOUBT_FRAMES 1u            /* a plugin reported missing or uncertain frames, failed, or is off; also one that
                                         is asked about code without an owner, where the stack passes such code */
#define UU_DOUBT_SETUP_DUE 2u         /* an object in the stack was not seen by uu_setup(): it may be an interpreter */
#define UU_DOUBT_PLUGIN_NOT_CALLED 4u /* a plugin, as above, was not called, because nothing would contain its faults */

/* Walks the whole stack of the calling thread, as the request says. Frames of languages need uu_setup().
 *
 * Plugins run inside this call, and so do the functions of windows. Without uu_handle_faults(), memory is probed, and
 * only those plugins are called that raise no faults. After it, plugins' faults (SIGSEGV, SIGBUS, SIGFPE and SIGILL)
 * are contained as under `uu record`: in the plugin's own code, in this library, which it calls, and in what either
 * calls directly, which may be a leaf function of libc, such as memcpy(), or an address without code. All other faults
 * are the program's, and reach its handler: those of windows' functions, of what plugins call elsewhere, and of
 * handlers that interrupt this call. Of a stack of more than 4,160 frames, the 4,096 nearest the leaf and the 64
 * outermost are kept, with one word UU_FRAME_OMITTED between them, which counts as one frame in `count` and `skip`.
 *
 * There is no timer: a loop of a plugin or of a window's function ends only where it calls the host, after 4,194,304
 * calls of any of the host's functions in one walk. Each frame of emit_all() counts, and so does each KiB that is read
 * or hashed; what is read by lend_reader() does not.
 *
 * 0: see `stop`; -EINVAL: null or unaligned, another size, flags or fields that this library does not know, an
 * unaligned `ucontext`, `frames` or `cfas`, or `cfas` without `frames`; -ENOMEM: no memory for this thread's first
 * call. Thread-safe, async-signal-safe, with uu_capture()'s conditions. In a handler that interrupted another uu_walk()
 * of the same thread, nothing is walked: UU_STOP_FAULT. So it is after a uu_walk() that was left for good, until
 * uu_capture_abandoned() is called, or its place on the stack is used for something else; and in one of two tasks that
 * share a thread pointer (the child of clone(2) with CLONE_VM, and its parent), while the other one walks. A thread's
 * first call maps about 400 KiB, of which what is used becomes resident. Up to 8 KiB of stack. */
int uu_walk(struct uu_request *request);

/* ---- Stacks of other threads -------------------------------------------------------------------------------------
 *
 * The thread is interrupted by a real-time signal, and its handler walks it. The signal is the one that
 * uu_thread_signal() took; else the first call takes the highest one, below 64, that has its default action. The
 * handler has SA_RESTART; calls that a handler always interrupts return EINTR in the thread that is asked (poll(2),
 * nanosleep(2) and others: signal(7)). It runs on the stack that was interrupted, where it needs 8 KiB and the kernel's
 * signal frame; on the thread's alternate one if the program handled the signal, or SIGURG (as Go does), with
 * SA_ONSTACK. A signal of this number that the library did not send goes to the handler that was there before (once, if
 * that has SA_RESETHAND), or has its default action.
 * A program that installs a handler for it later takes it away: calls return -EBUSY until another one is taken. */

/* Takes the signal for uu_walk_thread(), uu_walk_all() and crash reports. 0: the one that is in use, or any.
 *
 * Returns its number; -EINVAL: neither 0 nor a real-time signal (SIGRTMIN to 64); -EBUSY: none has its default action,
 * the program replaced the library's handler for this one, or another thread is in this call; -EIO: the kernel refuses.
 * Thread-safe, async-signal-safe. */
int uu_thread_signal(int signal);

/* Walks the whole stack of another thread of this process, as uu_walk() walks the caller's; `request->frame` is called
 * here. Waits at most `timeout_ns` nanoseconds for the thread; what it answers later is dropped. For the calling
 * thread's own id it is uu_walk().
 *
 * 0: see `stop`. -EINVAL: as uu_walk(), or `ucontext` is not null. -ESRCH: this process has no such thread, or it
 * ended. -ETIMEDOUT: it did not answer; `stop` is UU_STOP_SIGNAL_BLOCKED, UU_STOP_THREAD_ASLEEP or UU_STOP_NO_ANSWER.
 * -EBUSY: as uu_thread_signal(), or 32 threads are being asked; -EAGAIN: no more signals can be queued
 * (RLIMIT_SIGPENDING). Thread-safe, async-signal-safe, also in a handler of a fault. Up to 8 KiB of stack; the first
 * calls map up to 2 MiB. */
int uu_walk_thread(uint32_t tid, struct uu_request *request, uint64_t timeout_ns);

/* A thread, of uu_walk_all(). */
struct uu_thread {
    uint32_t tid;            /* its thread id */
    int32_t error;           /* 0, or what uu_walk_thread() returns */
    char name[16];           /* its name (pthread_setname_np(3)), ends with a NUL */
    size_t first;            /* index in the request's `frames` of its first word */
    size_t words;            /* words of its stack */
    uint32_t count;          /* frames */
    uint16_t stop;           /* why the stack ended; with -ETIMEDOUT, why the thread did not answer */
    uint16_t doubt;          /* UU_DOUBT_* */
};

/* Walks the whole stacks of all threads of this process, the calling one first. 16 at a time are asked at once, so
 * stacks of one call are not of one moment. Fills at most `capacity` threads, and `request->frames` with their words,
 * one stack after the other; a stack for which there is no room ends with UU_STOP_BUFFER_FULL. The other fields of the
 * request count for each stack; `words`, `count` and `doubt` are sums. Waits at most `timeout_ns` nanoseconds for all
 * threads together, of which each batch may use its share.
 *
 * Returns how many threads there are, which may be more than `capacity`. -EINVAL: as uu_walk_thread(), `frame` is not
 * null, or `threads` is null or unaligned. -EIO: /proc/self/task cannot be read. Threads that begin or end meanwhile
 * may be missing, or there with -ESRCH. Thread-safe, async-signal-safe. Up to 10 KiB of stack. */
int uu_walk_all(struct uu_request *request, struct uu_thread *threads, size_t capacity, uint64_t timeout_ns);

/* ---- Stacks that are asked for now and taken later -----------------------------------------------------------------
 *
 * An event happens where a stack cannot be walked, or not yet: in a handler, in an allocator, under a lock. Whoever
 * watches it asks for the stack with uu_trigger(), and writes down the event with the cookie that it gets. The stack is
 * taken once, at the thread's next safe point, and given with the cookie to each client that asked. examples/tracer
 * does so.
 *
 * The safe point is where the thread receives the signal of uu_thread_signal(), which uu_trigger() sends to its own
 * thread: where it is not blocked, before uu_trigger() returns, and the stack begins with its caller; where it is, as
 * soon as it is not any more, and the stack begins with the code that is interrupted then. In a signal handler that
 * blocks it, that is the code that the handler has interrupted. The cookie waits as long as the signal is blocked.
 *
 * A cookie is one thread's, and the process's only one; none is 0. It has one stack at most. Until a thread's stack has
 * been given to all that asked, every uu_trigger() on it returns the same cookie, also while clients are being called;
 * a client is called once for each cookie. Afterwards there is a new one.
 *
 * A cookie becomes void, and no client is called for it, if its thread ends, or replaces the program (exec(2)), while
 * the signal is blocked; in the child of a fork, which has its parent's pending cookies and not its pending signals; if
 * uu_trigger_cancel() is called; if the signal was not sent after all, and a handler asked before that was clear; and,
 * where a client's function is left by siglongjmp(3), by uu_capture_abandoned(). uu_triggers_lost() counts them, but
 * for exec's. A program that takes the signal itself (by its own handler, or sigwait(3)) has to call
 * uu_trigger_cancel() in the threads that wait for it. */

/* A stack, for a client. The structure may grow: `size` says how much of it is there. */
struct uu_delivery {
    uint32_t size;           /* sizeof(struct uu_delivery) of the library */
    uint32_t tid;            /* id of the thread whose stack this is, the calling one */
    uint64_t cookie;         /* that uu_trigger() returned */
    const uint64_t *frames;  /* as uu_walk() writes them, leaf first; readable during the call */
    size_t words;            /* words of `frames` */
    uint32_t count;          /* frames */
    uint16_t stop;           /* why the walk ended: enum uu_stop. Without frames, why there was none: UU_STOP_FAULT in a
                                handler that interrupted a uu_walk() of the thread, UU_STOP_TOO_MANY_THREADS */
    uint16_t doubt;          /* UU_DOUBT_* */
};

/* Adds a client. `deliver` is called with `user` in a signal handler in which all signals but faults are blocked, on
 * the interrupted stack as uu_walk_thread() says: it must be async-signal-safe, keep errno, and return. It may call
 * uu_describe(), uu_stack_id() and uu_trigger(); it must not walk. Plugins run as in uu_walk() without flags.
 * Returns its number, from 0; -EINVAL: `deliver` is null; -ENOMEM: there are 16; -EBUSY, -EIO: as uu_thread_signal().
 * Thread-safe, async-signal-safe. */
int uu_client_register(void (*deliver)(void *user, const struct uu_delivery *delivery), void *user);

/* Removes a client; no thread may trigger for it any more. When 0 is returned, `deliver` does not run and will not;
 * cookies that it waits for have no stack for it. Waits at most a second for calls of `deliver`; not to be called in
 * it.
 *
 * -EINVAL: no such number; -ENOENT: no such client; -ETIMEDOUT: `deliver` still runs; asking again is allowed.
 * Thread-safe. Not async-signal-safe. */
int uu_client_unregister(int client);

/* Asks for the calling thread's stack, for a client. Returns the cookie; 0: refused, and counted: no such client; the
 * thread has no place, as in uu_capture(); the signal is not the library's any more, or cannot be queued
 * (RLIMIT_SIGPENDING); or the caller is the child of vfork(2), or of clone(2) with CLONE_VM.
 *
 * While a cookie is pending, nothing but a few loads and one store is done. Otherwise a signal is sent, and, if it is
 * not blocked, the stack walked: that needs uu_walk_thread()'s 8 KiB of stack and the kernel's signal frame, with what
 * `deliver` needs. Thread-safe, async-signal-safe. errno stays as it is. */
uint64_t uu_trigger(int client);

/* Makes the calling thread's pending cookie void, and takes its signal back. To be called before exec(2), where a
 * cookie may be pending: a pending signal stays through exec, and ends the next program when that unblocks it. Returns
 * 1; 0: none was pending. Thread-safe, async-signal-safe. */
int uu_trigger_cancel(void);

/* Whether the stack of a cookie is still to come, or being given to clients: 1, or 0. Where the cookie's thread has
 * ended it becomes void here: so whoever keeps events until their stacks come knows which ones will never have one.
 * -EINVAL: it is no cookie. Thread-safe, async-signal-safe; a system call if it is pending. */
int uu_cookie_is_pending(uint64_t cookie);

/* Number of calls of uu_trigger() that were refused, and of cookies that became void, those of threads that have ended
 * included; the child of a fork begins with its parent's number. Thread-safe, async-signal-safe; a system call for each
 * pending cookie. */
uint64_t uu_triggers_lost(void);

/* ---- Crash reports ------------------------------------------------------------------------------------------------
 *
 * On SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP and SIGSYS: the signal, its reason and address; registers; the
 * whole stack of the thread that crashed, then those of the other threads (which are given 5 seconds together); and the
 * objects that frames are in, with their build-ids. Written with system calls only, from a stack of the library's own:
 * also while malloc's lock is held, and from threads with small stacks. Then the process ends by the same signal, with
 * the context of the crash, so that a core dump has it. Frames of languages need uu_setup().
 *
 * Handlers that the program had installed before are called first, with the same siginfo and context, and with the
 * signals blocked that sigaction(2) would block for them. If one returns, the program continues and nothing is
 * reported; unless it gave up: replaced the signal's disposition, or sent the signal again. Then the report is written,
 * and what it asked for happens. One that ends the process, jumps away or crashes leaves no report, unless by abort(3);
 * nor does one with SA_NODEFER that makes the default disposition the signal's and sends it again, which ends the
 * process at once (as Python's faulthandler does, if it was enabled before). UU_CRASH_FIRST is for these. A handler
 * that is installed later comes first; it has to call the one that it replaced, or to restore it and repeat the signal.
 * The kernel ends a thread that blocks its fault's signal without calling anybody, and abort(3) a process that had
 * SIGABRT ignored.
 *
 * A stack overflow can be reported in threads with an alternate signal stack: the one that calls uu_report_crashes(),
 * and those that call uu_prepare_thread() (libuunwind-crash.so, which `uu run` preloads, does that in each thread).
 * A thread that crashes in a function that a walk calls (`frame`, `deliver`, a window's `rule`) has its native stack.
 * A fault in the report itself ends it with what was written. Threads that crash at the same time wait; the first one
 * is reported, with the others' stacks. In the child of a fork everything stays as it is; exec(2) ends it. At most 16
 * reports are written in a process. What is not written within 20 seconds, or comes after two seconds in which the
 * destination had no room, is dropped. Uses the signal of uu_thread_signal().
 * A plugin that loops without calling the host holds a report up for ever, as it does uu_walk(). The first process of a
 * pid namespace ends by what an instruction raises; signals that are sent to it, which the kernel ignores for such a
 * process where their action is the default one, are ignored and not reported, except SIGABRT, after which abort(3)
 * goes on. */

#define UU_CRASH_JSON 1u       /* JSON lines: objects with a "type": crash, registers, thread, frame (of the thread
                                  before it), object, note, end (docs/json.md). Addresses are strings. Otherwise text */
#define UU_CRASH_FIRST 2u      /* report before handlers of the program's are called: also faults that they mend */
#define UU_CRASH_ONE_THREAD 4u /* only the thread that crashed */

/* Reports crashes to `fd`, which the program keeps open: it is remembered by its device and inode, and where it is
 * another file's when a crash comes, nothing is written. -1: no reports any more. A later call replaces the
 * destination, and takes signals again, at most 8 times each, for which the program has installed handlers meanwhile:
 * these are called first from then on, and may call the library's handler that they replaced.
 *
 * Native frames are written with the exported function that they are in, if there is one (C++ names as the linker has
 * them), and as `object+address`, where `address` is the object's own, as for addr2line(1); it is a return address
 * in all but the first frame, and after a signal's: look up address - 1. Of more than 256 frames, the 192 nearest the
 * leaf and the 64 outermost are written.
 *
 * 0; -EINVAL: unknown flags; -EBADF: `fd` is not open for writing; -ENOMEM; -EBUSY: another thread is in this call, or
 * a signal was taken 8 times; -EIO: a handler cannot be installed. Thread-safe. Not async-signal-safe. */
int uu_report_crashes(int fd, uint32_t flags);

/* As uu_report_crashes(), to the file `path`, in which each %p becomes the process id. It is made or appended to when a
 * crash comes, with mode 0600; a relative path is then looked up from the working directory of that time. -EINVAL also:
 * `path` is null or empty; -ENAMETOOLONG: it is longer than 4,000 bytes. */
int uu_report_crashes_to(const char *path, uint32_t flags);

/* Gives the calling thread an alternate signal stack of 64 KiB, unless it has one (sigaltstack(2)). When the thread has
 * ended, another one gets it. 0; -ENOMEM. Thread-safe. Not async-signal-safe. */
int uu_prepare_thread(void);

/* What a frame is, in words. Set `size` to sizeof(struct uu_frame_info). Texts are UTF-8 (but
 * for paths: see `file`), end with a NUL, and are empty where nothing is available. */
struct uu_frame_info {
    uint32_t size;           /* sizeof(struct uu_frame_info) */
    uint32_t kind;           /* UU_FRAME_KIND() of the frame */
    uint32_t flags;          /* UU_INFO_* */
    uint32_t line;           /* semantic frames: the line that executes; 0: not available */
    uint32_t first_line;     /* semantic frames: the line on which the function begins; 0: not available */
    uint32_t omitted;        /* UU_FRAME_OMITTED: how many frames were left out here; else 0 */
    uint64_t address;        /* process address: the instruction (UU_INFO_EXACT) or return address; 0: semantic frame */
    uint64_t file_address;   /* the same as an address of the object's file, as in its symbol table; 0: no object */
    uint64_t file_offset;    /* the same as an offset in that file, in bytes */
    uint64_t position;       /* semantic frames: the position, in the unit of the plugin that emitted the frame */
    uint32_t build_id_len;   /* bytes in build_id; 0: the object has none, or there is no object */
    uint32_t reserved;       /* zero */
    uint8_t build_id[32];    /* the object's GNU build-id, at most 32 bytes of it */
    char language[16];       /* semantic frames: name of the plugin that emitted the frame; ends with a NUL if
                                shorter */
    char function[512];      /* semantic frames and frames in windows: the function; one that its language gives no name
                                is "function <FILE:LINE>" by where it begins, with FILE without its folder */
    char file[1024];         /* semantic frames: the source file; native ones: the path by which the object was loaded,
                                as the loader has it: bytes that need not be UTF-8 */
};
#define UU_INFO_EXACT 1u            /* `address` is the interrupted instruction itself; otherwise look up address - 1 */
#define UU_INFO_BY_FRAME_POINTER 2u /* as UU_FRAME_BY_FRAME_POINTER */
#define UU_INFO_INTERPRETER 4u      /* an interpreter's own native frame */
#define UU_INFO_CUT 8u              /* a text was cut: it is longer than its room, or than the 1,024 bytes, in its
                                       language's own encoding, that are kept of it */

/* Describes the frame whose first word `*frame` is; a frame's second word, if it has one, follows. The object of a
 * native frame is the one that is loaded at its address now: describe a frame while its code is there, or compare
 * build-ids. Names of native functions are not looked up: uu_symbolize() does that; `file` and `file_address`, or
 * `build_id`, are what addr2line and symbol servers need.
 *
 * Returns how many words the frame has, 1 or 2; -EINVAL: null or unaligned, another size, or no frame's word.
 * Thread-safe, async-signal-safe. Memory is always probed before it is read, so that SIGSEGV and SIGBUS may be
 * blocked. */
int uu_describe(const uint64_t *frame, struct uu_frame_info *info);

/* Number of times that a frame stayed without a name because there was no room for it: 64 MiB of names, or what the
 * kernel gives. Such a frame has another try in each walk. Thread-safe, async-signal-safe. */
uint64_t uu_names_lost(void);

/* One function of a frame, of uu_symbolize(). Texts are UTF-8, never null, and empty where nothing is available. */
struct uu_symbol {
    const struct uu_symbol *next; /* null after the last */
    const char *function;         /* demangled */
    const char *file;             /* source file, as the debug information or the language's runtime has it */
    const char *object;           /* native frames: the path by which the object was loaded */
    const char *language;         /* semantic frames: as `language` of struct uu_frame_info */
    const char *problem;          /* for people: why names or lines of this object are missing (its file changed) */
    uint64_t address;             /* as that of struct uu_frame_info: 0 for semantic frames */
    uint64_t start;               /* process address of the function's first instruction; 0: not available */
    uint32_t line;                /* that executes; 0: not available */
    uint32_t frame;               /* index in `frames` of the frame's first word */
    uint32_t kind;                /* UU_FRAME_KIND() of the frame */
    uint32_t flags;               /* UU_SYMBOL_* */
};
#define UU_SYMBOL_INLINED 1u /* inlined into the function that the next symbol names, which is of the same frame */
#define UU_SYMBOL_CUT 2u     /* as UU_INFO_CUT */

/* Looks up the functions of frames, as uu_capture() and uu_walk() write them: `words` words, of whole frames.
 * `*symbols` is set to a list in the order of the frames, for uu_symbols_free(). Each frame has one symbol, and one
 * more, before it, for each function that was inlined there, innermost first.
 *
 * Native frames: names come from symbol tables, Go's table of functions, and debug information, which gives files,
 * lines and inlined functions (DWARF, also in separate files under /usr/lib/debug); without it `file` is empty and
 * `line` 0. The vDSO's are read from memory. Return addresses are looked up one byte before. A file is used only if its
 * build-id, or without one its headers, are those of the mapped object; else `function` is empty and `problem` says
 * why: a name is never guessed. Other frames: as uu_describe().
 *
 * Every object's file is opened and read once a call (debug information of hundreds of megabytes takes seconds, and as
 * much memory until the call returns), and nothing is kept: ask for many frames at once. uu_setup() is not needed.
 *
 * Returns the number of symbols; -EINVAL: `symbols` is null, `frames` null or unaligned, or a word is no frame's;
 * -ENOENT, -ENOEXEC: as uu_setup(); -EIO: an error of the library's own. After an error `*symbols` is as it was.
 * Thread-safe; in the child of a fork as uu_setup(). Not async-signal-safe: it opens files and allocates. */
int uu_symbolize(const uint64_t *frames, size_t words, const struct uu_symbol **symbols);

/* Gives a list of uu_symbolize() back; null: nothing. Thread-safe. Not async-signal-safe. */
void uu_symbols_free(const struct uu_symbol *symbols);

/* A number for a stack, from 1: equal stacks (the same words) have the same one, as long as the process lives. For
 * profilers of allocations, locks and the like, which keep a stack with each of many things. Native frames are
 * addresses: code that is unloaded, and other code at its place, have the same words.
 *
 * 0: `frames` is null or unaligned, `words` is 0 or above 16,384, or there is no room: 512 MiB of stacks, 16,777,216 of
 * them, or what the kernel gives. uu_stack_ids_lost() counts those. Nothing is freed. Lock-free, thread-safe,
 * async-signal-safe. */
uint32_t uu_stack_id(const uint64_t *frames, size_t words);

/* Copies the words of the stack `id`, at most `capacity` of them, to `frames`, which may be null. Returns how many it
 * has; 0: no stack has this id, or `frames` is unaligned. Thread-safe, async-signal-safe. */
size_t uu_stack_frames(uint32_t id, uint64_t *frames, size_t capacity);

/* Number of calls of uu_stack_id() that found no room. Thread-safe, async-signal-safe. */
uint64_t uu_stack_ids_lost(void);

/* Makes uu_capture() and uu_walk() faster, and uu_walk() safe against faults of plugins: takes SIGSEGV, SIGBUS, SIGFPE
 * and SIGILL over, so that a page need not be asked for before it is read. A fault of the library's own loads is
 * mended, one of a plugin ends its call (see uu_walk()); every other one, and a signal that was sent, goes to the
 * handler that was installed before, once if that has SA_RESETHAND, or has its default action. From then on both must
 * be called with SIGSEGV and SIGBUS unblocked (a handler that calls them must not have these in its mask), and a
 * handler that the program installs later for one of the four must chain to the one it replaced. The handler before is
 * called with the signal unblocked, so that it may call them, too.
 *
 * Under `uu record` there is no need for uu_capture(): the sampler does this for itself, and the program's own handlers
 * stay its own.
 *
 * 0, also when it was called before; -EBUSY while another thread is in this call; -EIO if the handlers cannot be
 * installed. Thread-safe. Not async-signal-safe. */
int uu_handle_faults(void);

/* Prepares the process for walks:
 *   - Walks through code that is met for the first time become about ten times faster, and possible where an object has
 *     unwind information that cannot be read in place (.debug_frame, or .eh_frame without its index): the files of all
 *     objects that are loaded now are read, and tables of their unwind rules built.
 *   - uu_walk() shows frames of interpreted languages: plugins are opened (uu/plugins in the folder of this library,
 *     and the files and folders that UU_PLUGINS names, except in a set-user-ID program), and every loaded object is
 *     analysed for them. uu's own analysis runs in this process; a foreign plugin's in a process of its own, which
 *     bin/uu provides, and which ends before this call returns (its SIGCHLD goes to this process).
 *
 * Results are kept in the user's cache ($XDG_CACHE_HOME/uu, else ~/.cache/uu); a set-user-ID program has none. Takes
 * milliseconds for each large object that is new. Call it again after dlopen(): what is there is not done again. The
 * tables stay in memory, a little less than the objects' .eh_frame sections, with a MiB for the rules of addresses that
 * walks meet.
 *
 * Under `uu record` there is no need for uu_capture(): the recorder builds the tables.
 *
 * What has no answer yet stays so, and stacks in which it lies have UU_DOUBT_SETUP_DUE: an object that one of uu's own
 * plugins claims while that one cannot be opened, one that a plugin refuses, one whose foreign analysis fails or takes
 * longer than 10 s. The next call looks again.
 *
 * Returns how many objects have a table now; -ENOENT: uu/libuunwind-setup.so is not in the folder of this library, or
 * cannot be opened (dlerror() says why); -ENOEXEC: it is of another build; -ENOMEM: there are more than 2,048 tables,
 * or 4,096 objects. Thread-safe, usable in constructors, and in the child of a fork if the parent had one thread or has
 * called it (the first call opens a library). Not async-signal-safe: it opens files and allocates. */
int uu_setup(void);

/* As uu_setup(), with flags: 0, or UU_SETUP_BY_ITSELF: from now on, dlopen() needs no further call. A walk (uu_walk(),
 * and those of other threads and of crashes) that meets an object which the set-up has not seen wakes a thread, which
 * runs the set-up again. Stacks have UU_DOUBT_SETUP_DUE until that is done. uu_capture() wakes nobody.
 *
 * It is one thread of this process, "uu-setup". It blocks all signals, and sleeps until it is woken; uu_walk_all() and
 * crash reports leave it out. exit(3) waits for a set-up that is under way, at most a second. The child of a fork has
 * no such thread until it makes this call itself. The flag cannot be taken back.
 *
 * Returns what uu_setup() returns; after an error there is no thread. -EINVAL: unknown flags; -EAGAIN: the process is
 * set up, but the kernel gives no thread. Thread-safe, usable in constructors. Not async-signal-safe. */
int uu_setup_with(uint32_t flags);
#define UU_SETUP_BY_ITSELF 1u

/* ---- Windows: code that no loaded object covers ------------------------------------------------------------------ */

/* How the frames of a window's code are stepped. */
enum uu_window_kind {
    UU_WINDOW_FRAME_POINTER = 1, /* every function keeps rbp as frame pointer, leaves too, prologues excepted */
    UU_WINDOW_OPAQUE = 2,        /* no unwind data: a walk stops here, with a reason */
    UU_WINDOW_EH_FRAME = 3,      /* `unwind` is a list of CIEs and FDEs, as in .eh_frame, without a header. With
                                    `functions`, each one's FDE is found by its table; without, the list is searched
                                    from its start (8,192 entries at most), once for each address */
    UU_WINDOW_SFRAME = 4,        /* `unwind` is an SFrame section (versions 1 to 3, AMD64) that lies where it was made
                                    for, and describes the caller and its rbp only */
    UU_WINDOW_RULE = 5,          /* `rule` gives the rule of an address */
    UU_WINDOW_STEPPER = 6        /* `step` moves the cursor by itself */
};

/* uu_window.flags */
#define UU_WINDOW_GROWING 1u    /* functions are still added to `functions`, and `published` counts them */
#define UU_WINDOW_DESCENDING 2u /* `functions` descends: each one lies below those before it. Otherwise it ascends */

/* One function of a window. An entry is written whole before it is published, and never changed but to a tombstone. */
struct uu_function {
    uint32_t start;    /* distance of its first byte from the window's `text` */
    uint32_t len;      /* bytes of code. 0: a tombstone. Stored alone, aligned, it retires the function: its unwind data
                          and its name are not looked at by walks that begin afterwards (uu_ticket(), uu_synchronize()).
                          Its code must not run any more, and its place not be used again while the window is
                          registered */
    uint32_t unwind;   /* UU_WINDOW_EH_FRAME: distance of its FDE from `unwind`. UU_NO_UNWIND: none */
    uint32_t name_len; /* bytes of its name, without a NUL */
    const char *name;  /* UTF-8; null: none, or `uu_window.name` is asked */
};
#define UU_NO_UNWIND 0xffffffffu

/* A rule: how to get from a frame to its caller. Set `size` to sizeof(struct uu_rule) and `reserved` fields to zero. */
struct uu_rule {
    uint32_t size;       /* sizeof(struct uu_rule) */
    uint8_t kind;        /* UU_RULE_* */
    uint8_t reg;         /* DWARF number of the register: 6 rbp, 7 rsp */
    uint8_t reserved[2]; /* zero */
    int32_t offset;      /* bytes */
    int32_t addend;      /* bytes, with UU_RULE_DEREF: -32,768 to 32,767 */
    int16_t slots[7];    /* where rbx, rbp, r12, r13, r14, r15 and the return address were saved: words of 8 bytes from
                            the CFA (the return address as a rule at -1); or UU_SAME, UU_UNKNOWN */
    int16_t reserved2;   /* zero */
};
#define UU_RULE_OFFSET 0u    /* CFA = register + offset */
#define UU_RULE_DEREF 1u     /* CFA = the word at register + offset, plus addend */
#define UU_RULE_SIGNAL 2u    /* a signal frame: a ucontext lies at register + offset */
#define UU_RULE_END 3u       /* the outermost frame */
#define UU_SAME 32767        /* the register is the caller's still */
#define UU_UNKNOWN (-32768)  /* the caller's value is lost */

struct uu_view; /* uu_plugin.h */

/* A window. Zero the structure, and set `size` to sizeof(struct uu_window). What it points to stays readable and as
 * it is until the window is gone (uu_unregister_window() or uu_synchronize() returned 0); except that tables may
 * grow, as described there.
 *
 * `rule`, `step` and `name` run inside signal handlers: no allocation, no lock, nothing that is not
 * async-signal-safe, little stack, and foreign memory only where it can be read for sure. While a program is
 * recorded, a call that faults or does not come back is abandoned and counted, and after three such failures the
 * window's functions are not called any more. In uu_capture() and uu_walk(), a fault of theirs is the program's. */
struct uu_window {
    uint32_t size;        /* sizeof(struct uu_window) */
    uint32_t kind;        /* enum uu_window_kind */
    const void *text;     /* first address: the window's key */
    size_t text_len;      /* bytes, not 0 */
    void *user;           /* the registrar's own: first argument of `rule` and `name`, and in `step`'s view */
    uint32_t flags;       /* UU_WINDOW_GROWING, UU_WINDOW_DESCENDING */
    uint32_t reserved0;   /* zero */
    const void *unwind;   /* UU_WINDOW_EH_FRAME, UU_WINDOW_SFRAME: unwind data; else null */
    size_t unwind_len;    /* its length in bytes */
    const struct uu_function *functions; /* functions, sorted; or null */
    size_t functions_room;               /* how many there are; of a growing table, how many it can hold. Below 2^32 */
    const uint64_t *published;           /* UU_WINDOW_GROWING: how many entries are valid; see uu_publish(). Else
                                            null */
    /* UU_WINDOW_RULE: fills `*rule` for `pc` and returns 1, or returns 0: none here. For a return address, `pc` is the
       address before it, inside the call. A pure function of `pc` as long as the window is registered: answers are
       cached (in a growing window, those of 0 are not). `*rule` comes as the one of a frame without saved registers. */
    uint32_t (*rule)(void *user, uint64_t pc, struct uu_rule *rule);
    /* UU_WINDOW_STEPPER: as `step` of a plugin; see uu_plugin.h. */
    uint32_t (*step)(struct uu_view *view);
    /* Or null. Writes the name of the function at `pc` to `buffer`, UTF-8, at most `room` (256) bytes, and its first
       address to `*start`. Returns the number of bytes written; 0: it has no name. Called once for an address while a
       program is recorded, and by uu_walk(). */
    size_t (*name)(void *user, uint64_t pc, char *buffer, size_t room, uint64_t *start);
    uint64_t reserved[3]; /* zero */
};

/* Registers a window; walks that begin afterwards see it. The structure is copied. Logarithmic in the number of
 * windows.
 *
 * -EINVAL   null or unaligned, another size, an empty range or one that reaches beyond 2^63, a field that the kind
 *           needs is not set, one that it does not use is set, or a reserved field is not zero
 * -ENOTSUP  a kind that this library does not support
 * -EEXIST   the range overlaps a registered window
 * -EBUSY    the range overlaps a window that is unlinked and that a walk may still read: uu_synchronize() first
 * -ENOMEM   no memory for the table
 * -EDEADLK  called inside a walk (by a plugin, or in a handler that interrupted one), or in a handler that interrupted
 *           one of these functions on the same thread
 *
 * Thread-safe. Not async-signal-safe: it takes a lock. Usable in the child of a fork, at once. */
int uu_register_window(const struct uu_window *window);

/* Takes the window with key `text` out of the table. Walks that begin afterwards do not see it; walks under way may
 * still read it until uu_synchronize(*ticket) returned 0. Any number of windows may wait for that. Logarithmic;
 * waits for no walk.
 *
 * -ENOENT no such window, -EINVAL `ticket` is null, -ENOMEM no memory, -EDEADLK as uu_register_window().
 * Thread-safe, not async-signal-safe. */
int uu_unlink_window(const void *text, uint64_t *ticket);

/* Takes `old_count` windows (by their keys) out and puts `new_count` others in, at once: a walk sees all of the old
 * ones and none of the new, or the other way round. New windows may lie where old ones did, also at the same
 * address: a new generation of the window. `*ticket` is for uu_synchronize(), and concerns the old ones. After an
 * error nothing has changed.
 *
 * Errors: as uu_register_window() and uu_unlink_window(). Thread-safe, not async-signal-safe. */
int uu_replace_windows(const void *const *old_texts, size_t old_count, const struct uu_window *windows,
                       size_t new_count, uint64_t *ticket);

/* No more functions are added to the growing window with key `text`: what walks did not find there, they need not
 * look for again. -ENOENT no such window, -EDEADLK as uu_register_window(). Thread-safe, not async-signal-safe. */
int uu_seal_window(const void *text);

/* A ticket for all walks that are under way now. Whoever waits for it knows that they have ended: after a tombstone,
 * its unwind data and name may then be freed. Thread-safe, async-signal-safe. */
uint64_t uu_ticket(void);

/* Waits until no walk is under way that began before `ticket` was given, at most `timeout_ns` nanoseconds (0: only
 * asks). One call serves all tickets up to this one. 0: the window's text may be wiped. -ETIMEDOUT: it may not, and
 * asking again is allowed. -EINVAL: no such ticket was given. -EDEADLK: called inside a walk.
 *
 * It means that no walk *reads* what was registered any more. Only the runtime can know whether a thread still
 * *executes* the text or returns into it. Thread-safe, not async-signal-safe. */
int uu_synchronize(uint64_t ticket, uint64_t timeout_ns);

/* Unlinks the window and waits for at most one second. 0: no walk can still read it; the text may be wiped.
 * -ETIMEDOUT: it is unlinked but pinned, and the text must not be wiped. Other errors as uu_unlink_window().
 * Thread-safe, not async-signal-safe. */
int uu_unregister_window(const void *text);

/* Makes the first `count` entries of a growing window's table valid. They have been written before; `published` is the
 * counter that the window was registered with. Never lowers it. By one thread at a time. Async-signal-safe. */
static inline void uu_publish(uint64_t *published, uint64_t count) {
    __atomic_store_n(published, count, __ATOMIC_RELEASE);
}

/* Makes an entry of a window's table a tombstone. Async-signal-safe. */
static inline void uu_retire(struct uu_function *function) { __atomic_store_n(&function->len, 0, __ATOMIC_RELEASE); }

/* ---- Interpreters that show their frames themselves -----------------------------------------------------------------
 *
 * An embedder's interpreter needs no plugin to be seen under `uu record`. It marks the code of its loop, gives each of
 * its functions an id, and keeps, for each thread that runs it, a list of the frames that run, innermost first:
 *
 *     uu_mark_interpreter(loop, 0);                            once
 *     function->id = uu_intern("f", "prog.lang", 12);          once for each function
 *     uu_publish_frames(&vm->frames);                          once for each thread
 *
 *     value loop(vm, function) {                               one C call may run many frames
 *         struct uu_frame_record record;
 *         uu_push_frame(&vm->frames, &record, &record, function->id, 12);
 *         ... record.line = 13; ...
 *         uu_pop_frame(&vm->frames, &record);
 *
 * In a stack, the frames of the list stand before (nearer the leaf than) the native frame of marked code that hosts
 * them: the one inside which their `activation` lies. While no recorder runs, nothing but these stores is done. */

/* A frame that runs. It may lie anywhere, and is read while its thread is interrupted at any instruction. */
struct uu_frame_record {
    struct uu_frame_record *outer; /* its caller's; null for the outermost */
    const void *activation;        /* an address inside the native frame of the marked code that runs it: of a local
                                      variable there, or of the record itself if it is one. Callers within one C call
                                      share it */
    uint32_t name;                 /* of uu_intern(); 0: without a name */
    uint32_t line;                 /* that executes; may be stored at any time */
};

/* An id for a function of the language, for ever. Texts are UTF-8, copied, and cut after 1,024 bytes; the same three
 * arguments give the same id. 0: no room (1,048,576 functions), no memory, or called in a handler that interrupted
 * this very function. `function` and `file` may be null: empty. Thread-safe. Not async-signal-safe. */
uint32_t uu_intern(const char *function, const char *file, uint32_t first_line);

/* Sets where the calling thread keeps the innermost frame record; `*head` is null while none runs. Null withdraws
 * it, which must be done before that memory is used for something else, unless the thread ends. In the child of a
 * fork it stays for the thread that forked. 0, or -ENOMEM: no place for this thread, as in uu_capture().
 * Thread-safe, async-signal-safe. */
int uu_publish_frames(struct uu_frame_record *const *head);

/* Marks the code at [text, text + len) as that of an interpreter whose frames are published: its native frames are
 * shown to be the interpreter's, and host what lies inside them. A `len` of 0: the whole function that begins at
 * `text`, by its unwind information. The range must lie inside one loaded object (for code made at run time, register a
 * window). Code that the compiler moved elsewhere, such as a cold part, is another range.
 *
 * -EINVAL  `text` is null, or the range wraps around
 * -ENOENT  no object covers it; or `len` is 0, and no function with unwind information begins at `text` (after
 *          uu_setup(): .debug_frame, too)
 * -EEXIST  it overlaps a marked range
 * -ENOMEM  64 ranges are marked
 *
 * Thread-safe, not async-signal-safe. */
int uu_mark_interpreter(const void *text, size_t len);

/* The range that begins at `text` is no interpreter's any more: to be called before its object is unloaded. -ENOENT:
 * none does. Thread-safe, not async-signal-safe. */
int uu_unmark_interpreter(const void *text);

/* Adds a frame that begins to run, and takes the innermost one away. The record stands whole before it can be seen. By
 * the list's own thread only; there async-signal-safe, if a handler takes away what it has added. */
static inline void uu_push_frame(struct uu_frame_record **head, struct uu_frame_record *record, const void *activation,
                                 uint32_t name, uint32_t line) {
    record->outer = *head;
    record->activation = activation;
    record->name = name;
    record->line = line;
    __atomic_signal_fence(__ATOMIC_RELEASE);
    __atomic_store_n(head, record, __ATOMIC_RELAXED);
}
static inline void uu_pop_frame(struct uu_frame_record **head, const struct uu_frame_record *record) {
    __atomic_store_n(head, record->outer, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_RELEASE);
}

/* ---- Plugins ----------------------------------------------------------------------------------------------------- */

/* Unwinders for interpreters and the like are shared objects of their own; uu_plugin.h describes how one is written,
 * and which of its faults do no harm to the program. Plugins are opened when a program starts under `uu record`, and by
 * uu_setup().
 *
 * What cannot be contained: writes to where a plugin should not write; a stack pointer that it destroys, or a stack
 * that it overflows, on a thread without an alternate signal stack; loops where no sampling timer runs. */

/* A request to the plugin called `plugin`: `what`, `argument` and `size` are as that plugin's own header says.
 *
 * What the plugin answers, 0 or a negative errno; -ENOENT: no such plugin is open; -ENOSYS: the plugin takes no
 * requests, or not this one; -EINVAL: `plugin` is null. Thread-safe. Not async-signal-safe, unless the plugin's header
 * says so. */
int uu_plugin_call(const char *plugin, uint32_t what, void *argument, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* UU_H */

/* ---- For programs that must also run without the library ------------------------------------------------------------
 *
 * With UU_OPTIONAL defined before this header is included, uu_optional_NAME() calls uu_NAME() of the library if it is
 * in the process, linked, preloaded or opened by anybody; else it returns -ENOSYS, or 0 where the result is no int
 * (uu_optional_capture() and others: nothing is written), or does nothing. Nothing is linked. A function that was found
 * is cached. While the library is absent, it is searched for again only after the loader has loaded an object, so that
 * a call costs a fraction of a microsecond. A search leaves errno as it was; it takes away a message that is waiting
 * for dlerror(3). Thread-safe. Async-signal-safe, where uu_NAME() is, only once a call of this function in the same
 * source file has found it. They are inlined, so that a stack begins with their caller. Where the header was included
 * without UU_OPTIONAL before, it may be included once more with it. */
#if defined(UU_OPTIONAL) && !defined(UU_OPTIONAL_FUNCTION)
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* <link.h> declares it for _GNU_SOURCE only (dl_iterate_phdr(3)). */
struct dl_phdr_info;
extern int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);
static inline int uu_optional_loads(struct dl_phdr_info *info, size_t size, void *loads) {
    enum { ADDS = 4 * sizeof(void *) }; /* dlpi_adds, after dlpi_addr, dlpi_name, dlpi_phdr and dlpi_phnum */
    if (size >= ADDS + sizeof(unsigned long long))
        memcpy(loads, (const char *)(const void *)info + ADDS, sizeof(unsigned long long));
    return 1;
}

/* `*missed`: 0, or how many objects had been loaded when the function was not there. */
static inline void *uu_optional_find(const char *name, unsigned long long *missed) {
    const int error = errno;
    unsigned long long loads = 0;
    void *found;
    dl_iterate_phdr(uu_optional_loads, &loads);
    if (loads && loads == __atomic_load_n(missed, __ATOMIC_RELAXED))
        return (void *)0;
    found = dlsym((void *)0, name); /* RTLD_DEFAULT */
    if (!found) {
        /* Opened by somebody with RTLD_LOCAL, perhaps: libuunwind.so.0 stays once it is loaded. */
        void *library = dlopen("libuunwind.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = dlsym(library, name);
            dlclose(library);
        }
    }
    if (!found)
        __atomic_store_n(missed, loads, __ATOMIC_RELAXED);
    errno = error;
    return found;
}

#define UU_OPTIONAL_FOUND(name, parameters, type)                                                                     \
    static void *cached;                                                                                              \
    static unsigned long long missed;                                                                                 \
    union {                                                                                                           \
        void *object;                                                                                                 \
        type(*function) parameters;                                                                                   \
    } found;                                                                                                          \
    found.object = __atomic_load_n(&cached, __ATOMIC_ACQUIRE);                                                        \
    if (!found.object) {                                                                                              \
        found.object = uu_optional_find("uu_" #name, &missed);                                                        \
        __atomic_store_n(&cached, found.object, __ATOMIC_RELEASE);                                                    \
    }

#define UU_OPTIONAL_FUNCTION(type, absent, name, parameters, arguments)                                               \
    __attribute__((always_inline)) static inline type uu_optional_##name parameters {                                \
        UU_OPTIONAL_FOUND(name, parameters, type)                                                                     \
        return found.object ? found.function arguments : (absent);                                                    \
    }

#define UU_OPTIONAL_ACTION(name, parameters, arguments)                                                               \
    __attribute__((always_inline)) static inline void uu_optional_##name parameters {                                \
        UU_OPTIONAL_FOUND(name, parameters, void)                                                                     \
        if (found.object)                                                                                             \
            found.function arguments;                                                                                 \
    }

UU_OPTIONAL_FUNCTION(uint32_t, 0, abi, (void), ())
UU_OPTIONAL_FUNCTION(size_t, 0, capture, (uint64_t *frames, size_t capacity, const void *ucontext, uint16_t *stop),
                     (frames, capacity, ucontext, stop))
UU_OPTIONAL_ACTION(capture_abandoned, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk, (struct uu_request *request), (request))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, thread_signal, (int signal), (signal))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk_thread, (uint32_t tid, struct uu_request *request, uint64_t timeout_ns),
                     (tid, request, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk_all,
                     (struct uu_request *request, struct uu_thread *threads, size_t capacity, uint64_t timeout_ns),
                     (request, threads, capacity, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, client_register,
                     (void (*deliver)(void *user, const struct uu_delivery *delivery), void *user), (deliver, user))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, client_unregister, (int client), (client))
UU_OPTIONAL_FUNCTION(uint64_t, 0, trigger, (int client), (client))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, trigger_cancel, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, cookie_is_pending, (uint64_t cookie), (cookie))
UU_OPTIONAL_FUNCTION(uint64_t, 0, triggers_lost, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, report_crashes, (int fd, uint32_t flags), (fd, flags))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, report_crashes_to, (const char *path, uint32_t flags), (path, flags))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, prepare_thread, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, describe, (const uint64_t *frame, struct uu_frame_info *info), (frame, info))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, symbolize, (const uint64_t *frames, size_t words, const struct uu_symbol **symbols),
                     (frames, words, symbols))
UU_OPTIONAL_ACTION(symbols_free, (const struct uu_symbol *symbols), (symbols))
UU_OPTIONAL_FUNCTION(uint32_t, 0, stack_id, (const uint64_t *frames, size_t words), (frames, words))
UU_OPTIONAL_FUNCTION(size_t, 0, stack_frames, (uint32_t id, uint64_t *frames, size_t capacity), (id, frames, capacity))
UU_OPTIONAL_FUNCTION(uint64_t, 0, stack_ids_lost, (void), ())
UU_OPTIONAL_FUNCTION(uint64_t, 0, names_lost, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, handle_faults, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, register_window, (const struct uu_window *window), (window))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unlink_window, (const void *text, uint64_t *ticket), (text, ticket))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, replace_windows,
                     (const void *const *old_texts, size_t old_count, const struct uu_window *windows, size_t new_count,
                      uint64_t *ticket),
                     (old_texts, old_count, windows, new_count, ticket))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, seal_window, (const void *text), (text))
UU_OPTIONAL_FUNCTION(uint64_t, 0, ticket, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, synchronize, (uint64_t ticket, uint64_t timeout_ns), (ticket, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unregister_window, (const void *text), (text))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, setup, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, setup_with, (uint32_t flags), (flags))
UU_OPTIONAL_FUNCTION(uint32_t, 0, intern, (const char *function, const char *file, uint32_t first_line),
                     (function, file, first_line))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, publish_frames, (struct uu_frame_record *const *head), (head))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, mark_interpreter, (const void *text, size_t len), (text, len))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unmark_interpreter, (const void *text), (text))
UU_OPTIONAL_FUNCTION(int, -ENOENT, plugin_call, (const char *plugin, uint32_t what, void *argument, size_t size),
                     (plugin, what, argument, size))

#ifdef __cplusplus
}
#endif
#endif
