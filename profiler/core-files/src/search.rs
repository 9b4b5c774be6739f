//! Finds the files that a core file's process had mapped. A file is taken if it is the one that was mapped: by its
//! build-id, or by its headers where it has none, which the kernel and gdb write into the core file; where they are
//! missing, by its dynamic section.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::{key_of, Image};
use uunwind_symbolize::hex;

/// Longest wait for a file from a server.
const PATIENCE: Duration = Duration::from_secs(90);
/// What Linux appends to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// Where distributions place files by their build-ids.
pub const SYSTEM_DEBUG: &str = "/usr/lib/debug";

/// What identifies the file of an object.
pub enum Identity {
    /// Its build-id.
    BuildId(Vec<u8>),
    /// Its ELF header and program headers: it has no build-id.
    Headers(Vec<u8>),
    /// The key of its headers ([`uunwind_elf::key_of`]): it has no build-id.
    Key(u64),
    /// The core file does not say.
    Unknown,
}

/// Where files are looked for.
#[derive(Default)]
pub struct Search {
    /// The program, where it was named.
    pub executable: Option<PathBuf>,
    /// Whether at the paths that the core file has.
    pub own_paths: bool,
    /// Folders with files by path, by name, or by build-id (`.build-id/ab/cdef...`).
    pub folders: Vec<PathBuf>,
    /// Whether in the folders where debuginfod's clients keep what they have fetched.
    pub caches: bool,
    /// Whether files may be fetched from the servers of `DEBUGINFOD_URLS`, by `debuginfod-find`.
    pub servers: bool,
}

impl Search {
    /// Opens the file of an object. `name`: its path, as the core file has it. `is_program`: it holds the program's
    /// first instruction. `fits`: whether an image whose file the core file does not identify is what was mapped. The
    /// error says, for people, why there is none.
    pub fn open(
        &self,
        name: &[u8],
        identity: &Identity,
        is_program: bool,
        fits: &dyn Fn(&Image) -> bool,
    ) -> Result<(Image, PathBuf), String> {
        let mut why = None;
        for path in self.candidates(name, identity, is_program) {
            match Image::open(&path) {
                Ok(image) => match check(&image, identity, fits) {
                    Ok(()) => return Ok((image, path)),
                    Err(different) => why = why.or(Some(format!("{} {different}", path.display()))),
                },
                Err(error) if path.as_os_str().as_bytes() == name => why = why.or(Some(error.to_string())),
                Err(_) => {}
            }
        }
        if let Identity::BuildId(id) = identity {
            let fetched = self.fetch("executable", id).and_then(|path| Some((Image::open(&path).ok()?, path)));
            if let Some((image, path)) = fetched.filter(|(image, _)| check(image, identity, fits).is_ok()) {
                return Ok((image, path));
            }
            let why = why.unwrap_or_else(|| "there is no such file".to_owned());
            return Err(format!("{why} (build-id {})", hex(id)));
        }
        Err(why.unwrap_or_else(|| "there is no such file".to_owned()))
    }

    /// A file that has only the symbols and lines of an object, for names.
    pub fn debug_file(&self, build_id: &[u8]) -> Option<PathBuf> {
        let by_id = by_id(build_id)?;
        let mut debug = by_id.into_os_string();
        debug.push(".debug");
        // Whoever reads lines looks into the system's folder itself.
        let folders = self.folders.iter().filter(|folder| *folder != Path::new(SYSTEM_DEBUG));
        let places = folders.map(|folder| folder.join(&debug));
        places
            .chain(self.cached("debuginfo", build_id))
            .find(|path| path.is_file())
            .or_else(|| self.fetch("debuginfo", build_id))
    }

    fn candidates(&self, name: &[u8], identity: &Identity, is_program: bool) -> Vec<PathBuf> {
        let own = Path::new(OsStr::from_bytes(name.strip_suffix(DELETED).unwrap_or(name)));
        // Without an identity, it could be taken for any object.
        let identified = !matches!(identity, Identity::Unknown);
        let mut all: Vec<PathBuf> = self.executable.iter().filter(|_| identified || is_program).cloned().collect();
        all.extend((self.own_paths && own.is_absolute()).then(|| own.to_owned()));
        for folder in &self.folders {
            if let Identity::BuildId(id) = identity {
                all.extend(by_id(id).map(|path| folder.join(path)));
            }
            all.extend(own.strip_prefix("/").ok().map(|path| folder.join(path)));
            all.extend(own.file_name().map(|name| folder.join(name)));
        }
        if let Identity::BuildId(id) = identity {
            all.extend(self.cached("executable", id));
        }
        all
    }

    /// Where debuginfod's clients keep what they have fetched
    /// ([debuginfod_find_debuginfo(3)](https://man7.org/linux/man-pages/man3/debuginfod_find_debuginfo.3.html)).
    fn cached(&self, kind: &str, build_id: &[u8]) -> Vec<PathBuf> {
        if !self.caches {
            return Vec::new();
        }
        let folder = |name: &str, rest: &str| {
            let folder = std::env::var_os(name).filter(|folder: &OsString| !folder.is_empty());
            folder.map(|folder| Path::new(&folder).join(rest))
        };
        let folders = [
            folder("DEBUGINFOD_CACHE_PATH", ""),
            folder("XDG_CACHE_HOME", "debuginfod_client"),
            folder("HOME", ".cache/debuginfod_client"),
            folder("HOME", ".debuginfod_client_cache"),
        ];
        folders.into_iter().flatten().map(|folder| folder.join(hex(build_id)).join(kind)).collect()
    }

    /// Asks the servers for a file (debuginfod-find(1)), whose path it prints.
    fn fetch(&self, kind: &str, build_id: &[u8]) -> Option<PathBuf> {
        if !self.servers || std::env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.is_empty()) {
            return None;
        }
        let mut command = Command::new("debuginfod-find");
        command.args([kind, &hex(build_id)]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let begun = Instant::now();
        // It prints one line at its end, for which the pipe has room.
        while let Ok(None) = child.try_wait() {
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            uunwind_clock::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
        let line = output.stdout.split(|byte| *byte == b'\n').next().filter(|line| !line.is_empty())?;
        Some(PathBuf::from(OsStr::from_bytes(line)))
    }
}

/// Whether an image is the one that was mapped. The error says, for people, in what it differs.
pub fn check(image: &Image, identity: &Identity, fits: &dyn Fn(&Image) -> bool) -> Result<(), String> {
    match identity {
        Identity::BuildId(id) => match image.build_id() {
            Some(found) if found == *id => Ok(()),
            Some(found) => Err(format!("is another file: its build-id is {}", hex(&found))),
            None => Err("is another file: it has no build-id".to_owned()),
        },
        Identity::Headers(headers) if image.identity() == *headers => Ok(()),
        Identity::Headers(_) => Err("is another file: its headers are not those that were mapped".to_owned()),
        Identity::Key(key) if key_of(image).0 == *key => Ok(()),
        Identity::Key(_) => Err("is another file: its headers are not those that were mapped".to_owned()),
        Identity::Unknown if fits(image) => Ok(()),
        Identity::Unknown => Err("cannot be compared with what was mapped: the core file lacks its headers".to_owned()),
    }
}

/// `.build-id/ab/cdef...`
fn by_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!(".build-id/{first:02x}/{}", hex(rest))))
}
