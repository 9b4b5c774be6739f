//! CPythons that a C program opens itself: with RTLD_LOCAL and RTLD_GLOBAL, started again after they ended, and several
//! versions in one process, one after the other and on one stack.

use std::ffi::OsString;
use std::process::Command;
use uunwind_tests::embedded::{self, libraries, Library};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::{oracle, paths, skips};

/// Runs the program in these interpreters and compares all its stacks with the runtimes' own.
fn agree(name: &str, mode: &str, order: &str, libraries: &[&Library]) {
    let scratch = paths::scratch(name);
    let embedding = embedded::build(&scratch, mode, order, libraries);
    let words: Vec<_> = embedding.words.iter().map(OsString::as_os_str).collect();
    let environment = |command: &mut Command| embedding.configure(command);
    let walked =
        own_walks::explicit(&scratch, Reads::Probed, environment, &words).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut expected = oracle::read(&embedding.oracle);
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
