//! What languages call the threads of a process that is looked at from outside, read from its memory
//! ([`uunwind_language::Half::thread_names`]) while it runs, or from a core file.

use crate::memory::Memory;
use crate::objects::Objects;
use crate::plugins::Plugins;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uunwind_recorder::thread_names::{half, Rest};

/// Longest time for one look: what is read can be made to have no end.
const TIME: Duration = Duration::from_secs(1);
/// What is said of a look that took longer.
const CUT: &str = "the names that the program's languages have for its threads took too long to read: some threads \
                   have the kernel's names";

/// The looks at a process.
#[derive(Default)]
pub struct LanguageNames {
    /// Start of an object -> what its plugin found in the last look.
    known: HashMap<u64, Vec<u64>>,
    /// When the next look may begin.
    pub rest: Rest,
    /// Whether a look took too long.
    is_cut: bool,
}

/// Memory that cannot be read any more once the time is over.
struct Timed<'m> {
    memory: &'m Memory,
    until: Instant,
    is_over: Cell<bool>,
}

impl uunwind_language::Memory for Timed<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        if Instant::now() >= self.until {
            self.is_over.set(true);
        }
        !self.is_over.get() && self.memory.read_running(address, into)
    }
}

impl LanguageNames {
    /// Ids of threads, as the process has them in its own pid namespace, and their names.
    pub fn look(&mut self, objects: &Objects, plugins: &Plugins, memory: &Memory) -> HashMap<u32, String> {
        let until = Instant::now() + TIME;
        let (memory, mut names) = (Timed { memory, until, is_over: Cell::new(false) }, HashMap::new());
        self.rest.begin();
        for object in &objects.objects {
            let Some(facts) = object.facts() else { continue };
            let plugin = plugins.names.get(usize::from(facts.plugin));
            let Some(half) = plugin.and_then(|name| half(name.as_bytes())) else { continue };
            let bytes: Vec<u8> = facts.words.iter().flat_map(|word| word.to_ne_bytes()).take(facts.len).collect();
            let known = self.known.entry(object.image.start).or_default();
            names.extend(half.thread_names(&bytes, object.bias, &memory, known));
        }
        self.rest.end();
        self.is_cut |= memory.is_over.get();
        names
    }

    /// What could not be read, for people.
    pub fn note(&self) -> Option<String> {
        self.is_cut.then(|| CUT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_language::Memory as _;

    /// Once the time is over, nothing is read any more, and it is said.
    #[test]
    fn a_look_ends_when_its_time_is_over() {
        let (memory, word) = (Memory::of(std::process::id()), 7u64);
        let at = (&raw const word) as u64;
        for (left, is_read) in [(TIME * 1000, true), (Duration::ZERO, false)] {
            let timed = Timed { memory: &memory, until: Instant::now() + left, is_over: Cell::new(false) };
            assert_eq!((timed.read(at, &mut [0; 8]), timed.is_over.get()), (is_read, !is_read));
        }
        assert_eq!(LanguageNames::default().note(), None);
        assert!(LanguageNames { is_cut: true, ..LanguageNames::default() }.note().is_some());
    }
}
