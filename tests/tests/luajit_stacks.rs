//! LuaJIT's stacks compared with the runtime's own view, in the interpreter and on traces, and with the call graph of a
//! generated program.

use libtest_mimic::Arguments;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::Expected;
use uunwind_tests::lua_graph::Program;
use uunwind_tests::luajit::{self, Kind, LuaJit};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{chance, evidence, lua, oracle, paths, skips, uu};

/// The scripts in `targets/lua` that take their oracle from `lua_getinfo`.
const SCRIPTS: &[&str] =
    &["nested", "errors", "coroutines", "callbacks", "metamethods", "tails", "deep", "renamed", "sources"];
/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];
/// The compiler's states, as values of `UU_TEST_JIT`.
const STATES: [&str; 2] = ["on", "off"];

type Check = fn(&LuaJit, &str) -> Result<(), String>;

fn main() {
    luajit::build_if_asked();
    let arguments = Arguments::from_args();
    let found = luajit::all();
    if found.iter().all(|one| one.kind == Kind::Stripped) {
        skips::skipped("Debian's LuaJIT", "this machine has no luajit");
    }
    let mut trials = Vec::new();
    for luajit in found.into_iter().map(Arc::new) {
        let mut add = |name: String, check: Check, argument: &'static str| {
            let mine = Arc::clone(&luajit);
            trials.push(evidence::trial(format!("{}::{name}", luajit.label()), move || check(&mine, argument)));
        };
        for script in SCRIPTS {
            add((*script).to_owned(), agrees, script);
        }
        for state in STATES {
            add(format!("traces_{state}"), traces, state);
            add(format!("graph_{state}"), graph, state);
            add(format!("graph_{state}_by_uu_walk"), graph_by_uu_walk, state);
        }
        add(Reads::Probed.suffix().to_owned(), |luajit, _| agree_by_uu_walk(luajit, Reads::Probed), "");
        add(Reads::Guarded.suffix().to_owned(), |luajit, _| agree_by_uu_walk(luajit, Reads::Guarded), "");
        if luajit.kind != Kind::Interpreter {
            add("vms".to_owned(), vms, "on");
            add("ask".to_owned(), ask, "on");
        }
        add("modulo".to_owned(), modulo, "off");
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Records a program, compares its explicit samples, and returns them.
fn compare(name: &str, program: &[&OsStr], configure: impl FnOnce(&mut Command, &Path)) -> Result<Vec<Sample>, String> {
    let scratch = paths::scratch(name);
    let oracle = scratch.join("oracle");
    let recording = uu::record(&scratch, EXPLICIT, |command| configure(command, &oracle), program);
    let samples = recording.expect_code(0).samples();
    compare_samples(&lua::read(&oracle), &samples)?;
    Ok(samples)
}

fn compare_samples(oracle: &[Expected], samples: &[Sample]) -> Result<(), String> {
    for (expected, sample) in lua::pair(oracle, samples)? {
        let with_stack = |e: String| format!("{e}\n{}", sample.text());
        luajit::compare(expected, sample, true).map_err(with_stack)?;
        // "facts-pending" comes from the library with `cap`, which was just opened.
        if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
            return Err(with_stack("the stack is not complete, or is flagged".into()));
        }
        oracle::check_hosts(sample).map_err(with_stack)?;
    }
    Ok(())
}

/// All of these programs without a recorder: their own handler calls uu_walk().
fn agree_by_uu_walk(luajit: &LuaJit, reads: Reads) -> Result<(), String> {
    let ready = luajit.ready();
    let run = |name: &str, program: &Path, script: &str, state: &str| {
        let scratch = paths::scratch(&format!("{name}-{}-{}", luajit.label(), reads.suffix()));
        let (oracle, source) = (scratch.join("oracle"), lua::script(script));
        let configure = |command: &mut Command| {
            ready.configure(command, &oracle);
            command.env("UU_TEST_JIT", state).env("UU_TEST_CAP", luajit.library());
        };
        let walked = own_walks::explicit(&scratch, reads, configure, &[program.as_os_str(), source.as_os_str()])?;
        let compared = compare_samples(&lua::read(&oracle), &walked.samples);
        compared.map_err(|error| format!("{name}: {error}")).map(|()| walked.samples)
    };
    for script in SCRIPTS {
        run(script, &ready.program, script, "on")?;
    }
    for state in STATES {
        are_on_traces(&run(&format!("traces-{state}"), &ready.program, "luajit_trace", state)?, state)?;
    }
    luajit.pair().map_or(Ok(()), |pair| run("vms", pair, "luajit_vms", "on").map(drop))
}

