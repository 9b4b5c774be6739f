//! Tables on disk: `$XDG_CACHE_HOME/uu/tables/<revision>/<digest>`, else `~/.cache/uu/tables/<revision>/<digest>`. The
//! digest covers all that a table is built of ([`Inputs::digest`]), so that no object can leave a table for another.
//!
//! A cache saves time and nothing else: an entry that is missing, damaged, of another version, or that another user
//! could have written, is built anew, and a folder that cannot be written is done without.

use super::sections::Inputs;
use super::NoTable;
use std::path::PathBuf;
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::Image;
use uunwind_tables::format::{checksum, TableHead};
use uunwind_tables::Table;

/// What the builder makes of an object: raised whenever that changes, so that no older table is taken for it.
const REVISION: &str = "10";
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
        let (inputs, key) = (Inputs::of(image), image.unwind_key());
        match self.folder {
            Some(_) => self.named(&inputs, key, &inputs.digest(key)),
            None => Ok((inputs.build(key)?, Cached::Built)),
        }
    }

    /// As [`Cache::table`], and its name, by which [`Cache::kept`] finds it without the object's file.
    pub fn table_and_name(&self, image: &Image) -> Result<(Vec<u8>, Name), NoTable> {
        let (inputs, key) = (Inputs::of(image), image.unwind_key());
        let name = inputs.digest(key);
        Ok((self.named(&inputs, key, &name)?.0, name))
    }

    /// The rule table of an object, if it is on the disk.
    pub fn kept_of(&self, image: &Image) -> Option<Vec<u8>> {
        self.folder.as_ref()?;
        let (inputs, key) = (Inputs::of(image), image.unwind_key());
        self.kept(&inputs.digest(key), key)
    }

    fn named(&self, inputs: &Inputs<'_>, key: u64, name: &Name) -> Result<(Vec<u8>, Cached), NoTable> {
        if let Some(bytes) = self.kept(name, key) {
            return Ok((bytes, Cached::Hit));
        }
        let bytes = inputs.build(key)?;
        if let Some(folder) = &self.folder {
            // Whatever goes wrong here costs time only.
            let _ = folder.write(&file_name(name), &bytes);
        }
        Ok((bytes, Cached::Built))
    }

    /// The whole table with this name and key, if it is on the disk.
    pub fn kept(&self, name: &Name, key: u64) -> Option<Vec<u8>> {
        let bytes = self.folder.as_ref()?.read(&file_name(name), LARGEST).ok()?;
        is_whole(&bytes, key).then_some(bytes)
    }
}

fn file_name(name: &Name) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
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
