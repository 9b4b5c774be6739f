//! The first tick of a thread, which stands for threads that end before they meet one.
//!
//! The kernel looks at CPU timers at its own ticks only. A thread that lives for a tenth of a tick meets one in a tenth
//! of its lives. So that all such threads together have their share of samples, a tick that is met stands for a whole
//! tick of CPU time: where the sampling period is longer than a tick, the timer expires at it with the probability that
//! a tick is of a period; where it is shorter, the sample has the weight of a tick. What the thread has used before its
//! timer was armed, the recorder adds (`ThreadBlock::cpu_before`).

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::syscall::{self, nr};

/// Length of the kernel's tick, in ns; 0: not asked for yet.
static TICK: AtomicU64 = AtomicU64::new(0);

/// When a thread's timer was armed, until its first tick. Only the thread itself uses it.
pub struct FirstTick {
    /// The thread's CPU time then, in ns; 0: the first tick is over.
    armed: AtomicU64,
}

impl FirstTick {
    /// Forgets the slot's previous thread.
    pub fn reset(&self) {
        self.armed.store(0, Ordering::Relaxed);
    }

    /// Called when the timer is armed, at this CPU time of the thread, in ns. Returns the time to its first expiry, in
    /// ns. `random` is any number.
    pub fn arm(&self, cpu: u64, random: u64, period: u64) -> u64 {
        self.armed.store(cpu, Ordering::Relaxed);
        expiry(random, period, tick())
    }

    /// Called at each tick, whose weight would be this: its weight. Makes no system call: a thread under strict seccomp
    /// would be killed for it.
    pub fn weight(&self, weight: u32, period: u64) -> u32 {
        let armed = self.armed.swap(0, Ordering::Relaxed);
        let tick = TICK.load(Ordering::Relaxed);
        // The weight counts the periods since the timer was armed.
        if armed == 0 || u64::from(weight).saturating_mul(period) >= tick {
            return weight;
        }
        of_tick(armed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16, period, tick)
    }
}

/// Time to the first expiry: any place in a period, moved to the beginning of the tick that it lies in.
fn expiry(random: u64, period: u64, tick: u64) -> u64 {
    let place = random % period.max(1);
    (place - place % tick.max(1)).max(1)
}

/// Number of periods in a tick; a part of one is one or none, at random.
fn of_tick(random: u64, period: u64, tick: u64) -> u32 {
    let period = period.max(1);
    let more = random % period < tick % period;
    (tick / period) as u32 + u32::from(more)
}

/// Length of the kernel's tick in ns: the resolution of the clock that ticks with it
/// ([clock_getres(2)](https://man7.org/linux/man-pages/man2/clock_getres.2.html)).
fn tick() -> u64 {
    let known = TICK.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure.
    let failed = unsafe {
        let arguments = [libc::CLOCK_MONOTONIC_COARSE as usize, (&raw mut resolution) as usize, 0, 0, 0, 0];
        syscall::call(nr::CLOCK_GETRES, arguments) != 0
    };
    let tick = if failed { 1 } else { (resolution.tv_nsec as u64).max(1) };
    TICK.store(tick, Ordering::Relaxed);
    tick
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// For threads that live for `life` and meet their ticks at any time, at most one: periods that are sampled, on
    /// average, to those that are due.
    fn share(life: u64, period: u64, tick: u64) -> f64 {
        let (mut sampled, mut threads) = (0u64, 0u64);
        for at in (0..400).map(|n| n * tick / 400) {
            for random in (0..2500).map(|n| n * period / 2500) {
                threads += 1;
                if at < life && expiry(random, period, tick) <= at.max(1) {
                    sampled += if period < tick { u64::from(of_tick(random, period, tick)) } else { 1 };
                }
            }
        }
        sampled as f64 / threads as f64 / (life as f64 / period as f64)
    }

    #[test]
    fn short_threads_have_their_share() {
        for life in [MS / 10, MS, 3 * MS] {
            for period in [MS / 10, MS, 3 * MS, 10 * MS, 1000 * MS] {
                let share = share(life, period, 4 * MS);
                assert!((0.95..1.05).contains(&share), "{share} of {life} ns at {period}");
            }
        }
    }

    #[test]
    fn the_first_expiry_lies_in_the_first_period() {
        for random in (0..100 * MS).step_by(99_991) {
            assert!((1..10 * MS).contains(&expiry(random, 10 * MS, 4 * MS)));
        }
    }
}
