//! How sampled threads stand to Python's GIL, with each interpreter of this machine: a thread that calls C with it, one
//! that calls C without it, one that waits for it while another one is known to hold it, and one without Python.
//! The C code may be the interpreter's own.

use libtest_mimic::Arguments;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, evidence, paths, uu};

fn main() {
    let arguments = Arguments::from_args();
    let found = interpreters::supported();
    let trials = found.into_iter().flat_map(|python| {
        let (label, other) = (python.label.clone(), python.clone());
        [
            evidence::trial(format!("{label}::holders_and_waiters"), move || holders_and_waiters(&python)),
            evidence::trial(format!("{label}::code_of_the_interpreter"), move || code_of_the_interpreter(&other)),
        ]
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// The sample's thread runs this Python function.
fn runs(sample: &Sample, function: &str) -> bool {
    sample.frames.iter().any(|frame| frame.is_python() && frame.name() == function)
}

fn calls(sample: &Sample, function: &str) -> bool {
    sample.frames.iter().any(|frame| matches!(frame, Frame::Native { symbol, .. } if symbol == function))
}

fn holders_and_waiters(python: &Interpreter) -> Result<(), String> {
    let scratch = paths::scratch(&format!("gil-{}", python.label));
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let gil = compile::shared(&scratch, "libgil.so", &["python/gil.c"]);
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_GIL", &gil);
    };
    let source = paths::source("python/gil.py");
    // An explicit signal is lost if a tick is pending at that moment, so the rate is as low as possible.
    let options = ["--explicit", "-r", "1"];
    let recording = uu::record(&scratch, &options, environment, &[python.path.as_os_str(), source.as_os_str()]);
    let recording = recording.expect_code(0);
    let samples = recording.samples();
    let explicit = |of: &dyn Fn(&Sample) -> bool| -> Vec<&Sample> {
        samples.iter().filter(|s| s.kind == "explicit" && of(s)).collect()
    };
    let expect = |what: &str, found: &[&Sample], wanted: &str, fewest: usize, most: usize| {
        let other = found.iter().find(|sample| sample.lock != wanted).map(|sample| sample.text());
        let right = other.is_none() && (fewest..=most).contains(&found.len());
        right.then_some(()).ok_or_else(|| {
            let other = other.unwrap_or_default();
            format!(
                "{what}: expected {fewest} to {most} times {wanted}, found {} in all, of them\n{other}",
                found.len()
            )
        })
    };
    expect("a call with the GIL", &explicit(&|s| runs(s, "with_gil")), "held", 10, 10)?;
    expect("a call without it", &explicit(&|s| runs(s, "without_gil")), "none", 10, 10)?;
    expect("a thread without Python", &explicit(&|s| calls(s, "native_thread")), "none", 1, 1)?;
    // In futex(2), and anywhere between two rounds of waiting. Signals in quick succession may meet a handler that
    // still runs, which loses some samples.
    expect("a thread that waits", &explicit(&|s| runs(s, "waiting")), "waiting", 120, 220)?;
    // The same in the reports for people, and the holders alone.
    let summary = recording.report("summary");
    if !summary.contains("  GIL ") {
        return Err(format!("the summary has no line about the GIL:\n{summary}"));
    }
    let holders = recording.report_with("folded", &["--gil"]);
    if !holders.contains("with_gil") || holders.contains("without_gil") || holders.contains("waiting") {
        return Err(format!("--gil shows others than holders:\n{holders}"));
    }
    Ok(())
}

/// Timer samples in a long C function of the interpreter: with the GIL, and without it.
fn code_of_the_interpreter(python: &Interpreter) -> Result<(), String> {
    let scratch = paths::scratch(&format!("gil-in-runtime-{}", python.label));
    let source = paths::source("python/gil_in_runtime.py");
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &[python.path.as_os_str(), source.as_os_str()]);
    let recording = recording.expect_code(0);
    let samples = recording.samples();
    for (function, wanted) in [("without_gil", "none"), ("with_gil", "held")] {
        let within = |sample: &&Sample| {
            runs(sample, function) && ["_Py_HashBytes", "Py_HashBuffer"].iter().any(|name| calls(sample, name))
        };
        let found: Vec<&str> = samples.iter().filter(within).map(|sample| sample.lock.as_str()).collect();
        if found.len() < 10 || found.iter().any(|lock| *lock != wanted) {
            return Err(format!("{function}: expected {wanted}, found {found:?}"));
        }
    }
    Ok(())
}
