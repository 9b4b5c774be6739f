//! The recording's file: created and tested for writing before the program starts, under a temporary name until the
//! program's pid is known.

use crate::config::RecordError;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile, TempPath};
use uunwind_elf::files;

/// At most this number of names are tried for a recording whose file was replaced.
const NAMES: u32 = 100;

/// The file under its temporary name. It is removed when this value is dropped.
pub struct OutputFile(NamedTempFile);

impl OutputFile {
    /// Creates the file in the directory of `wanted`, the path that the recording will have.
    pub fn create(wanted: &Path) -> Result<OutputFile, RecordError> {
        let error = |e| RecordError::Output(wanted.to_owned(), e);
        match std::fs::metadata(wanted) {
            Ok(meta) if meta.is_dir() => return Err(error(io::Error::from(io::ErrorKind::IsADirectory))),
            Ok(meta) if !meta.is_file() => {
                return Err(error(io::Error::other("it is a device or pipe, and a recording must be read back")));
            }
            Ok(_) => {
                // An existing file must be writable. It is replaced only after the program has started.
                files::open_result(wanted, false).map_err(error)?;
            }
            Err(_) => {}
        }
        let partial = partial(wanted).map_err(|e| error(files::not_made(wanted, e)))?;
        Ok(OutputFile(partial))
    }

    /// The file, to write to and to read back.
    pub fn file(&self) -> io::Result<File> {
        self.0.as_file().try_clone()
    }

    /// Gives the file its final name; with the file that had this name before, if there was one.
    pub fn rename(self, name: PathBuf) -> Result<(PathBuf, Option<Older>), RecordError> {
        let older = match Older::put_aside(&name) {
            Ok(older) => older,
            Err(e) => return Err(RecordError::Output(name, e)),
        };
        match self.0.persist(&name) {
            Ok(_) => Ok((name, older)),
            Err(e) => Err(RecordError::Output(name, e.error)),
        }
    }
}

/// The file that had the recording's name before, under a temporary name. It gets its name back when this value is
/// dropped: a recording of nothing takes the place of none.
#[derive(Debug)]
pub struct Older {
    aside: TempPath,
    name: PathBuf,
}

impl Older {
    /// Gives a file another name, beside its own where the file system has hard links. `None`: there is no such file.
    fn put_aside(name: &Path) -> io::Result<Option<Older>> {
        if name.symlink_metadata().is_err() {
            return Ok(None);
        }
        let link = |aside: &Path| std::fs::hard_link(name, aside).or_else(|_| std::fs::rename(name, aside));
        let aside = unnamed(&mut Builder::new()).make_in(folder(name), link)?.into_temp_path();
        Ok(Some(Older { aside, name: name.to_owned() }))
    }

    /// The path that it gets back.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Removes it: the recording has taken its place.
    pub fn discard(mut self) {
        self.name = PathBuf::new();
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        if self.name != Path::new("") {
            // If it fails, the file keeps its temporary name. Where both are names of one file, this does nothing, and
            // the temporary one is removed.
            match std::fs::rename(&self.aside, &self.name) {
                Ok(()) => {}
                Err(_) => self.aside.disable_cleanup(true),
            }
        }
    }
}

/// A new file in the directory of `wanted`, with an unpredictable name.
pub fn partial(wanted: &Path) -> io::Result<NamedTempFile> {
    // The umask reduces these permissions, as for any file.
    unnamed(&mut Builder::new()).permissions(Permissions::from_mode(0o666)).tempfile_in(folder(wanted))
}

