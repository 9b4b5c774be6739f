//! x86-64.

/// System call numbers used in signal rooms
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/entry/syscalls/syscall_64.tbl>).
#[allow(missing_docs, reason = "names and numbers are the kernel's")]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const MADVISE: usize = 28;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDTO: usize = 44;
    pub const RECVMSG: usize = 47;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const GETEUID: usize = 107;
    pub const GETPPID: usize = 110;
    pub const RT_SIGPENDING: usize = 127;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const RT_SIGQUEUEINFO: usize = 129;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const SIGALTSTACK: usize = 131;
    pub const MUNLOCK: usize = 150;
    pub const MLOCKALL: usize = 151;
    pub const MUNLOCKALL: usize = 152;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const GETDENTS64: usize = 217;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const CLOCK_GETRES: usize = 229;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const READLINKAT: usize = 267;
    pub const PPOLL: usize = 271;
    pub const DUP3: usize = 292;
    pub const PIPE2: usize = 293;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PRLIMIT64: usize = 302;
    pub const MEMFD_CREATE: usize = 319;
    pub const MLOCK2: usize = 325;
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
    // SAFETY: the system call convention of x86-64 Linux: rcx and r11 are clobbered; the caller vouches for the rest.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// The thread pointer: the address of the thread control block, whose first word holds its own address (System V ABI,
/// TLS variant II).
#[inline]
pub fn thread_pointer() -> u64 {
    let tp: u64;
    // SAFETY: every thread of a glibc process has a TCB; %fs:0 is its self pointer.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) tp, options(nostack, pure, readonly, preserves_flags)) };
    tp
}
