//! Finds unwinder plugins (setup room), shared objects that export `uu_plugin`, and runs their analyse halves.
//!
//! Plugins come from the folder beside uu's own objects, then from the list in [`ENV_PLUGINS`]. What cannot be used is named,
//! with the reason, and left out. Opening an object runs its initialisers, and an analyse half may do anything, so each
//! plugin is opened in a process of its own:
//!
//! * [`serve`]: that process; [`server`], its near end; [`wire`], what they say;
//! * [`analysers`]: all analyse halves together, with queues, so that the recorder never waits for one.

pub mod analysers;
mod open;
mod serve;
pub mod server;
pub mod wire;

pub use analysers::Analysers;
pub use open::{Plugin, Trouble};
pub use serve::serve;
pub use server::{Launcher, Server};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Environment variable with plugin files and folders of them, separated by colons.
pub const ENV_PLUGINS: &str = "UU_PLUGINS";

/// Plugins that one recording can hold: they have the indices from 1 on, and the last is the embedders'.
pub const MOST: usize = uunwind_core::walk::EMBEDDER as usize - 1;

/// The plugins found, in order, and what could not be used.
#[derive(Debug, Default)]
pub struct Found {
    /// Usable plugins; their places, from 1, are their indices.
    pub plugins: Vec<Plugin>,
    /// The analyse halves of those that have one.
    pub analysers: Analysers,
    /// What was left out, and why.
    pub troubles: Vec<(PathBuf, Trouble)>,
}

/// Finds plugins in `folder` (which may be missing) and in `listed`, the value of [`ENV_PLUGINS`]. `launcher` starts a
/// plugin's process.
pub fn find(folder: &Path, listed: Option<&OsStr>, launcher: Launcher) -> Found {
    let mut found = Found { analysers: Analysers::new(launcher.clone()), ..Found::default() };
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
    // All are started before the first is waited for.
    let mut known: Vec<PathBuf> = Vec::new();
    let mut started = Vec::new();
    for path in files {
        match path.canonicalize() {
            Ok(path) if known.contains(&path) => {}
            Ok(path) => {
                known.push(path.clone());
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

impl Found {
    fn add(&mut self, path: PathBuf, server: std::io::Result<Server>) {
        let opened = server.map_err(Trouble::Unreadable).and_then(|mut server| Ok((server.hello()?, server)));
        let trouble = match opened {
            Ok((plugin, server)) => match self.plugins.iter().find(|known| known.name == plugin.name) {
                Some(known) => Trouble::SameName(plugin.name, known.path.clone()),
                None if self.plugins.len() >= MOST => Trouble::TooMany,
                None => {
                    if plugin.analyses {
                        self.analysers.add(plugin.clone(), server);
                    }
                    return self.plugins.push(plugin);
                }
            },
            Err(trouble) => trouble,
        };
        self.troubles.push((path, trouble));
    }
}

/// The `.so` files of a folder, in order of their names.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
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
