//! One uu at a time puts a sampler into a process, or takes one out: what another one is still building looks as if it
//! had been left behind, and two that clean up would unmap twice.
//!
//! The lock is one of flock(2) on the process's folder in /proc: it ends with whoever has it, and with the process. A
//! uu that sees the process by another /proc, that of another pid namespace, has another lock: what is unmapped is
//! identified besides ([`super::leave::ControlMemory`]).

use rustix::fs::{flock, open, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Duration;
use uunwind_clock::Instant;

/// Longest wait for another uu that begins or ends there.
pub const LONGEST: Duration = Duration::from_secs(5);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// No other uu puts a sampler into the process, or takes one out, as long as this lives.
pub struct Exclusive(#[allow(dead_code, reason = "closing it unlocks it")] Option<OwnedFd>);

impl Exclusive {
    /// Waits for it until then; `None`: another one has it all the time. Where there are no such locks, there is none.
    pub fn of(pid: u32, deadline: Instant) -> Option<Exclusive> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The process may have ended: whoever goes on finds that out.
        let Ok(folder) = open(format!("/proc/{pid}"), flags, Mode::empty()) else { return Some(Exclusive(None)) };
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Exclusive(Some(folder))),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => uunwind_clock::sleep(PAUSE),
                Err(Errno::WOULDBLOCK | Errno::INTR) => return None,
                Err(_) => return Some(Exclusive(None)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time() {
        let own = std::process::id();
        let first = Exclusive::of(own, Instant::now()).expect("nobody else");
        assert!(first.0.is_some(), "/proc has no locks");
        assert!(Exclusive::of(own, Instant::now() + 3 * PAUSE).is_none());
        drop(first);
        assert!(Exclusive::of(own, Instant::now()).is_some());
    }
}
