//! Lua stacks at every instruction of a script that does all that changes which functions run. Each is one that the script can
//! have, and they follow each other as the runtime's own hooks tell.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::lua::{self, Kind, Lua};
use uunwind_tests::lua_grammar::Program;
use uunwind_tests::lua_steps::{compare, read_trace, walk, Stack};
use uunwind_tests::{paths, process, uu};

fn main() {
    let arguments = Arguments::from_args();
    // The library's loop is the interpreter's.
    let found = lua::all().into_iter().filter(|lua| lua.kind != Kind::Library);
    let trials = found.map(Arc::new).map(|lua| {
        let label = lua.label();
        Trial::test(label, move || every_instruction(&lua).map_err(Failed::from))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Stacks in doubt, at most one in so many: those within the few instructions in which a CallInfo is made or a stack is moved.
const DOUBTFUL: usize = 40;

fn every_instruction(lua: &Lua) -> Result<(), String> {
    let scratch = paths::scratch(&format!("every-{}", lua.label()));
    let (ready, source) = (lua.ready(), lua::script("every"));
    let program = [ready.program.as_os_str(), source.as_os_str()];
    let grammar = Program::read(&std::fs::read_to_string(&source).map_err(|e| e.to_string())?);

    let trace = scratch.join("trace");
    let mut hooked = Command::new(program[0]);
    hooked.arg(program[1]).env("UU_TEST_TRACE", &trace);
    ready.configure(&mut hooked, &scratch.join("oracle"));
    process::run(&mut hooked, &scratch, uu::LIMIT).expect_code(0);
    let trace = read_trace(&std::fs::read_to_string(&trace).map_err(|e| e.to_string())?);

    let walked = walk(&scratch, program, &grammar, |command| ready.configure(command, &scratch.join("oracle")))?;
    eprintln!("{}: {} samples, {} in doubt", lua.label(), walked.samples, walked.doubtful);
    let wrong: usize = walked.wrong.values().map(|(count, _)| count).sum();
    if let Some((why, (_, first))) = walked.wrong.first_key_value() {
        let all: Vec<String> = walked.wrong.iter().map(|(why, (count, _))| format!("{count} {why}")).collect();
        return Err(format!("{wrong} wrong stacks: {}\nthe first where {why}:\n{first}", all.join("\n")));
    }
    if walked.doubtful * DOUBTFUL > walked.samples {
        return Err(format!("{} of {} stacks in doubt", walked.doubtful, walked.samples));
    }
    let plain = |stacks: Vec<Stack>| if lua.minor == 1 { without_repetition(stacks) } else { stacks };
    compare(&grammar, &plain(recoveries(&grammar, trace)), &plain(walked.stacks))
}

/// With the stacks that hooks don't see: a coroutine that has caught an error runs none of its functions until it is resumed at the
/// `pcall`.
fn recoveries(grammar: &Program, trace: Vec<Stack>) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for stack in trace {
        if let (Some([thrower, rest @ ..]), [_, outer @ ..]) = (stacks.last().map(|s| &s[..]), &stack[..]) {
            if grammar.name(*thrower) == "protected" && *rest == stack[..] {
                stacks.push(outer.to_vec());
            }
        }
        stacks.push(stack);
    }
    stacks
}

/// 5.1 has no hook where a tail call has taken its caller away, and gives a recursive function its pc a little late: a function
/// that calls itself counts once.
fn without_repetition(mut stacks: Vec<Stack>) -> Vec<Stack> {
    stacks.iter_mut().for_each(|stack| stack.dedup());
    stacks.dedup();
    stacks
}
