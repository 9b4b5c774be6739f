//! Programs of Go, built on machines that have it; and files kept from one for other machines.

use crate::{paths, skips};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Call frame information of a small program, compressed by Go; its code is not in it.
pub fn kept_frames() -> PathBuf {
    paths::source("go/frames-1.19.debug")
}

/// Whether Go is installed; if not, `what` is reported as skipped.
pub fn installed(what: &str) -> bool {
    let there = Command::new("go").arg("version").output().is_ok_and(|done| done.status.success());
    if !there {
        skips::skipped(what, "there is no go on this machine (package golang-go)");
    }
    there
}

/// Builds one Go source (relative to `tests/targets`), with cgo or without, and with these options.
///
/// # Panics
/// If Go fails.
#[track_caller]
pub fn build(dir: &Path, name: &str, source: &str, cgo: bool, options: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let mut go = Command::new("go");
    go.arg("build").args(options).arg("-o").arg(&out).arg(paths::source(source));
    // The home folder is left alone, and one run's compiled packages are used by the next.
    go.current_dir(dir).env("GOCACHE", paths::target().join("go-cache")).env("GOPATH", dir.join("go"));
    go.env("GO111MODULE", "off").env("GOFLAGS", "").env("CGO_ENABLED", if cgo { "1" } else { "0" });
    let done = go.output().expect("go is there");
    assert!(done.status.success(), "{go:?}: {}", String::from_utf8_lossy(&done.stderr));
    out
}
