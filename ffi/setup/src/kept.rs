//! Facts on disk: `$XDG_CACHE_HOME/uu/facts/<digest>`, else in `~/.cache`. The digest covers which file it is and which
//! contents it has (`FileId`), which build of uu analysed it, and which plugins were asked.
//!
//! As the cache of rule tables, it saves time and nothing else: an entry that is missing, damaged or that another user
//! could have written is made anew.

use crate::facts::{ObjectFacts, Unanswered};
use crate::plugins::own_file;
use crate::state::{FileId, State};
use sha2::{Digest, Sha256};
use std::path::Path;
use uunwind_core::plugin::{padded, trimmed};
use uunwind_elf::Image;
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::user_folder;

/// No entry is larger, in bytes.
const LARGEST: u64 = 128 * 1024;

/// The user's facts on disk, as one set of plugins finds them.
pub struct Store(Option<(Drawer, Sha256)>);

impl Store {
    /// For the plugins of this process. Without a folder, or without the file of this object or of a plugin, nothing is
    /// kept.
    pub fn of_user(state: &State) -> Store {
        Store(user_folder().and_then(|folder| Some((Drawer::at(folder.join("facts")), of_plugins(state)?))))
    }

    /// The object's facts, from the disk or by `find`. Only answers are kept.
    pub fn facts(
        &self,
        image: &Image,
        find: impl FnOnce() -> Result<Option<ObjectFacts>, Unanswered>,
    ) -> Result<Option<ObjectFacts>, Unanswered> {
        let (Some((folder, plugins)), Some(file)) = (&self.0, image.metadata()) else { return find() };
        let digest = plugins.clone().chain_update(FileId::of(&file).bytes().collect::<Vec<u8>>()).finalize();
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = folder.read(&name, LARGEST);
        if let Some(kept) = kept.ok().and_then(|bytes| decode(&bytes)) {
            return Ok(kept);
        }
        let found = find()?;
        // Whatever goes wrong here costs time only.
        let _ = folder.write(&name, &encode(found.as_ref()));
        Ok(found)
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

/// `checksum | plugin's name in 16 bytes, zero where none claims the object | facts`.
pub fn encode(facts: Option<&ObjectFacts>) -> Vec<u8> {
    let (plugin, bytes) = facts.map_or(("", &[][..]), |facts| (&facts.plugin, &facts.bytes));
    let body = [&padded(plugin)[..], bytes].concat();
    [Sha256::digest(&body).as_slice(), &body].concat()
}

/// The reverse of [`encode`]. `None`: damaged.
pub fn decode(bytes: &[u8]) -> Option<Option<ObjectFacts>> {
    let (sum, body) = bytes.split_first_chunk::<32>()?;
    if Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let (plugin, facts) = body.split_first_chunk::<16>()?;
    let plugin = String::from_utf8(trimmed(plugin).to_vec()).ok()?;
    Some((!plugin.is_empty()).then(|| ObjectFacts { plugin, bytes: facts.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What could not be answered is asked again by the next process; that there is nothing is an answer.
    #[test]
    fn only_answers_are_kept() {
        let folder = std::env::temp_dir().join(format!("uu-kept-{}", std::process::id()));
        let new = || Store(Some((Drawer::at(folder.clone()), Sha256::new())));
        let store = new();
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let facts = ObjectFacts { plugin: "some".to_owned(), bytes: vec![1] };
        assert_eq!(store.facts(&image, || Err(Unanswered)), Err(Unanswered));
        assert_eq!(store.facts(&image, || Ok(Some(facts.clone()))), Ok(Some(facts.clone())));
        assert_eq!(store.facts(&image, || panic!("it is kept")), Ok(Some(facts)));
        std::fs::remove_dir_all(&folder).unwrap();
        // A folder that goes away costs time; the next set-up makes it again.
        assert_eq!(store.facts(&image, || Ok(None)), Ok(None));
        let store = new();
        assert_eq!(store.facts(&image, || Ok(None)), Ok(None));
        assert_eq!(store.facts(&image, || panic!("it is kept, too")), Ok(None));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn entries_round_trip_and_damage_is_noticed() {
        let facts = ObjectFacts { plugin: "some".to_owned(), bytes: vec![1, 2, 3] };
        assert_eq!(decode(&encode(Some(&facts))), Some(Some(facts.clone())));
        assert_eq!(decode(&encode(None)), Some(None));
        let whole = encode(Some(&facts));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&whole[..at]), None, "cut at {at}");
        }
    }
}
