//! Finds and opens unwinder plugins (setup room): shared objects that export `uu_plugin`.
//!
//! Plugins come from the folder beside uu's own objects, then from the list in [`ENV_PLUGINS`]. Each is opened here once
//! to see that it can be used; what cannot is named, with the reason, and left out.
//!
//! Opening an object runs its initialisers: plugins are code that the user chose to trust.

mod open;

pub use open::{open, Plugin, Trouble};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Environment variable with plugin files and folders of them, separated by colons.
pub const ENV_PLUGINS: &str = "UU_PLUGINS";

/// Plugins that one recording can hold: `uunwind_ring` gives them indices 1 to 7.
pub const MOST: usize = 7;

/// The plugins found, in order, and what could not be used.
#[derive(Debug, Default)]
pub struct Found {
    /// Usable plugins; their places, from 1, are their indices.
    pub plugins: Vec<Plugin>,
    /// What was left out, and why.
    pub troubles: Vec<(PathBuf, Trouble)>,
}

/// Finds plugins in `folder` (which may be missing) and in `listed`, the value of [`ENV_PLUGINS`].
pub fn find(folder: &Path, listed: Option<&OsStr>) -> Found {
    let mut found = Found::default();
    for file in files_in(folder).unwrap_or_default() {
        found.add(file);
    }
    for path in std::env::split_paths(listed.unwrap_or_default()).filter(|p| !p.as_os_str().is_empty()) {
        if path.is_dir() {
            match files_in(&path) {
                Ok(files) if files.is_empty() => found.troubles.push((path, Trouble::EmptyFolder)),
                Ok(files) => files.into_iter().for_each(|file| found.add(file)),
                Err(e) => found.troubles.push((path, Trouble::Unreadable(e))),
            }
        } else {
            found.add(path);
        }
    }
    found
}

impl Found {
    fn add(&mut self, path: PathBuf) {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(e) => return self.troubles.push((path, Trouble::Unreadable(e))),
        };
        if self.plugins.iter().any(|known| known.path == path) {
            return;
        }
        let trouble = match open(&path) {
            Ok(plugin) => match self.plugins.iter().find(|known| known.name == plugin.name) {
                Some(known) => Trouble::SameName(plugin.name, known.path.clone()),
                None if self.plugins.len() >= MOST => Trouble::TooMany,
                None => return self.plugins.push(plugin),
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
