//! Signals as the kernel and glibc hand them over, on x86-64 and AArch64.

use core::ffi::{c_int, c_void};
use uunwind_core::syscall::{self, nr};
use uunwind_live::state::SLOTS;

/// SIG_DFL.
pub const DEFAULT: usize = 0;
/// SIG_IGN.
pub const IGNORE: usize = 1;
/// SA_SIGINFO: the handler takes three arguments.
pub const SA_SIGINFO: c_int = 4;
/// SA_ONSTACK: on the alternate stack, if the thread has one.
pub const SA_ONSTACK: c_int = 0x0800_0000;
/// SA_RESTART: interrupted system calls continue, as far as signal(7) says.
pub const SA_RESTART: c_int = 0x1000_0000;
/// SA_NODEFER: the signal is not blocked while its handler runs.
pub const SA_NODEFER: c_int = 0x4000_0000;
/// SA_RESETHAND: the disposition becomes the default one when the handler is called.
pub const SA_RESETHAND: c_int = 0x8000_0000_u32 as c_int;

/// Illegal instruction.
pub const SIGILL: c_int = 4;
/// A breakpoint without a debugger.
pub const SIGTRAP: c_int = 5;
/// abort(3).
pub const SIGABRT: c_int = 6;
/// Memory that its file does not have.
pub const SIGBUS: c_int = 7;
/// An arithmetic error.
pub const SIGFPE: c_int = 8;
/// Memory that may not be accessed.
pub const SIGSEGV: c_int = 11;
/// A system call that seccomp refuses.
pub const SIGSYS: c_int = 31;
/// All of these.
pub const FAULTS: u64 =
    bit(SIGILL) | bit(SIGTRAP) | bit(SIGABRT) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV) | bit(SIGSYS);

/// The number of the last signal.
pub const LAST: usize = 64;

/// A handler with SA_SIGINFO.
pub type Handler = unsafe extern "C" fn(c_int, *mut SigInfo, *mut c_void);

/// `struct sigaction` of glibc.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// Address of the handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: usize,
    /// Signals that are blocked while it runs, in the first word.
    pub mask: [u64; 16],
    /// `SA_*`.
    pub flags: c_int,
    /// glibc's own.
    pub restorer: usize,
}

impl Action {
    /// The default action.
    pub const DEFAULT: Action = Action { handler: DEFAULT, mask: [0; 16], flags: 0, restorer: 0 };

    /// A handler with these signals blocked.
    pub fn new(handler: Handler, mask: u64, flags: c_int) -> Action {
        let mut action = Action { handler: handler as usize, flags: flags | SA_SIGINFO, ..Action::DEFAULT };
        action.mask[0] = mask;
        action
    }

    /// What the kernel blocks while this handler of `signal` runs, where it interrupted a thread with the mask
    /// `interrupted` ([sigaction(2)](https://man7.org/linux/man-pages/man2/sigaction.2.html)).
    pub fn blocks(&self, signal: c_int, interrupted: u64) -> u64 {
        let [mask, ..] = self.mask;
        interrupted | mask | if self.flags & SA_NODEFER == 0 { bit(signal) } else { 0 }
    }

    /// Calls the handler that this is.
    ///
    /// # Safety
    /// It must be a handler of the program's, and the arguments the kernel's.
    pub unsafe fn call(&self, signal: c_int, info: *mut SigInfo, ucontext: *mut c_void) {
        // SAFETY: the caller says so; without SA_SIGINFO it ignores two arguments.
        unsafe { core::mem::transmute::<usize, Handler>(self.handler)(signal, info, ucontext) };
    }
}

/// `siginfo_t`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct SigInfo {
    /// Number of the signal.
    pub signo: c_int,
    /// An errno, seldom set.
    pub errno: c_int,
    /// Why it was sent: `SI_*`, or a number of the signal's own.
    pub code: c_int,
    pad: c_int,
    /// Address of a fault; or process id of the sender in the lower half, its user id in the upper one.
    pub first: u64,
    /// The value that came with it (`si_value`).
    pub value: u64,
    rest: [u64; 11],
    /// Used by the kernel for none of the signals here.
    last: u64,
}

const _: () = assert!(size_of::<SigInfo>() == 128);

impl SigInfo {
    /// Above the bits of [`SigInfo::marks`].
    const MARKED: u64 = 0x0075_7563_7261_7368;

