//! Lua stacks against the runtime's own view: every test program under every Lua of this machine and every one that is
//! built.

use libtest_mimic::Arguments;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::{self, Expected, Kind, Lua};
use uunwind_tests::lua_grammar::Program;
use uunwind_tests::own_walks::{self, Reads, Walked};
use uunwind_tests::samples::{self, Frame, Sample};
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
    ("renamed", 1),
    ("sources", 1),
];

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

fn main() {
    let arguments = Arguments::from_args();
    let found = lua::tried(&[Kind::Interpreter, Kind::Library, Kind::Stripped]);
    for minor in lua::missing(&lua::all()).iter().filter(|minor| **minor < 5) {
        skips::skipped(&format!("Lua stacks of lua5.{minor}"), "this machine has no such interpreter");
    }
    let mut trials = Vec::new();
    for (index, lua) in found.into_iter().map(Arc::new).enumerate() {
        for (script, _) in SCRIPTS.iter().filter(|(_, first)| lua.minor >= *first) {
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::{script}", lua.label()), move || agrees(&mine, script)));
        }
        let mine = Arc::clone(&lua);
        trials.push(evidence::trial(format!("{}::anywhere", lua.label()), move || anywhere(&mine)));
        for reads in Reads::some(index).iter().copied() {
            let mine = Arc::clone(&lua);
            let name = format!("{}::{}", lua.label(), reads.suffix());
            trials.push(evidence::trial(name, move || agree_by_uu_walk(&mine, reads)));
            let mine = Arc::clone(&lua);
            let name = format!("{}::anywhere_{}", lua.label(), reads.suffix());
            trials.push(evidence::trial(name, move || anywhere_by_uu_walk(&mine, reads)));
        }
        if lua.minor >= 2 {
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::torn", lua.label()), move || torn(&mine)));
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::middle", lua.label()), move || middle(&mine)));
        }
        // A walk of 5.5 does not reuse the rest of an activation yet.
        if lua.minor < 5 {
            let mine = Arc::clone(&lua);
            trials.push(evidence::trial(format!("{}::same_below", lua.label()), move || same_below(&mine)));
        }
        let mine = Arc::clone(&lua);
        trials.push(evidence::trial(format!("{}::too_deep", lua.label()), move || too_deep(&mine)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The results of one run of a script.
struct Run {
    samples: Vec<Sample>,
    oracle: Vec<Expected>,
    /// The report's summary.
    summary: String,
    /// The recording.
    file: PathBuf,
}

impl Run {
    /// The oracle's lines, each with its sample.
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
    let summary = recording.report_with("summary", &["-v"]);
    Run { samples: recording.samples(), oracle: lua::read(&oracle), summary, file: recording.file }
}

fn agrees(lua: &Lua, script: &str) -> Result<(), String> {
    compare(lua, &record(lua, script).pairs()?)
}

/// The same scripts without a recorder: the program's own handler calls uu_walk().
fn agree_by_uu_walk(lua: &Lua, reads: Reads) -> Result<(), String> {
    let ready = lua.ready();
    for (script, _) in SCRIPTS.iter().filter(|(_, first)| lua.minor >= *first) {
        let scratch = paths::scratch(&format!("{script}-{}-{}", lua.label(), reads.suffix()));
        let (oracle, source) = (scratch.join("oracle"), lua::script(script));
        let program = [ready.program.as_os_str(), source.as_os_str()];
        let walked = own_walks::explicit(&scratch, reads, |command| ready.configure(command, &oracle), &program)?;
        let oracle = lua::read(&oracle);
        let pairs = lua::pair(&oracle, &walked.samples);
        pairs.and_then(|pairs| compare(lua, &pairs)).map_err(|error| format!("{script}: {error}"))?;
    }
    Ok(())
}

fn compare(lua: &Lua, pairs: &[(&Expected, &Sample)]) -> Result<(), String> {
    for (expected, sample) in pairs {
        let with_stack = |e: String| format!("{e}\n{}", sample.text());
        lua::compare(expected, sample, true).map_err(with_stack)?;
        // "facts-pending" comes from the module with `cap`, which was just opened.
        if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
            return Err(with_stack("the stack is not complete, or is flagged".into()));
        }
        if !expected.shape.is_empty() {
            let symbols = lua.kind != Kind::Stripped;
            oracle::compare_shape(&expected.shape, sample, symbols)
                .map_err(|e| with_stack(format!("{}: {e}", expected.shape)))?;
        }
    }
    Ok(())
}

/// A stack that differs from the last sample's in its innermost function only is that one's for the rest. What the
/// running function changes in its coroutine's `lua_State` is not read once all functions of the coroutine are emitted.
fn same_below(lua: &Lua) -> Result<(), String> {
    let run = record(lua, "same_below");
    for (expected, sample) in run.pairs()? {
        lua::compare(expected, sample, true)?;
    }
    let reuse = run.summary.lines().find_map(|line| line.trim().strip_prefix("reuse")?.trim().split_once(" %"));
    let share = reuse.and_then(|(share, _)| share.parse::<f64>().ok()).ok_or(run.summary.clone())?;
    // Of 16 samples the first is new, and of each of the others a few frames.
    if share < 50.0 {
        return Err(format!("only {share} % of the frames are reused"));
    }
    Ok(())
}

/// More frames than are kept: the innermost and the outermost ones are right, and between them is the number of those
/// left out.
fn too_deep(lua: &Lua) -> Result<(), String> {
    let run = record(lua, "too_deep");
    let pairs = run.pairs()?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    lua::compare(expected, sample, true)?;
    let omitted = sample.omitted();
    if !sample.complete() || omitted != Some(samples::KEPT) {
        return Err(format!("{omitted:?} frames around the omitted ones, stop {} {}", sample.stop, sample.stop_text));
    }
    Ok(())
}

/// Functions that are left out of a deep stack are not described, so that they take no time: the recording has the name
/// of a function only if a sample shows it. In 5.1, where nothing marks the end of an activation, all functions are
/// described.
fn middle(lua: &Lua) -> Result<(), String> {
    const NAME: &str = "nowhere_else";
    let run = record(lua, "middle");
    let pairs = run.pairs()?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    lua::compare(expected, sample, true)?;
    if !expected.frames.iter().any(|frame| frame.file == NAME) || sample.omitted() != Some(samples::KEPT) {
        return Err("the function is not in the middle".into());
    }
    let recording = std::fs::read(&run.file).map_err(|e| e.to_string())?;
    let is_there = |name: &str| recording.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    // A tick of the timer may have come while nothing was left out; if its sample was lost, only the name is there.
    let is_lost = run.summary.lines().any(|line| line.starts_with("  lost "));
    let shows = |sample: &Sample| sample.frames.iter().any(|f| matches!(f, Frame::Lua { file, .. } if file == NAME));
    let is_shown = run.samples.iter().any(shows);
    // The first name must be in the recording, so the search finds names.
    match (is_there("middle.lua"), is_there(NAME)) {
        (false, _) => Err("no name can be found in the recording".into()),
        (true, true) if !is_shown && !is_lost => Err("a function that is left out was described".into()),
        (true, false) if is_shown => Err("a function that is shown has no name".into()),
        _ => Ok(()),
    }
}

/// An invalid link among functions with cached answers: those before it are emitted, and the sample says that some are
/// missing.
fn torn(lua: &Lua) -> Result<(), String> {
    /// Number of functions up to the one whose link is invalid, which is emitted without its caller's name for it.
    const BEFORE: usize = 19;
    let run = record(lua, "torn");
    let pairs = run.pairs()?;
    let Some(((expected, sample), whole)) = pairs.split_last() else { return Err("no sample".into()) };
    for (expected, sample) in whole {
        lua::compare(expected, sample, true).map_err(|e| format!("{e}\n{}", sample.text()))?;
    }
    let is_lua = |frame: &Frame| matches!(frame, Frame::Lua { .. });
    let with_lua = sample.frames.iter().filter(|frame| is_lua(frame)).count();
    if !(BEFORE..=BEFORE + 1).contains(&with_lua) || !sample.flags.contains("desync") {
        return Err(format!("{with_lua} Lua frames, flags {}\n{}", sample.flags, sample.text()));
    }
    let mut before: Sample = (*sample).clone();
    before.frames = sample.frames.iter().filter(|frame| is_lua(frame)).take(BEFORE).cloned().collect();
    lua::compare(expected, &before, false)
}

/// Limit of the share of stacks in doubt.
const DOUBTFUL: f64 = 0.01;
/// Share of a loop's samples that each of its five lines has. They cost the same in instructions, and within a factor
/// of two in time.
const LINE: std::ops::RangeInclusive<f64> = 0.1..=0.4;

/// Interrupted at any place: every stack is one that the program can have, and a loop's lines have their shares.
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
    are_possible(lua, &program, &samples)
}

/// The same by uu_walk() in the program's own handler, in a storm of signals, with calls of malloc() and locks watched.
fn anywhere_by_uu_walk(lua: &Lua, reads: Reads) -> Result<(), String> {
    let scratch = paths::scratch(&format!("anywhere-{}-{}", lua.label(), reads.suffix()));
    let (ready, source) = (lua.ready(), lua::script("async"));
    let program = Program::read(&std::fs::read_to_string(&source).map_err(|e| e.to_string())?);
    let configure = |command: &mut Command| {
        ready.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_SECONDS", chance::seconds(0.3).to_string());
    };
    let command = [ready.program.as_os_str(), source.as_os_str()];
    let Walked { samples, .. } = own_walks::storm(&scratch, reads, configure, &command)?;
    are_possible(lua, &program, &samples)
}

fn are_possible(lua: &Lua, program: &Program, samples: &[Sample]) -> Result<(), String> {
    let (mut with_lua, mut doubtful) = (0, Vec::new());
    for sample in samples {
        let interpreter = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. });
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(sample);
            continue;
        }
        match program.check(sample) {
            Err(e) => return Err(format!("{e}\n{}", sample.text())),
            Ok(0) if sample.frames.iter().any(interpreter) => doubtful.push(sample),
            Ok(frames) => with_lua += usize::from(frames > 0),
        }
    }
    eprintln!("{}: {} samples, {with_lua} with Lua frames, {} in doubt", lua.label(), samples.len(), doubtful.len());
    let doubt = chance::too_many(doubtful.len(), samples.len(), DOUBTFUL);
    if let (true, Some(first)) = (doubt, doubtful.first()) {
        return Err(format!("{} of {} stacks in doubt, such as\n{}", doubtful.len(), samples.len(), first.text()));
    }
    if with_lua < 100 || with_lua * 10 < samples.len() * 9 {
        return Err(format!("Lua frames in {with_lua} of {} samples", samples.len()));
    }
    let shares = program.leaf_lines(samples, "lines");
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
