//! What all recordings of an agent share: uu's objects, the list of plugins, names that were found, and a folder.

use crate::exit::Failure;
use crate::layout::{self, Layout};
use crate::record::{NAMING_SERVER, PLUGIN_SERVER};
use rustix::fs::{flock, FlockOperation};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use uunwind_loader::{Analysers, FoundPlugins, Plugin, ENV_PLUGINS};
use uunwind_recorder::kept_names::Namer;
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::user_folder;

/// How the folders of agents are called.
const FOLDER: &str = "uu-agent-";
/// A profile waits this part of the time between profiles for others, whose functions are named with its own.
const GATHER: u32 = 12;
/// The file in it that a running agent holds locked.
const LOCK: &str = "lock";

/// What recordings share.
pub struct Kit {
    /// The places of uu's objects.
    pub layout: Layout,
    /// Names functions, and keeps the names.
    pub namer: Namer,
    /// Why no sampler goes into any process: a plugin of others.
    pub foreign: Option<String>,
    /// Time between the profiles of a process.
    pub every: Duration,
    /// Number of recordings at most, by which open files are shared.
    pub most: usize,
    /// Held by the one recording that begins: beginnings cost more CPU time than all that follows.
    pub turn: Mutex<()>,
    plugins: Vec<Plugin>,
    launcher: Vec<OsString>,
    folder: TempDir,
    _lock: File,
}

impl Kit {
    /// Finds and makes all that.
    pub fn new(every: Duration, most: usize) -> Result<Kit, Failure> {
        let layout = layout::find()?;
        let command = |name: &str| vec![layout.command.clone().into_os_string(), name.into()];
        let launcher = command(PLUGIN_SERVER);
        let namer = Namer::keeping(command(NAMING_SERVER), every / GATHER);
        let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher.clone());
        let foreign = found.plugins.iter().find(|plugin| !plugin.built_in).map(|plugin| &plugin.path);
        let foreign = foreign.or(found.troubles.first().map(|(path, _)| path));
        let foreign = foreign
            .map(|path| format!("{} is not one of uu's own plugins, and is called from outside only", path.display()));
        let cannot = |e: io::Error| {
            let place = std::env::temp_dir();
            Failure::new(format!("cannot make a folder in {}: {e}. Set TMPDIR", place.display()))
        };
        sweep(&std::env::temp_dir());
        let folder = tempfile::Builder::new()
            .prefix(FOLDER)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(cannot)?;
        let lock = locked(folder.path()).map_err(cannot)?;
        let turn = Mutex::new(());
        let plugins = found.plugins;
        Ok(Kit { layout, namer, foreign, every, most, turn, plugins, launcher, folder, _lock: lock })
    }

    /// A new folder for a recording.
    pub fn folder(&self, id: u64) -> io::Result<PathBuf> {
        let folder = self.folder.path().join(id.to_string());
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// The analyse halves of the plugins, whose processes are started once they are asked.
    pub fn analysers(&self) -> Analysers {
        let mut analysers = Analysers::new(self.launcher.clone());
        self.plugins.iter().for_each(|plugin| analysers.add(plugin.clone(), None));
        user_folder().into_iter().for_each(|folder| analysers.keep_answers(Drawer::at(folder.join("answers"))));
        analysers
    }

    /// The plugins, for walks from outside.
    pub fn found(&self) -> FoundPlugins {
        FoundPlugins { plugins: self.plugins.clone(), analysers: self.analysers(), troubles: Vec::new() }
    }
}

/// Locks an agent's folder. Error: its agent lives.
fn locked(folder: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes the folders of this user's agents that were killed.
fn sweep(place: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_string_lossy().starts_with(FOLDER)
            && fs::symlink_metadata(entry.path()).is_ok_and(|file| file.is_dir() && file.uid() == own);
        // One that has no lock yet is just being made.
        if is_one && entry.path().join(LOCK).is_file() && locked(&entry.path()).is_ok() {
            // Best effort: what stays is removed next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
