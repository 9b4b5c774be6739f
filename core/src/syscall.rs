//! Raw system calls: they leave errno alone, and no interposer sees them. Async-signal-safe.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("only x86-64 Linux is supported so far");

/// System call numbers used in signal rooms (asm/unistd_64.h).
#[allow(missing_docs, reason = "names and numbers are the kernel's")]
pub mod nr {
    pub const RT_SIGPROCMASK: usize = 14;
    pub const GETPID: usize = 39;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
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

/// CLOCK_MONOTONIC in ns (clock_gettime(2)); 0 if the kernel refuses.
pub fn monotonic_ns() -> u64 {
    clock_ns(1)
}

/// CPU time of the calling thread in ns (CLOCK_THREAD_CPUTIME_ID).
pub fn thread_cpu_ns() -> u64 {
    clock_ns(3)
}

fn clock_ns(clock: usize) -> u64 {
    let mut time = [0i64; 2];
    // SAFETY: clock_gettime writes one timespec (two 64-bit words).
    let r = unsafe { call(nr::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [seconds, nanoseconds] = time;
    if r == 0 {
        (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
    } else {
        0
    }
}

/// Thread id of the caller (gettid(2)).
pub fn gettid() -> u32 {
    // SAFETY: takes nothing, always succeeds.
    unsafe { call(nr::GETTID, [0; 6]) as u32 }
}

/// Process id of the caller (getpid(2)).
pub fn getpid() -> u32 {
    // SAFETY: takes nothing, always succeeds.
    unsafe { call(nr::GETPID, [0; 6]) as u32 }
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
