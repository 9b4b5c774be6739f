//! Limits what walks of deep stacks cost a thread: a tenth of its CPU time.
//!
//! A walk of 100,000 frames takes milliseconds, more than a sampling period. After such a walk, ticks of the thread's
//! timer take no sample until the thread has used ten times the walk's CPU time. The next sample then also carries the
//! weight of the skipped ticks, so the profile stays complete, at a lower rate. Costs are counted in frames, not
//! measured: on a machine that is busy with other work, a clock would count that work, too. Walks of at most
//! [`MAX_FRAMES`] frames are not charged, unless several ticks come while they last: the time between these is the
//! walk's. On a slow machine, each walk would be followed by the next one, and the program would not go on. One tick
//! alone says nothing: it stands for the time since the one before, nearly all of which was the program's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_core::walk::MAX_FRAMES;

/// A thread's CPU time is at least this many times what its walks of deep stacks take.
const SHARE: u64 = 10;
/// CPU time of one frame, in ns. 12 were measured for Python frames whose memory is in no CPU cache.
const FRAME_NS: u64 = 20;

/// A thread's account. Only the handler of that thread uses it.
pub struct Budget {
    /// CPU time that the thread must still use before its next sample, in ns.
    owed: AtomicU64,
    /// Ticks skipped since the last sample.
    carried: AtomicU32,
    /// 0: no tick has come during the walk. Otherwise one more than the ticks for which it has lasted since the first.
    meanwhile: AtomicU32,
}

/// Ticks after which a walk is abandoned (`uunwind-ffi`, `on_tick`).
const ABANDONED: u64 = 8;

impl Budget {
    /// Clears the account, for a thread that begins.
    pub fn reset(&self) {
        self.owed.store(0, Ordering::Relaxed);
        self.carried.store(0, Ordering::Relaxed);
        self.meanwhile.store(0, Ordering::Relaxed);
    }

    /// Called when ticks come during a walk.
    pub fn on_ticks_of_walk(&self, ticks: u32) {
        let since_first = match self.meanwhile.load(Ordering::Relaxed) {
            0 => 1,
            before => before.saturating_add(ticks),
        };
        self.meanwhile.store(since_first, Ordering::Relaxed);
    }

    /// Ends a walk that is not charged.
    pub fn free(&self) {
        self.meanwhile.store(0, Ordering::Relaxed);
    }

    /// Called when `ticks` expiries of the timer, one every `period` ns, have arrived. `None`: they are skipped.
    /// `Some(n)`: a sample may be taken, and it stands for `n` skipped ticks besides these.
    pub fn on_ticks(&self, ticks: u32, period: u64) -> Option<u32> {
        let owed = self.owed.load(Ordering::Relaxed);
        let used = u64::from(ticks).saturating_mul(period);
        self.owed.store(owed.saturating_sub(used), Ordering::Relaxed);
        if owed <= used {
            return Some(self.carried.swap(0, Ordering::Relaxed));
        }
        self.carry(ticks);
        None
    }

    /// Ticks that the next sample stands for besides its own.
    pub fn carried(&self) -> u32 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Adds these ticks to the weight of the next sample.
    pub fn carry(&self, ticks: u32) {
        self.carried.store(self.carried.load(Ordering::Relaxed).saturating_add(ticks), Ordering::Relaxed);
    }

    /// Charges a walk of this many frames.
    pub fn walked(&self, frames: u32, period: u64) {
        let of_frames = u64::from(frames.saturating_sub(MAX_FRAMES)).saturating_mul(FRAME_NS);
        let since_first = self.meanwhile.swap(0, Ordering::Relaxed).saturating_sub(1);
        let of_ticks = u64::from(since_first).saturating_mul(period);
        self.charge(of_frames.max(of_ticks));
    }

    /// Charges a walk that the watchdog ended.
    pub fn abandoned(&self, period: u64) {
        self.free();
        self.charge(ABANDONED.saturating_mul(period));
    }

    fn charge(&self, cost: u64) {
        self.owed.store(cost.saturating_mul(SHARE), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1_000_000;

    fn account() -> Budget {
        Budget { owed: AtomicU64::new(0), carried: AtomicU32::new(0), meanwhile: AtomicU32::new(0) }
    }

    #[test]
    fn ordinary_walks_cost_nothing() {
        let budget = account();
        for _ in 0..1000 {
            assert_eq!(budget.on_ticks(1, PERIOD), Some(0));
            budget.walked(MAX_FRAMES, PERIOD);
        }
    }

    /// For all weights: every tick is counted in some sample, and no sample is taken for ten times a walk's cost after
    /// it.
    #[test]
    fn deep_walks_take_at_most_their_share_and_no_tick_is_lost() {
        for (frames, weight) in [(5_000, 1), (100_000, 1), (100_000, 4), (1_048_576, 3)] {
            let budget = account();
            let paid = (u64::from(frames - MAX_FRAMES) * FRAME_NS * SHARE).div_ceil(u64::from(weight) * PERIOD);
            let (mut since, mut ticks, mut sampled, mut walks) = (paid, 0, 0, 0);
            while walks < 50 {
                (since, ticks) = (since + 1, ticks + u64::from(weight));
                let Some(carried) = budget.on_ticks(weight, PERIOD) else { continue };
                sampled += u64::from(weight + carried);
                assert_eq!(sampled, ticks, "{frames} frames");
                assert!(walks == 0 || since == paid, "{since} ticks after a walk of {frames} frames, not {paid}");
                budget.walked(frames, PERIOD);
                (since, walks) = (0, walks + 1);
            }
        }
    }

    /// However slow the machine is, the thread has nine tenths of its CPU time for itself; no tick is charged twice.
    #[test]
    fn a_walk_that_takes_longer_than_a_period_is_paid_for() {
        for during in [1, 3, 40] {
            let budget = account();
            for _ in 0..3 {
                (0..=during).for_each(|_| budget.on_ticks_of_walk(1));
                budget.walked(20, PERIOD);
                assert_eq!((1..1000).find(|_| budget.on_ticks(1, PERIOD).is_some()), Some(10 * during));
            }
            budget.walked(20, PERIOD);
            assert_eq!(budget.on_ticks(1, PERIOD), Some(0));
        }
    }

    /// The kernel's ticks are longer than most periods, and what one stands for was the program's time.
    #[test]
    fn one_tick_during_a_walk_is_not_charged() {
        let budget = account();
        for _ in 0..100 {
            budget.on_ticks_of_walk(40);
            budget.walked(20, PERIOD);
            assert!(budget.on_ticks(1, PERIOD).is_some());
            budget.on_ticks_of_walk(40);
            budget.free();
        }
    }

    #[test]
    fn a_walk_that_was_abandoned_is_paid_for() {
        let budget = account();
        budget.abandoned(PERIOD);
        assert_eq!((1..200).find(|_| budget.on_ticks(1, PERIOD).is_some()), Some(80));
    }
}
