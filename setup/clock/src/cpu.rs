//! The CPU time of a process.

use std::time::Duration;
use uunwind_core::syscall;

/// CPU time that a live process has used with all of its threads, from its CPU clock, whose id is made of the process's
/// as [clock_getcpuclockid(3)](https://man7.org/linux/man-pages/man3/clock_getcpuclockid.3.html) does
/// (<https://github.com/torvalds/linux/blob/v6.1/include/linux/posix-timers.h>, `make_process_cpuclock`,
/// `CPUCLOCK_SCHED`). `None`: there is no such process.
pub fn cpu_of(pid: u32) -> Option<Duration> {
    // Of the id, 29 bits have room; the kernel gives 22. 0 would be the calling process.
    if pid == 0 || pid >> 29 != 0 {
        return None;
    }
    let clock = !pid << 3 | 2;
    let mut time = [0i64; 2];
    let arguments = [clock as i32 as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a timespec, which has two words, to this live local.
    let result = unsafe { syscall::call(syscall::nr::CLOCK_GETTIME, arguments) };
    let [seconds, rest] = time;
    (result == 0).then(|| Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(rest).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time() {
        let own = std::process::id();
        let before = cpu_of(own).expect("it lives");
        while cpu_of(own).expect("it lives") < before + Duration::from_millis(20) {}
        for none in [0, (1 << 22) + 1, 1 << 30, u32::MAX] {
            assert_eq!(cpu_of(none), None, "{none}");
        }
    }
}
