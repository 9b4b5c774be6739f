//! The objects that the dynamic loader will map for a program, or for an object that it opens: that one, and what it
//! needs, recursively.
//!
//! An estimate ahead of time: what is missing here (a library opened later, or found in another place) is analysed when
//! it is seen. Hence no errors, only what was found.

use crate::library_path;
use object::elf;
use std::cell::{LazyCell, OnceCell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use uunwind_elf::{Image, MULTIARCH, PLATFORM};

/// More objects than any program needs: at most this number of names are looked for.
const OBJECTS_LIMIT: usize = 1024;
/// More directories than any search path has.
const SEARCH_LIMIT: usize = 256;
/// Names that a search follows, at most.
const NAMES_LIMIT: usize = 65_536;

/// An object found, with what its own needs are searched by, and what it opens by a name.
#[derive(Default)]
struct Node {
    needed: Vec<OsString>,
    /// Its `DT_RPATH` and those of the objects that led to it, nearest first; empty when it has `DT_RUNPATH`.
    rpath: Vec<PathBuf>,
    /// Its `DT_RUNPATH`, which serves its own needs only.
    runpath: Vec<PathBuf>,
}

/// The program and all objects that it needs, in the loader's order (breadth first), each once. Libraries that can't be
/// found are left out. Search order: `DT_RPATH`, `ld_library_path`, `DT_RUNPATH`, `/etc/ld.so.conf`, built-in
/// directories.
pub fn needed_closure(program: &Path, ld_library_path: Option<&OsStr>) -> Vec<PathBuf> {
    Search::default().closure(program, None, || ld_library_path.map(OsStr::to_owned))
}

/// A search for objects as the loader does it, in the file system of this process. It follows each name that an object
/// needs once for each order of folders, so that what most objects need costs nothing again.
#[derive(Debug, Default)]
pub struct Search {
    /// Read when it is first needed.
    system: OnceCell<Vec<PathBuf>>,
    /// Names, each with a hash of the folders that it was searched for in.
    followed: HashSet<(u64, OsString)>,
}

impl Search {
    /// An object and all that it needs, as [`needed_closure`] has them, without names that were followed before in the
    /// same folders. `program`: the one that opens it, whose `DT_RPATH` counts, too. `ld_library_path` is called when
    /// something is to be searched for.
    pub fn closure(
        &mut self,
        object: &Path,
        program: Option<&Path>,
        ld_library_path: impl FnOnce() -> Option<OsString>,
    ) -> Vec<PathBuf> {
        let mut found = vec![object.to_path_buf()];
        let Ok(image) = Image::open(object) else {
            return found;
        };
        let environment = LazyCell::new(|| environment(ld_library_path()));
        let mut files: HashSet<PathBuf> = object.canonicalize().into_iter().collect();
        let program = program.and_then(|program| Image::open(program).ok());
        let program = program.map_or_else(Node::default, |program| Node::new(&program, &[]));
        let mut queue = vec![Node::new(&image, &program.rpath)];
        // The loader takes an object that it has already for each name that it has found it by.
        let (mut next, mut left, mut names) = (0, OBJECTS_LIMIT, HashSet::new());
        while let Some(node) = queue.get(next) {
            next += 1;
            let mut children = Vec::new();
            for name in &node.needed {
                if left == 0 || self.followed.len() >= NAMES_LIMIT || !names.insert(name.clone()) {
                    continue;
                }
                let folders = hash(&[&node.rpath, &environment, &node.runpath]);
                if !self.followed.insert((folders, name.clone())) {
                    continue;
                }
                left -= 1;
                let order = [&node.rpath, &*environment, &node.runpath, self.system()];
                let Some(image) = find(name, &order) else {
                    continue;
                };
                let new = image.path().canonicalize().is_ok_and(|file| files.insert(file));
                if new {
                    found.push(image.path().to_path_buf());
                    children.push(Node::new(&image, &node.rpath));
                }
            }
            queue.append(&mut children);
        }
        found
    }

    /// The object that dlopen(3) finds by a name without a slash, called by code of the object `caller`; `None`: by the
    /// program's own. What has led to the caller counts only as far as that is the program.
    pub fn named(
        &self,
        name: &OsStr,
        program: &Path,
        caller: Option<&Path>,
        ld_library_path: Option<OsString>,
    ) -> Option<PathBuf> {
        let program = Image::open(program).map_or_else(|_| Node::default(), |image| Node::new(&image, &[]));
        let caller = caller.and_then(|caller| Some(Node::new(&Image::open(caller).ok()?, &program.rpath)));
        let from = caller.unwrap_or(program);
        let order = [&from.rpath, &environment(ld_library_path), &from.runpath, self.system()];
        find(name, &order).map(|image| image.path().to_path_buf())
    }

    fn system(&self) -> &Vec<PathBuf> {
        self.system.get_or_init(library_path::directories)
    }
}

/// A hash of lists of folders.
fn hash(order: &[&Vec<PathBuf>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    order.hash(&mut hasher);
    hasher.finish()
}

fn environment(ld_library_path: Option<OsString>) -> Vec<PathBuf> {
    search_path(&ld_library_path.unwrap_or_default(), b":;", None)
}

impl Node {
    fn new(image: &Image, inherited: &[PathBuf]) -> Node {
        let directories = |tag| -> Vec<PathBuf> {
            let paths = image.dynamic().strings(image, tag);
            paths.iter().flat_map(|path| search_path(path, b":", Some(image.path()))).take(SEARCH_LIMIT).collect()
        };
        let runpath = directories(elf::DT_RUNPATH);
        // An object with a RUNPATH ignores all RPATHs for its own needs; those of its loaders still reach further down
        // only through objects without one, which is the common case and what is followed here.
        let mut rpath = if runpath.is_empty() { directories(elf::DT_RPATH) } else { Vec::new() };
        if runpath.is_empty() {
            rpath.extend_from_slice(inherited);
            rpath.truncate(SEARCH_LIMIT);
        }
        Node { needed: image.dynamic().strings(image, elf::DT_NEEDED), rpath, runpath }
    }
}

/// The first file of that name that can be loaded.
fn find(name: &OsStr, order: &[&Vec<PathBuf>]) -> Option<Image> {
    if name.as_bytes().contains(&b'/') {
        return Image::open(Path::new(name)).ok();
    }
    order.iter().flat_map(|directories| directories.iter()).find_map(|dir| Image::open(&dir.join(name)).ok())
}

/// Splits a search path and fills in `$ORIGIN`, `$LIB` and `$PLATFORM`. An empty element is the current directory.
fn search_path(path: &OsStr, separators: &[u8], object: Option<&Path>) -> Vec<PathBuf> {
    if path.is_empty() {
        return Vec::new();
    }
    let origin = object.and_then(|o| o.canonicalize().ok()).and_then(|o| o.parent().map(Path::to_path_buf));
    let origin = origin.as_deref().map_or(b".".as_slice(), |o| o.as_os_str().as_bytes());
    let elements = path.as_bytes().split(|b| separators.contains(b)).take(SEARCH_LIMIT);
    let filled = elements.flat_map(|element| {
        // $LIB differs between distributions: both meanings are tried.
        let debian = format!("lib/{MULTIARCH}");
        let both = [Some(debian.as_str()).filter(|_| contains(element, b"LIB")), Some("lib64")];
        let known = |lib: &str| {
            fill(element, &[("ORIGIN", origin), ("LIB", lib.as_bytes()), ("PLATFORM", PLATFORM.as_bytes())])
        };
        both.into_iter().flatten().map(known).collect::<Vec<_>>()
    });
    filled.map(|bytes| if bytes.is_empty() { ".".into() } else { PathBuf::from(OsString::from_vec(bytes)) }).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

/// Replaces `$NAME` and `${NAME}`.
fn fill(element: &[u8], tokens: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = element;
    while let Some((first, tail)) = rest.split_first() {
        let token = (*first == b'$').then(|| {
            tokens.iter().find_map(|(name, value)| {
                let plain = tail.strip_prefix(name.as_bytes());
                let braced = || tail.strip_prefix(format!("{{{name}}}").as_bytes());
                plain.or_else(braced).map(|after| (*value, after))
            })
        });
        match token.flatten() {
            Some((value, after)) => {
                out.extend_from_slice(value);
                rest = after;
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_paths_are_split_and_filled() {
        let object = Path::new("/proc/self/exe");
        let origin = object.canonicalize().unwrap().parent().unwrap().to_path_buf();
        let split = |path: &str| search_path(OsStr::new(path), b":", Some(object));
        assert_eq!(split("$ORIGIN/../lib:${ORIGIN}"), [origin.join("../lib"), origin.clone()]);
        assert_eq!(split("/a::/b"), ["/a", ".", "/b"].map(PathBuf::from));
        assert_eq!(split("/x/$LIB"), [&format!("/x/lib/{MULTIARCH}"), "/x/lib64"].map(PathBuf::from));
        assert_eq!(split("/y/$OTHER/${PLATFORM}"), [format!("/y/$OTHER/{PLATFORM}")].map(PathBuf::from));
        assert_eq!(split(""), Vec::<PathBuf>::new());
    }
}
