//! Programs of musl, another C library with another loader: recorded by the same objects as glibc's. Debian's musl has
//! no unwind data, so that its own functions have rules from their machine code, or end a stack.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::samples::{completeness, Sample};
use uunwind_tests::{paths, process, skips, uu};

/// Who calls whom in musl.c.
const CALLS: &[(&str, &[&str])] = &[
    ("main", &["by_hand", "sorts", "through_library", "signals", "forks"]),
    ("thread", &["by_hand"]),
    ("by_hand", &["inner"]),
    ("inner", &["spins"]),
    ("sorts", &["compares"]),
    ("compares", &["spins"]),
    ("through_library", &["of_library"]),
    ("of_library", &["by_hand"]),
    ("signals", &["handler"]),
    ("handler", &["by_hand"]),
    ("forks", &["by_hand"]),
];

/// The program and its library, compiled with these options. None, and skipped by name, without musl's compiler.
fn program(what: &str, scratch: &Path, options: &[&str]) -> Option<(PathBuf, PathBuf)> {
    if !Command::new("musl-gcc").arg("--version").output().is_ok_and(|out| out.status.success()) {
        skips::skipped(what, "musl-gcc is not installed (musl-tools)");
        return None;
    }
    let compile = |name: &str, source: &str, more: &[&str]| {
        let to = scratch.join(name);
        let mut gcc = Command::new("musl-gcc");
        // The index of unwind data, which compilers for musl ask for, and this wrapper forgets.
        gcc.args(["-g", "-O1", "-pthread", "-Wl,--eh-frame-hdr"])
            .args(options)
            .args(more)
            .arg("-o")
            .arg(&to)
            .arg(paths::source(source));
        process::run(&mut gcc, scratch, uu::LIMIT).expect_code(0);
        to
    };
    let library = compile("of_musl.so", "native/musl_library.c", &["-shared", "-fPIC"]);
    Some((compile("musl", "native/musl.c", &[]), library))
}

/// The program's own functions of a sample, outermost first.
fn own(sample: &Sample) -> Vec<&str> {
    let known = |name: &&str| *name == "spins" || CALLS.iter().any(|(caller, _)| caller == name);
    let mut names: Vec<&str> = sample.native_names().into_iter().filter(known).collect();
    names.reverse();
    names
}

/// Each call that a stack shows is one of the program's; a complete one begins where a thread begins.
#[track_caller]
fn check(samples: &[Sample]) {
    for sample in samples {
        let names = own(sample);
        for pair in names.windows(2) {
            let calls = CALLS.iter().find(|(caller, _)| *caller == pair[0]).map_or(&[][..], |(_, callees)| callees);
            assert!(calls.contains(&pair[1]), "{} calls {}: {}", pair[0], pair[1], sample.text());
        }
        if sample.complete() && !names.is_empty() {
            assert!(["main", "thread"].contains(&names[0]), "{}", sample.text());
        }
    }
}

fn recorded(scratch: &Path, options: &[&str], (program, library): &(PathBuf, PathBuf)) -> Vec<Sample> {
    let words = [program.as_ref(), library.as_ref()];
    let recording = uu::record(scratch, options, |_| {}, &words).expect_code(0);
    assert_eq!(recording.outcome.stdout, "done\n");
    recording.samples()
}

/// Stacks of compiled code that is described, with and without frame pointers, from all of the program's threads and
/// its child, through a handler on an alternate stack and a library that was opened.
#[test]
fn programs_are_recorded() {
    for (name, option) in [("described", "-fomit-frame-pointer"), ("frame-pointers", "-fno-omit-frame-pointer")] {
        let scratch = paths::scratch(&format!("musl-{name}"));
        let Some(made) = program("programs of musl", &scratch, &[option]) else { return };
        // The first one makes the rules of libc's code, for which no sample waits.
        check(&recorded(&scratch, &["-r", "999"], &made));
        let samples = recorded(&scratch, &["-r", "999"], &made);
        check(&samples);
        for (caller, callees) in CALLS {
            for callee in *callees {
                let has = |sample: &&Sample| own(sample).windows(2).any(|pair| pair == [*caller, *callee]);
                let whole = samples.iter().filter(has).any(|sample| sample.complete());
                assert!(whole, "{name}: no whole sample of {caller} calling {callee}: {:?}", completeness(&samples).1);
            }
        }
        let threads: std::collections::BTreeSet<_> = samples.iter().map(|sample| sample.tid).collect();
        assert!(threads.len() >= 10, "{name}: {threads:?}");
    }
}

/// Without unwind data of its own as well: what is shown is right.
#[test]
fn programs_without_unwind_data_are_recorded() {
    let scratch = paths::scratch("musl-bare");
    let options = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer", "-Wl,--build-id"];
    let Some(made) = program("programs of musl without unwind data", &scratch, &options) else { return };
    let samples = recorded(&scratch, &["-r", "999"], &made);
    check(&samples);
    let spinning = samples.iter().filter(|sample| own(sample).last() == Some(&"spins")).count();
    assert!(spinning * 2 > samples.len(), "{spinning} of {}", samples.len());
}

/// A program of glibc that starts one of musl: both are recorded.
#[test]
fn children_of_the_other_library_are_recorded() {
    let scratch = paths::scratch("musl-child");
    let Some((program, library)) = program("programs of musl that a recorded one starts", &scratch, &[]) else {
        return;
    };
    let words = ["env".as_ref(), program.as_ref(), library.as_ref()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
    assert!(!recording.outcome.stderr.contains("not sampled"), "{}", recording.outcome.stderr);
    let samples = recording.samples();
    check(&samples);
    assert!(samples.iter().any(|sample| own(sample).first() == Some(&"main")));
}
