//! Lua stacks against the runtime's own view: every test program under every Lua of this machine and every one that is
//! built.

use libtest_mimic::Arguments;
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::{self, Expected, Kind, Lua};
use uunwind_tests::lua_grammar::Program;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{chance, evidence, oracle, paths, skips, uu};

/// The scripts in `targets/lua`, each with the first minor version that can run it.
const SCRIPTS: &[(&str, u32)] = &[
    ("nested", 1),
    ("errors", 1),
    ("coroutines", 1),
    ("yield_across", 2),
    ("callbacks", 1),
    ("metamethods", 1),
    ("tails", 1),
    ("deep", 1),
];

/// A tick of the timer at the moment of an explicit signal would swallow it: as few ticks as can be.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

fn main() {
    let arguments = Arguments::from_args();
    let found = lua::all();
    for minor in lua::missing(&found).iter().filter(|minor| **minor < 5) {
        skips::skipped(&format!("Lua stacks of lua5.{minor}"), "this machine has no such interpreter");
    }
    let mut trials = Vec::new();
    for lua in found.into_iter().map(Arc::new) {
        for (script, _) in SCRIPTS.iter().filter(|(_, first)| lua.minor >= *first) {
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::{script}", lua.label()), move || agrees(&mine, script)));
        }
        let mine = Arc::clone(&lua);
        trials.push(evidence::trial(format!("{}::anywhere", lua.label()), move || anywhere(&mine)));
        if lua.minor >= 2 {
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::torn", lua.label()), move || torn(&mine)));
        }
        let mine = Arc::clone(&lua);
        trials.push(evidence::trial(format!("{}::too_deep", lua.label()), move || too_deep(&mine)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// What one run of a script left behind.
struct Run {
    samples: Vec<Sample>,
    oracle: Vec<Expected>,
}

impl Run {
    /// The oracle's lines with their samples.
    fn pairs(&self) -> Result<Vec<(&Expected, &Sample)>, String> {
        lua::pair(&self.oracle, &self.samples)
    }
}

fn record(lua: &Lua, script: &str) -> Run {
    let scratch = paths::scratch(&format!("{script}-{}", lua.label()));
    let ready = lua.ready();
    let oracle = scratch.join("oracle");
    let source = lua::script(script);
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let recording =
        uu::record(&scratch, EXPLICIT, |command| ready.configure(command, &oracle), &program).expect_code(0);
    Run { samples: recording.samples(), oracle: lua::read(&oracle) }
}

fn agrees(lua: &Lua, script: &str) -> Result<(), String> {
    let run = record(lua, script);
    for (expected, sample) in run.pairs()? {
        let told = |e: String| format!("{e}\n{}", sample.text());
        lua::compare(expected, sample, true).map_err(told)?;
        // "facts-pending" comes from the module with `cap`, which was just opened.
        if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
            return Err(told("the stack is not whole, or is flagged".into()));
        }
        if !expected.shape.is_empty() {
            let symbols = lua.kind != Kind::Stripped;
            oracle::compare_shape(&expected.shape, sample, symbols)
                .map_err(|e| told(format!("{}: {e}", expected.shape)))?;
        }
    }
    Ok(())
}

/// More frames than are kept: those nearest the leaf are right, and the sample says that it is cut.
fn too_deep(lua: &Lua) -> Result<(), String> {
    const KEPT: usize = 4096;
    let run = record(lua, "too_deep");
    let pairs = run.pairs()?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    lua::compare(expected, sample, false)?;
    if sample.frames.len() != KEPT || sample.stop != 10 {
        return Err(format!("{} frames, stop {} {}", sample.frames.len(), sample.stop, sample.stop_text));
    }
    Ok(())
}

/// A link that leads nowhere, met in the middle of functions that are known: those before it are told, and the sample says that some are
/// missing.
fn torn(lua: &Lua) -> Result<(), String> {
    /// Functions up to the one whose link is torn, which is told without its caller.
    const BEFORE: usize = 19;
    let run = record(lua, "torn");
    let pairs = run.pairs()?;
    let Some(((expected, sample), whole)) = pairs.split_last() else { return Err("no sample".into()) };
    for (expected, sample) in whole {
        lua::compare(expected, sample, true).map_err(|e| format!("{e}\n{}", sample.text()))?;
    }
    let is_lua = |frame: &Frame| matches!(frame, Frame::Lua { .. });
    let told = sample.frames.iter().filter(|frame| is_lua(frame)).count();
    if !(BEFORE..=BEFORE + 1).contains(&told) || !sample.flags.contains("desync") {
        return Err(format!("{told} Lua frames, flags {}\n{}", sample.flags, sample.text()));
    }
    let mut before: Sample = (*sample).clone();
    before.frames = sample.frames.iter().filter(|frame| is_lua(frame)).take(BEFORE).cloned().collect();
    lua::compare(expected, &before, false)
}

/// Share of stacks in doubt, at most.
const DOUBTFUL: f64 = 0.01;
/// Share of a loop's samples that each of its five lines has. They cost the same in instructions, and within a factor of two in
/// time.
const LINE: std::ops::RangeInclusive<f64> = 0.1..=0.4;

/// Interrupted anywhere: every stack is one that the program can have, and a loop's lines have their shares.
fn anywhere(lua: &Lua) -> Result<(), String> {
    let scratch = paths::scratch(&format!("anywhere-{}", lua.label()));
    let ready = lua.ready();
    let source = lua::script("async");
    let program = Program::read(&std::fs::read_to_string(&source).map_err(|e| e.to_string())?);
    let configure = |command: &mut Command| {
        ready.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_SECONDS", chance::seconds(2.0).to_string());
    };
    let command = [ready.program.as_os_str(), source.as_os_str()];
    let samples = uu::record(&scratch, &["-r", "999"], configure, &command).expect_code(0).samples();
    let (mut told, mut doubtful) = (0, Vec::new());
    for sample in &samples {
        let interpreter = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. });
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(sample);
            continue;
        }
        match program.check(sample) {
            Err(e) => return Err(format!("{e}\n{}", sample.text())),
            Ok(0) if sample.frames.iter().any(interpreter) => doubtful.push(sample),
            Ok(frames) => told += usize::from(frames > 0),
        }
    }
    eprintln!("{}: {} samples, {told} with Lua frames, {} in doubt", lua.label(), samples.len(), doubtful.len());
    let doubt = chance::too_many(doubtful.len(), samples.len(), DOUBTFUL);
    if let (true, Some(first)) = (doubt, doubtful.first()) {
        return Err(format!("{} of {} stacks in doubt, such as\n{}", doubtful.len(), samples.len(), first.text()));
    }
    if told < 100 || told * 10 < samples.len() * 9 {
        return Err(format!("Lua frames in {told} of {} samples", samples.len()));
    }
    let shares = program.leaf_lines(&samples, "lines");
    let of = |line| shares.get(&line).copied().unwrap_or(0) as usize;
    let total = LOOP.map(of).iter().sum();
    for line in LOOP {
        if chance::too_few(of(line), total, *LINE.start()) || chance::too_many(of(line), total, *LINE.end()) {
            return Err(format!("line {line} has {} of {total} samples of its loop: {shares:?}", of(line)));
        }
    }
    Ok(())
}

/// The lines of one loop of `async.lua` that cost the same.
const LOOP: [u32; 5] = [10, 11, 12, 13, 14];
