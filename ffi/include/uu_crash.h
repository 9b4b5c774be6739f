/* uu_crash.h - for programs that report their own crashes.
 *
 * A part of uu.h, which includes it and says what holds for all parts.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_CRASH_H
#define UU_CRASH_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* UU_CRASH_H */