/// Makes names for files that have none yet, or no more.
fn unnamed<'b, 'n>(builder: &'b mut Builder<'n, 'n>) -> &'b mut Builder<'n, 'n> {
    builder.prefix(".uu-partial-").rand_bytes(16)
}

/// The directory of a file.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Ensures at the end that the recording has a name: another process may have removed the file or replaced it. Then its
/// content is copied to the same path if that is free, otherwise to a new name in the same directory. Returns the path.
pub fn settle(file: &File, path: &Path) -> io::Result<PathBuf> {
    let own = file.metadata()?;
    if path.symlink_metadata().is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
        return Ok(path.to_owned());
    }
    let mut copy = partial(path)?;
    let mut from = file;
    io::Seek::rewind(&mut from)?;
    io::copy(&mut from, copy.as_file_mut())?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let others = (2..NAMES).map(|n| path.with_file_name(format!("{stem}.{n}.uu")));
    for name in [path.to_owned()].into_iter().chain(others) {
        match copy.persist_noclobber(&name) {
            Ok(_) => return Ok(name),
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => copy = e.file,
            Err(e) => return Err(e.error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Ends a recording's file, as [`settle`] does. Returns its path, and why it could not be written or named.
/// `failure`: of its writer.
pub fn finish(file: &File, path: &Path, failure: Option<&io::Error>) -> (PathBuf, Option<io::Error>) {
    let failure = failure.map(|error| io::Error::new(error.kind(), error.to_string()));
    match settle(file, path) {
        Ok(path) => (path, failure),
        Err(error) => (path.to_owned(), Some(error)),
    }
}

/// The default name of a recording: `uu-<program>-<pid>.uu`.
pub fn default_name(program: &Path, pid: u32) -> PathBuf {
    let program = program.file_name().map_or("program".into(), |name| name.to_string_lossy());
    PathBuf::from(format!("uu-{program}-{pid}.uu"))
}

/// A path in whose last part each `%p` stands for the id of the recorded process. Folders are as they are written: they
/// are looked for before the program has an id.
pub fn with_pid(path: &Path, pid: u32) -> PathBuf {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let mut parts = name.split(|byte| *byte == b'%');
    let mut named = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        match part.strip_prefix(b"p") {
            Some(rest) => named.extend([pid.to_string().as_bytes(), rest].concat()),
            None => named.extend([b"%", part].concat()),
        }
    }
    if named == name {
        return path.to_owned();
    }
    path.with_file_name(OsStr::from_bytes(&named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_process_id_stands_in_names_of_files() {
        for (path, named) in [
            ("d-%p/x-%p.%p.uu", "d-%p/x-17.17.uu"),
            ("x.uu", "x.uu"),
            ("100%.uu", "100%.uu"),
            ("%%p%t", "%17%t"),
            ("/", "/"),
            ("..", ".."),
        ] {
            assert_eq!(with_pid(Path::new(path), 17), Path::new(named), "{path}");
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uu-output-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder");
        let mut names: Vec<_> = entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_begun_leaves_nothing() {
        let folder = folder("begun");
        let output = OutputFile::create(&folder.join("x.uu")).expect("a file");
        let [name] = &names(&folder)[..] else { panic!("one file") };
        assert!(name.starts_with(".uu-partial-") && !name.contains(&std::process::id().to_string()), "{name}");
        drop(output);
        assert!(names(&folder).is_empty());
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn an_older_file_is_given_back_or_discarded() {
        let folder = folder("older");
        let path = folder.join("x.uu");
        let read = || std::fs::read(&path).expect("a file");
        let new = || {
            let output = OutputFile::create(&path).expect("a file");
            output.file().and_then(|mut file| file.write_all(b"new")).expect("room");
            output.rename(path.clone()).expect("the name").1
        };
        assert!(new().is_none(), "there is no older one");
        std::fs::write(&path, b"older").expect("room");
        let older = new().expect("the older one");
        assert_eq!((read(), names(&folder).len()), (b"new".to_vec(), 2));
        drop(older);
        assert_eq!((read(), names(&folder)), (b"older".to_vec(), vec!["x.uu".to_owned()]));
        new().expect("the older one").discard();
        assert_eq!((read(), names(&folder)), (b"new".to_vec(), vec!["x.uu".to_owned()]));
        // A file that could not be replaced: both names are its own.
        drop(Older::put_aside(&path).expect("a name"));
        assert_eq!((read(), names(&folder)), (b"new".to_vec(), vec!["x.uu".to_owned()]));
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_recording_that_lost_its_name_gets_one() {
        let folder = folder("lost");
        let path = folder.join("x.uu");
        let output = OutputFile::create(&path).expect("a file");
        let mut file = output.file().expect("the file");
        file.write_all(b"recording").expect("room");
        output.rename(path.clone()).expect("the name");
        assert_eq!(settle(&file, &path).expect("its name"), path);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(settle(&file, &path).expect("a name"), path, "removed");
        assert_eq!(std::fs::read(&path).expect("the recording"), b"recording");
        std::fs::write(&path, b"another").expect("a file in its place");
        let second = folder.join("x.2.uu");
        assert_eq!(settle(&file, &path).expect("a name"), second, "replaced");
        assert_eq!(std::fs::read(&path).expect("the other"), b"another");
        assert_eq!(std::fs::read(&second).expect("the recording"), b"recording");
        assert_eq!(names(&folder), ["x.2.uu", "x.uu"]);
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
