//! `--async`: the coroutines that await the asyncio task that runs, against CPython's own view of them, with each
//! interpreter of this machine that keeps the links.

use libtest_mimic::Arguments;
use serde_json::Value;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{evidence, paths, uu};

/// The first version in which a task knows what awaits it.
const LINKED: u32 = 14;

fn main() {
    let arguments = Arguments::from_args();
    let found = interpreters::supported();
    let trials = found.into_iter().filter(|python| python.version.0 + 1 >= LINKED).map(|python| {
        let test = if python.version.0 >= LINKED && !python.flags.contains('t') { known } else { unknown };
        evidence::trial(format!("{}::awaiting", python.label), move || test(&python))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Name, file and line of a frame that awaits.
fn awaiting(frame: &Frame) -> Option<(String, String, u32)> {
    match frame {
        Frame::Other { plugin, name, file, line } if plugin == "py-awaiting" => {
            Some((name.clone(), file.clone(), *line))
        }
        _ => None,
    }
}

fn known(python: &Interpreter) -> Result<(), String> {
    let scratch = paths::scratch(&format!("awaiting-{}", python.label));
    let oracle = scratch.join("oracle");
    let source = paths::source("python/awaiting.py");
    // An explicit signal is lost if a tick is pending at that moment, so the rate is as low as possible.
    let options = ["--explicit", "--async", "-r", "1"];
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_ORACLE", &oracle);
    };
    let recording = uu::record(&scratch, &options, environment, &[python.path.as_os_str(), source.as_os_str()]);
    let recording = recording.expect_code(0);
    let explicit =
        |samples: Vec<Sample>| -> Vec<Sample> { samples.into_iter().filter(|s| s.kind == "explicit").collect() };
    let samples = uunwind_tests::samples::parse(&recording.report_with("samples", &["--async"]))?;
    let (samples, without) = (explicit(samples), explicit(recording.samples()));
    let text = std::fs::read_to_string(&oracle).map_err(|e| e.to_string())?;
    let expected: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    if samples.len() != expected.len() || without.len() != expected.len() || expected.len() < 14 {
        return Err(format!("{} samples, {} points", samples.len(), expected.len()));
    }
    for ((sample, without), expected) in samples.iter().zip(&without).zip(&expected) {
        compare(sample, without, expected).map_err(|e| format!("{}: {e}\n{}", expected["way"], sample.text()))?;
    }
    // People see them as frames of their own kind, if they ask for them.
    let folded = recording.report_with("folded", &["--async"]);
    if !folded.contains("main [awaiting]") || recording.report("folded").contains("[awaiting]") {
        return Err(format!("the folded stacks show the wrong frames:\n{folded}"));
    }
    let summary = &recording.outcome.stderr;
    summary
        .contains("  async ")
        .then_some(())
        .ok_or_else(|| format!("the summary does not say what is shown:\n{summary}"))
}

fn compare(sample: &Sample, without: &Sample, expected: &Value) -> Result<(), String> {
    let found: Vec<_> = sample.frames.iter().filter_map(awaiting).collect();
    let frames = expected["awaiting"].as_array().ok_or("no frames")?;
    let place = |frame: &Value| {
        let text = |at: usize| frame[at].as_str().unwrap_or_default().to_owned();
        (text(0), text(1), frame[2].as_u64().unwrap_or(0) as u32)
    };
    let wanted: Vec<_> = frames.iter().map(place).collect();
    if found != wanted {
        return Err(format!("expected {wanted:?}, found {found:?}"));
    }
    if !sample.complete() || sample.flags.contains("desync") {
        return Err("the stack is not complete".to_owned());
    }
    // Nothing else differs.
    let others: Vec<_> = sample.frames.iter().filter(|frame| awaiting(frame).is_none()).cloned().collect();
    if others != without.frames {
        return Err(format!("without --async the stack is another one:\n{}", without.text()));
    }
    // They stand between the task's coroutine and the event loop.
    let language: Vec<&Frame> = sample.frames.iter().filter(|frame| !frame.is_native()).collect();
    let Some(first) = language.iter().position(|frame| awaiting(frame).is_some()) else { return Ok(()) };
    let (own, after) = (language.get(first.wrapping_sub(1)), language.get(first + found.len()));
    let right = own.is_some_and(|frame| Some(frame.name()) == expected["own"].as_str())
        && after.is_some_and(|frame| frame.is_python() && frame.name() == "Handle._run");
    right.then_some(()).ok_or_else(|| format!("they stand between {own:?} and {after:?}"))
}

/// Without links the stacks are those of the threads, and the summary says so.
fn unknown(python: &Interpreter) -> Result<(), String> {
    let scratch = paths::scratch(&format!("awaiting-{}", python.label));
    let program = "import asyncio, signal\n\
        async def leaf(): signal.raise_signal(signal.SIGPROF)\n\
        async def main(): await asyncio.gather(leaf())\n\
        asyncio.run(main())";
    let arguments = [python.path.as_os_str(), "-c".as_ref(), program.as_ref()];
    let recording = uu::record(&scratch, &["--explicit", "--async", "-r", "1"], |_| {}, &arguments).expect_code(0);
    let samples = uunwind_tests::samples::parse(&recording.report_with("samples", &["--async"]))?;
    let taken = samples.iter().filter(|s| s.kind == "explicit" && s.frames.iter().any(|f| f.name() == "leaf")).count();
    if taken != 1 || samples.iter().flat_map(|s| &s.frames).any(|frame| awaiting(frame).is_some()) {
        return Err(format!("{taken} samples, or frames that nobody can know"));
    }
    let says = recording.outcome.stderr.contains("nothing was found that awaits the tasks that ran");
    says.then_some(()).ok_or_else(|| format!("the summary does not say why:\n{}", recording.outcome.stderr))
}
