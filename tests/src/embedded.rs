//! CPythons that a C program opens itself (`targets/native/embed.c`).

use crate::interpreters::{self, Interpreter};
use crate::{compile, paths};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A libpython, and the folder that its standard library lies in.
#[derive(Clone, Debug)]
pub struct Library {
    /// A label for test names.
    pub label: String,
    /// The library.
    pub file: PathBuf,
    home: PathBuf,
    /// The folder with the C library that it needs, if that is not this machine's.
    pub with: Option<PathBuf>,
}

/// The shared libraries that lie beside this machine's interpreters. Those that come with a newer libc stand first:
/// what is loaded first brings the libm that the others use.
pub fn libraries() -> Vec<Library> {
    let beside = |python: Interpreter| {
        let home = python.path.parent()?.parent()?.to_path_buf();
        let name = format!("libpython3.{}{}.so.1.0", python.version.0, python.flags);
        let file = ["lib", "lib/x86_64-linux-gnu"].map(|folder| home.join(folder).join(&name));
        let file = file.into_iter().find(|file| file.is_file())?;
        let with = file.parent().filter(|folder| folder.join("libc.so.6").is_file() && !folder.starts_with("/usr"));
        Some(Library { label: python.label, with: with.map(Path::to_path_buf), file, home })
    };
    let mut found: Vec<Library> = interpreters::supported().into_iter().filter_map(beside).collect();
    found.sort_by_key(|library| library.with.is_none());
    found
}

/// A program that runs `targets/python/embedded.py` in these interpreters.
pub struct Embedding {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The object with the function by which it sends itself SIGPROF.
    cap: PathBuf,
    /// Where the runtimes' own view goes.
    pub oracle: PathBuf,
}

/// Builds the program. `mode` and `order` are its first arguments.
#[track_caller]
pub fn build(scratch: &Path, mode: &str, order: &str, libraries: &[&Library]) -> Embedding {
    let cap = compile::shared(scratch, "libcap.so", &["python/cap.c"]);
    let object = cap.display().to_string();
    let here = format!("-Wl,-rpath,{}", scratch.display());
    let embed = compile::gcc(scratch, "embed", &["native/embed.c"], &[&object, &here, "-ldl"]);
    if let Some(folder) = libraries.iter().find_map(|library| library.with.as_ref()) {
        let both = format!("{}:{}", folder.display(), scratch.display());
        let mut patch = Command::new("patchelf");
        patch.args(["--force-rpath", "--set-rpath", &both, "--set-interpreter"]);
        let done = patch.arg(folder.join("ld-linux-x86-64.so.2")).arg(&embed).status();
        assert!(done.expect("patchelf runs: it made the interpreters' folder").success());
    }
    let pair = |library: &&Library| OsString::from(format!("{}={}", library.file.display(), library.home.display()));
    let program = paths::source("python/embedded.py");
    let mut words = vec![embed.into_os_string(), mode.into(), order.into(), program.into_os_string()];
    words.extend(libraries.iter().map(pair));
    Embedding { words, cap, oracle: scratch.join("oracle") }
}

impl Embedding {
    /// Sets the variables that the program needs.
    pub fn configure(&self, command: &mut Command) {
        command.env("UU_TEST_CAP", &self.cap).env("UU_TEST_ORACLE", &self.oracle).env("PYTHONDONTWRITEBYTECODE", "1");
    }
}
