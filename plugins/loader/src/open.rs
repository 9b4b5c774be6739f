//! Opens one plugin and checks that this build can use it.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use uunwind_core::plugin::{negotiate, trimmed, Analyse, Entry, Refusal, ABI, ENTRY_SYMBOL};

/// A usable plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The name it gives itself.
    pub name: String,
    /// Its file, absolute, symbolic links resolved.
    pub path: PathBuf,
    /// It has an analyse half.
    pub analyses: bool,
}

/// A plugin, open in this process.
pub(crate) struct Opened {
    pub(crate) plugin: Plugin,
    pub(crate) analyse: Option<Analyse>,
}

/// Why a plugin was left out.
#[derive(Debug)]
pub enum Trouble {
    /// The file or folder cannot be read.
    Unreadable(io::Error),
    /// A folder without a `.so` file.
    EmptyFolder,
    /// The dynamic loader refused it; its words.
    NotLoadable(String),
    /// Opening it ended its process, or took too long; in words.
    Died(String),
    /// It exports no `uu_plugin`.
    NoEntry,
    /// It refused this host, or was built for another interface.
    Refused(Refusal),
    /// It has no name.
    NoName,
    /// A plugin of this name was found before, here.
    SameName(String, PathBuf),
    /// More plugins than a recording can hold.
    TooMany,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreadable(e) => write!(f, "cannot be read: {e}"),
            Trouble::EmptyFolder => write!(f, "holds no .so file"),
            Trouble::NotLoadable(why) => write!(f, "cannot be loaded: {why}"),
            Trouble::Died(why) => write!(f, "cannot be opened: {why}"),
            Trouble::NoEntry => {
                write!(f, "is no plugin: it exports no {} function", ENTRY_SYMBOL.to_string_lossy())
            }
            Trouble::Refused(Refusal::Declined) => write!(f, "says that it cannot serve plugin interface {ABI}"),
            Trouble::Refused(Refusal::Abi(abi)) => {
                write!(f, "was built for plugin interface {abi}, this uu has {ABI}: build it again")
            }
            Trouble::Refused(Refusal::Size(size)) => {
                write!(f, "has a table of {size} bytes, too small for plugin interface {ABI}: build it again")
            }
            Trouble::NoName => write!(f, "has no name in its table"),
            Trouble::SameName(name, path) => {
                write!(f, "is called \"{name}\", as is {}, which was found first", path.display())
            }
            Trouble::TooMany => write!(f, "is one too many: a recording holds {} plugins", crate::MOST),
        }
    }
}

/// Opens a plugin in this process; it stays loaded.
pub(crate) fn open(path: &Path) -> Result<Opened, Trouble> {
    // The loader takes a path without a slash for a name to search for.
    let path = path.canonicalize().map_err(Trouble::Unreadable)?;
    // SAFETY: the object's initialisers run. Whoever lists a plugin trusts its code, as this module says.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|e| Trouble::NotLoadable(loader_words(&e)))?;
    // SAFETY: a function of this name has this type; that is what makes an object a plugin.
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
    let plugin = Plugin { name, path, analyses: table.analyse.is_some() };
    Ok(Opened { plugin, analyse: table.analyse })
}

/// What dlopen said, without libloading's frame around it.
fn loader_words(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { desc } => format!("{desc:?}").trim_matches('"').to_owned(),
        other => other.to_string(),
    }
}
