//! Facts of this machine and of the clock.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Host name, and kernel release with machine.
pub fn names() -> (String, String) {
    let mut uts = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: uname fills the structure; zeroed, it is valid in any case.
    let uts = unsafe {
        libc::uname(uts.as_mut_ptr());
        uts.assume_init()
    };
    // SAFETY: the fields are NUL-terminated, by uname or because they were zero before.
    let text = |field: &[libc::c_char]| unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned();
    (text(&uts.nodename), format!("{} {}", text(&uts.release), text(&uts.machine)))
}

/// The kernel's timer tick in Hz, which CPU timers cannot beat; 0 when unknown. The coarse clock moves once a tick.
pub fn kernel_hz() -> u32 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_getres writes to the structure given.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    match resolution.tv_nsec {
        ns if result == 0 && resolution.tv_sec == 0 && ns > 0 => {
            (1_000_000_000 + ns as u64 / 2).div_euclid(ns as u64) as u32
        }
        _ => 0,
    }
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Wall-clock time, ns since 1970.
pub fn wall() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// CPU time of this process, ns.
pub fn own_cpu() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes to the structure given.
    unsafe { libc::clock_gettime(id, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// CPU time of a live process and the children it waited for, ns, in units of the kernel's clock tick; 0 when unknown.
pub fn cpu_of(pid: u32) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The name, in parentheses, may hold anything; what follows the last one are numbers. utime is field 14 of proc(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.filter_map(|f| f.parse::<u64>().ok()).sum();
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks.saturating_mul(1_000_000_000) / u64::try_from(per_second).ok().filter(|n| *n > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tick_is_one_that_kernels_have() {
        assert!([0, 100, 250, 300, 1000].contains(&super::kernel_hz()), "{}", super::kernel_hz());
    }

    #[test]
    fn own_cpu_time_is_seen_in_proc() {
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 60 {}
        assert!(super::cpu_of(std::process::id()) > 0);
    }
}
