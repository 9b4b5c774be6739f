//! Tables on disk, by build-id: `$XDG_CACHE_HOME/uu/tables/2/<build-id>`, else `~/.cache/uu/tables/2/<build-id>`.
//!
//! A cache saves time and nothing else: a file that is missing, damaged, of another version or another object's is built
//! anew, and a folder that cannot be written is done without.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use uunwind_tables::format::{checksum, Head};
use uunwind_tables::Table;

/// What the builder makes of an object: raised whenever that changes, so that no older table is taken for it.
const REVISION: &str = "2";

/// The folder.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<PathBuf>,
}

/// Where a table came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cached {
    /// From the disk.
    Hit,
    /// Built now.
    Built,
}

impl Cache {
    /// No cache: every table is built.
    pub fn none() -> Cache {
        Cache::default()
    }

    /// In this folder, which is made when it is needed.
    pub fn at(folder: PathBuf) -> Cache {
        Cache { folder: Some(folder) }
    }

    /// The user's (XDG Base Directory Specification). Relative paths in the environment are ignored, as it demands.
    pub fn of_user() -> Cache {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Cache { folder: base.map(|base| base.join("uu/tables").join(REVISION)) }
    }

    fn file(&self, build_id: &[u8]) -> Option<PathBuf> {
        let name: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        // Short ids are no names: anything else could have the same one.
        (build_id.len() >= 8).then(|| self.folder.as_ref().map(|folder| folder.join(name)))?
    }

    /// The table of the object with this build-id and key: from the disk, if a whole one is there, else what `build` makes,
    /// which is then kept.
    pub fn get<E>(
        &self,
        build_id: &[u8],
        key: u64,
        build: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<(Vec<u8>, Cached), E> {
        let file = self.file(build_id);
        if let Some(bytes) = file.as_deref().and_then(|file| read(file, key)) {
            return Ok((bytes, Cached::Hit));
        }
        let bytes = build()?;
        if let Some(file) = file {
            // Whatever goes wrong here costs time only.
            let _ = write(&file, &bytes);
        }
        Ok((bytes, Cached::Built))
    }
}

/// The table in this file, if it is whole and has this key.
fn read(file: &Path, key: u64) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let head = Head::read(&bytes)?;
    let good = head.key == key && Table::new(&bytes).is_ok() && head.checksum == checksum(&bytes);
    good.then_some(bytes)
}

/// Writes a file beside its place and moves it there, so that nobody sees half of one.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().ok_or(std::io::ErrorKind::NotFound)?;
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".{}.new", std::process::id()));
    let written = fs::File::create(&new).and_then(|mut f| f.write_all(bytes)).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
