//! Lua programs under the timer, whose stacks are compared with the calls in their source: each version and kind, part
//! by part. And the programs that change their stacks most, under a storm of signals on several threads: for seconds in
//! each run of the tests, which must not crash or hang; and for `UU_STRESS_SECONDS` as a campaign (ci/nightly), in
//! which no stack may be wrong.

use libtest_mimic::Arguments;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::{self, Lua, Ready};
use uunwind_tests::lua_grammar::Program;
use uunwind_tests::luajit::{self, LuaJit};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, evidence, paths, skips, uu};

/// The parts of `async.lua`.
const PARTS: [&str; 12] = [
    "lines",
    "calls",
    "metamethods",
    "callbacks",
    "errors",
    "coroutines",
    "yields_across",
    "varargs",
    "tails",
    "garbage",
    "deep",
    "modulo",
];
/// CPU seconds of each part.
const SECONDS: &str = "10";

fn main() {
    luajit::build_if_asked();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let campaign = skips::campaign("Lua programs under the timer, 10 s for each part, version and kind");
    for one in lua::all().into_iter().map(Arc::new) {
        let label = one.label();
        let parts = PARTS.into_iter().filter(|part| one.minor > 1 || *part != "yields_across");
        for part in parts.filter(|_| campaign) {
            let mine = Arc::clone(&one);
            let run = move || under_timer(&mine.label(), mine.ready(), part, "on");
            trials.push(evidence::trial(format!("{label}::{part}"), run));
        }
        // Without a campaign, each version is stressed once.
        let wanted =
            one.kind == lua::Kind::Library || (one.kind == lua::Kind::Stripped && (campaign || one.minor == 5));
        if wanted {
            let run = move || stressed(&one.label(), &|folder| host(&one, folder), campaign);
            trials.push(evidence::trial(format!("{label}::stress"), run));
        }
    }
    for one in luajit::all().into_iter().map(Arc::new) {
        let label = one.label();
        for (part, state) in
            PARTS.iter().flat_map(|part| ["on", "off"].map(|state| (*part, state))).filter(|_| campaign)
        {
            let mine = Arc::clone(&one);
            let run = move || under_timer(&mine.label(), mine.ready(), part, state);
            trials.push(evidence::trial(format!("{label}::{part}_{state}"), run));
        }
        if one.kind != luajit::Kind::Interpreter {
            let run = move || stressed(&one.label(), &|folder| jit_host(&one, folder), campaign);
            trials.push(evidence::trial(format!("{label}::stress"), run));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The samples of a recording, judged.
#[derive(Default)]
struct Found {
    /// Number of samples.
    samples: usize,
    /// Number of samples with Lua frames.
    with_lua: usize,
    /// Number of samples with functions whose names the recording could not hold any more.
    unnamed: usize,
    /// Samples that are incomplete, or marked as doubtful: these may miss frames.
    doubtful: Vec<Sample>,
    /// Samples that are not marked, with a stack that the program cannot have: what is wrong, how often, and the first
    /// one.
    wrong: BTreeMap<String, (usize, String)>,
}

impl Found {
    /// An error if a stack is wrong.
    fn none_wrong(&self) -> Result<(), String> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        let kinds =
            self.wrong.iter().map(|(why, (count, first))| format!("{count} of {}: {why}\n{first}", self.samples));
        Err(kinds.collect::<Vec<_>>().join("\n"))
    }
}

/// Judges samples: each that is complete and not marked must be a stack that the program can have.
fn check(program: &Program, samples: Vec<Sample>) -> Found {
    let mut found = Found { samples: samples.len(), ..Found::default() };
    for mut sample in samples {
        let interpreter = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. });
        // Functions of LuaJIT's own, and code that the program makes, are not in the source.
        let in_source =
            |frame: &Frame| !matches!(frame, Frame::Lua { file, .. } if file == "builtin" || file == "made");
        sample.frames.retain(in_source);
        if sample.frames.iter().any(|frame| matches!(frame, Frame::Lua { file, .. } if file == "?")) {
            found.unnamed += 1;
            continue;
        }
        if sample.flags.contains("desync") || !sample.complete() {
            found.doubtful.push(sample);
            continue;
        }
        match program.check(&sample) {
            Err(why) => found.wrong.entry(why).or_insert_with(|| (0, sample.text())).0 += 1,
            Ok(0) if sample.frames.iter().any(interpreter) => found.doubtful.push(sample),
            Ok(frames) => found.with_lua += usize::from(frames > 0),
        }
    }
    found
}

fn source(name: &str) -> Result<Program, String> {
    Ok(Program::read(&std::fs::read_to_string(lua::script(name)).map_err(|e| e.to_string())?))
}

