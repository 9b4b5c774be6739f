//! CPythons that a C program opens itself: with RTLD_LOCAL and RTLD_GLOBAL, started again after they ended, and several
//! versions in one process, one after the other and on one stack.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::{compile, oracle, paths, skips};

/// A libpython, and the folder that its standard library lies in.
#[derive(Clone)]
struct Library {
    label: String,
    file: PathBuf,
    home: PathBuf,
    /// The folder with the C library that it needs, if that is not this machine's.
    with: Option<PathBuf>,
}

/// The shared libraries that lie beside this machine's interpreters. Those that come with a newer libc stand first:
/// what is loaded first brings the libm that the others use.
fn libraries() -> Vec<Library> {
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

/// Runs the program in these interpreters and compares all its stacks with the runtimes' own.
fn agree(name: &str, mode: &str, order: &str, libraries: &[&Library]) {
    let scratch = paths::scratch(name);
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let cap = cap.display().to_string();
    let here = format!("-Wl,-rpath,{}", scratch.display());
    let embed = compile::gcc(&scratch, "embed", &["native/embed.c"], &[&cap, &here, "-ldl"]);
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
    let words: Vec<_> = words.iter().map(OsString::as_os_str).collect();
    let oracle_file = scratch.join("oracle");
    let environment = |command: &mut Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", &oracle_file).env("PYTHONDONTWRITEBYTECODE", "1");
    };
    let walked =
        own_walks::explicit(&scratch, Reads::Probed, environment, &words).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut expected = oracle::read(&oracle_file);
    assert_eq!(expected.len(), 4 * libraries.len(), "{name}");
    expected.iter_mut().for_each(oracle::Expected::without_code);
    let pairs = oracle::pair(&expected, &walked.samples).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (expected, sample) in pairs {
        oracle::compare_python(expected, sample, true).unwrap_or_else(|e| panic!("{name}: {e}\n{}", sample.text()));
        assert!(sample.complete() && matches!(&*sample.flags, "-" | ""), "{name}\n{}", sample.text());
    }
}

#[test]
fn a_library_is_opened_privately_or_for_all() {
    let found = libraries();
    if found.is_empty() {
        skips::skipped("embedded CPythons", "this machine has no libpython");
    }
    for (index, library) in found.iter().enumerate() {
        let mode = ["local", "global"][index % 2];
        agree(&format!("embed-{mode}-{}", library.label), mode, "in-turn", &[library]);
    }
}

#[test]
fn an_interpreter_ends_and_is_started_again() {
    for library in &libraries() {
        agree(&format!("embed-again-{}", library.label), "local", "in-turn", &[library, library]);
    }
}

/// Each with the next, and the last with the first.
#[test]
fn two_versions_share_a_stack() {
    let found = libraries();
    for (index, outer) in found.iter().enumerate() {
        let inner = &found[(index + 1) % found.len()];
        let (outer, inner) = if outer.with.is_none() && inner.with.is_some() { (inner, outer) } else { (outer, inner) };
        if inner.file != outer.file {
            agree(&format!("embed-in-{}-{}", outer.label, inner.label), "local", "nested", &[outer, inner]);
        }
    }
}

#[test]
fn all_versions_run_in_one_process_one_after_the_other() {
    let found = libraries();
    for some in found.chunks(8) {
        agree(&format!("embed-{}", some.len()), "local", "in-turn", &some.iter().collect::<Vec<_>>());
    }
}
