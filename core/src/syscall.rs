//! Raw system calls: they do not change errno, and no interposer sees them. Async-signal-safe.

#[cfg_attr(target_arch = "x86_64", path = "syscall/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "syscall/aarch64.rs")]
mod cpu;

pub use cpu::{call, nr, thread_pointer};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("only Linux on x86-64 and AArch64 is supported so far");

/// CLOCK_MONOTONIC in ns ([clock_gettime(2)](https://man7.org/linux/man-pages/man2/clock_gettime.2.html)); 0 if the
/// kernel refuses.
pub fn monotonic_ns() -> u64 {
    clock_ns(1)
}

/// CPU time of the calling thread in ns (CLOCK_THREAD_CPUTIME_ID); 0 if the kernel refuses.
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

/// Thread id of the caller ([gettid(2)](https://man7.org/linux/man-pages/man2/gettid.2.html)).
pub fn gettid() -> u32 {
    // SAFETY: takes nothing, always succeeds.
    unsafe { call(nr::GETTID, [0; 6]) as u32 }
}

/// Process id of the caller ([getpid(2)](https://man7.org/linux/man-pages/man2/getpid.2.html)).
pub fn getpid() -> u32 {
    // SAFETY: takes nothing, always succeeds.
    unsafe { call(nr::GETPID, [0; 6]) as u32 }
}

/// The calling thread's alternate signal stack
/// ([sigaltstack(2)](https://man7.org/linux/man-pages/man2/sigaltstack.2.html)): its start, `SS_*` flags, and size in
/// bytes; start and size are 0 if there is none. `None`: the kernel refuses.
pub fn alternate_stack() -> Option<[u64; 3]> {
    let mut stack = [0u64; 3];
    // SAFETY: it writes one stack_t (three 64-bit words), and changes nothing.
    let r = unsafe { call(nr::SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (r == 0).then_some(stack)
}
