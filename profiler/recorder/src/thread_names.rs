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
    /// Times from which on a look may begin (CLOCK_MONOTONIC, ns).
    soon: u64,
    late: u64,
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
        now >= if waits { self.soon } else { self.late }
    }

    /// Ids of threads and their names. `claims`: of all plugins.
    pub fn look(&mut self, pid: u32, claims: &[Claim]) -> Vec<(u32, String)> {
        let begun = machine::monotonic();
        let (memory, mut names) = (Live(gdb::Live(pid)), Vec::new());
        for Claim { key, plugin, facts } in claims {
            if let (Some(bias), Some(half)) = (self.objects.get(key), half(plugin)) {
                names.extend(half.thread_names(facts, *bias, &memory, self.known.entry(*key).or_default()));
            }
        }
        let ended = machine::monotonic();
        let rest = ended.saturating_sub(begun).saturating_mul(PART_OF_TIME);
        (self.soon, self.late) = (ended.saturating_add(rest.max(SOON)), ended.saturating_add(rest.max(LATE)));
        names
    }
}

/// The half of a plugin of uu's own, by its name.
fn half(plugin: &[u8; 16]) -> Option<&'static dyn Half> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| HALVES.iter().map(|half| half.language().plugin).collect());
    let wanted = uunwind_core::plugin::trimmed(plugin);
    names.iter().zip(HALVES).find(|(name, _)| name.as_bytes() == wanted).map(|(_, half)| *half)
}
