//! Finds unwinder plugins, shared objects that export `uu_plugin`, and runs their analyse halves (set-up room).
//!
//! Plugins come from the folder next to uu's own objects, then from the list in [`ENV_PLUGINS`]. One that cannot be
//! used is left out, and reported with the reason. Opening an object runs its initialisers, and an analyse half may do
//! anything, so each plugin is opened in a process of its own:
//!
//! * [`serve`]: that process; [`server`]: uu's end of it; [`wire`]: the messages between them;
//! * [`analysers`]: all analyse halves together, with queues, so that the recorder never waits for one; `answers`: what
//!   those of uu have answered, on disk;
//! * [`calls`]: the signal half of a plugin that is not uu's own, where uu walks from outside.

pub mod analysers;
mod answers;
pub mod calls;
mod half;
mod open;
mod serve;
pub mod server;
pub mod wire;

pub use analysers::Analysers;
pub use open::{open, Opened, Plugin, Trouble};
pub use serve::serve;
pub use server::{Launcher, Server};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Environment variable with plugin files and folders of them, separated by colons.
pub const ENV_PLUGINS: &str = "UU_PLUGINS";

/// Limit of plugins of a process, uu's own included: their indices begin at 1, and the last index is the embedders'.
pub const MOST: usize = uunwind_core::walk::EMBEDDER as usize - 1;

/// The plugins that were found, in order, and those that cannot be used.
#[derive(Debug, Default)]
pub struct FoundPlugins {
    /// Usable plugins; a plugin's index is its position, from 1.
    pub plugins: Vec<Plugin>,
    /// Their halves that run outside of handlers.
    pub analysers: Analysers,
    /// What was left out, and the reason.
    pub troubles: Vec<(PathBuf, Trouble)>,
}

/// Finds plugins in `folder` (which may be missing) and in `listed`, the value of [`ENV_PLUGINS`]. `launcher` starts a
/// plugin's process. Where not all have room, the last ones are left out.
pub fn find(folder: &Path, listed: Option<&OsStr>, launcher: Launcher) -> FoundPlugins {
    let mut found = FoundPlugins { analysers: Analysers::new(launcher.clone()), ..FoundPlugins::default() };
    let mut files = files_in(folder).unwrap_or_default();
    for path in std::env::split_paths(listed.unwrap_or_default()).filter(|p| !p.as_os_str().is_empty()) {
        if path.is_dir() {
            match files_in(&path) {
                Ok(inside) if inside.is_empty() => found.troubles.push((path, Trouble::EmptyFolder)),
                Ok(inside) => files.extend(inside),
                Err(e) => found.troubles.push((path, Trouble::Unreadable(e))),
            }
        } else {
            files.push(path);
        }
    }
    // All processes are started before the first answer is waited for.
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut started = Vec::new();
    for path in files {
        match path.canonicalize() {
            Ok(path) if seen.contains(&path) => {}
            Ok(path) => {
                seen.push(path.clone());
                started.push((Server::start(&launcher, &path), path));
            }
            Err(e) => found.troubles.push((path, Trouble::Unreadable(e))),
        }
    }
    for (server, path) in started {
        found.add(path, server);
    }
    found
}

impl FoundPlugins {
    fn add(&mut self, path: PathBuf, server: std::io::Result<Server>) {
        let opened = server.map_err(Trouble::Unreadable).and_then(|mut server| Ok((server.hello()?, server)));
        let trouble = match opened {
            Ok((plugin, server)) => match self.plugins.iter().find(|other| other.name == plugin.name) {
                Some(other) => Trouble::SameName(plugin.name, other.path.clone()),
                None if self.plugins.len() >= MOST => Trouble::TooMany,
                None => {
                    self.analysers.add(plugin.clone(), plugin.has_half().then_some(server));
                    return self.plugins.push(plugin);
                }
            },
            Err(trouble) => trouble,
        };
        self.troubles.push((path, trouble));
    }
}

/// The `.so` files of a folder, in order of their names.
pub fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("so")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
