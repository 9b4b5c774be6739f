/* uu_stack.h - for programs that want stacks: their own, of other threads, asked for now and taken later, in
 * words.
 *
 * A part of uu.h, which includes it and says what holds for all parts.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_STACK_H
#define UU_STACK_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
#define UU_FRAME_BY_CODE (UINT64_C(1) << 63)       /* in no object: its caller was found by a rule made from its
                                                      machine code. Of frames in objects, uu_describe() says it */

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

/* ---- Frames in words, and preparations --------------------------------------------------------------------------- */

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
#define UU_INFO_BY_CODE 16u         /* nothing else describes the code here: the rule that leads to the caller was made
                                       from its instructions */

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

#ifdef __cplusplus
}
#endif

#endif /* UU_STACK_H */
