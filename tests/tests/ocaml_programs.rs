//! Programs of OCaml's native compiler: its own code, exceptions, the collector, C called by it, and what C calls back.

use std::process::Command;
use uunwind_tests::samples::Frame;
use uunwind_tests::{paths, skips, uu};

/// Who calls whom in `work.ml` and `stubs.c`.
const CALLERS: [(&str, &str); 9] = [
    ("Work.inner", "Work.outer or Work.callback"),
    ("Work.outer", "Work.entry"),
    ("Work.thrower", "Work.catcher"),
    ("Work.alloc", "Work.entry"),
    ("Work.catcher", "Work.entry"),
    ("Work.callback", "caml_start_program"),
    ("c_calls", "Work.callbacks"),
    ("c_spin_noalloc", "Work.stubs"),
    ("c_spin", "Work.stubs"),
];

/// `camlWork__inner_123` as it is called in the source.
fn name(symbol: &str) -> String {
    let Some(rest) = symbol.strip_prefix("camlWork__") else { return symbol.to_owned() };
    let name = rest.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    format!("Work.{name}")
}

#[test]
fn samples_are_whole_but_where_an_exception_is_raised_and_callers_are_true() {
    const NAME: &str = "ocaml_programs::samples_are_whole_but_where_an_exception_is_raised_and_callers_are_true";
    if !Command::new("ocamlopt").arg("-version").output().is_ok_and(|done| done.status.success()) {
        return skips::skipped(NAME, "there is no ocamlopt on this machine (package ocaml-nox)");
    }
    let scratch = paths::scratch("ocaml");
    let sources = ["ocaml/work.ml", "ocaml/stubs.c"].map(|source| {
        let copy = scratch.join(source.rsplit('/').next().expect("a name"));
        std::fs::copy(paths::source(source), &copy).expect("scratch");
        copy
    });
    let program = scratch.join("work");
    let done = Command::new("ocamlopt").arg("-o").arg(&program).args(&sources).current_dir(&scratch).output();
    let done = done.expect("ocamlopt");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_os_str()]).expect_code(0);
    assert_eq!(recording.outcome.stdout, "done\n");
    let samples = recording.samples();
    let mut seen = [0; CALLERS.len()];
    for sample in &samples {
        if !sample.complete() {
            // `raise` has set the stack pointer to the handler's frame, while the unwind information at this pc still
            // describes the raising function's frame.
            let names: Vec<String> = sample.frames.iter().map(Frame::name).map(name).collect();
            assert_eq!(names, ["Work.thrower"], "{}", sample.text());
            continue;
        }
        let names: Vec<String> = sample.frames.iter().map(Frame::name).map(name).collect();
        for (count, (called, callers)) in seen.iter_mut().zip(CALLERS) {
            for at in (0..names.len()).filter(|at| names[*at] == called) {
                let caller = names.get(at + 1).map_or("", |name| name);
                assert!(callers.split(" or ").any(|wanted| wanted == caller), "{called}: {}", sample.text());
                *count += 1;
            }
        }
    }
    println!("{} samples; {seen:?} calls", samples.len());
    for (count, (called, _)) in seen.iter().zip(CALLERS) {
        // A tick is seldom in what is over at once.
        assert!(*count > 0 || called == "Work.thrower", "{called} was never seen");
    }
}
