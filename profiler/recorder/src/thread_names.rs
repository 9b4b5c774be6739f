//! What the languages of a process call its threads, read from its memory while it runs
//! ([`uunwind_language::Half::thread_names`]). It happens here and not in the plugins' processes, since a process
//! may read only the memory of those that it started.

use crate::facts::Claim;
use crate::jit::gdb;
use crate::machine;
use std::collections::HashMap;
use std::sync::OnceLock;
use uunwind_built_in::HALVES;
use uunwind_language::{Half, Memory};

/// Least time between two looks while threads wait for their names, and while they have them and may be renamed, ns.
const SOON: u64 = 20_000_000;
const LATE: u64 = 500_000_000;
/// The time between two looks is at least this multiple of the time that a look takes.
const PART_OF_TIME: u64 = 100;
/// Number of looks after which a thread is taken for one that its language does not know.
pub const LOOKS: u8 = 50;

/// The looks at a process.
#[derive(Default)]
pub struct ThreadNames {
    /// Key of an object -> its load bias.
    objects: HashMap<u64, u64>,
    /// Key of an object -> what its plugin found in the last look.
    known: HashMap<u64, Vec<u64>>,
    rest: Rest,
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
        let (memory, mut names) = (Live(gdb::Live(pid)), Vec::new());
        for Claim { key, plugin, facts } in claims {
            if let (Some(bias), Some(half)) = (self.objects.get(key), half(uunwind_core::plugin::trimmed(plugin))) {
                names.extend(half.thread_names(facts, *bias, &memory, self.known.entry(*key).or_default()));
            }
        }
        self.rest.end();
        names
    }
}

/// The half of a plugin of uu's own, by its name.
pub fn half(plugin: &[u8]) -> Option<&'static dyn Half> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| HALVES.iter().map(|half| half.language().plugin).collect());
    names.iter().zip(HALVES).find(|(name, _)| name.as_bytes() == plugin).map(|(_, half)| *half)
}
