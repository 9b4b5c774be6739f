//! Names and lines for a report that is already written: a program of ours adds them, `uu` where `uu run` has named it.
//!
//! The process that crashed has what a program needs to find them for a moment longer: its files, its mappings, and
//! its memory, where languages keep the names of threads. So the handler makes a process, which gets a copy of the
//! report in JSON lines as its standard input and the report's destination as its standard output, and waits for its
//! end, or for a while; then the program ends as without it. Nothing of this runs before a crash, and nothing stays:
//! the program is the process that was started, with its parent, signals, terminal and exit status.
//!
//! Two forks: the second process belongs to init, so that no wait of the program's meets it; the first one has no exit
//! signal, and is waited for here. They make system calls only.

use crate::system::File;
use crate::threads::status::seccomp;
use crate::threads::Deadline;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uunwind_core::errno::{Errno, ENAMETOOLONG};
use uunwind_core::syscall::{self, nr};
use uunwind_stacks::decimal::decimal;

/// Longest path of the program, with its NUL.
const PATH: usize = 4096;
/// Longest time that the crashed process waits for names, in nanoseconds.
const PATIENCE: u64 = 15_000_000_000;

struct Path(UnsafeCell<[u8; PATH]>);
// SAFETY: written once, by the thread that has set WRITTEN, before IS_SET; then only read.
unsafe impl Sync for Path {}
static PROGRAM: Path = Path(UnsafeCell::new([0; PATH]));
static WRITTEN: AtomicBool = AtomicBool::new(false);
static IS_SET: AtomicBool = AtomicBool::new(false);
/// The process's seccomp filters when the program was named. Those let programs be started: this one was. A filter that
/// came later may end the process for it.
static FILTERS: AtomicU64 = AtomicU64::new(0);

/// From now on, this program adds names to reports, called as `PROGRAM crash-names PID`. Only the first one counts.
/// Errors: `ENAMETOOLONG`. Not for handlers.
pub fn set(program: &[u8]) -> Result<(), Errno> {
    if program.len() >= PATH {
        return Err(ENAMETOOLONG);
    }
    if WRITTEN.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the only writer, and nobody reads before IS_SET.
    let to = unsafe { &mut *PROGRAM.0.get() };
    for (to, from) in to.iter_mut().zip(program) {
        *to = *from;
    }
    FILTERS.store(seccomp(), Ordering::Relaxed);
    IS_SET.store(true, Ordering::Release);
    Ok(())
}

/// An empty file in memory for the copy of a report; `None`: nobody adds names, or may.
pub fn copy() -> Option<File> {
    if !IS_SET.load(Ordering::Acquire) || seccomp() != FILTERS.load(Ordering::Relaxed) {
        return None;
    }
    const MFD_CLOEXEC: usize = 1;
    // SAFETY: a name that ends with a NUL.
    let fd = unsafe { syscall::call(nr::MEMFD_CREATE, [c"uu-crash".as_ptr() as usize, MFD_CLOEXEC, 0, 0, 0, 0]) };
    u32::try_from(fd).ok().map(File::of)
}

/// Has names added to the report of which `copy` is one, at its destination `to`. Returns when that is done, or after
/// a while.
pub fn run(copy: &File, to: i32) {
    const O_CLOEXEC: usize = 0o2000000;
    let mut pipe = [0u32; 2];
    // SAFETY: room for two descriptors.
    if unsafe { syscall::call(nr::PIPE2, [pipe.as_mut_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]) } != 0 {
        return;
    }
    let [over, running] = pipe.map(File::of);
    // Where only ancestors may read a process's memory (Yama), this process lets others: it is about to end.
    const PR_SET_PTRACER: usize = 0x59616d61;
    // SAFETY: takes numbers only.
    unsafe { syscall::call(nr::PRCTL, [PR_SET_PTRACER, usize::MAX, 0, 0, 0, 0]) };
    let pid = syscall::getpid();
    match fork() {
        // This process's own thread goes on in neither of them.
        0 => {
            if fork() == 0 {
                become_namer(copy.fd(), to, running.fd(), pid);
            }
            exit();
        }
        first if first > 0 => {
            drop(running);
            const WALL: usize = 0x4000_0000;
            // SAFETY: no status is wanted. It ends at once.
            unsafe { syscall::call(nr::WAIT4, [first as usize, 0, WALL, 0, 0, 0]) };
            wait_for_end(&over, Deadline::after(PATIENCE));
        }
        _ => {}
    }
}

/// Makes a process that has a copy of the memory, and of this thread alone; it sends no signal when it ends. No handler
/// of fork(3) runs. 0 in the new one, in the other its id, or a negative errno.
fn fork() -> isize {
    // SAFETY: the same stack, in other memory.
    unsafe { syscall::call(nr::CLONE, [0; 6]) }
}

fn exit() -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall::call(nr::EXIT_GROUP, [1, 0, 0, 0, 0, 0]) };
    }
}

/// Becomes the program, with three open files: the report's copy, its destination, and the pipe by whose end the
/// crashed process sees that this one's has come.
fn become_namer(copy: i32, to: i32, running: i32, pid: u32) {
    const F_DUPFD: usize = 0;
    const F_SETFD: usize = 2;
    // Above those that are about to be replaced.
    // SAFETY: takes numbers only; so below.
    let above = |fd: i32| unsafe { syscall::call(nr::FCNTL, [fd as usize, F_DUPFD, 16, 0, 0, 0]) };
    let (copy, to, running) = (above(copy), above(to), above(running));
    for (from, number) in [(copy, 0), (to, 1), (running, 3)] {
        // SAFETY: takes numbers only.
        if from < 0 || unsafe { syscall::call(nr::DUP3, [from as usize, number, 0, 0, 0, 0]) } < 0 {
            return;
        }
    }
    // SAFETY: takes numbers only. On kernels without close_range (before 5.9), the program's files stay open.
    unsafe {
        syscall::call(nr::FCNTL, [3, F_SETFD, 0, 0, 0, 0]);
        syscall::call(nr::CLOSE, [2, 0, 0, 0, 0, 0]);
        syscall::call(nr::CLOSE_RANGE, [4, u32::MAX as usize, 0, 0, 0, 0]);
    }
    crate::signals::set_mask(0);
    let mut digits = [0u8; 24];
    let mut number = [0u8; 20];
    for (to, from) in digits.iter_mut().zip(decimal(pid.into(), &mut number)) {
        *to = *from;
    }
    let program = PROGRAM.0.get() as usize;
    let arguments = [program, c"crash-names".as_ptr() as usize, digits.as_ptr() as usize, 0];
    let environment = [0usize];
    // SAFETY: strings that end with NULs, in lists that end with null. Without the program's environment: it might have
    // us loaded there, too.
    unsafe {
        syscall::call(nr::EXECVE, [program, arguments.as_ptr() as usize, environment.as_ptr() as usize, 0, 0, 0]);
    }
}

/// Waits until nobody has the other end of the pipe any more.
fn wait_for_end(over: &File, deadline: Deadline) {
    const EINTR: isize = -4;
    // Its readiness is the end: nothing is written.
    while over.poll(1, deadline.left()) == EINTR && deadline.left() > 0 {}
}
