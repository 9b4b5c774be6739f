//! Compiles the programs under observation from source, with the options that a test is about.

use crate::paths;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How an ordinary distribution compiles: optimised, no frame pointers.
pub const RELEASE: &[&str] = &["-O2", "-g", "-fomit-frame-pointer", "-Wall", "-Wextra"];

/// Compiles and links with gcc: `sources` (relative to `tests/targets`), then `options`. Returns the output's path.
///
/// # Panics
/// If gcc fails.
#[track_caller]
pub fn gcc(dir: &Path, name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    let sources: Vec<PathBuf> = sources.iter().map(|s| paths::source(s)).collect();
    gcc_files(dir, name, &sources, options)
}

/// As [`gcc`], with sources anywhere.
#[track_caller]
pub fn gcc_files(dir: &Path, name: &str, sources: &[PathBuf], options: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let mut command = Command::new("gcc");
    command.args(RELEASE).arg("-o").arg(&out).args(sources).args(options);
    finish(&mut command, out)
}

/// A C program of `tests/targets/native`, linked with the library of the laid-out tree.
#[track_caller]
pub fn with_library(dir: &Path, name: &str, more: &[&str]) -> PathBuf {
    let library = paths::tree().join("lib");
    let own = [
        format!("-I{}", paths::tree().join("include").display()),
        library.join("libuunwind.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let options: Vec<&str> = own.iter().map(|option| &**option).chain(more.iter().copied()).collect();
    gcc(dir, name, &[&format!("native/{name}.c")], &options)
}

/// A shared object of C sources that is linked with libuunwind.
#[track_caller]
pub fn shared_with_library(dir: &Path, name: &str, sources: &[&str]) -> PathBuf {
    let library = paths::tree().join("lib");
    let include = format!("-I{}", paths::tree().join("include").display());
    let (file, path) = (library.join("libuunwind.so.0").display().to_string(), library.display());
    let rpath = format!("-Wl,-rpath,{path}");
    gcc(dir, name, sources, &["-shared", "-fPIC", "-pthread", &include, &file, &rpath])
}

/// A shared object of C sources.
#[track_caller]
pub fn shared(dir: &Path, name: &str, sources: &[&str]) -> PathBuf {
    gcc(dir, name, sources, &["-shared", "-fPIC", "-pthread"])
}

/// Compiles one Rust source (relative to `tests/targets`) with the compiler that cargo uses.
#[track_caller]
pub fn rustc(dir: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2021", "-O", "-g", "-o"]).arg(&out).args(options).arg(paths::source(source));
    finish(&mut command, out)
}

#[track_caller]
fn finish(command: &mut Command, out: PathBuf) -> PathBuf {
    let done =
        command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}; ci/setup says what is needed"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    out
}
