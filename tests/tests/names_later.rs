//! `uu record --names later`: a recording without names, which reports name from the files of the program.

use std::fs;
use uunwind_tests::{compile, paths, uu};

/// The recording of burn.c, made with these options.
fn recorded(scratch: &std::path::Path, options: &[&str]) -> uu::Recording {
    let program = compile::gcc(scratch, "burn", &["native/burn.c"], &["-lm"]);
    let options = [&["-r", "499"], options].concat();
    uu::record(scratch, &options, |_| {}, &[program.as_os_str(), "0.3".as_ref()]).expect_code(0)
}

#[test]
fn a_report_names_what_the_recording_left_unnamed() {
    let scratch = paths::scratch("names_later");
    let recording = recorded(&scratch, &["--names", "later"]);
    assert!(!recording.outcome.stderr.contains("CPU profile of"), "no summary: {}", recording.outcome.stderr);
    let named = recording.report("folded");
    assert!(named.contains(";main;burn"), "{named}");
    let summary = recording.report("summary");
    assert!(summary.contains("--names later") && !summary.contains("was killed"), "{summary}");
    // The vDSO has no file: it was named at once.
    assert!(!summary.contains("[vdso]"), "{summary}");
    // Its place was taken by another file: no name of that one's is shown.
    let program = scratch.join("burn");
    fs::remove_file(&program).expect("it is there");
    fs::copy("/bin/true", &program).expect("a file");
    let unnamed = recording.report("folded");
    assert!(unnamed.contains("burn+0x") && !unnamed.contains(";main;"), "{unnamed}");
}

#[test]
fn another_result_needs_names() {
    let scratch = paths::scratch("names_later_refused");
    let mut command = uu::command(&scratch, &["record", "--names", "later", "-o", "x.svg", "--", "/bin/true"]);
    let out = command.current_dir(&scratch).output().expect("it runs");
    assert_eq!(out.status.code(), Some(125));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("--names later keeps a recording (.uu) alone"), "{said}");
}
