//! Code that a JIT reports without unwind data, to GDB's list or as windows of uu.h: its stacks are whole, by rules
//! made from the machine code, which say so, and never by those of other code that was at the same address.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, process, uu};

fn explicit(recording: &uu::Recording) -> Vec<Sample> {
    recording.samples().into_iter().filter(|sample| sample.kind == "explicit").collect()
}

fn is_by_frame_pointer(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { by_frame_pointer: true, .. } | Frame::Jit { by_frame_pointer: true, .. })
}

/// Whether its caller was found by a rule made from its machine code.
fn is_by_code(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { by_code: true, .. } | Frame::Jit { by_code: true, .. })
}

/// The code that `jit_rows` and `window_rows` run, without unwind data.
fn code(scratch: &Path, level: &str) -> PathBuf {
    let object = scratch.join(format!("code{level}.o"));
    let plain = ["-c", "-fPIC", "-fvisibility=hidden", "-fomit-frame-pointer", "-fcf-protection=none"];
    let without_rows = ["-fno-asynchronous-unwind-tables", "-fno-exceptions", "-fno-stack-protector"];
    let mut gcc = Command::new("gcc");
    gcc.args(plain).args(without_rows).args(["-fno-ipa-cp", "-fno-ipa-sra", level]);
    gcc.arg(paths::source("native/jit_rows_code.c")).arg("-o").arg(&object);
    assert!(gcc.status().expect("gcc runs").success());
    object
}

/// The frames of these functions are marked as left by rules made from their code, and no others.
#[track_caller]
fn are_marked(sample: &Sample, functions: &[&str]) {
    let marked: Vec<&str> = sample.frames.iter().filter(|frame| is_by_code(frame)).map(Frame::name).collect();
    assert_eq!(marked, functions, "{}", sample.text());
}