fn agrees(luajit: &LuaJit, script: &str) -> Result<(), String> {
    let (ready, source) = (luajit.ready(), lua::script(script));
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let name = format!("{script}-{}", luajit.label());
    compare(&name, &program, |command, oracle| ready.configure(command, oracle)).map(drop)
}

/// Calls of C from traces: inlined functions, side exits, recursion, coroutines, callbacks. The stacks are the same
/// without the compiler.
fn traces(luajit: &LuaJit, state: &str) -> Result<(), String> {
    let (ready, source) = (luajit.ready(), lua::script("luajit_trace"));
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let samples = compare(&format!("traces-{state}-{}", luajit.label()), &program, |command, oracle| {
        ready.configure(command, oracle);
        command.env("UU_TEST_JIT", state).env("UU_TEST_CAP", luajit.library());
    })?;
    are_on_traces(&samples, state)
}

fn are_on_traces(samples: &[Sample], state: &str) -> Result<(), String> {
    let on_traces = samples.iter().filter(|sample| luajit::traces(sample) > 0).count();
    if (state == "on") != (on_traces > samples.len() / 2) {
        return Err(format!("{on_traces} of {} samples on traces, with the compiler {state}", samples.len()));
    }
    Ok(())
}

/// Two VMs, each of which calls the other.
fn vms(luajit: &LuaJit, state: &str) -> Result<(), String> {
    let source = lua::script("luajit_vms");
    let program = [luajit.pair().ok_or("no such program")?.as_os_str(), source.as_os_str()];
    compare(&format!("vms-{}", luajit.label()), &program, |command, oracle| {
        command.env("UU_TEST_ORACLE", oracle).env("UU_TEST_JIT", state);
    })
    .map(drop)
}

/// Timer samples of a program, taken at any place.
fn timed(name: &str, luajit: &LuaJit, text: &str) -> Result<Vec<Sample>, String> {
    let scratch = paths::scratch(&format!("{name}-{}", luajit.label()));
    let script = scratch.join("program.lua");
    std::fs::write(&script, text).map_err(|e| e.to_string())?;
    let ready = luajit.ready();
    let program = [ready.program.as_os_str(), script.as_os_str()];
    let configure = |command: &mut Command| ready.configure(command, &scratch.join("oracle"));
    let samples = uu::record(&scratch, &["-r", "999"], configure, &program).expect_code(0).samples();
    in_lua(samples)
}

/// Those in Lua, if they are enough, and hardly one in doubt.
fn in_lua(samples: Vec<Sample>) -> Result<Vec<Sample>, String> {
    // Samples of the program's start and end are not in Lua.
    let in_vm = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. } | Frame::Lua { .. });
    let lua: Vec<Sample> = samples.into_iter().filter(|sample| sample.frames.iter().any(in_vm)).collect();
    if lua.len() < 100 {
        return Err(format!("only {} samples in Lua", lua.len()));
    }
    let cut = lua.iter().filter(|sample| !sample.complete()).count();
    if chance::too_many(cut, lua.len(), 0.01) {
        return Err(format!("{cut} of {} samples are not complete", lua.len()));
    }
    let in_doubt = |sample: &&Sample| sample.flags.contains("desync") || luajit::frames(sample).is_empty();
    let doubtful = lua.iter().filter(in_doubt).count();
    if chance::too_many(doubtful, lua.len(), 0.01) {
        return Err(format!("{doubtful} of {} samples are in doubt", lua.len()));
    }
    Ok(lua)
}

/// Every stack that is not marked doubtful is a chain of the graph.
fn graph(luajit: &LuaJit, state: &str) -> Result<(), String> {
    let program = Program::new(chance::seconds(2.0), if state == "off" { "jit.off()" } else { "" });
    let samples = timed(&format!("graph-{state}"), luajit, &program.text)?;
    are_chains(&program, &samples, state)
}

