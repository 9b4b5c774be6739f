//! A program with the preloaded object of one version, under a recorder of another version: it runs undisturbed, and a
//! message says what to do.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use uunwind_ring::layout::{FIRST_PAGE, OTHER_VERSION_OFFSET, SESSION_BYTES, SESSION_MAGIC, SESSION_VERSION};
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::{paths, uu};

/// The session of a recorder.
struct Session(OwnedFd);

impl Session {
    fn create(bytes: usize, magic: u64, version: u32) -> Session {
        // SAFETY: a NUL-terminated name; the descriptor is ours alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"uu-session".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0, "a memory file");
            std::fs::File::from_raw_fd(fd)
        };
        let mut page = vec![0; FIRST_PAGE];
        page[..8].copy_from_slice(&magic.to_le_bytes());
        page[8..12].copy_from_slice(&version.to_le_bytes());
        file.set_len(bytes as u64).expect("sparse");
        std::os::unix::fs::FileExt::write_all_at(&file, &page, 0).expect("written");
        // SAFETY: a plain system call on our own descriptor.
        let sealed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
        Session(file.into())
    }

    /// Runs a program with two children under this recorder.
    fn run(&self, name: &str) -> Outcome {
        let scratch = paths::scratch(name);
        let preload = paths::tree().join("lib/uu/libuunwind-preload.so");
        let setting = format!("{}:{fd}:{fd}:99:0", std::process::id(), fd = self.0.as_raw_fd());
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", "/bin/true; /bin/echo unharmed; exit 7"])
            .env("LD_PRELOAD", preload)
            .env("UU_SESSION", setting);
        let outcome = run(&mut shell, &scratch, uu::LIMIT);
        assert_eq!((outcome.code(), outcome.stdout.trim()), (7, "unharmed"), "{}", outcome.text());
        std::fs::remove_dir_all(scratch).expect("removed");
        outcome
    }

    fn other_version(&self) -> u32 {
        let mut word = [0; 4];
        let file = std::fs::File::from(self.0.try_clone().expect("a descriptor"));
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut word, OTHER_VERSION_OFFSET as u64).expect("inside");
        u32::from_le_bytes(word)
    }
}

#[test]
fn a_recorder_of_another_version_is_named_once() {
    for (name, bytes, version) in [
        ("older", SESSION_BYTES / 2, SESSION_VERSION - 1),
        ("newer", SESSION_BYTES * 2, SESSION_VERSION + 1),
        ("next", SESSION_BYTES, u32::MAX),
    ] {
        let session = Session::create(bytes, SESSION_MAGIC, version);
        let said = session.run(name).stderr;
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 1, "one line for three processes: {said}");
        for part in [
            "uu: not recorded: ",
            "/lib/uu/libuunwind-preload.so",
            &format!("session version {SESSION_VERSION},"),
            &format!("of version {version}."),
            "install uu again",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(session.other_version(), SESSION_VERSION);
    }
}

#[test]
fn what_is_no_session_is_passed_over() {
    let session = Session::create(SESSION_BYTES, SESSION_MAGIC + 1, SESSION_VERSION + 1);
    assert_eq!(session.run("no-session").stderr, "");
    assert_eq!(session.other_version(), 0);
}
