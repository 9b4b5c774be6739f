//! Folders for what one test writes: hundreds of megabytes of recordings and core files, all together some 17 GB.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// The folders that this process has made, and its id: a copy of it that forks and ends well deletes nothing.
static MADE: Mutex<(u32, Vec<PathBuf>)> = Mutex::new((0, Vec::new()));

/// A fresh, empty folder for one test. It is deleted when the test program ends with status 0; where a test has failed,
/// all folders of its program stay for examination, until the next `ci/test` or `cargo clean`.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static AT_END: Once = Once::new();
    let process = std::process::id();
    let unique = format!("{name}-{process}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let path = crate::paths::target().join("uu-tests").join(unique);
    std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
    AT_END.call_once(|| {
        // SAFETY: the function has the type that on_exit wants and lives as long as the program.
        let refused = unsafe { on_exit(delete, std::ptr::null_mut()) };
        assert_eq!(refused, 0, "on_exit");
    });
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.0 = process;
    made.1.push(path.clone());
    path
}

unsafe extern "C" {
    /// glibc's `atexit` whose functions are told the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn delete(status: c_int, _: *mut c_void) {
    // Another thread may hold the lock, or has died with it: then the folders stay.
    let Ok(made) = MADE.try_lock() else { return };
    if status != 0 || made.0 != std::process::id() {
        return;
    }
    for folder in &made.1 {
        // What another user has written, or a mount: no reason to fail now.
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Stands for a test program: makes a folder and ends with the status that it is told.
    #[test]
    fn program() {
        let Some(status) = std::env::var_os("UU_SCRATCH_STATUS") else { return };
        println!("made {}", folder("scratch-of-a-program").display());
        // A copy that ends well before: it deletes nothing.
        // SAFETY: the copy does nothing but end.
        match unsafe { libc::fork() } {
            0 => std::process::exit(0),
            // SAFETY: the status is not wanted.
            copy => assert_eq!(unsafe { libc::waitpid(copy, std::ptr::null_mut(), 0) }, copy),
        }
        let kept = MADE.lock().expect("nothing has panicked").1.iter().all(|made| made.is_dir());
        std::process::exit(if kept { status.to_str().and_then(|s| s.parse().ok()).expect("a number") } else { 99 });
    }

    #[test]
    fn folders_stay_after_a_failure_alone() {
        for (status, stays) in [(0, false), (101, true)] {
            let program = std::env::current_exe().expect("a path");
            let outcome = Command::new(program)
                .args(["--exact", "scratch::tests::program", "--nocapture"])
                .env("UU_SCRATCH_STATUS", status.to_string())
                .output()
                .expect("it runs");
            assert_eq!(outcome.status.code(), Some(status));
            let said = String::from_utf8(outcome.stdout).expect("text");
            let made = said.lines().find_map(|line| line.split_once("made ")).expect("the folder's path").1;
            assert_eq!(std::path::Path::new(made).is_dir(), stays, "{made} after status {status}");
            let _ = std::fs::remove_dir_all(made);
        }
    }
}