/// A compiler's code, with tables of jumps, variable-length arrays, and rbp for other things than frames.
#[test]
fn compiled_code_without_unwind_data() {
    let scratch = paths::scratch("jit-rows");
    let program = compile::gcc(&scratch, "jit_rows", &["native/jit_rows.c"], &[]);
    for level in ["-O1", "-O2", "-O3"] {
        let object = code(&scratch, level);
        let words = [program.as_os_str(), "compiled".as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
        let samples = explicit(&recording);
        // The numbers 0 to 7: one of them calls back twice.
        assert_eq!(samples.len(), 9, "{level}: {}", recording.outcome.text());
        for (n, sample) in samples.iter().enumerate() {
            let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
            let last = n == 8;
            let right: &[&str] = if last {
                &["call_back", "choose", "jit_entry", "run_object", "run_compiled", "main"]
            } else {
                &["call_back", "leaf", "choose", "jit_entry", "run_object", "run_compiled", "main"]
            };
            let is_right = names.starts_with(right) && names.last() == Some(&"_start");
            let guessed = sample.frames.iter().any(is_by_frame_pointer);
            assert!(sample.complete() && is_right && !guessed, "{level}, {n}: {}", sample.text());
            are_marked(sample, &right[1..right.len() - 3]);
        }
    }
}

/// The owner of an address dies without a word, and another takes its place: its frame is another one.
#[test]
fn replaced_code_is_not_stepped_by_the_rules_of_the_code_before() {
    let scratch = paths::scratch("jit-rows-replaced");
    let program = compile::gcc(&scratch, "jit_rows", &["native/jit_rows.c"], &[]);
    let words = [program.as_os_str(), "replaced".as_ref()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    let samples = explicit(&recording);
    let [first, between, second] = &samples[..] else { panic!("{}", recording.outcome.text()) };
    let names = |sample: &'_ Sample| sample.frames.iter().map(|f| f.name().to_owned()).collect::<Vec<_>>();
    for sample in [first, second] {
        // Which of both names the code has is a question of times; it has none while either may have been there, which
        // takes as long as the recorder has to wait for a CPU.
        let [call_back, replaced, rest @ ..] = &names(sample)[..] else { panic!("{}", sample.text()) };
        let is_right = call_back == "call_back" && ["first", "second", "?"].contains(&replaced.as_str());
        let is_right = is_right && rest.iter().take(3).eq(["run_code", "run_replaced", "main"]);
        assert!(sample.complete() && is_right && !sample.frames.iter().any(is_by_frame_pointer), "{}", sample.text());
    }
    let names = names(between);
    assert!(!names.iter().any(|name| name == "decoy"), "{}", between.text());
    let goes_on = names.get(2).is_some_and(|name| name == "run_code");
    assert!(goes_on || !between.complete(), "{}", between.text());
}

/// From outside, the code of a process that stands still is read and analysed as it is.
#[test]
fn compiled_code_without_unwind_data_from_outside() {
    let scratch = paths::scratch("jit-rows-dumped");
    let program = compile::gcc(&scratch, "jit_rows", &["native/jit_rows.c"], &[]);
    let object = code(&scratch, "-O2");
    let mut running = Running::start(Command::new(&program).arg("stands").arg(&object));
    assert_eq!(running.line(), "ready");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
    let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
    let dump: serde_json::Value = serde_json::from_str(&out.stdout).expect("JSON");
    let [thread] = threads(&dump) else { panic!("{dump:#}") };
    let chain = ["stand", "leaf", "choose", "jit_entry", "run_object", "run_compiled", "main"];
    let found: Vec<&str> = functions(thread).into_iter().filter(|name| chain.contains(name)).collect();
    assert_eq!((found, &thread["complete"]), (chain.to_vec(), &serde_json::Value::Bool(true)), "{thread:#}");
    assert_eq!(running.close(), Some(0));
}

/// The same code in a window, whose functions are given by a table: at once, one after the other, and as those
/// functions of a window with unwind data that have none.
#[test]
fn compiled_code_in_a_window_without_unwind_data() {
    let scratch = paths::scratch("window-rows");
    let program = compile::with_library(&scratch, "window_rows", &[]);
    let object = code(&scratch, "-O2");
    for how in ["functions", "growing", "eh-frame"] {
        let words = [program.as_os_str(), how.as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
        let samples = explicit(&recording);
        assert_eq!(samples.len(), 9, "{how}: {}", recording.outcome.text());
        for (n, sample) in samples.iter().enumerate() {
            let chain = ["call_back", "leaf", "choose", "jit_entry", "run_object", "run_functions", "main"];
            // The last one is called by `choose` itself.
            let right: Vec<&str> = chain.into_iter().filter(|name| n != 8 || *name != "leaf").collect();
            let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
            let is_right = names.starts_with(&right) && names.last() == Some(&"_start");
            let guessed = sample.frames.iter().any(is_by_frame_pointer);
            assert!(sample.complete() && is_right && !guessed, "{how}, {n}: {}", sample.text());
            are_marked(sample, &right[1..right.len() - 3]);
        }
        let summary = recording.report_with("summary", &["-v"]);
        assert!(summary.contains("9 through code that nothing describes"), "{how}: {summary}");
    }
}

/// Functions of which only the addresses are given, with rbp for other things than frames.
#[test]
fn windows_of_which_only_the_range_is_known() {
    let scratch = paths::scratch("window-rows-ranges");
    let program = compile::with_library(&scratch, "window_rows", &[]);
    let words = [program.as_os_str(), "ranges".as_ref()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    let samples = explicit(&recording);
    let [sample] = &samples[..] else { panic!("{}", recording.outcome.text()) };
    let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
    let is_right = names.starts_with(&["call_back", "?", "?", "run_ranges", "main"]);
    assert!(sample.complete() && is_right && !sample.frames.iter().any(is_by_frame_pointer), "{}", sample.text());
    are_marked(sample, &["?", "?"]);
}

/// The rules of a window are gone with it, also where the code is still there; a new window at the same place never has
/// them.
#[test]
fn a_window_that_takes_the_place_of_another_has_its_own_rules() {
    let scratch = paths::scratch("window-rows-replaced");
    let program = compile::with_library(&scratch, "window_rows", &[]);
    let words = [program.as_os_str(), "replaced".as_ref()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    let samples = explicit(&recording);
    let [first, between, second] = &samples[..] else { panic!("{}", recording.outcome.text()) };
    for sample in [first, second] {
        let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
        assert!(names.starts_with(&["call_back", "?", "run_code", "run_replaced", "main"]), "{}", sample.text());
        assert!(sample.complete() && !sample.frames.iter().any(is_by_frame_pointer), "{}", sample.text());
        are_marked(sample, &["?"]);
    }
    let names: Vec<&str> = between.frames.iter().map(Frame::name).collect();
    assert!(!names.contains(&"decoy"), "{}", between.text());
    assert!(names.get(2) == Some(&"run_code") || !between.complete(), "{}", between.text());
}

/// From outside, windows' code is read and analysed as the process stands.
#[test]
fn code_in_windows_without_unwind_data_from_outside() {
    let scratch = paths::scratch("window-rows-dumped");
    let program = compile::with_library(&scratch, "window_rows", &[]);
    let object = code(&scratch, "-O2");
    let mut running = Running::start(Command::new(&program).arg("stands").arg(&object));
    assert_eq!(running.line(), "ready");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
    let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
    let dump: serde_json::Value = serde_json::from_str(&out.stdout).expect("JSON");
    let [thread] = threads(&dump) else { panic!("{dump:#}") };
    let chain = ["stand", "leaf", "choose", "jit_entry", "run_object", "run_functions", "main"];
    let found: Vec<&str> = functions(thread).into_iter().filter(|name| chain.contains(name)).collect();
    assert_eq!((found, &thread["complete"]), (chain.to_vec(), &serde_json::Value::Bool(true)), "{thread:#}");
    assert_eq!(running.close(), Some(0));
}
