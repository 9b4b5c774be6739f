//! Opens one plugin and checks that this build can use it.

use crate::half::{language, OpenHalf};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::io;
use std::path::{Path, PathBuf};
use uunwind_core::plugin::{negotiate, trimmed, Entry, Refusal, ABI, ENTRY_SYMBOL};
use uunwind_language::{Half, Language};

/// A usable plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The name in its table.
    pub name: String,
    /// Absolute path of its file, symbolic links resolved.
    pub path: PathBuf,
    /// Whether it finds facts in objects.
    pub analyses: bool,
    /// Whether it decodes line tables.
    pub decodes: bool,
    /// Whether the half that does so is a part of uu.
    pub built_in: bool,
    /// What reports must know of its language.
    pub language: Language,
}

impl Plugin {
    /// Whether it has a half that runs outside of handlers.
    pub fn has_half(&self) -> bool {
        self.analyses || self.decodes
    }
}

/// A plugin that is open in this process.
pub struct Opened<'h> {
    /// What it says of itself.
    pub plugin: Plugin,
    /// Its entry function.
    pub entry: Entry,
    pub(crate) half: OpenHalf<'h>,
}

/// Why a plugin was left out.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The file or folder cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// A folder without a `.so` file.
    #[error("holds no .so file")]
    EmptyFolder,
    /// The dynamic loader refused it, with these words.
    #[error("cannot be loaded: {0}")]
    NotLoadable(String),
    /// Opening it ended its process or took too long; the text says which.
    #[error("cannot be opened: {0}")]
    Died(String),
    /// It exports no function `uu_plugin`.
    #[error("is no plugin: it exports no {} function", ENTRY_SYMBOL.to_string_lossy())]
    NoEntry,
    /// It refused this host, or was built for another version of the interface.
    #[error("{}", refused(.0))]
    Refused(Refusal),
    /// It has no name.
    #[error("has no name in its table")]
    NoName,
    /// Another plugin has this name; its path.
    #[error("is called \"{0}\", as is {1}, which was found first")]
    SameName(String, PathBuf),
    /// A process cannot have any more plugins.
    #[error("is one too many: a process has at most {} plugins, uu's own included", crate::MOST)]
    TooMany,
}

/// The text of [`Trouble::Refused`].
fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Declined => format!("says that it cannot serve plugin interface {ABI}"),
        Refusal::Abi(abi) => format!("was built for plugin interface {abi}, this uu has {ABI}: build it again"),
        Refusal::Size(size) => {
            format!("has a table of {size} bytes, too small for plugin interface {ABI}: build it again")
        }
    }
}

/// Opens a plugin in this process, where it stays loaded. One without an analyse function gets the one of `halves` that
/// has its name, if there is one.
pub fn open<'h>(path: &Path, halves: &[&'h dyn Half]) -> Result<Opened<'h>, Trouble> {
    // The loader would take a path without a slash for a name to search for.
    let path = path.canonicalize().map_err(Trouble::Unreadable)?;
    // SAFETY: the object's initialisers run. Whoever lists a plugin trusts its code, as this module says.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|e| Trouble::NotLoadable(loader_words(&e)))?;
    // SAFETY: a function of this name has this type; the plugin interface defines it so.
    let entry = unsafe { library.get::<Entry>(ENTRY_SYMBOL.to_bytes_with_nul()) }.map_err(|_| Trouble::NoEntry)?;
    let entry: Entry = *entry;
    // Plugins are never unloaded: their tables live as long as the process.
    std::mem::forget(library);
    // SAFETY: the object stays loaded.
    let table = unsafe { negotiate(entry) }.map_err(Trouble::Refused)?;
    let name = String::from_utf8_lossy(trimmed(&table.name)).into_owned();
    if name.is_empty() {
        return Err(Trouble::NoName);
    }
    let linked = halves.iter().map(|half| (*half, half.language())).find(|(_, language)| language.plugin == name);
    if let Some((half, language)) = linked.filter(|_| table.analyse.is_none()) {
        let plugin = Plugin { name, path, analyses: true, decodes: true, built_in: true, language };
        return Ok(Opened { plugin, entry, half: OpenHalf::BuiltIn(half) });
    }
    let (analyses, decodes) = (table.analyse.is_some(), table.line.is_some());
    // SAFETY: the pointer of a plugin's table, which lives as long as the process.
    let language = unsafe { language(&name, table.language) };
    let plugin = Plugin { name, path, analyses, decodes, built_in: false, language };
    Ok(Opened { plugin, entry, half: OpenHalf::Table(table.analyse, table.line) })
}

/// dlopen's own words, without the text that libloading adds.
fn loader_words(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { desc } => format!("{desc:?}").trim_matches('"').to_owned(),
        other => other.to_string(),
    }
}
