//! AArch64.

/// System call numbers used in signal rooms
/// (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/asm-generic/unistd.h>).
#[allow(missing_docs, reason = "names and numbers are the kernel's")]
pub mod nr {
    pub const FCNTL: usize = 25;
    pub const IOCTL: usize = 29;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const GETDENTS64: usize = 61;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PPOLL: usize = 73;
    pub const READLINKAT: usize = 78;
    pub const FSTAT: usize = 80;
    pub const EXIT_GROUP: usize = 94;
    pub const FUTEX: usize = 98;
    pub const NANOSLEEP: usize = 101;
    pub const TIMER_CREATE: usize = 107;
    pub const TIMER_SETTIME: usize = 110;
    pub const TIMER_DELETE: usize = 111;
    pub const CLOCK_GETTIME: usize = 113;
    pub const CLOCK_GETRES: usize = 114;
    pub const KILL: usize = 129;
    pub const TGKILL: usize = 131;
    pub const SIGALTSTACK: usize = 132;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGPENDING: usize = 136;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const RT_SIGQUEUEINFO: usize = 138;
    pub const PRCTL: usize = 167;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const GETTID: usize = 178;
    pub const GETEUID: usize = 175;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const SENDTO: usize = 206;
    pub const SETSOCKOPT: usize = 208;
    pub const GETSOCKOPT: usize = 209;
    pub const RECVMSG: usize = 212;
    pub const MUNMAP: usize = 215;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MUNLOCK: usize = 229;
    pub const MLOCKALL: usize = 230;
    pub const MUNLOCKALL: usize = 231;
    pub const MADVISE: usize = 233;
    pub const RT_TGSIGQUEUEINFO: usize = 240;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const WAIT4: usize = 260;
    pub const DUP3: usize = 24;
    pub const PIPE2: usize = 59;
    pub const PRLIMIT64: usize = 261;
    pub const MEMFD_CREATE: usize = 279;
    pub const MLOCK2: usize = 284;
    pub const CLOSE_RANGE: usize = 436;
}

/// One system call with up to six arguments; the result is the kernel's (a negative errno on failure).
///
/// # Safety
/// As for the system call.
#[inline]
pub unsafe fn call(nr: usize, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let result: isize;
    // SAFETY: the system call convention of AArch64 Linux: all registers but x0 are kept; the caller vouches for the
    // rest.
    unsafe {
        core::arch::asm!(
            "svc #0",
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f, in("x8") nr,
            options(nostack)
        );
    }
    result
}

/// The thread pointer, TPIDR_EL0. glibc's thread control block ends at it (TLS variant I).
#[inline]
pub fn thread_pointer() -> u64 {
    let tp: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, nomem, pure, preserves_flags)) };
    tp
}
