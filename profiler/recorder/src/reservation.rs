//! How much address space a recording reserves, in this process and in each that is recorded.
//!
//! Rings and tables are sparse: what they reserve is more than a recording ever touches. A limit of address space
//! ([getrlimit(2)](https://man7.org/linux/man-pages/man2/getrlimit.2.html), RLIMIT_AS; `ulimit -v`; batch systems set
//! it) counts it all the same, so that a program would get less than it gets alone. Where there is one, a recording
//! reserves a small part of it.

use rustix::process::{getrlimit, Resource};
use uunwind_ring::facts::TABLES_OFFSET;
use uunwind_ring::layout::{session_bytes, BLOCKS, BLOCK_BYTES};
use uunwind_ring::tables::TABLES_BYTES;

/// The parts of a limit that rings and tables take at most.
const RINGS: u64 = 16;
const TABLES: u64 = 32;
/// With fewer blocks, programs with some threads are not sampled whole.
const LEAST_BLOCKS: usize = 64;
/// Less holds not even the tables of a small program in an interpreter.
const LEAST_TABLES: usize = 4 << 20;

/// Sizes of the memories of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Blocks of the session: processes and threads that are recorded at once.
    pub blocks: usize,
    /// Bytes for rule tables.
    pub tables: usize,
    /// The limit, in bytes; `None`: nothing limits it so far that less would be reserved.
    pub limit: Option<u64>,
}

impl Reservation {
    /// Where nothing is limited.
    pub const WHOLE: Reservation = Reservation { blocks: BLOCKS, tables: TABLES_BYTES, limit: None };

    /// For this limit in bytes.
    pub fn within(limit: Option<u64>) -> Reservation {
        let Some(limit) = limit else { return Reservation::WHOLE };
        let part = |of: u64| usize::try_from(limit / of).unwrap_or(usize::MAX);
        let blocks = (part(RINGS) / BLOCK_BYTES).clamp(LEAST_BLOCKS, BLOCKS);
        let tables = (part(TABLES) / 4096 * 4096).clamp(LEAST_TABLES, TABLES_BYTES);
        let is_less = (blocks, tables) != (BLOCKS, TABLES_BYTES);
        Reservation { blocks, tables, limit: is_less.then_some(limit) }
    }

    /// For this process, and those that it starts: they have its limit.
    pub fn here() -> Reservation {
        Reservation::within(getrlimit(Resource::As).current)
    }

    /// For this process and a running one; one whose limits may not be looked at counts as unlimited.
    pub fn with(pid: u32) -> Reservation {
        let own = getrlimit(Resource::As).current;
        let theirs = limit_of(pid);
        Reservation::within([own, theirs].into_iter().flatten().min())
    }

    /// Bytes of both memories.
    pub fn bytes(&self) -> usize {
        session_bytes(self.blocks) + TABLES_OFFSET + self.tables
    }

    /// What people must know, if less is reserved than usual.
    pub fn note(&self) -> Option<String> {
        const MIB: u64 = 1 << 20;
        let (reserved, limit) = (self.bytes() as u64 / MIB, self.limit? / MIB);
        Some(format!(
            "address space is limited to {limit} MiB (ulimit -v): uu reserves {reserved} MiB of it for rings and rules, \
             which is enough for {} processes and threads at once",
            self.blocks
        ))
    }
}

/// The limit of a running process; `None`: there is none, or it may not be looked at.
fn limit_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    // "Max address space         419430400            unlimited            bytes"
    let line = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_ring::facts::tables_in;
    use uunwind_ring::layout::blocks_in;

    /// Sizes that targets accept, which grow with the limit; at most a fifth of a limit that leaves room at all.
    #[test]
    fn a_recording_takes_a_small_part_of_any_limit() {
        let mut before = 0;
        for mib in [0u64, 1, 100, 200, 256, 400, 1000, 4000, 8000, 16 << 10, 1 << 20, u64::MAX >> 20] {
            let limit = mib << 20;
            let made = Reservation::within(Some(limit));
            assert_eq!(blocks_in(session_bytes(made.blocks) as u64), Some(made.blocks), "{mib}");
            assert_eq!(tables_in((TABLES_OFFSET + made.tables) as u64), Some(made.tables), "{mib}");
            assert!(made.bytes() >= before, "{mib}");
            assert!(mib < 256 || made.bytes() as u64 <= limit / 5, "{mib}: {}", made.bytes());
            before = made.bytes();
        }
        assert_eq!(Reservation::within(None), Reservation::WHOLE);
        assert_eq!(Reservation::within(Some(u64::MAX)), Reservation::WHOLE);
        assert_eq!(Reservation::WHOLE.note(), None);
        let note = Reservation::within(Some(400 << 20)).note().expect("a note");
        assert!(note.contains("400 MiB") && note.contains("98 processes"), "{note}");
    }

    #[test]
    fn the_limit_of_a_process_is_that_of_the_kernel() {
        let own = getrlimit(Resource::As).current;
        assert_eq!(limit_of(std::process::id()), own);
        assert_eq!(limit_of(0), None);
        assert_eq!(Reservation::with(std::process::id()), Reservation::within(own));
    }
}
