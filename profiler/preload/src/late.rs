//! Determines why a tick stands for many periods at once.
//!
//! While a timer's signal is pending, the kernel counts further expiries
//! ([`si_overrun`](https://man7.org/linux/man-pages/man2/timer_getoverrun.2.html)). A count of a few kernel ticks is
//! ordinary. A higher one means that the signal was blocked, that the time was spent in one system call, or that the
//! thread's CPU clock advanced by several ticks between two instructions, as it does when a hypervisor takes the CPU
//! away. Only in the second case does the time belong to the interrupted line.

use crate::process::Process;
use crate::slots::Slot;
use core::sync::atomic::Ordering;
use uunwind_ring::record::{SAMPLE_BLOCKED, SAMPLE_LATE};

/// More overruns than this number of kernel ticks explains are a burst.
const BURST_TICKS: u64 = 4;
/// Smallest supported CONFIG_HZ. The slower the kernel's tick, the more overruns one tick causes.
const SLOWEST_TICK_HZ: u64 = 100;
const NS_PER_TICK: u64 = 1_000_000_000 / SLOWEST_TICK_HZ;

/// Whether a tick is late, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// On time, within the kernel's ticks.
    No,
    /// A burst, for which no handler of the program is responsible.
    Burst,
    /// A burst, and a handler of the program that blocks the signal was entered before these expiries became due.
    Held,
}

impl Late {
    /// Classifies a tick of this weight, taken at this time (CLOCK_MONOTONIC, ns).
    pub fn of(process: &Process, slot: &Slot, weight: u32, time: u64) -> Late {
        Late::by(u64::from(process.setting.rate.max(1)), weight, slot.held.swap(0, Ordering::Relaxed), time)
    }

    /// `held`: the time at which such a handler was last entered since the previous tick; 0: none was.
    fn by(rate: u64, weight: u32, held: u64, time: u64) -> Late {
        // The first expiry is noticed at the kernel's next tick, so that it can be due up to one tick before the
        // handler was entered.
        let due = (u64::from(weight).saturating_sub(1) * 1_000_000_000 / rate).saturating_sub(NS_PER_TICK);
        if u64::from(weight) <= BURST_TICKS * rate.div_ceil(SLOWEST_TICK_HZ) + 1 {
            Late::No
        } else if held != 0 && time.saturating_sub(held) >= due {
            Late::Held
        } else {
            Late::Burst
        }
    }

    /// Whether far more expiries became due than the kernel's ticks explain.
    pub fn is_burst(self) -> bool {
        self != Late::No
    }

    /// The sample's flag (`SAMPLE_BLOCKED`, `SAMPLE_LATE` or 0). `code`: the 8 bytes before the interrupted pc, 0 when
    /// they cannot be read.
    pub fn flag(self, code: u64) -> u8 {
        match (self, code.to_le_bytes()) {
            (Late::No, _) | (Late::Burst, [0, 0, 0, 0, 0, 0, 0, 0]) => 0,
            (Late::Held, _) => SAMPLE_BLOCKED,
            // mov $14, %eax; syscall: the rt_sigprocmask(2) that let the signal through.
            (Late::Burst, [_, 0xb8, 14, 0, 0, 0, 0x0f, 0x05]) => SAMPLE_BLOCKED,
            // Another system call: the time was spent there.
            (Late::Burst, [.., 0x0f, 0x05]) => 0,
            (Late::Burst, _) => SAMPLE_LATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_few_ticks_are_ordinary() {
        for (rate, weight) in [(99, 5), (999, 41), (1000, 41)] {
            assert_eq!(Late::by(rate, weight, 0, MS), Late::No);
            assert_eq!(Late::by(rate, weight + 1, 0, MS), Late::Burst);
        }
    }

    #[test]
    fn a_handler_held_the_signal_back_if_it_began_at_most_one_tick_after_the_first_expiry() {
        // 100 periods of a millisecond, 99 of them overruns.
        assert_eq!(Late::by(1000, 100, 1000 * MS, 1099 * MS), Late::Held);
        assert_eq!(Late::by(1000, 100, 1003 * MS, 1099 * MS), Late::Held);
        assert_eq!(Late::by(1000, 100, 1011 * MS, 1099 * MS), Late::Burst);
        assert_eq!(Late::by(1000, 10, 1000 * MS, 1099 * MS), Late::No);
    }

    #[test]
    fn only_a_mask_call_or_a_handler_counts_as_blocked() {
        let code = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let work = code([0x48, 0x01, 0xd8, 0x48, 0xff, 0xc9, 0x75, 0xf8]);
        let mask_call = code([0xd6, 0xb8, 14, 0, 0, 0, 0x0f, 0x05]);
        let write_call = code([0xd6, 0xb8, 1, 0, 0, 0, 0x0f, 0x05]);
        assert_eq!(Late::Burst.flag(work), SAMPLE_LATE);
        assert_eq!(Late::Burst.flag(mask_call), SAMPLE_BLOCKED);
        assert_eq!(Late::Burst.flag(write_call), 0);
        assert_eq!(Late::Burst.flag(0), 0);
        assert_eq!(Late::Held.flag(work), SAMPLE_BLOCKED);
        assert_eq!(Late::Held.flag(write_call), SAMPLE_BLOCKED);
        assert_eq!(Late::No.flag(work), 0);
    }
}