    /// Marks that a handler left, for those that are called with the same siginfo inside it; 0: none.
    pub fn marks(&self) -> u8 {
        if self.last >> 8 == Self::MARKED {
            self.last as u8
        } else {
            0
        }
    }

    /// Leaves these marks.
    pub fn mark(&mut self, marks: u8) {
        self.last = if marks == 0 { 0 } else { Self::MARKED << 8 | u64::from(marks) };
    }

    /// A signal that this process sends to itself.
    pub fn own(signal: c_int, code: c_int) -> SigInfo {
        SigInfo {
            signo: signal,
            errno: 0,
            code,
            pad: 0,
            first: u64::from(syscall::getpid()),
            value: 0,
            rest: [0; 11],
            last: 0,
        }
    }
}

extern "C" {
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
}

/// The disposition of a signal, as the program sees it (an interposed sigaction is asked); `None`: no such signal.
/// Async-signal-safe ([signal-safety(7)](https://man7.org/linux/man-pages/man7/signal-safety.7.html)).
pub fn action(signal: c_int) -> Option<Action> {
    let mut old = Action::DEFAULT;
    // SAFETY: a valid structure.
    (unsafe { sigaction(signal, core::ptr::null(), &raw mut old) } == 0).then_some(old)
}

/// Sets it. False if the kernel refuses. Async-signal-safe.
pub fn set_action(signal: c_int, new: &Action) -> bool {
    // SAFETY: a valid structure; its handler is one of ours, or one that the program had installed.
    unsafe { sigaction(signal, new, core::ptr::null_mut()) == 0 }
}

/// A set with this signal.
pub const fn bit(signal: c_int) -> u64 {
    1 << ((signal - 1) as u32 & 63)
}

/// Changes the calling thread's mask. Returns the mask before.
fn change_mask(how: usize, set: u64) -> u64 {
    let mut old = 0u64;
    let arguments = [how, (&raw const set) as usize, (&raw mut old) as usize, 8, 0, 0];
    // SAFETY: two valid sets of 8 bytes.
    unsafe { syscall::call(nr::RT_SIGPROCMASK, arguments) };
    old
}

/// Blocks signals in the calling thread. Returns the mask before.
pub fn block(set: u64) -> u64 {
    change_mask(0, set)
}

/// Unblocks signals in the calling thread. Returns the mask before.
pub fn unblock(set: u64) -> u64 {
    change_mask(1, set)
}

/// Sets the calling thread's mask. Returns the mask before.
pub fn set_mask(set: u64) -> u64 {
    change_mask(2, set)
}

/// Sends a signal with this siginfo to a thread of this process. Returns 0 or a negative errno
/// ([rt_tgsigqueueinfo(2)](https://man7.org/linux/man-pages/man2/rt_sigqueueinfo.2.html): a process may send itself any
/// siginfo).
pub fn send(tid: u32, info: &SigInfo) -> isize {
    let arguments =
        [syscall::getpid() as usize, tid as usize, info.signo as usize, core::ptr::from_ref(info) as usize, 0, 0];
    // SAFETY: a valid siginfo.
    unsafe { syscall::call(nr::RT_TGSIGQUEUEINFO, arguments) }
}

/// Whether the process has a thread with this id that is not reaped. In the child of a vfork, which shares its parent's
/// memory: whether the parent has.
pub fn exists(tid: u32) -> bool {
    is_in(SLOTS.pid(), tid)
}

/// Whether a task that shares this memory has this thread id: also a child of vfork(2), or of clone(2) with CLONE_VM.
/// Such a child that ended may be taken for another process that has its number now.
pub fn shares_memory(tid: u32) -> bool {
    exists(tid) || is_in(tid, tid)
}

fn is_in(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    unsafe { syscall::call(nr::TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) == 0 }
}

/// The signals that are pending for the calling thread or its process.
pub fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: a valid set of 8 bytes.
    unsafe { syscall::call(nr::RT_SIGPENDING, [(&raw mut set) as usize, 8, 0, 0, 0, 0]) };
    set
}

/// Takes pending signals of this set, which must be blocked, until there is none.
pub fn drop_pending(set: u64) {
    let none = [0i64; 2];
    let arguments = [(&raw const set) as usize, 0, none.as_ptr() as usize, 8, 0, 0];
    // Each signal below the real-time ones is pending at most twice.
    for _ in 0..LAST {
        // SAFETY: a valid set, no siginfo, a timespec of zero.
        if unsafe { syscall::call(nr::RT_SIGTIMEDWAIT, arguments) } <= 0 {
            return;
        }
    }
}
