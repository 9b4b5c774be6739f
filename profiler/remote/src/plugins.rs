//! The plugins of a walk from outside. Their halves that find facts run in processes of their own, as in a recording.
//! Those that step frames are called in this process; nothing contains their faults here, so only those are called that
//! read foreign memory by the walk's own functions ([`CHECKED_READS`]).

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use uunwind_core::plugin::installed::Installed;
use uunwind_core::plugin::{Plugin, CHECKED_READS, PLUGIN_UNOWNED};
use uunwind_core::span::Span;
use uunwind_core::walk::PLUGIN_INDICES;
use uunwind_language::{Half, Language};
use uunwind_loader::analysers::Outcome;
use uunwind_loader::{Analysers, FoundPlugins};

/// Longest wait for the analyse halves, for one file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The plugin that claims a file, and what it found there.
#[derive(Clone)]
pub struct Facts {
    /// Index of the plugin.
    pub plugin: u8,
    /// Its facts, in words: plugins expect them aligned.
    pub words: Vec<u64>,
    /// Their length in bytes.
    pub len: usize,
}

/// The plugins that are open.
pub struct Plugins {
    analysers: Analysers,
    installed: Installed<PLUGIN_INDICES>,
    /// Their names, by index; the first is empty.
    pub names: Vec<String>,
    /// Facts that were found, by object key.
    known: HashMap<u64, Option<Facts>>,
    /// What could not be used, and why.
    pub troubles: Vec<String>,
}

impl Plugins {
    /// Opens them in this process, where they stay.
    pub fn open(found: FoundPlugins, halves: &[&dyn Half]) -> Plugins {
        let mut plugins = Plugins {
            analysers: found.analysers,
            installed: Installed::new(),
            names: vec![String::new()],
            known: HashMap::new(),
            troubles: found.troubles.iter().map(|(path, why)| format!("plugin {} {why}", path.display())).collect(),
        };
        for plugin in found.plugins {
            let index = plugins.names.len();
            plugins.names.push(plugin.name.clone());
            if !plugin.built_in {
                let why = "may fault, and nothing contains that here: its frames are left out";
                plugins.troubles.push(format!("plugin {} {why}", plugin.path.display()));
                continue;
            }
            let opened = uunwind_loader::open(&plugin.path, halves);
            // SAFETY: the object stays loaded.
            let added = opened.map(|opened| unsafe { plugins.installed.add(index, opened.entry, Span::EMPTY) });
            if let Err(why) = added {
                plugins.troubles.push(format!("plugin {} {why}", plugin.path.display()));
            }
        }
        plugins
    }

    /// The plugin with this index, if it may be called.
    pub fn get(&self, index: u8) -> Option<&Plugin> {
        self.installed.get(index).filter(|plugin| plugin.flags & CHECKED_READS != 0)
    }

    /// The first plugin after `index` that may step code which no object covers.
    pub fn unowned_after(&self, index: u8) -> Option<(u8, &Plugin)> {
        let after = index.saturating_add(1)..PLUGIN_INDICES as u8;
        let mut plugins = after.filter_map(|index| Some((index, self.get(index)?)));
        plugins.find(|(_, plugin)| plugin.flags & PLUGIN_UNOWNED != 0 && plugin.step.is_some())
    }

    /// A call of the plugin failed.
    pub fn failed(&self, index: u8) {
        self.installed.failed(index);
    }

    /// The first plugin that claims a file, and its facts. `file`: where it can be opened; `path`: what the process
    /// calls it.
    pub fn facts(&mut self, key: u64, file: &Path, path: &Path) -> Option<Facts> {
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.ask(key, file, path);
        self.known.insert(key, found.clone());
        found
    }

    fn ask(&mut self, key: u64, file: &Path, path: &Path) -> Option<Facts> {
        let mut open = self.analysers.names().len();
        self.analysers.ask(key, file, path);
        let (since, mut first) = (Instant::now(), None::<(usize, Vec<u8>)>);
        while open > 0 && since.elapsed() < PATIENCE {
            for finding in self.analysers.poll().into_iter().filter(|finding| finding.key == key) {
                open = open.saturating_sub(1);
                match finding.outcome {
                    Outcome::Facts(bytes) if first.as_ref().is_none_or(|(index, _)| finding.plugin < *index) => {
                        first = Some((finding.plugin, bytes));
                    }
                    Outcome::Refused(why) | Outcome::Failed(why) => {
                        self.troubles.push(format!("{}: {why}", path.display()));
                    }
                    Outcome::Facts(_) | Outcome::NotMine | Outcome::Off => {}
                }
            }
            if open > 0 {
                self.analysers.wait();
            }
        }
        let (index, bytes) = first?;
        let words = bytes.chunks(8).map(|part| {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        });
        Some(Facts { plugin: u8::try_from(index + 1).ok()?, words: words.collect(), len: bytes.len() })
    }

    /// What reports must know of their languages.
    pub fn languages(&self) -> Vec<Language> {
        self.analysers.languages()
    }

    /// Their halves that run outside of handlers.
    pub fn analysers(&mut self) -> &mut Analysers {
        &mut self.analysers
    }
}
