//! Threads of the program that uu traces without having asked for it.
//!
//! [PTRACE_TRACEME](https://man7.org/linux/man-pages/man2/ptrace.2.html) makes a thread's parent its tracer, whether
//! the parent expects that or not. Such a thread stops at each signal until its tracer lets it go on. Without uu few
//! signals come; recorded, the first tick would stop it for good.

use std::path::PathBuf;

/// Thread id and signal of a thread that has stopped.
struct Stop {
    tid: u32,
    signal: i32,
}

/// Detaches from all threads of the program that stand still because they called PTRACE_TRACEME, and passes on the
/// signals at which they stopped; removes those that have ended. Only for the thread that started the program, which is
/// their tracer: tracees of uu's other threads are not touched.
pub fn release(program: u32) {
    while let Some(stop) = stopped() {
        // SAFETY: no memory is written; the tracee is this thread's.
        let detached = unsafe { libc::ptrace(libc::PTRACE_DETACH, stop.tid, 0usize, passed_on(&stop) as usize) };
        if detached != 0 {
            // It was killed in the meantime.
            return;
        }
    }
    while let Some(tid) = ended(program) {
        // A thread that ended as a tracee keeps its process from ending until it is waited for.
        if wait(libc::P_PID, tid, libc::WEXITED).is_none() {
            return;
        }
    }
}

/// A tracee of this thread that has stopped since the last call. WCONTINUED stands for no kind of event: stops of
/// tracees are reported with any, and stops by job control must not be, since nobody else would see them then.
fn stopped() -> Option<Stop> {
    loop {
        let info = wait(libc::P_ALL, 0, libc::WCONTINUED)?;
        if info.si_code == libc::CLD_TRAPPED {
            // SAFETY: the fields of a report of a child.
            return Some(unsafe { Stop { tid: info.si_pid() as u32, signal: info.si_status() } });
        }
    }
}

/// A thread of the program, other than its main thread, that has ended as a tracee of this thread.
fn ended(program: u32) -> Option<u32> {
    let info = wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT)?;
    // SAFETY: a field of a report of a child.
    let tid = unsafe { info.si_pid() } as u32;
    let is_thread = tid != program && PathBuf::from(format!("/proc/{program}/task/{tid}")).exists();
    is_thread.then_some(tid)
}

/// One event of a child or tracee of this thread, if there is any.
fn wait(kind: libc::idtype_t, id: u32, events: i32) -> Option<libc::siginfo_t> {
    // SAFETY: all-zero is a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = events | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the pointer is to a live local.
    let result = unsafe { libc::waitid(kind, id, &mut info, flags) };
    // SAFETY: the call has written this field, 0 if there is nothing to report.
    (result == 0 && unsafe { info.si_pid() } != 0).then_some(info)
}

/// The signal that a stopped thread gets when it goes on; 0: none.
fn passed_on(stop: &Stop) -> i32 {
    // SAFETY: all-zero is a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, stop.tid, 0usize, &raw mut info) } != 0 {
        // There is no signal: job control has stopped the process, and it stays stopped.
        return 0;
    }
    // SAFETY: a signal of SI_USER has a sender.
    let is_of_exec =
        stop.signal == libc::SIGTRAP && info.si_code == libc::SI_USER && unsafe { info.si_pid() } as u32 == stop.tid;
    // A tracee's exec sends it a SIGTRAP, which would kill it now.
    if is_of_exec {
        0
    } else {
        stop.signal
    }
}
