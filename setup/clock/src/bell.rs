//! A wait that another thread ends.

use crate::instant::timespec;
use crate::Instant;
use rustix::thread::futex::{self, Flags};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What one thread rings when others should look again. Who waits first takes a [`Bell::mark`], then looks at what it
/// waits for, then waits: so that no ring is missed
/// ([futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html)).
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// Ends all waits for rings after a mark that was taken before.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // It fails for no address of ours.
        let _ = futex::wake(&self.0, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Number of rings so far, modulo 2^32.
    pub fn mark(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for a ring after this mark, but not longer than this. False: there was none.
    pub fn wait(&self, mark: u32, longest: Duration) -> bool {
        let begun = Instant::now();
        while self.mark() == mark {
            let left = longest.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            // A ring, a signal, or the time is over: all is asked again.
            let _ = futex::wait(&self.0, Flags::PRIVATE, mark, Some(&timespec(left)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_by_a_ring_or_by_its_time() {
        let bell = Bell::default();
        let (mark, begun) = (bell.mark(), Instant::now());
        assert!(!bell.wait(mark, Duration::from_millis(20)) && begun.elapsed() >= Duration::from_millis(20));
        assert!(!bell.wait(mark, Duration::ZERO));
        bell.ring();
        assert!(bell.wait(mark, Duration::from_secs(3600)), "it was rung before");
        let mark = bell.mark();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert!(bell.wait(mark, Duration::from_secs(3600)), "it is rung meanwhile");
        });
    }
}
