//! Opening files by paths that other people choose: a recorded program decides what lies at the paths of its objects.
//! Nothing here waits, whatever lies there, and only regular files are read.

use rustix::fs::{accessat, fcntl_setfl, Access, AtFlags, OFlags, CWD};
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading.
///
/// It is asked what lies there before it is opened, since opening a device may do something to it; and once more
/// afterwards, since something else may lie there by then. Opening a FIFO would wait for a writer, but for
/// `O_NONBLOCK`, which means nothing to a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    regular(std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file that has at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(&open(path)?, limit)
}

/// Reads a file that is open, from its beginning, if it has at most `limit` bytes. Needs no more memory than it has
/// bytes; too little memory is an error.
pub fn read_open(mut file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > limit {
        return Err(io::Error::other(format!("it has {len} bytes; at most {limit} are read")));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    io::Seek::rewind(&mut file)?;
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens what a result is written to; makes it where nothing lies there. What it held is gone, if `truncate`.
///
/// Terminals, `/dev/null` and the like are allowed, as is a FIFO with a reader; one without is refused,
/// since opening it would wait.
pub fn open_result(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(truncate).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|error| match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_fifo() && error.raw_os_error() == Some(libc::ENXIO) => {
            io::Error::other("it is a FIFO that nobody reads")
        }
        Ok(_) => error,
        Err(_) => not_made(path, error),
    })?;
    takes_results(file.metadata()?.file_type())?;
    // From here on, who reads slowly may be waited for.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Why no file could be made at a path: what is wrong with its folder, of which people have not thought.
pub fn not_made(path: &Path, error: io::Error) -> io::Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kind = error.kind();
    let said = match std::fs::metadata(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => format!("there is no folder {}", folder.display()),
        Ok(there) if !there.is_dir() => format!("{} is no folder", folder.display()),
        _ if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            format!("no file can be made in the folder {}: {}", folder.display(), io::Error::from(kind))
        }
        _ => return error,
    };
    io::Error::new(kind, said)
}

/// Checks that a result could be written to what lies at a path, if that is no regular file; whether it is such a one.
/// It is not opened: the reader of a FIFO would take the end of this writer for the end of the result.
pub fn check_special(path: &Path) -> io::Result<bool> {
    let kind = match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => meta.file_type(),
        _ => return Ok(false),
    };
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    takes_results(kind)?;
    accessat(CWD, path, Access::WRITE_OK, AtFlags::empty())?;
    Ok(true)
}

/// An error that says what it is, unless results can be written to it.
fn takes_results(kind: FileType) -> io::Result<()> {
    if kind.is_file() || kind.is_char_device() || kind.is_fifo() {
        return Ok(());
    }
    Err(io::Error::other(format!("it is {}", what(kind))))
}

/// An error that says what it is, unless it is a regular file.
fn regular(meta: Metadata) -> io::Result<()> {
    if meta.is_file() {
        return Ok(());
    }
    Err(io::Error::other(format!("it is {}, not a regular file", what(meta.file_type()))))
}

fn what(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_char_device() => "a character device",
        _ => "a special file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mkfifoat, Mode};
    use std::io::Write;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uu-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn fifo(folder: &Path) -> PathBuf {
        let path = folder.join("fifo");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        path
    }

    fn error<T>(result: io::Result<T>) -> String {
        result.err().map_or("no error".to_owned(), |error| error.to_string())
    }

    #[test]
    fn special_files_are_refused_without_waiting() {
        let folder = folder("special");
        let fifo = fifo(&folder);
        assert_eq!(error(open(&fifo)), "it is a FIFO, not a regular file");
        assert_eq!(error(open_result(&fifo, true)), "it is a FIFO that nobody reads");
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert_eq!(error(open(&socket)), "it is a socket, not a regular file");
        assert!(open_result(&socket, true).is_err());
        assert_eq!(error(check_special(&socket)), "it is a socket");
        assert!(check_special(&folder).is_err());
        assert_eq!(error(open(&folder)), "it is a directory, not a regular file");
        assert_eq!(error(open(Path::new("/dev/null"))), "it is a character device, not a regular file");
        assert!(open_result(Path::new("/dev/null"), true).is_ok());
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_fifo_that_is_read_takes_a_result() {
        let folder = folder("read");
        let fifo = fifo(&folder);
        // Opened for both, so that neither end waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&fifo).expect("the reading end");
        assert!(check_special(&fifo).expect("a FIFO") && !check_special(&folder.join("none")).expect("nothing"));
        open_result(&fifo, true).expect("the writing end").write_all(b"result").expect("room");
        let mut got = [0; 6];
        reader.read_exact(&mut got).expect("the result");
        assert_eq!(&got, b"result");
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let folder = folder("large");
        let path = folder.join("file");
        std::fs::write(&path, b"12345").expect("a file");
        assert_eq!(read(&path, 5).expect("small enough"), b"12345");
        assert_eq!(error(read(&path, 4)), "it has 5 bytes; at most 4 are read");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
