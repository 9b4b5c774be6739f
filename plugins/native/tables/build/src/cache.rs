//! Tables on disk: `$XDG_CACHE_HOME/uu/tables/<revision>/<digest>`, else
//! `~/.cache/uu/tables/<revision>/<digest>`. The digest covers all that a table is built of ([`Inputs::digest`]),
//! so that no object can leave a table for another. That is nearly all of the file: which digest it has is kept,
//! too, by which file it is and which contents it has (`FileId`).
//!
//! A cache saves time and nothing else: an entry that is missing, damaged, of another version, or that another
//! user could have written, is built anew, and a folder that cannot be written is done without.

use super::sections::Inputs;
use super::NoTable;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::{FileId, Image};
use uunwind_tables::format::{checksum, TableHead, FROM_CODE};
use uunwind_tables::Table;

/// What the builder makes of an object: raised whenever that changes, so that no older table is taken for it.
const REVISION: &str = "16";
/// No entry is larger, in bytes.
const LARGEST: u64 = 256 << 20;

/// Rule tables in a folder on disk, by the digest of what they are built of.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<Drawer>,
}

/// The source of a table: built now, or read from the cache on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cached {
    /// The table was read from the disk.
    Hit,
    /// The table was built.
    Built,
}

/// What a table is called in the cache: the digest of what it is built of.
pub type Name = [u8; 32];

impl Cache {
    /// No cache: every table is built.
    pub fn none() -> Cache {
        Cache::default()
    }

    /// In this folder, which is made when it is needed.
    pub fn at(folder: PathBuf) -> Cache {
        Cache { folder: Some(Drawer::at(folder)) }
    }

    /// The user's: [`user_folder`].
    pub fn of_user() -> Cache {
        Cache { folder: user_folder().map(|base| Drawer::at(base.join("tables").join(REVISION))) }
    }

    /// The rule table of an object, under its [`Image::unwind_key`]: from the disk, if a whole one is there, else built
    /// and kept.
    pub fn table(&self, image: &Image) -> Result<(Vec<u8>, Cached), NoTable> {
        if self.folder.is_none() {
            return Ok((Inputs::of(image).build(image.unwind_key())?, Cached::Built));
        }
        let (table, _, from) = self.named(image)?;
        Ok((table, from))
    }

    /// As [`Cache::table`], and its name, by which [`Cache::kept`] finds it without the object's file.
    pub fn table_and_name(&self, image: &Image) -> Result<(Vec<u8>, Name), NoTable> {
        let (table, name, _) = self.named(image)?;
        Ok((table, name))
    }

    /// The rule table of an object, if it is on the disk.
    pub fn kept_of(&self, image: &Image) -> Option<Vec<u8>> {
        self.folder.as_ref()?;
        let (key, place) = (image.unwind_key(), name_place(image));
        let name = self.kept_name(place.as_deref()).unwrap_or_else(|| Inputs::of(image).digest(key));
        self.kept(&name, key)
    }

    /// Of these file addresses, those whose rule was made from the machine code, as the table on the disk says.
    pub fn by_code(&self, image: &Image, addresses: &[u64]) -> Vec<u64> {
        let bytes =
            self.kept_of(image).filter(|bytes| TableHead::read(bytes).is_some_and(|h| h.sources & FROM_CODE != 0));
        let Some(bytes) = bytes else { return Vec::new() };
        // A table lies at a multiple of 8.
        let mut aligned: Vec<u8> = Vec::with_capacity(bytes.len() + 8);
        let from = aligned.as_ptr().align_offset(8);
        aligned.resize(from, 0);
        aligned.extend(bytes);
        let Ok(table) = Table::new(aligned.get(from..).unwrap_or_default()) else { return Vec::new() };
        addresses.iter().copied().filter(|address| table.is_by_code(*address)).collect()
    }

    fn named(&self, image: &Image) -> Result<(Vec<u8>, Name, Cached), NoTable> {
        // Which file it is, is asked before it is read.
        let (key, place) = (image.unwind_key(), name_place(image));
        if let Some(name) = self.kept_name(place.as_deref()) {
            if let Some(bytes) = self.kept(&name, key) {
                return Ok((bytes, name, Cached::Hit));
            }
        }
        let inputs = Inputs::of(image);
        let name = inputs.digest(key);
        let (bytes, from) = match self.kept(&name, key) {
            Some(bytes) => (bytes, Cached::Hit),
            None => (inputs.build(key)?, Cached::Built),
        };
        // Whatever goes wrong here costs time only.
        if let Some(folder) = &self.folder {
            if from == Cached::Built {
                let _ = folder.write(&hex(&name), &bytes);
            }
            if let Some(place) = place {
                let _ = folder.write(&place, &[name, Sha256::digest(name).into()].concat());
            }
        }
        Ok((bytes, name, from))
    }

    /// The name of a file's table, as it is kept at a place.
    fn kept_name(&self, place: Option<&str>) -> Option<Name> {
        let bytes = self.folder.as_ref()?.read(place?, 64).ok()?;
        let (name, sum) = bytes.split_first_chunk::<32>()?;
        (Sha256::digest(name).as_slice() == sum).then_some(*name)
    }

    /// The whole table with this name and key, if it is on the disk.
    pub fn kept(&self, name: &Name, key: u64) -> Option<Vec<u8>> {
        let bytes = self.folder.as_ref()?.read(&hex(name), LARGEST).ok()?;
        is_whole(&bytes, key).then_some(bytes)
    }
}

fn hex(name: &Name) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the name of a file's table is kept. `None`: the file has changed just now, or its bytes come from memory.
fn name_place(image: &Image) -> Option<String> {
    let file = FileId::settled(&image.metadata()?)?;
    let digest = Sha256::new().chain_update(file.bytes().collect::<Vec<u8>>()).finalize();
    Some(format!("of-{}", hex(&digest.into())))
}

/// uu's folder in the user's cache (XDG Base Directory Specification). Relative paths in the environment are ignored,
/// as it demands. So is all of the environment in a program that has more rights than whoever started it (`AT_SECURE`,
/// getauxval(3)): it has none.
pub fn user_folder() -> Option<PathBuf> {
    // SAFETY: getauxval and the two others have no preconditions.
    let (secure, real, effective) = unsafe { (libc::getauxval(libc::AT_SECURE), libc::getuid(), libc::geteuid()) };
    if secure != 0 || real != effective {
        return None;
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    Some(absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?.join("uu"))
}

/// Whether these bytes are a whole table with this key.
fn is_whole(bytes: &[u8], key: u64) -> bool {
    let head = TableHead::read(bytes).filter(|head| head.key == key && head.checksum == checksum(bytes));
    head.is_some() && Table::new(bytes).is_ok()
}
