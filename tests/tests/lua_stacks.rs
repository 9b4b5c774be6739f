//! Lua stacks against the runtime's own view: every test program under every Lua of this machine and every one that is
//! built.

use libtest_mimic::{Arguments, Failed, Trial};
use std::sync::Arc;
use uunwind_tests::lua::{self, Expected, Kind, Lua};
use uunwind_tests::samples::Sample;
use uunwind_tests::{oracle, paths, skips, uu};

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
            let run = move || agrees(&mine, script).map_err(Failed::from);
            trials.push(Trial::test(format!("{}::{script}", lua.label()), run));
        }
        let mine = Arc::clone(&lua);
        trials.push(Trial::test(format!("{}::too_deep", lua.label()), move || too_deep(&mine).map_err(Failed::from)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// What one run of a script left behind.
struct Run {
    samples: Vec<Sample>,
    oracle: Vec<Expected>,
}

fn record(lua: &Lua, script: &str) -> Run {
    let scratch = paths::scratch(&format!("{script}-{}", lua.label()));
    let ready = lua.ready();
    let oracle = scratch.join("oracle");
    let source = lua::script(script);
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let recording = uu::record(&scratch, EXPLICIT, |command| ready.configure(command, &oracle), &program);
    Run { samples: recording.expect_code(0).samples(), oracle: lua::read(&oracle) }
}

fn agrees(lua: &Lua, script: &str) -> Result<(), String> {
    let run = record(lua, script);
    for (expected, sample) in lua::pair(run.oracle, &run.samples)? {
        let told = |e: String| format!("{e}\n{}", sample.text());
        lua::compare(&expected, sample, true).map_err(told)?;
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
    let pairs = lua::pair(run.oracle, &run.samples)?;
    let [(expected, sample)] = &pairs[..] else { return Err(format!("{} samples, expected 1", pairs.len())) };
    lua::compare(expected, sample, false)?;
    if sample.frames.len() != KEPT || sample.stop != 10 {
        return Err(format!("{} frames, stop {} {}", sample.frames.len(), sample.stop, sample.stop_text));
    }
    Ok(())
}
