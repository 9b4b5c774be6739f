//! Objects as analysers read them. The analysis takes a path, so the bytes are written to a memfd.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_built_in::python::signal::facts::Facts;
use uunwind_built_in::HALVES;
use uunwind_elf::{key_of, Image};
use uunwind_language::Finding;

pub fn run(data: &[u8]) -> bool {
    with_file(data, |path| match Image::open(path) {
        Ok(image) => {
            assert!(key_of(&image).0 != 0, "0 means a free entry");
            for half in HALVES {
                let (found, language) = (half.analyse(&image), half.language());
                if let (Finding::Facts(bytes), "python") = (found, &*language.plugin) {
                    assert!(Facts::read(&bytes).is_some(), "facts that the signal half refuses");
                }
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    })
}

/// Calls `f` with the path of an executable file that holds `data`.
pub fn with_file<T>(data: &[u8], f: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FILE: OnceCell<File> = const { OnceCell::new() };
    }
    FILE.with(|file| {
        let file = file.get_or_init(|| {
            // SAFETY: a NUL-terminated name; the new descriptor is owned by the File alone.
            let fd = unsafe { libc::memfd_create(c"uu-fuzz".as_ptr(), libc::MFD_CLOEXEC) };
            assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
            // SAFETY: as above.
            unsafe { File::from_raw_fd(fd) }
        });
        file.set_len(0).and_then(|()| file.write_all_at(data, 0)).expect("room in a memfd");
        f(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    })
}
