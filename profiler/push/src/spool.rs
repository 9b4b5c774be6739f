//! Profiles that wait to be sent, in files that outlive uu. Each uu has a folder of its own, which it holds locked; one
//! whose uu is gone is taken over by the next that sends to the same place.

use rustix::fs::{flock, FlockOperation};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes that wait at most; the oldest profiles go first.
const MOST: u64 = 64 << 20;
/// Profiles that wait at most.
const COUNT: usize = 4096;
/// Name of the file that a running uu holds locked.
const LOCK: &str = "lock";

/// A profile that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) path: PathBuf,
    /// Number of samples in it.
    pub(crate) samples: u64,
    /// The query of its request; empty: the file is damaged.
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// The folder of this uu.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    _lock: File,
    next: u64,
    /// Bytes that may wait.
    most: u64,
}

impl Spool {
    /// Opens a folder below `base` for what goes to this URL, and takes over what others have left. Returns it with the
    /// number of profiles that were left.
    pub(crate) fn open(base: &Path, url: &str) -> io::Result<(Spool, usize)> {
        let hash = Sha256::digest(url.as_bytes());
        let name: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let place = base.join(name);
        let own = place.join(std::process::id().to_string());
        // What is sampled concerns the user alone.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
        let lock = locked(&own)?.ok_or_else(|| io::Error::new(io::ErrorKind::WouldBlock, "another uu holds it"))?;
        let mut spool = Spool { folder: own, _lock: lock, next: 0, most: MOST };
        spool.next = spool.waiting()?.last().and_then(|path| number(path)).map_or(0, |last| last + 1);
        for other in fs::read_dir(&place)?.flatten().map(|entry| entry.path()) {
            if other != spool.folder {
                // Best effort: what is in the way of one folder is not in that of the others.
                let _ = spool.take_over(&other);
            }
        }
        let left = spool.waiting()?.len();
        Ok((spool, left))
    }

    fn take_over(&mut self, other: &Path) -> io::Result<()> {
        let Some(_lock) = locked(other)? else { return Ok(()) };
        for path in numbered(other)? {
            fs::rename(&path, self.folder.join(format!("{:016}", self.next)))?;
            self.next += 1;
        }
        fs::remove_file(other.join(LOCK))?;
        fs::remove_dir(other)
    }

    /// Adds a profile. Returns how many had to go for it.
    pub(crate) fn add(&mut self, samples: u64, query: &str, body: &[u8]) -> io::Result<usize> {
        let mut gone = 0;
        let size = |path: &PathBuf| path.metadata().map_or(0, |data| data.len());
        let mut all = self.waiting()?;
        let mut bytes = all.iter().map(size).sum::<u64>().saturating_add(body.len() as u64);
        while !all.is_empty() && (bytes > self.most || all.len() >= COUNT) {
            let oldest = all.remove(0);
            bytes = bytes.saturating_sub(size(&oldest));
            fs::remove_file(oldest)?;
            gone += 1;
        }
        let path = self.folder.join(format!("{:016}", self.next));
        let partial = path.with_extension("part");
        let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial).and_then(
            |mut file| {
                file.write_all(format!("{samples} {query}\n").as_bytes())?;
                file.write_all(body)
            },
        );
        if let Err(error) = written.and_then(|()| fs::rename(&partial, &path)) {
            let _ = fs::remove_file(partial);
            return Err(error);
        }
        self.next += 1;
        Ok(gone)
    }

    /// The profile that has waited longest.
    pub(crate) fn oldest(&self) -> io::Result<Option<Waiting>> {
        let Some(path) = self.waiting()?.into_iter().next() else { return Ok(None) };
        let mut all = Vec::new();
        File::open(&path)?.take(2 * MOST).read_to_end(&mut all)?;
        let end = all.iter().position(|byte| *byte == b'\n').unwrap_or(all.len());
        let body = all.get(end + 1..).unwrap_or_default().to_vec();
        all.truncate(end);
        let line = String::from_utf8(all).unwrap_or_default();
        let (samples, query) = line.split_once(' ').unwrap_or_default();
        let is_query = query.bytes().all(|byte| byte.is_ascii_graphic());
        let query = if is_query { query.to_owned() } else { String::new() };
        Ok(Some(Waiting { path, samples: samples.parse().unwrap_or(0), query, body }))
    }

    /// Number of profiles that wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting().map_or(0, |all| all.len())
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Those that wait, the oldest first.
    fn waiting(&self) -> io::Result<Vec<PathBuf>> {
        numbered(&self.folder)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.count() == 0 {
            let _ = fs::remove_file(self.folder.join(LOCK));
            let _ = fs::remove_dir(&self.folder);
            let _ = self.folder.parent().map(fs::remove_dir);
        }
    }
}

/// The lock of a folder; `None`: another uu holds it.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.parse().ok())?
}

/// The profiles of a folder, the oldest first.
fn numbered(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let all = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = all.filter(|path| number(path).is_some()).collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_wait_in_order_and_the_oldest_go() {
        let base = tempfile::tempdir().expect("a folder");
        let (mut spool, left) = Spool::open(base.path(), "http://h").expect("a spool");
        assert_eq!(left, 0);
        spool.most = 250;
        for (n, gone) in [(0, 0), (1, 0), (2, 1)] {
            assert_eq!(spool.add(n.into(), &format!("n={n}"), &[n; 100]).expect("room"), gone);
        }
        let oldest = spool.oldest().expect("readable").expect("one");
        assert_eq!((&*oldest.query, &oldest.body[..]), ("n=1", &[1; 100][..]));
        fs::remove_file(oldest.path).expect("it is there");
        assert_eq!(spool.oldest().expect("readable").expect("one").query, "n=2");
    }

    #[test]
    fn what_another_has_left_is_taken_over() {
        let base = tempfile::tempdir().expect("a folder");
        let place = base.path().join("9a84");
        let (spool, _) = Spool::open(base.path(), "http://h").expect("a spool");
        let place = spool.folder.parent().map_or(place, Path::to_path_buf);
        let other = place.join("1");
        fs::create_dir(&other).expect("a folder");
        fs::write(other.join(format!("{:016}", 5)), "3 a=b\nbody").expect("a file");
        let held = place.join("2");
        fs::create_dir(&held).expect("a folder");
        fs::write(held.join(format!("{:016}", 5)), "3 c=d\nbody").expect("a file");
        let _lock = locked(&held).expect("no error").expect("a lock");
        drop(spool);
        let (spool, left) = Spool::open(base.path(), "http://h").expect("a spool");
        assert_eq!((left, other.exists(), held.exists()), (1, false, true));
        assert_eq!(spool.oldest().expect("readable").expect("one").query, "a=b");
    }
}
