//! A point in time, and a pause.

use rustix::thread::{nanosleep, NanosleepRelativeResult};
use rustix::time::{clock_gettime, ClockId, Timespec};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time of CLOCK_MONOTONIC, as [`std::time::Instant`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// Now.
    pub fn now() -> Instant {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
        Instant(Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0)))
    }

    /// Time that has passed since then.
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// Time from an earlier point on; 0 if that is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The last point in time there is, if it would be later.
impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, by: Duration) -> Instant {
        Instant(self.0.saturating_add(by))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

/// The first point in time there is, if it would be earlier.
impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, by: Duration) -> Instant {
        Instant(self.0.saturating_sub(by))
    }
}

/// As [`Instant::saturating_duration_since`].
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Pauses the calling thread for this time
/// ([nanosleep(2)](https://man7.org/linux/man-pages/man2/nanosleep.2.html)).
pub fn sleep(time: Duration) {
    let mut left = timespec(time);
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// A length of time as the kernel takes it; the longest one for what is longer.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_as_long_as_one_sleeps() {
        let (begun, time) = (Instant::now(), Duration::from_millis(20));
        sleep(time);
        let end = Instant::now();
        assert!(end - begun >= time && begun.elapsed() >= end - begun && begun < end);
        assert_eq!((begun - end, begun.saturating_duration_since(end)), (Duration::ZERO, Duration::ZERO));
        let mut later = begun;
        later += time;
        assert_eq!((later - begun, (later - time) - begun), (time, Duration::ZERO));
        assert!(begun + Duration::MAX > end && begun - Duration::MAX < begun, "no overflow");
    }
}
