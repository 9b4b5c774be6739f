//! Lua stacks at every instruction of a script that does everything that changes which functions run. Each is one that
//! the script can have, and their order is that in which the runtime's own hooks report them.

use libtest_mimic::Arguments;
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::{self, Kind, Lua, Ready};
use uunwind_tests::lua_grammar::Program;
use uunwind_tests::lua_steps::{compare, read_trace, walk, Stack, Walked};
use uunwind_tests::luajit::{self, LuaJit};
use uunwind_tests::{evidence, paths, process, skips, uu};

fn main() {
    luajit::build_if_asked();
    let arguments = Arguments::from_args();
    // Debian's library has the same loop as its interpreter.
    let found: Vec<Arc<Lua>> = lua::tried(&[Kind::Interpreter, Kind::Stripped]).into_iter().map(Arc::new).collect();
    let jits: Vec<LuaJit> = luajit::all();
    for minor in lua::missing(&lua::all()).into_iter().filter(|minor| *minor < 5) {
        skips::skipped(&format!("every instruction of lua5.{minor}"), "this machine has no such interpreter");
    }
    if jits.iter().all(|jit| jit.kind == luajit::Kind::Stripped) {
        skips::skipped("every instruction of Debian's LuaJIT", "this machine has no luajit");
    }
    let mut trials = Vec::new();
    for lua in &found {
        let mine = Arc::clone(lua);
        let run = move || lines(&mine.label(), mine.ready());
        trials.push(evidence::trial(format!("{}::lines", lua.label()), run));
        let mine = Arc::clone(lua);
        let run = move || moved(&mine.label(), mine.ready());
        trials.push(evidence::trial(format!("{}::moved", lua.label()), run));
        let mine = Arc::clone(lua);
        trials.push(evidence::trial(lua.label(), move || every_instruction_of_puc(&mine)));
    }
    // LuaJIT has no hooks where functions of its own call and return. The expected stacks are those of Lua 5.4.
    let model = lua::all().into_iter().find(|lua| lua.minor == 4 && lua.kind == Kind::Stripped);
    let model = Arc::new(model.expect("it is always built"));
    for jit in jits.into_iter().filter(|jit| jit.kind != luajit::Kind::Library) {
        let (model, jit) = (Arc::clone(&model), Arc::new(jit));
        let mine = Arc::clone(&jit);
        let run = move || lines(&mine.label(), mine.ready());
        trials.push(evidence::trial(format!("{}::lines", jit.label()), run));
        let mine = Arc::clone(&jit);
        let run = move || callbacks(&mine);
        trials.push(evidence::trial(format!("{}::callbacks", jit.label()), run));
        let mine = Arc::clone(&jit);
        let run = move || bases(&mine);
        trials.push(evidence::trial(format!("{}::bases", jit.label()), run));
        trials.push(evidence::trial(jit.label(), move || every_instruction_of_luajit(&jit, &model)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// At most one stack in this number is in doubt: those within the few instructions in which a CallInfo is made or a
/// stack is moved.
const DOUBTFUL: usize = 40;

fn every_instruction_of_puc(lua: &Lua) -> Result<(), String> {
    let grammar = grammar("every");
    let expected = recoveries(&grammar, trace(lua, false));
    let stacks = walk_all("every", &lua.label(), lua.ready(), &grammar)?.stacks;
    if lua.minor == 1 {
        compare(&grammar, &without_repetition(expected), &without_repetition(stacks))
    } else {
        compare(&grammar, &expected, &stacks)
    }
}

fn every_instruction_of_luajit(jit: &LuaJit, model: &Lua) -> Result<(), String> {
    let grammar = grammar("every");
    let stacks = walk_all("every", &jit.label(), jit.ready(), &grammar)?.stacks;
    compare(&grammar, &trace(model, true), &without_tail_calls(&grammar, stacks))
}

/// Stacks that are moved while they hold many functions, and tail called functions that are moved into their callers'
/// frames: few stacks are in doubt, although most of them are being moved.
fn moved(label: &str, ready: &Ready) -> Result<(), String> {
    /// At most one stack in this number is in doubt.
    const DOUBTFUL: usize = 150;
    let walked = walk_all("moved", label, ready, &grammar("moved"))?;
    match walked.doubtful * DOUBTFUL > walked.samples {
        true => Err(format!("{} of {} stacks in doubt", walked.doubtful, walked.samples)),
        false => Ok(()),
    }
}

/// A Lua function calls C by the FFI, which calls a Lua function: no stack ends between the two.
fn callbacks(jit: &LuaJit) -> Result<(), String> {
    /// Least number of calls of the comparing function.
    const CALLS: usize = 3;
    let grammar = grammar("luajit_callback");
    let walked = walk_all("luajit_callback", &jit.label(), jit.ready(), &grammar)?;
    let calls = |stack: &&Stack| stack.first().is_some_and(|first| grammar.name(*first) == "compare");
    match walked.stacks.iter().filter(calls).count() {
        CALLS.. => Ok(()),
        calls => Err(format!("{calls} calls were seen, {CALLS} or more are wanted")),
    }
}

/// Traces that move their base: none of their stacks is wrong or in doubt.
fn bases(jit: &LuaJit) -> Result<(), String> {
    let walked = walk_all("luajit_bases", &jit.label(), jit.ready(), &grammar("luajit_bases"))?;
    match walked.on_traces {
        (1000.., 0) => Ok(()),
        (samples, doubtful) => Err(format!("{doubtful} of {samples} stacks on traces are in doubt")),
    }
}

/// The emitted line follows the program's order, and never goes back: in most versions the saved pc is that of an
/// earlier instruction.
fn lines(label: &str, ready: &Ready) -> Result<(), String> {
    /// Lines of `lines.lua`: the function's first line, its locals, the loop, the loop's body, and the end.
    const FIRST: u32 = 5;
    const LOCALS: u32 = 6;
    const LOOP: [u32; 6] = [7, 8, 9, 10, 11, 12];
    const END: u32 = 14;
    let walked = walk_all("lines", label, ready, &grammar("lines"))?;
    let mut got: Vec<u32> = walked.lines.iter().filter(|(first, _)| *first == FIRST).map(|(_, line)| *line).collect();
    // Before its first instruction, LuaJIT is at a header of the function.
    if got.first() == Some(&FIRST) {
        got.remove(0);
    }
    let expected: Vec<u32> =
        [LOCALS].into_iter().chain(LOOP.into_iter().cycle().take(3 * LOOP.len())).chain([LOOP[0], END]).collect();
    if got == expected {
        Ok(())
    } else {
        Err(format!("lines {got:?}, expected {expected:?}"))
    }
}

fn grammar(script: &str) -> Program {
    Program::read(&std::fs::read_to_string(lua::script(script)).expect("the script is there"))
}

/// The script's stacks, as hooks report them. `as_jit`: without the parts that LuaJIT cannot run.
fn trace(lua: &Lua, as_jit: bool) -> Vec<Stack> {
    let ready = lua.ready();
    let scratch = paths::scratch(&format!("every-trace-{}", lua.label()));
    let file = scratch.join("trace");
    let mut hooked = Command::new(&ready.program);
    hooked.arg(lua::script("every")).env("UU_TEST_TRACE", &file);
    if as_jit {
        hooked.env("UU_TEST_AS_JIT", "1");
    }
    ready.configure(&mut hooked, &scratch.join("oracle"));
    process::run(&mut hooked, &scratch, uu::LIMIT).expect_code(0);
    read_trace(&std::fs::read_to_string(&file).expect("the trace was written"))
}

/// The stacks that are emitted at each instruction of a script. Fails if one is wrong, or too many are in doubt.
fn walk_all(script: &str, label: &str, ready: &Ready, grammar: &Program) -> Result<Walked, String> {
    let scratch = paths::scratch(&format!("{script}-{label}"));
    let source = lua::script(script);
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let walked = walk(&scratch, program, grammar, |command| ready.configure(command, &scratch.join("oracle")))?;
    eprintln!("{label}: {} samples, {} in doubt", walked.samples, walked.doubtful);
    let wrong: usize = walked.wrong.values().map(|(count, _)| count).sum();
    if let Some((why, (_, first))) = walked.wrong.first_key_value() {
        let all: Vec<String> = walked.wrong.iter().map(|(why, (count, _))| format!("{count} {why}")).collect();
        return Err(format!("{wrong} wrong stacks: {}\nthe first where {why}:\n{first}", all.join("\n")));
    }
    if walked.doubtful * DOUBTFUL > walked.samples {
        return Err(format!("{} of {} stacks in doubt", walked.doubtful, walked.samples));
    }
    Ok(walked)
}

/// The stacks, with those that hooks do not report: after an error was caught, until something is called. A coroutine
/// runs none of its functions until it is resumed at the `pcall`; and the variables of the function that threw are
/// closed when it has left the stack.
fn recoveries(grammar: &Program, trace: Vec<Stack>) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for stack in trace {
        if let (Some([thrower, rest @ ..]), [first, outer @ ..]) = (stacks.last().map(|s| &s[..]), &stack[..]) {
            let caught = match grammar.name(*thrower) {
                "protected" => *rest == stack[..],
                "throws" => grammar.name(*first) == "closing" && rest == outer,
                _ => false,
            };
            if caught {
                stacks.push(outer.to_vec());
            }
        }
        stacks.push(stack);
    }
    stacks
}

/// The stacks with each function that calls itself once: 5.1 has no hook when a tail call has replaced its caller, and
/// stores a recursive function's pc some instructions after the call.
fn without_repetition(mut stacks: Vec<Stack>) -> Vec<Stack> {
    stacks.iter_mut().for_each(|stack| stack.dedup());
    stacks.dedup();
    stacks
}

/// The stacks without those between a tail call's caller and callee: LuaJIT removes the caller some instructions before
/// the callee begins.
fn without_tail_calls(grammar: &Program, mut stacks: Vec<Stack>) -> Vec<Stack> {
    let is_above = |stack: Option<&Stack>, outer: &[u32]| stack.is_some_and(|s| s.get(1..) == Some(outer));
    let gap = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| stacks.get(at));
        let tail = before.and_then(|stack| stack.first()).is_some_and(|first| grammar.name(*first) == "tail");
        tail && is_above(before, &stacks[at]) && is_above(stacks.get(at + 1), &stacks[at])
    };
    let gaps: Vec<bool> = (0..stacks.len()).map(gap).collect();
    let mut gaps = gaps.into_iter();
    stacks.retain(|_| gaps.next() == Some(false));
    stacks.dedup();
    stacks
}
