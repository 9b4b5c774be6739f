//! CLOCK_MONOTONIC without a system call: libc's clock_gettime, which calls the
//! [vDSO](https://man7.org/linux/man-pages/man7/vdso.7.html) and is
//! [async-signal-safe](https://man7.org/linux/man-pages/man7/signal-safety.7.html). It is looked up when the recording
//! begins, because lazy binding inside a handler would enter the dynamic loader.

use crate::real::of_loaded;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::memory::guarded;
use uunwind_core::syscall;

type ClockGettime = unsafe extern "C" fn(clock: c_int, time: *mut [i64; 2]) -> c_int;

static CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the function up. Not for handlers.
pub fn locate() {
    // SAFETY: the loader's structure, during its iteration.
    let found = of_loaded(|object| unsafe { object.dynamic().symbol(c"clock_gettime") });
    CLOCK_GETTIME.store(found.map_or(0, |symbol| symbol.address) as *mut c_void, Ordering::Release);
}

/// CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    const CLOCK_MONOTONIC: c_int = 1;
    /// The time of the kernel's last tick. The vDSO reads no time-stamp counter for it.
    const CLOCK_MONOTONIC_COARSE: c_int = 6;
    let clock = if guarded::may_read_tsc() { CLOCK_MONOTONIC } else { CLOCK_MONOTONIC_COARSE };
    let function = CLOCK_GETTIME.load(Ordering::Acquire);
    if function.is_null() {
        return syscall::monotonic_ns();
    }
    let mut time = [0i64; 2];
    // SAFETY: libc's function of this type; it writes one timespec (two 64-bit words).
    let failed = unsafe { core::mem::transmute::<*mut c_void, ClockGettime>(function)(clock, &raw mut time) };
    let [seconds, nanoseconds] = time;
    if failed != 0 {
        return 0;
    }
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
}
