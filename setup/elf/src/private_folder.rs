//! A folder that belongs to this user alone, and files in it that no other user can have written.
//!
//! Its path may come from the environment, and so from somebody else (`sudo -E`). Hence every folder on the way must
//! belong to this user or to root, the folder itself and each file to this user, and no other user may write them.
//! Everything in the folder is opened by its descriptor, without following links and without waiting.

use rustix::fs::{fstat, mkdir, open, openat, renameat, statat, unlinkat, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The folder, open.
#[derive(Debug)]
pub struct PrivateFolder(OwnedFd);

/// A private folder by its path: opened at its first use, when the way to it is checked once for all files. The folder
/// itself is checked at each use. If it is removed meanwhile, nothing is found in it, and nothing is kept.
#[derive(Clone, Debug)]
pub struct Drawer {
    path: PathBuf,
    folder: Arc<OnceLock<PrivateFolder>>,
}

impl Drawer {
    /// Opens nothing yet.
    pub fn at(path: PathBuf) -> Drawer {
        Drawer { path, folder: Arc::default() }
    }

    /// As [`PrivateFolder::read`].
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        self.opened(PrivateFolder::open)?.read(name, limit)
    }

    /// As [`PrivateFolder::write`], in a folder that is made where it is missing.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.opened(PrivateFolder::make)?.write(name, bytes)
    }

    /// As [`PrivateFolder::shrink`].
    pub fn shrink(&self, most: u64) -> io::Result<()> {
        self.opened(PrivateFolder::open)?.shrink(most)
    }

    fn opened(&self, open: fn(&Path) -> io::Result<PrivateFolder>) -> io::Result<&PrivateFolder> {
        match self.folder.get() {
            Some(folder) => check_own(&fstat(&folder.0)?).map(|()| folder),
            None => open(&self.path).map(|folder| self.folder.get_or_init(|| folder)),
        }
    }
}

impl PrivateFolder {
    /// Opens the folder.
    pub fn open(path: &Path) -> io::Result<PrivateFolder> {
        check_way(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty())?;
        check_own(&fstat(&folder)?)?;
        Ok(PrivateFolder(folder))
    }

    /// Opens the folder; makes it, and those above it, where they are missing.
    pub fn make(path: &Path) -> io::Result<PrivateFolder> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
        if let Some(nearest) = missing.last().and_then(|folder| folder.parent()) {
            check_way(&nearest.join("x"))?;
        }
        while let Some(folder) = missing.pop() {
            match mkdir(folder, Mode::RWXU) {
                // Another recording made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        PrivateFolder::open(path)
    }

    /// What a file in the folder holds, if it has at most `limit` bytes.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        check_own(&stat)?;
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > limit {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::with_capacity(size as usize);
        File::from(file).take(size).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a file: under another name first, so that no reader sees half of it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        let new = format!(".{:032x}.new", u128::from_le_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &new, flags, Mode::RUSR | Mode::WUSR)?;
        let written = File::from(file).write_all(bytes);
        let written = written.and_then(|()| Ok(renameat(&self.0, &new, &self.0, name)?));
        if written.is_err() {
            let _ = unlinkat(&self.0, &new, AtFlags::empty());
        }
        written
    }

    /// Removes the files that were written first, until the others have at most this number of bytes together.
    pub fn shrink(&self, most: u64) -> io::Result<()> {
        let (mut files, mut all) = (Vec::new(), 0u64);
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_owned();
            // Another process may have removed it.
            let Ok(stat) = statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                all = all.saturating_add(size);
                files.push(((stat.st_mtime, stat.st_mtime_nsec), size, name));
            }
        }
        files.sort_unstable();
        for (_, size, name) in files {
            if all <= most {
                break;
            }
            unlinkat(&self.0, &name, AtFlags::empty())?;
            all = all.saturating_sub(size);
        }
        Ok(())
    }
}

/// Whether all folders above a path belong to this user or to root: no other user can then put another one in a
/// folder's place.
fn check_way(path: &Path) -> io::Result<()> {
    let own = geteuid().as_raw();
    for folder in path.ancestors().skip(1).filter(|folder| folder.as_os_str() != OsStr::new("")) {
        // A link's own owner, and that of the folder that it leads to.
        for meta in [folder.symlink_metadata()?, folder.metadata()?] {
            if meta.uid() != 0 && meta.uid() != own {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
    }
    Ok(())
}

/// Whether what was opened belongs to this user, and no other user may write it.
fn check_own(stat: &Stat) -> io::Result<()> {
    let others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if stat.st_uid != geteuid().as_raw() || others {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}
