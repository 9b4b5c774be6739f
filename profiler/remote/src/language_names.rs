//! What languages call the threads of a process that is looked at from outside, read from its memory
//! ([`uunwind_language::Half::thread_names`]) while it runs, or from a core file.

use crate::memory::Memory;
use crate::objects::{Mapped, Objects};
use crate::plugins::Plugins;
use std::collections::HashMap;
use std::time::Duration;
use uunwind_language::Half;
use uunwind_recorder::thread_names::{half, Rest, Timed, CUT};

/// Longest time for one look: what is read can be made to have no end.
const TIME: Duration = Duration::from_secs(1);

/// The looks at a process.
#[derive(Default)]
pub struct LanguageNames {
    /// Start of an object -> what its plugin found in the last look.
    known: HashMap<u64, Vec<u64>>,
    /// When the next look may begin.
    pub rest: Rest,
    /// Whether a look did not read all.
    is_cut: bool,
}

/// Memory, read at one moment.
pub struct Now<'m>(pub &'m Memory);

impl uunwind_language::Memory for Now<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read_running(address, into)
    }
}

/// The language of an object's runtime, if it is one of uu's own, and the bytes of its facts.
pub fn half_of(object: &Mapped, plugins: &Plugins) -> Option<(&'static dyn Half, Vec<u8>)> {
    let facts = object.facts()?;
    let half = half(plugins.names.get(usize::from(facts.plugin))?.as_bytes())?;
    let bytes = facts.words.iter().flat_map(|word| word.to_ne_bytes()).take(facts.len).collect();
    Some((half, bytes))
}

impl LanguageNames {
    /// Ids of threads, as the process has them in its own pid namespace, and their names.
    pub fn look(&mut self, objects: &Objects, plugins: &Plugins, memory: &Memory) -> HashMap<u32, String> {
        let (memory, mut names) = (Timed::new(Now(memory), TIME), HashMap::new());
        self.rest.begin();
        for object in &objects.objects {
            let Some((half, bytes)) = half_of(object, plugins) else { continue };
            let known = self.known.entry(object.image.start).or_default();
            names.extend(half.thread_names(&bytes, object.bias, &memory, known));
        }
        self.rest.end();
        self.is_cut |= memory.is_cut();
        names
    }

    /// What could not be read, for people.
    pub fn note(&self) -> Option<String> {
        self.is_cut.then(|| CUT.to_owned())
    }
}
