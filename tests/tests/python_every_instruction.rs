//! Python stacks at the instructions of a program whose functions call each other in every way, with each interpreter
//! of this machine, and under its JIT: each stack ends, is one that a profile function sees, in that order, or is
//! marked as doubtful. With UU_CAMPAIGNS=1 at every instruction; UU_STRIDE sets another distance.
//!
//! Besides, at random moments: for a second on two versions, or on all of them for UU_RANDOM_SECONDS. Each signal that
//! was sent is a sample then, or is counted as one that came inside another sample's walk.

use libtest_mimic::Arguments;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::lua_steps::ring;
use uunwind_tests::samples::{parse, Frame, Sample};
use uunwind_tests::uu::{self, Recording};
use uunwind_tests::{compile, evidence, paths, process};

/// Functions as `name:first line`, innermost first.
type Stack = Vec<String>;

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const OPTIONS: [&str; 3] = ["--explicit", "-r", "1"];
/// Instructions from one sample to the next, unless all are asked for. A prime.
const STRIDE: &str = "97";
/// At most one stack in this number is doubtful or not whole.
const DOUBTFUL: usize = 50;
/// Number of samples that are looked at, at least.
const LEAST: usize = 500;

fn main() {
    let arguments = Arguments::from_args();
    let found = interpreters::supported();
    let mut trials = Vec::new();
    for python in found {
        if python.has_jit() {
            let with_jit = python.clone();
            let name = format!("{}::every_instruction_jit", python.label);
            trials.push(evidence::trial(name, move || every_instruction(&with_jit, true)));
        }
        let (name, stepped) = (format!("{}::every_instruction", python.label), python.clone());
        trials.push(evidence::trial(name, move || every_instruction(&stepped, false)));
        if random_seconds().is_some() || RANDOM.contains(&python.version.0) && python.flags.is_empty() {
            let name = format!("{}::at_random", python.label);
            trials.push(evidence::trial(name, move || at_random(&python)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Minor versions that are always sampled at random moments, too.
const RANDOM: [u32; 2] = [11, 12];
/// Mean distance of such samples, in ns.
const RANDOM_NS: &str = "100000";
/// Length of one recording of those, in seconds: the reports of longer ones take gigabytes.
const PART: u32 = 30;

fn random_seconds() -> Option<u32> {
    let seconds = std::env::var("UU_RANDOM_SECONDS").ok()?;
    Some(seconds.parse().expect("UU_RANDOM_SECONDS is a number"))
}

/// The value of PYTHON_JIT.
fn jit_is(on: bool) -> &'static str {
    if on {
        "1"
    } else {
        "0"
    }
}

/// What a profile function sees: the stacks at each call and return, in order.
fn traced(python: &Interpreter, source: &Path, jit: bool, scratch: &Path) -> Vec<Stack> {
    let mut program = Command::new(&python.path);
    program.arg(source).env("PYTHON_JIT", jit_is(jit));
    let traced = process::run(&mut program, scratch, uu::LIMIT).expect_code(0);
    let lines = traced.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let mut trace: Vec<Stack> = lines.collect();
    trace.dedup();
    trace
}

/// The samples of the program's own signals, in order; how many it says that it has sent, and the recording.
fn sampled(
    python: &Interpreter,
    scratch: &Path,
    program: &[&OsStr],
    jit: bool,
    look: &mut dyn FnMut(&Sample),
) -> Result<(usize, Recording), String> {
    let library = compile::shared(scratch, "libevery.so", &["python/every.c"]);
    let program = [&[python.path.as_os_str()], program].concat();
    let environment = |command: &mut Command| {
        // The dynamic linker's own work is kept out.
        command.env("UU_TEST_EVERY", &library).env("UU_TEST_RING", ring()).env("LD_BIND_NOW", "1");
        command.env("PYTHON_JIT", jit_is(jit));
    };
    let recording = uu::record(scratch, &OPTIONS, environment, &program).expect_code(0);
    recording.each_sample(&mut |text| {
        let samples = parse(text).unwrap_or_else(|e| panic!("{e}"));
        samples.iter().filter(|sample| sample.kind == "explicit").for_each(&mut *look);
    });
    let text = &recording.outcome.stdout;
    let sent = text.split_once(' ').and_then(|(sent, _)| sent.parse().ok()).ok_or(format!("printed {text:?}"))?;
    Ok((sent, recording))
}

/// Number of samples that the recording counts as dropped because they came inside another sample's walk.
fn nested(recording: &Recording) -> usize {
    let recording = uunwind_recording::Recording::read(&recording.file).expect("a recording");
    recording.counters.iter().map(|(_, counters)| counters.nested as usize).sum()
}

fn at_random(python: &Interpreter) -> Result<(), String> {
    let mut left = random_seconds().unwrap_or(1);
    while left > 0 {
        let seconds = left.min(PART);
        at_random_for(python, seconds)?;
        left -= seconds;
    }
    Ok(())
}

/// Each whole stack that is not marked is one that a profile function sees. The order is not looked at: the program
/// goes through all of them again and again.
fn at_random_for(python: &Interpreter, seconds: u32) -> Result<(), String> {
    let scratch = paths::scratch(&format!("random-{}", python.label));
    let source = paths::source("python/every.py");
    let known: HashSet<Stack> = traced(python, &source, false, &scratch).into_iter().collect();
    let (mut samples, mut doubtful, mut wrong) = (0, 0, None);
    let time = seconds.to_string();
    let program = [source.as_os_str(), time.as_ref(), RANDOM_NS.as_ref()];
    let (sent, recording) = sampled(python, &scratch, &program, false, &mut |sample| {
        samples += 1;
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful += 1;
            return;
        }
        let stack: Stack = sample.frames.iter().filter_map(function).collect();
        // Between two rounds only the module runs.
        if stack != ["<module>:1"] && !known.contains(&stack) {
            wrong.get_or_insert_with(|| format!("{stack:?} is no stack of the program\n{}", sample.text()));
        }
    })?;
    let nested = nested(&recording);
    eprintln!("{}: {samples} samples of {sent} at random, {nested} inside walks, {doubtful} doubtful", python.label);
    // The program sends none while the last one is pending. A tick of the timer, one a second, can still merge with
    // one, or come inside a walk itself.
    let ticks = 2 + seconds as usize;
    match wrong {
        Some(wrong) => Err(wrong),
        None if samples < LEAST => Err(format!("{samples} samples of {sent} arrived")),
        None if sent.abs_diff(samples + nested) > ticks => {
            Err(format!("{samples} samples of {sent} arrived, {nested} are counted as dropped inside a walk"))
        }
        None if doubtful * DOUBTFUL > samples => Err(format!("{doubtful} of {samples} stacks are doubtful")),
        None => std::fs::remove_dir_all(&scratch).map_err(|e| e.to_string()),
    }
}

fn every_instruction(python: &Interpreter, jit: bool) -> Result<(), String> {
    let scratch = paths::scratch(&format!("every-{}{}", if jit { "jit-" } else { "" }, python.label));
    let source = paths::source("python/every.py");
    let trace = traced(python, &source, jit, &scratch);
    let all = std::env::var_os("UU_CAMPAIGNS").is_some();
    let stride = std::env::var("UU_STRIDE").unwrap_or(if all { "1" } else { STRIDE }.to_owned());

    let begins_late = python.version.0 <= 10 && python.flags.contains('d');
    let mut seen =
        Seen { trace: &trace, at: 0, samples: 0, in_jit: 0, begins_late, doubtful: BTreeMap::new(), wrong: None };
    let program = [source.as_os_str(), stride.as_ref()];
    let (sent, _) = sampled(python, &scratch, &program, jit, &mut |sample| seen.look(sample))?;
    let doubtful: usize = seen.doubtful.values().sum();
    let Seen { samples, in_jit, doubtful: why, .. } = &seen;
    eprintln!("{}: {samples} samples, {in_jit} in the JIT's code, {doubtful} doubtful: {why:?}", python.label);
    if let Some(wrong) = seen.wrong {
        return Err(wrong);
    }
    if seen.samples * 100 < sent * 99 || sent < LEAST {
        return Err(format!("{} samples of {sent} arrived", seen.samples));
    }
    if doubtful * DOUBTFUL > seen.samples {
        return Err(format!("{doubtful} of {} stacks are doubtful: {:?}", seen.samples, seen.doubtful));
    }
    // Without the JIT there are a few: code that ctypes makes for callbacks is in no object either. With it, more than
    // a tenth; debug builds have the fewest, since they execute several times as many instructions of C.
    if jit && seen.in_jit * 20 < seen.samples {
        return Err(format!("{} of {} samples in the JIT's code", seen.in_jit, seen.samples));
    }
    // The first and the last of them were sampled, so all between them were gone through.
    let left = trace.len() - seen.at;
    if left > trace.len() / 4 {
        return Err(format!("{left} of {} stacks were never reached", trace.len()));
    }
    Ok(())
}

struct Seen<'t> {
    trace: &'t [Stack],
    /// Where in the trace the last sample was.
    at: usize,
    samples: usize,
    /// Of these, those with code of the JIT.
    in_jit: usize,
    /// A function may be left out again after it was shown first: debug builds up to 3.10 call other functions of C
    /// before a function's first instruction. It is shown in these, as begun, and not where the loop itself goes on.
    begins_late: bool,
    /// Doubtful stacks, by what is said of them.
    doubtful: BTreeMap<String, usize>,
    wrong: Option<String>,
}

impl Seen<'_> {
    fn look(&mut self, sample: &Sample) {
        self.samples += 1;
        self.in_jit += usize::from(sample.frames.iter().any(Frame::is_in_jit));
        if sample.flags.contains("desync") || !sample.complete() {
            let why = format!("{} {}", sample.stop_text, sample.flags);
            *self.doubtful.entry(why).or_default() += 1;
            return;
        }
        let stack: Stack = sample.frames.iter().filter_map(function).collect();
        // Before the first and after the last event only the module runs.
        if stack == ["<module>:1"] {
            return;
        }
        let rest = self.trace.get(self.at..).unwrap_or_default();
        if self.begins_late && rest.first().is_some_and(|now| now.get(1..) == Some(&stack[..])) {
            return;
        }
        match rest.iter().position(|traced| *traced == stack) {
            Some(ahead) => self.at += ahead,
            None => {
                let known = self.trace.contains(&stack);
                let next = rest.iter().take(3).collect::<Vec<_>>();
                let text = || format!("{stack:?} (in the trace: {known}), after it come {next:?}\n{}", sample.text());
                self.wrong.get_or_insert_with(text);
            }
        }
    }
}

/// A function of the program, as the profile function names it.
fn function(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Python { name, file, first, .. } if file.ends_with("/every.py") => {
            let name = name.rsplit('.').next().unwrap_or(name);
            Some(format!("{name}:{first}"))
        }
        _ => None,
    }
}