/// The same by uu_walk() in the program's own handler, in a storm of signals, with calls of malloc() and locks watched.
fn graph_by_uu_walk(luajit: &LuaJit, state: &str) -> Result<(), String> {
    let program = Program::new(chance::seconds(0.3), if state == "off" { "jit.off()" } else { "" });
    for reads in Reads::some(usize::from(state == "on")).iter().copied() {
        let scratch = paths::scratch(&format!("graph-{state}-{}-{}", luajit.label(), reads.suffix()));
        let script = scratch.join("program.lua");
        std::fs::write(&script, &program.text).map_err(|e| e.to_string())?;
        let ready = luajit.ready();
        let configure = |command: &mut Command| ready.configure(command, &scratch.join("oracle"));
        let words = [ready.program.as_os_str(), script.as_os_str()];
        let walked = own_walks::storm(&scratch, reads, configure, &words)?;
        are_chains(&program, &in_lua(walked.samples)?, state).map_err(|error| format!("{reads:?}: {error}"))?;
    }
    Ok(())
}

fn are_chains(program: &Program, samples: &[Sample], state: &str) -> Result<(), String> {
    let mut deepest = 0;
    for sample in samples.iter().filter(|sample| !sample.flags.contains("desync")) {
        let frames = luajit::frames(sample);
        deepest = deepest.max(program.check(&frames).map_err(|e| format!("{e}\n{}", sample.text()))?);
    }
    let on_traces = samples.iter().filter(|sample| luajit::traces(sample) > 0).count();
    if deepest < 10 || (state == "on") != (on_traces > 0) {
        return Err(format!("deepest stack {deepest}, {on_traces} of {} samples on traces", samples.len()));
    }
    Ok(())
}

/// The VM queries the processor (`cpuid`) in a function that pushes a register: its caller is found at every
/// instruction.
fn ask(luajit: &LuaJit, _state: &str) -> Result<(), String> {
    /// Least number of the function's instructions.
    const LENGTH: usize = 10;
    let scratch = paths::scratch(&format!("ask-{}", luajit.label()));
    let program = luajit.compile(&scratch, "ask", &["lua/luajit_ask.c"]);
    let recording = uu::record(&scratch, EXPLICIT, |_| {}, &[program.as_os_str()]).expect_code(0);
    let address = |line: &str| u64::from_str_radix(line.strip_prefix("0x")?, 16).ok();
    let expected: Option<Vec<u64>> = recording.outcome.stdout.lines().map(address).collect();
    let expected = expected.ok_or_else(|| format!("not addresses: {}", recording.outcome.stdout))?;
    let samples: Vec<Sample> = recording.samples().into_iter().filter(|sample| sample.kind == "explicit").collect();
    if samples.len() != expected.len() || samples.len() < LENGTH {
        return Err(format!("{} samples, {} were sent, {LENGTH} or more are wanted", samples.len(), expected.len()));
    }
    for (sample, caller) in samples.iter().zip(expected) {
        if sample.addresses().get(1) != Some(&caller) || !sample.complete() || sample.flags.contains("desync") {
            return Err(format!("called from {caller:#x}:\n{}", sample.text()));
        }
    }
    Ok(())
}

/// `%` is computed by a function of the VM's own, in which its unwind tables are wrong.
fn modulo(luajit: &LuaJit, _state: &str) -> Result<(), String> {
    let text = "jit.off()\nlocal x, y = 0.5, 1\nwhile os.clock() < 1.5 do\n  for i = 1, 1000 do\n    x = (x * 3.5 + i) % 7.25; y = i % 3 + x % 2.5\n  end\nend\n";
    let samples = timed("modulo", luajit, text)?;
    for sample in &samples {
        let frames = luajit::frames(sample);
        match &frames[..] {
            [] => {}
            [chunk] if chunk.first == 0 && (3..=7).contains(&chunk.line) => {}
            _ => return Err(format!("{frames:?}\n{}", sample.text())),
        }
    }
    Ok(())
}
