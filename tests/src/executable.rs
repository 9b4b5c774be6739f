//! Writes or copies programs that a test then runs. If this process had the file open for writing while another test's
//! thread starts a program, that child would have it open as well until its exec, and running the file meanwhile would
//! fail with "Text file busy". So another process writes it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a file with its mode, or a whole folder. A file with the new name is replaced.
#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    let done =
        Command::new("cp").args(["-a", "--remove-destination", "--"]).args([from, to]).output().expect("cp runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// An executable file of these bytes.
#[track_caller]
pub fn write(path: &Path, bytes: &[u8]) {
    let mut plain = path.as_os_str().to_owned();
    plain.push(".plain");
    let plain = PathBuf::from(plain);
    std::fs::write(&plain, bytes).unwrap_or_else(|e| panic!("{}: {e}", plain.display()));
    let done = Command::new("install").args(["-m", "755", "--"]).args([&plain, path]).output().expect("install runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other threads start programs all the while.
    #[test]
    fn what_was_made_can_be_run_at_once() {
        let scratch = crate::paths::scratch("executable");
        let program = scratch.join("program");
        let over = std::sync::atomic::AtomicBool::new(false);
        let start = || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                Command::new("true").status().expect("true runs");
            }
        };
        std::thread::scope(|threads| {
            (0..4).for_each(|_| drop(threads.spawn(start)));
            let failed = (0..200).find_map(|number| {
                if number % 2 == 0 {
                    write(&program, b"#!/bin/sh\nexit 7\n");
                } else {
                    copy(Path::new("/bin/false"), &program);
                }
                let code = Command::new(&program).status().map(|status| status.code());
                let wanted = if number % 2 == 0 { 7 } else { 1 };
                (code.as_ref().ok() != Some(&Some(wanted))).then(|| format!("{number}: {code:?}"))
            });
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(failed, None);
        });
    }
}