/// One part of `async.lua`: no stack is wrong, and fewer than one in a hundred is in doubt.
fn under_timer(label: &str, ready: &Ready, part: &str, state: &str) -> Result<(), String> {
    let scratch = paths::scratch(&format!("long-{part}-{state}-{label}"));
    let script = lua::script("async");
    let configure = |command: &mut Command| {
        ready.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_SECONDS", SECONDS).env("UU_TEST_PART", part);
        if state == "off" {
            command.env("UU_TEST_JIT", state);
        }
    };
    let program = [ready.program.as_os_str(), script.as_os_str()];
    let samples = uu::record(&scratch, &["-r", "999"], configure, &program).expect_code(0).samples();
    let found = check(&source("async")?, samples);
    found.none_wrong()?;
    let doubtful = found.doubtful.len();
    eprintln!(
        "{label} {part} {state}: {} samples, {} with Lua frames, {doubtful} in doubt",
        found.samples, found.with_lua
    );
    // Where a callback is being entered or left, nobody can say: 1.3 % of the instructions of the part that makes most.
    if let (true, Some(first)) = (doubtful * 50 >= found.samples, found.doubtful.first()) {
        return Err(format!("{doubtful} of {} stacks in doubt, such as\n{}", found.samples, first.text()));
    }
    if found.with_lua < 1000 || found.with_lua * 100 < found.samples * 95 {
        return Err(format!("Lua frames in {} of {} samples", found.with_lua, found.samples));
    }
    Ok(())
}

/// The program that stresses a Lua.
fn host(lua: &Lua, folder: &Path) -> PathBuf {
    if lua.kind == lua::Kind::Stripped {
        let [include, library] = lua::library(lua.minor, folder);
        let options = ["-s", &*include, &*library, "-llua", "-lm", "-ldl", "-pthread"];
        return compile::gcc(folder, "stress", &["lua/stress.c"], &options);
    }
    let (include, library) = (format!("-I/usr/include/lua5.{}", lua.minor), format!("-llua5.{}", lua.minor));
    compile::gcc(folder, "stress", &["lua/stress.c"], &[&include, &library, "-pthread"])
}

fn jit_host(luajit: &LuaJit, folder: &Path) -> PathBuf {
    luajit.compile(folder, "stress", &["lua/stress.c"])
}

/// Number of signals that each thread gets in a second.
const SIGNALS: &str = "2000";
/// Seconds of one recording. Each run of the script makes its functions anew, and a recording can hold a limited number
/// of names.
const SLICE: u64 = 2;

/// The program does not crash or hang, nor do its children. `campaign`: and no stack is wrong.
fn stressed(label: &str, build: &dyn Fn(&Path) -> PathBuf, campaign: bool) -> Result<(), String> {
    let seconds = std::env::var("UU_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let scratch = paths::scratch(&format!("stress-{label}"));
    let program = build(&scratch);
    let mut left = seconds;
    while left > 0 {
        let some = left.min(SLICE);
        // Several threads; and a single one, which forks.
        for threads in ["3", "1"] {
            stress(label, &scratch, &program, some, threads, campaign)?;
        }
        left -= some;
    }
    Ok(())
}

fn stress(
    label: &str,
    scratch: &Path,
    program: &Path,
    seconds: u64,
    threads: &str,
    campaign: bool,
) -> Result<(), String> {
    let (script, seconds) = (lua::script("stress"), seconds.to_string());
    let arguments = [&seconds, SIGNALS, threads].map(OsStr::new);
    let words: Vec<&OsStr> = [program.as_os_str(), script.as_os_str()].into_iter().chain(arguments).collect();
    let recording = uu::record(scratch, &["--explicit", "-r", "999"], |_| {}, &words).expect_code(0);
    let summary = &recording.outcome.stderr;
    if let Some(off) = summary.lines().find(|line| line.contains("plugin \"lua\" failed")) {
        return Err(format!("{off}\n{summary}"));
    }
    let samples = recording.samples();
    let has_lua = |sample: &&Sample| sample.frames.iter().any(|frame| matches!(frame, Frame::Lua { .. }));
    let (count, with_lua) = (samples.len(), samples.iter().filter(has_lua).count());
    eprintln!(
        "{label}, {threads} threads: {count} samples, {with_lua} with Lua frames, {}",
        recording.outcome.stdout.trim()
    );
    if with_lua * 2 < count || with_lua == 0 {
        return Err(format!("Lua frames in {with_lua} of {count} samples"));
    }
    if campaign {
        let found = check(&source("stress")?, samples);
        eprintln!("{label}, {threads} threads: {} in doubt, {} without names", found.doubtful.len(), found.unnamed);
        found.none_wrong()?;
    }
    Ok(())
}
