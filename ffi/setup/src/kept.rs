//! What libuunwind is given of a file, on disk: `$XDG_CACHE_HOME/uu/objects/<digest>`, else in `~/.cache`. The digest
//! covers which file it is and which contents it has (`FileId`), which build of uu analysed it, and which plugins were
//! asked. So where an entry is found, the file need not be opened, nor its unwind information be read, which is what
//! names its rule table in the cache of tables.
//!
//! As the cache of rule tables, it saves time and nothing else: an entry that is missing, damaged or that another user
//! could have written is made anew. It need not be that of the file that is loaded, which may have been replaced: facts
//! and tables go to the objects with their key, which libuunwind computes from an object's memory.

use crate::facts::ObjectFacts;
use crate::plugins::own_file;
use crate::state::State;
use sha2::{Digest, Sha256};
use std::path::Path;
use uunwind_core::plugin::{padded, trimmed};
use uunwind_elf::FileId;
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::{user_folder, Name};

/// No entry is larger, in bytes.
const LARGEST: u64 = 128 * 1024;

/// What libuunwind is given of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Key of its object.
    pub key: u64,
    /// Which plugin claims it, and its facts.
    pub facts: Option<ObjectFacts>,
    /// Its rule table, if there is one.
    pub table: Option<KeptTable>,
}

/// A table in the cache of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTable {
    /// Its name there.
    pub name: Name,
    /// The key of the unwind information that it is made of.
    pub unwind_key: u64,
}

/// The user's entries on disk, as one set of plugins makes them.
pub struct Store(Option<(Drawer, Sha256)>);

impl Store {
    /// For the plugins of this process. Without a folder, or without the file of this object or of a plugin, nothing is
    /// kept.
    pub fn of_user(state: &State) -> Store {
        Store(user_folder().and_then(|folder| Some((Drawer::at(folder.join("objects")), of_plugins(state)?))))
    }

    /// What is kept of a file.
    pub fn find(&self, file: FileId) -> Option<Kept> {
        let (folder, name) = self.place(file)?;
        decode(&folder.read(&name, LARGEST).ok()?)
    }

    /// Keeps what was found of a file.
    pub fn keep(&self, file: FileId, kept: &Kept) {
        if let Some((folder, name)) = self.place(file) {
            // Whatever goes wrong here costs time only.
            let _ = folder.write(&name, &encode(kept));
        }
    }

    fn place(&self, file: FileId) -> Option<(&Drawer, String)> {
        let (folder, plugins) = self.0.as_ref()?;
        let digest = plugins.clone().chain_update(file.bytes().collect::<Vec<u8>>()).finalize();
        Some((folder, digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

/// What identifies those who analyse: the builds of this object and of foreign plugins, and all plugins' names.
fn of_plugins(state: &State) -> Option<Sha256> {
    let mut hash = Sha256::new();
    let mut add_file = |file: &Path| {
        let id = FileId::of(&std::fs::metadata(file).ok()?);
        hash.update(id.bytes().collect::<Vec<u8>>());
        Some(())
    };
    add_file(own_file()?)?;
    for foreign in &state.foreign {
        add_file(foreign)?;
    }
    for plugin in &state.plugins {
        hash.update(padded(&plugin.name));
        hash.update([u8::from(plugin.built_in)]);
    }
    Some(hash)
}

/// `checksum | key | name of the table, zero where there is none | its unwind key | plugin's name in 16 bytes, zero
/// where none claims the object | facts`.
pub fn encode(kept: &Kept) -> Vec<u8> {
    let (plugin, bytes) = kept.facts.as_ref().map_or(("", &[][..]), |facts| (&facts.plugin, &facts.bytes));
    let (name, unwind_key) = kept.table.map_or(([0; 32], 0), |table| (table.name, table.unwind_key));
    let body = [&kept.key.to_le_bytes(), &name[..], &unwind_key.to_le_bytes(), &padded(plugin), bytes].concat();
    [Sha256::digest(&body).as_slice(), &body].concat()
}

/// The reverse of [`encode`]. `None`: damaged.
pub fn decode(bytes: &[u8]) -> Option<Kept> {
    let (sum, body) = bytes.split_first_chunk::<32>()?;
    if Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let (key, body) = body.split_first_chunk::<8>()?;
    let (name, body) = body.split_first_chunk::<32>()?;
    let (unwind_key, body) = body.split_first_chunk::<8>()?;
    let (plugin, facts) = body.split_first_chunk::<16>()?;
    let plugin = String::from_utf8(trimmed(plugin).to_vec()).ok()?;
    Some(Kept {
        key: u64::from_le_bytes(*key),
        facts: (!plugin.is_empty()).then(|| ObjectFacts { plugin, bytes: facts.to_vec() }),
        table: (*name != [0; 32]).then(|| KeptTable { name: *name, unwind_key: u64::from_le_bytes(*unwind_key) }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let facts = ObjectFacts { plugin: "some".to_owned(), bytes: vec![1, 2, 3] };
        Kept { key: 5, facts: Some(facts), table: Some(KeptTable { name: [7; 32], unwind_key: 6 }) }
    }

    #[test]
    fn a_file_has_what_was_kept_of_it_until_it_or_the_plugins_change() {
        let folder = std::env::temp_dir().join(format!("uu-kept-{}", std::process::id()));
        let store = |plugins| Store(Some((Drawer::at(folder.clone()), Sha256::new().chain_update([plugins]))));
        let program = std::fs::metadata(std::env::current_exe().unwrap()).unwrap();
        let (file, other) = (FileId::of(&program), FileId::of(&std::fs::metadata("/bin/sh").unwrap()));
        assert_eq!(store(1).find(file), None);
        store(1).keep(file, &kept());
        assert_eq!(store(1).find(file), Some(kept()));
        assert_eq!((store(1).find(other), store(2).find(file)), (None, None));
        // A folder that goes away costs time; the next set-up makes it again.
        let open = store(1);
        assert_eq!(open.find(file), Some(kept()));
        std::fs::remove_dir_all(&folder).unwrap();
        open.keep(file, &kept());
        assert_eq!(store(1).find(file), None);
        store(1).keep(file, &kept());
        assert_eq!(store(1).find(file), Some(kept()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn entries_round_trip_and_damage_is_noticed() {
        for kept in [kept(), Kept { facts: None, ..kept() }, Kept { table: None, ..kept() }] {
            assert_eq!(decode(&encode(&kept)), Some(kept));
        }
        let whole = encode(&kept());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&whole[..at]), None, "cut at {at}");
        }
    }
}
