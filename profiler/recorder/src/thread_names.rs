//! What the languages of a process call its threads, read from its memory while it runs
//! ([`uunwind_language::Half::thread_names`]). It happens here and not in the plugins' processes, since a process
//! may read only the memory of those that it started.

use crate::facts::Claim;
use crate::jit::gdb;
use crate::machine;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;
use uunwind_built_in::HALVES;
use uunwind_clock::Instant;
use uunwind_language::{Half, Memory};

/// Least time between two looks while threads wait for their names, and while they have them and may be renamed, ns.
const SOON: u64 = 20_000_000;
const LATE: u64 = 500_000_000;
/// The time between two looks is at least this multiple of the time that a look takes.
const PART_OF_TIME: u64 = 100;
/// Number of looks after which a thread is taken for one that its language does not know.
pub const LOOKS: u8 = 50;

/// Longest time for one look, meanwhile no ring is drained: what is read can be made to have no end.
const TIME: Duration = Duration::from_millis(100);
/// What is said where not all names were read.
pub const CUT: &str =
    "not all names that the program's languages have for its threads were read: there are too many, or it \
                       took too long. Some threads have the kernel's names";

/// Memory that cannot be read any more once the time is over.
pub struct Timed<M> {
    memory: M,
    until: Instant,
    is_cut: Cell<bool>,
}

impl<M: Memory> Timed<M> {
    /// From now on.
    pub fn new(memory: M, longest: Duration) -> Timed<M> {
        Timed { memory, until: Instant::now() + longest, is_cut: Cell::new(false) }
    }

    /// Whether something was not read, because the time was over or for another limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }
}

impl<M: Memory> Memory for Timed<M> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        if Instant::now() < self.until {
            return self.memory.read(address, into);
        }
        self.left_out();
        false
    }

    fn left_out(&self) {
        self.is_cut.set(true);
    }
}

/// The looks at a process.
#[derive(Default)]
pub struct ThreadNames {
    /// Key of an object -> its load bias.
    objects: HashMap<u64, u64>,
    /// Key of an object -> what its plugin found in the last look.
    known: HashMap<u64, Vec<u64>>,
    rest: Rest,
    /// Whether a look did not read all; and whether that was said.
    is_cut: bool,
    is_said: bool,
}

/// When the next look at a process may begin: a look takes a small part of the time only.
#[derive(Default)]
pub struct Rest {
    /// When the last look began (CLOCK_MONOTONIC, ns).
    begun: u64,
    /// Times from which on a look may begin (CLOCK_MONOTONIC, ns).
    soon: u64,
    late: u64,
}

impl Rest {
    /// Whether it is time for a look. `waits`: a thread has no name yet.
    pub fn is_over(&self, now: u64, waits: bool) -> bool {
        now >= if waits { self.soon } else { self.late }
    }

    /// A look begins.
    pub fn begin(&mut self) {
        self.begun = machine::monotonic();
    }

    /// The look has ended.
    pub fn end(&mut self) {
        let ended = machine::monotonic();
        let rest = ended.saturating_sub(self.begun).saturating_mul(PART_OF_TIME);
        (self.soon, self.late) = (ended.saturating_add(rest.max(SOON)), ended.saturating_add(rest.max(LATE)));
    }
}

struct Live(gdb::Live);

impl Memory for Live {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let read = gdb::Memory::read(&self.0, address, into.len());
        read.is_some_and(|bytes| {
            into.copy_from_slice(&bytes);
            true
        })
    }
}

impl ThreadNames {
    /// Adds an object that the process has loaded.
    pub fn object(&mut self, key: u64, bias: u64) {
        self.objects.insert(key, bias);
    }

    /// Whether it is time for a look. `waits`: a thread has no name yet.
    pub fn is_due(&self, now: u64, waits: bool) -> bool {
        self.rest.is_over(now, waits)
    }

    /// Ids of threads and their names. `claims`: of all plugins.
    pub fn look(&mut self, pid: u32, claims: &[Claim]) -> Vec<(u32, String)> {
        self.rest.begin();
        let (memory, mut names) = (Timed::new(Live(gdb::Live(pid)), TIME), Vec::new());
        for Claim { key, plugin, facts } in claims {
            if let (Some(bias), Some(half)) = (self.objects.get(key), half(uunwind_core::plugin::trimmed(plugin))) {
                names.extend(half.thread_names(facts, *bias, &memory, self.known.entry(*key).or_default()));
            }
        }
        self.rest.end();
        self.is_cut |= memory.is_cut();
        names
    }

    /// What could not be read, for people, once.
    pub fn note(&mut self) -> Option<&'static str> {
        let is_new = self.is_cut && !std::mem::replace(&mut self.is_said, self.is_cut);
        is_new.then_some(CUT)
    }
}

/// The half of a plugin of uu's own, by its name.
pub fn half(plugin: &[u8]) -> Option<&'static dyn Half> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| HALVES.iter().map(|half| half.language().plugin).collect());
    names.iter().zip(HALVES).find(|(name, _)| name.as_bytes() == plugin).map(|(_, half)| *half)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct All;

    impl Memory for All {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            true
        }
    }

    /// Once the time is over, nothing is read any more, and it is said; so is what a reader leaves out.
    #[test]
    fn a_look_ends_when_its_time_is_over() {
        for (longest, is_read) in [(TIME * 10_000, true), (Duration::ZERO, false)] {
            let timed = Timed::new(All, longest);
            assert_eq!((timed.read(8, &mut [0; 8]), timed.is_cut()), (is_read, !is_read));
            timed.left_out();
            assert!(timed.is_cut());
        }
        let mut names = ThreadNames { is_cut: true, ..ThreadNames::default() };
        assert_eq!([names.note(), names.note(), ThreadNames::default().note()], [Some(CUT), None, None]);
    }
}
