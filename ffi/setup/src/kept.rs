//! Facts on disk: `$XDG_CACHE_HOME/uu/facts/<revision>/<digest>`, else in `~/.cache`. The digest covers which file it
//! is (device, inode, size, times of its last change of contents and of state), and which plugins were asked. A file
//! that was changed in any way has another time.
//!
//! As the cache of rule tables, it saves time and nothing else: an entry that is missing, damaged or that another user
//! could have written is made anew.

use crate::facts::{ObjectFacts, Unanswered};
use crate::state::State;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use uunwind_core::plugin::{padded, trimmed};
use uunwind_elf::Image;
use uunwind_tables_build::private_folder::PrivateFolder;
use uunwind_tables_build::user_folder;

/// Raised whenever the facts of one of uu's own plugins change, so that older ones are not taken for them.
const REVISION: &str = concat!("1-", env!("CARGO_PKG_VERSION"));
/// No entry is larger, in bytes.
const LARGEST: u64 = 128 * 1024;

/// The object's facts, from the disk or by `find`. Only answers are kept.
pub fn facts(
    image: &Image,
    state: &State,
    find: impl FnOnce() -> Result<Option<ObjectFacts>, Unanswered>,
) -> Result<Option<ObjectFacts>, Unanswered> {
    let (Some(folder), Some(name)) = (user_folder(), name(image, state)) else { return find() };
    let folder = folder.join("facts").join(REVISION);
    let kept = PrivateFolder::open(&folder).and_then(|folder| folder.read(&name, LARGEST));
    if let Some(kept) = kept.ok().and_then(|bytes| decode(&bytes)) {
        return Ok(kept);
    }
    let found = find()?;
    // Whatever goes wrong here costs time only.
    let _ = PrivateFolder::make(&folder).and_then(|folder| folder.write(&name, &encode(found.as_ref())));
    Ok(found)
}

/// The entry's name: SHA-256 over what identifies the file and the plugins. `None`: it is no file.
fn name(image: &Image, state: &State) -> Option<String> {
    let file = image.metadata()?;
    let mut hash = Sha256::new();
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()].map(|time| time as u64);
    for number in [file.dev(), file.ino(), file.size()].into_iter().chain(times) {
        hash.update(number.to_le_bytes());
    }
    for plugin in &state.plugins {
        hash.update(plugin.name.as_bytes());
        hash.update([0]);
    }
    for foreign in &state.foreign {
        // Another build of a plugin may find other facts.
        let file = std::fs::metadata(foreign).ok()?;
        for number in [file.dev(), file.ino(), file.size(), file.ctime() as u64, file.ctime_nsec() as u64] {
            hash.update(number.to_le_bytes());
        }
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `checksum | plugin's name in 16 bytes, zero where none claims the object | facts`.
fn encode(facts: Option<&ObjectFacts>) -> Vec<u8> {
    let (plugin, bytes) = facts.map_or(("", &[][..]), |facts| (&facts.plugin, &facts.bytes));
    let body = [&padded(plugin)[..], bytes].concat();
    [Sha256::digest(&body).as_slice(), &body].concat()
}

/// `None`: damaged.
fn decode(bytes: &[u8]) -> Option<Option<ObjectFacts>> {
    let (sum, body) = bytes.split_first_chunk::<32>()?;
    if Sha256::digest(body).as_slice() != sum {
        return None;
    }
    let (plugin, facts) = body.split_first_chunk::<16>()?;
    let plugin = String::from_utf8_lossy(trimmed(plugin)).into_owned();
    Some((!plugin.is_empty()).then(|| ObjectFacts { plugin, bytes: facts.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
