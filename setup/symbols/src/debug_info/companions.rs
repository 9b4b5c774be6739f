//! Where the files lie that belong to one with debug information: as debuggers look for them, by the names that it has
//! for them. Whoever made the file chose these names: what is found is opened as such files are
//! ([`uunwind_elf::files`]), and is not used unless it has the id of the unit, or the build-id, that is wanted.

use super::{Source, Wanted};
use crate::debug_file;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A file with debug information.
#[derive(Clone, Copy, Debug)]
pub struct Main<'a> {
    /// Paths by which it, the object, and the separate debug file can be found, descriptors among them.
    pub paths: &'a [&'a Path],
    /// Folders with debug files, besides the system's.
    pub folders: &'a [PathBuf],
}

impl Main<'_> {
    /// What may be the file, best first: regular files.
    pub fn candidates(&self, wanted: &Wanted<'_>) -> Vec<Source<'static>> {
        let found = match wanted {
            Wanted::Package => self.packages(),
            Wanted::Split { folder, name } => self.units(path_of(folder), path_of(name)),
            Wanted::Supplement { name, build_id } => {
                let candidates = self.supplements(path_of(name), build_id).into_iter();
                candidates.filter(|path| debug_file::has_id(path, build_id)).collect()
            }
        };
        let mut all: Vec<PathBuf> = Vec::new();
        for path in found {
            if !all.contains(&path) && path.is_file() {
                all.push(path);
            }
        }
        all.into_iter().map(Source::Path).collect()
    }

    /// `PROGRAM.dwp`, beside the program, and under each folder by its path and by its name.
    fn packages(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for path in self.paths {
            let package = with_suffix(path, ".dwp");
            all.extend(self.below(&package));
            all.insert(0, package);
        }
        all
    }

    /// Where it was made; beside the program; under each folder by its path and by its name.
    fn units(&self, folder: &Path, name: &Path) -> Vec<PathBuf> {
        let Some(file) = name.file_name() else { return Vec::new() };
        let (mut all, whole) = (Vec::new(), folder.join(name));
        if whole.is_absolute() {
            all.extend(self.roots().map(|root| below(root, &whole)));
            all.push(whole.clone());
        }
        for beside in self.paths.iter().filter_map(|path| path.parent()) {
            all.extend(stays(name).then(|| beside.join(name)));
            all.push(beside.join(file));
        }
        all.extend(self.below(&whole));
        all.extend(self.folders.iter().filter(|_| stays(name)).map(|root| root.join(name)));
        all
    }

    /// At its path, which is relative to the file that names it; by its build-id.
    fn supplements(&self, name: &Path, build_id: &[u8]) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.paths.iter().filter_map(|path| Some(path.parent()?.join(name))).collect();
        all.extend(self.below(name));
        let roots = self.folders.iter().map(PathBuf::as_path).chain([Path::new(debug_file::ROOT)]);
        all.extend(roots.filter_map(|root| debug_file::by_build_id(root, build_id)));
        all
    }

    /// A path below each folder of debug files, and its file name in each.
    fn below(&self, path: &Path) -> Vec<PathBuf> {
        let by_path = self.folders.iter().map(|root| below(root, path));
        let by_name = self.folders.iter().filter_map(|root| Some(root.join(path.file_name()?)));
        by_path.chain(by_name).collect()
    }

    /// The root of a process in a container, through which its files are seen.
    fn roots(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter_map(|path| {
            let mut parts = path.components();
            let is_root = parts.by_ref().nth(1).is_some_and(|part| part.as_os_str() == "proc")
                && parts.by_ref().nth(1).is_some_and(|part| part.as_os_str() == "root");
            is_root.then(|| path.ancestors().nth(parts.count())).flatten()
        })
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// A path below a folder, whatever its root is there.
fn below(root: &Path, path: &Path) -> PathBuf {
    let inside = path.components().filter(|part| matches!(part, Component::Normal(_)));
    root.join(inside.collect::<PathBuf>())
}

/// Whether a path does not lead out of a folder that it is relative to.
fn stays(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
