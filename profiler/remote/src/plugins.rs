//! The plugins of a walk from outside. Their halves that find facts run in processes of their own, as in a recording.
//! Their signal halves: those of uu's own plugins are called in this process, where they read foreign memory by the
//! walk's own functions ([`CHECKED_READS`]); each of the others runs in a process of its own ([`Foreign`]), since
//! nothing would contain its faults here.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_core::plugin::installed::Installed;
use uunwind_core::plugin::{Plugin, CHECKED_READS, PLUGIN_UNOWNED};
use uunwind_core::span::Span;
use uunwind_core::walk::PLUGIN_INDICES;
use uunwind_language::{Half, Language};
use uunwind_loader::analysers::Outcome;
use uunwind_loader::calls::{Foreign, Starting};
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

/// What the plugins say of a file.
#[derive(Clone, Default)]
pub enum Answer {
    /// None claims it, or the one that does cannot serve it.
    #[default]
    Unclaimed,
    /// One of them claims it.
    Claimed(Facts),
    /// It is not known whether one that failed, or took too long, would claim it: frames may be missing.
    Unknown,
}

/// The plugins that are open.
pub struct Plugins {
    analysers: Analysers,
    /// Those that are called in this process.
    installed: Installed<PLUGIN_INDICES>,
    /// Those that are called in processes of their own, by index. In boxes: views point to them.
    foreign: HashMap<u8, Box<Foreign>>,
    /// Their names, by index; the first is empty.
    pub names: Vec<String>,
    /// Answers so far, by object key.
    known: HashMap<u64, Answer>,
    /// What could not be used, and why.
    troubles: Vec<String>,
}

impl Plugins {
    /// Opens uu's own ones in this process, where they stay, and the others in processes, which end with the calling
    /// thread.
    pub fn open(found: FoundPlugins, halves: &[&dyn Half]) -> Plugins {
        let mut plugins = Plugins {
            analysers: found.analysers,
            installed: Installed::new(),
            foreign: HashMap::new(),
            names: vec![String::new()],
            known: HashMap::new(),
            troubles: found.troubles.iter().map(|(path, why)| format!("plugin {} {why}", path.display())).collect(),
        };
        // All processes are started before the first one is waited for.
        let mut starting = Vec::new();
        for plugin in found.plugins {
            let index = plugins.names.len();
            plugins.names.push(plugin.name.clone());
            if !plugin.built_in {
                starting.push((index, Starting::new(plugins.analysers.launcher(), &plugin), plugin.path));
                continue;
            }
            let opened = uunwind_loader::open(&plugin.path, halves);
            // SAFETY: the object stays loaded.
            let added = opened.map(|opened| unsafe { plugins.installed.add(index, opened.entry, Span::EMPTY) });
            if let Err(why) = added {
                plugins.troubles.push(format!("plugin {} {why}", plugin.path.display()));
            }
        }
        for (index, starting, path) in starting {
            match (starting.finish(), u8::try_from(index)) {
                (Ok(foreign), Ok(index)) => drop(plugins.foreign.insert(index, Box::new(foreign))),
                (Err(why), _) => plugins.troubles.push(format!("plugin {} {why}", path.display())),
                (Ok(_), Err(_)) => {}
            }
        }
        plugins
    }

    /// One that is called elsewhere, and claims the object with this key.
    #[cfg(test)]
    pub fn of_one(foreign: Foreign, key: u64) -> Plugins {
        let mut plugins = Plugins::open(FoundPlugins::default(), &[]);
        plugins.names.push("test".to_owned());
        plugins.foreign.insert(1, Box::new(foreign));
        plugins.known.insert(key, Answer::Claimed(Facts { plugin: 1, words: vec![1], len: 8 }));
        plugins
    }

    /// Whether some are called in processes of their own, which takes longer than calls in this one.
    pub fn any_elsewhere(&self) -> bool {
        self.foreign.values().any(|foreign| foreign.table().is_some())
    }

    /// The plugin with this index, if it may be called.
    pub fn get(&self, index: u8) -> Option<&Plugin> {
        match self.foreign.get(&index) {
            Some(foreign) => foreign.table(),
            None => self.installed.get(index).filter(|plugin| plugin.flags & CHECKED_READS != 0),
        }
    }

    /// What claims of the plugin with this index must have as `user`.
    pub fn user(&self, index: u8) -> *mut c_void {
        self.foreign.get(&index).map_or(std::ptr::null_mut(), |foreign| foreign.user())
    }

    /// The walk of another thread begins, or the same thread's at another time.
    pub fn begin_walk(&self) {
        self.foreign.values().for_each(|foreign| foreign.begin_walk());
    }

    /// The first plugin after `index` that may step code which no object covers.
    pub fn unowned_after(&self, index: u8) -> Option<(u8, &Plugin)> {
        let after = index.saturating_add(1)..PLUGIN_INDICES as u8;
        let mut plugins = after.filter_map(|index| Some((index, self.get(index)?)));
        plugins.find(|(_, plugin)| plugin.flags & PLUGIN_UNOWNED != 0 && plugin.step.is_some())
    }

    /// A call of the plugin failed.
    pub fn failed(&self, index: u8) {
        match self.foreign.get(&index) {
            Some(foreign) => foreign.failed(),
            None => drop(self.installed.failed(index)),
        }
    }

    /// What could not be used, or failed, and why, for people. To be taken once, at the end.
    pub fn take_troubles(&mut self) -> Vec<String> {
        let failed = self.foreign.values().flat_map(|foreign| foreign.notes());
        let mut troubles = std::mem::take(&mut self.troubles);
        troubles.extend(failed);
        troubles
    }

    /// The first plugin that claims a file, and its facts. `file`: where it can be opened; `path`: what the process
    /// calls it.
    pub fn facts(&mut self, key: u64, file: &Path, path: &Path) -> Answer {
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.ask(key, file, path);
        self.known.insert(key, found.clone());
        found
    }

    fn ask(&mut self, key: u64, file: &Path, path: &Path) -> Answer {
        let mut open = self.analysers.names().len();
        self.analysers.ask(key, file, path);
        let (since, mut first, mut failed) = (Instant::now(), None::<(usize, Vec<u8>)>, false);
        while open > 0 && since.elapsed() < PATIENCE {
            for finding in self.analysers.poll().into_iter().filter(|finding| finding.key == key) {
                open = open.saturating_sub(1);
                failed |= finding.outcome.is_unknown();
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
        let Some((index, bytes)) = first else {
            return if failed || open > 0 { Answer::Unknown } else { Answer::Unclaimed };
        };
        let words = bytes.chunks(8).map(|part| {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        });
        match u8::try_from(index + 1) {
            Ok(plugin) => Answer::Claimed(Facts { plugin, words: words.collect(), len: bytes.len() }),
            Err(_) => Answer::Unknown,
        }
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
