//! Functions that nothing describes and that have no frame of their own: a frame pointer that is an outer function's
//! leads past their callers. These are found where the stack proves them; otherwise the stack is doubtful, and never
//! complete. The oracle is the program itself: it knows which calls were executed.
#![cfg(target_arch = "x86_64")]

use object::{Object, ObjectSymbol};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, process, uu};

/// Cases in which each call has a target that can be determined: all callers are proved, at each instruction.
const PROVED: [&str; 9] = ["leaf", "saves", "stores", "bare", "stale", "kept", "tail", "recursive", "framed"];
/// Cases with a call through a register or a word that has changed since.
const UNKNOWN: [&str; 3] = ["register", "memory", "through"];
/// Cases in which every function that calls has a frame pointer, as a registrar guarantees.
const GUARANTEED: [&str; 3] = ["leaf", "saves", "stores"];

fn program(what: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(&format!("skipped-{what}"));
    let program = compile::with_library(&scratch, "skipping", &["-O2", "-g"]);
    (scratch, program)
}

/// What the program counts when it walks at each instruction: steps, and stacks that are whole, doubtful, cut, wrong.
#[track_caller]
fn stepped((scratch, program): &(PathBuf, PathBuf), place: &str, case: &str) -> [u32; 5] {
    let out = process::run(Command::new(program).args(["step", place, case]), scratch, uu::LIMIT).expect_code(0);
    let numbers: Vec<u32> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let counts: [u32; 5] = numbers.try_into().expect("five numbers");
    assert_eq!(counts[4], 0, "{place}, {case}: {}\n{}", out.stdout, out.stderr);
    assert!(counts[0] >= 45, "{place}, {case}: {} steps", counts[0]);
    counts
}

#[test]
fn callers_that_the_stack_proves_are_found_at_each_instruction() {
    let program = program("proved");
    for place in ["text", "jit"] {
        for case in PROVED {
            let [steps, whole, ..] = stepped(&program, place, case);
            assert_eq!(whole, steps, "{place}, {case}");
        }
    }
}

#[test]
fn what_nothing_proves_makes_a_stack_doubtful_and_never_complete() {
    let program = program("unknown");
    for place in ["text", "jit"] {
        for case in UNKNOWN {
            // Where the leaf has changed the register, or a caller stands at its call.
            let [steps, whole, doubtful, cut, _] = stepped(&program, place, case);
            assert_eq!((whole + doubtful, cut), (steps, 0), "{place}, {case}");
            assert!(doubtful >= steps / 4, "{place}, {case}: {doubtful} of {steps}");
        }
    }
}

#[test]
fn leaves_in_windows_of_frame_pointers_have_their_callers() {
    let program = program("windows");
    for case in GUARANTEED {
        let [steps, whole, ..] = stepped(&program, "window", case);
        assert_eq!(whole, steps, "{case}");
    }
}

/// What a whole stack of the case `bare` has between its leaf and the call from C, leaf first; and of `register`.
const BARE: [&str; 4] = ["leaf_saves", "bare_direct", "bare_outer", "run_bare"];
const REGISTER: [&str; 3] = ["leaf_reached", "bare_register", "run_register"];

/// The stacks of a case that runs for a time, each from its leaf to `enter`.
#[track_caller]
fn sampled((scratch, program): &(PathBuf, PathBuf), options: &[&str], place: &str, case: &str) -> Vec<(Sample, usize)> {
    let arguments = ["spin", place, case, "4000"].map(OsStr::new);
    let command: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments).collect();
    let options = [&["-r", "499"], options].concat();
    let samples = uu::record(scratch, &options, |_| {}, &command).expect_code(0).samples();
    let inner = |sample: &Sample| sample.frames.iter().position(|frame| frame.name() == "enter");
    let found: Vec<_> = samples.into_iter().filter_map(|sample| inner(&sample).map(|at| (sample, at))).collect();
    assert!(found.len() >= 20, "{place}, {case}: {} samples", found.len());
    found
}

/// Whether the functions before `enter` are the last ones of the chain, from the interrupted one on.
fn is_whole(sample: &Sample, inner: usize, chain: &[&str]) -> bool {
    let names: Vec<&str> = sample.frames.iter().take(inner).map(|frame| frame.name()).collect();
    !names.is_empty() && chain.ends_with(&names)
}

#[test]
fn samples_replays_and_copies_have_all_callers_or_say_so() {
    let program = program("sampled");
    for options in [&[][..], &["--no-replay"], &["--unwind", "offline"]] {
        let bare = sampled(&program, options, "text", "bare");
        let wrong = bare.iter().find(|(sample, inner)| sample.complete() && !is_whole(sample, *inner, &BARE));
        assert!(wrong.is_none(), "{options:?}: {}", wrong.expect("a stack").0.text());
        let whole = bare.iter().filter(|(sample, inner)| sample.complete() && *inner == BARE.len()).count();
        assert!(whole * 10 >= bare.len() * 9, "{options:?}: {whole} of {}", bare.len());
        let register = sampled(&program, options, "text", "register");
        let wrong = register.iter().find(|(sample, inner)| sample.complete() && !is_whole(sample, *inner, &REGISTER));
        assert!(wrong.is_none(), "{options:?}: {}", wrong.expect("a stack").0.text());
        // Code that was copied has no names. It is not in copies of stacks either, so that nothing is proved there.
        for (case, is_proved) in [("stores", !options.contains(&"offline")), ("register", false)] {
            let samples = sampled(&program, options, "jit", case);
            let whole = samples.iter().filter(|(sample, inner)| sample.complete() && *inner == 2).count();
            let doubtful = samples.iter().filter(|(sample, _)| sample.stop == StopReason::Doubtful.number()).count();
            let expected = if is_proved { whole } else { doubtful };
            assert!(
                expected * 10 >= samples.len() * 9,
                "{options:?}, {case}: {whole}, {doubtful} of {}",
                samples.len()
            );
        }
    }
}

/// The offset of a function in the program's code, and of the next one.
fn place_of((_, program): &(PathBuf, PathBuf), names: [&str; 2]) -> std::ops::Range<u64> {
    let bytes = std::fs::read(program).expect("the program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let address = |name| {
        file.symbol_by_name(name).expect("a symbol").address()
            - file.symbol_by_name("code").expect("the first one").address()
    };
    address(names[0])..address(names[1])
}

/// What a recorder learns of new code comes after the code has run: until then, copies lack return addresses in it.
#[test]
fn copies_from_before_new_code_was_known_are_in_doubt() {
    let program = program("fresh");
    let leaf = place_of(&program, ["leaf_reached", "leaf_jumped"]);
    let samples = sampled(&program, &["--unwind", "offline"], "fresh", "register");
    let in_leaf: Vec<_> =
        samples.iter().filter(|(sample, _)| leaf.contains(&(sample.addresses()[0] & 0xfff))).collect();
    assert!(in_leaf.len() >= 20, "{} of {}", in_leaf.len(), samples.len());
    let wrong = in_leaf.iter().find(|(sample, inner)| sample.complete() && *inner < REGISTER.len());
    assert!(wrong.is_none(), "{}", wrong.expect("a stack").0.text());
}

#[test]
fn from_outside_the_same_rules_hold() {
    let (scratch, program) = program("dumped");
    // What the program has in its file is understood by its instructions. Code that was copied is not.
    let cases = [("text", "bare", &BARE[..]), ("text", "register", &REGISTER), ("jit", "register", &[])];
    for (place, case, chain) in cases {
        let mut running = Running::start(Command::new(&program).args(["spin", place, case, "100000000"]));
        assert_eq!(running.line(), "ready");
        let (mut whole, mut doubtful) = (0, 0);
        for _ in 0..6 {
            let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
            let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
            let dump: serde_json::Value = serde_json::from_str(&out.stdout).expect("JSON");
            let thread = &threads(&dump)[0];
            let names = functions(thread);
            let inner = names.iter().position(|name| *name == "enter").unwrap_or_default();
            if thread["complete"] == true && place == "text" {
                assert!(chain.ends_with(&names[..inner]) || inner == 0, "{thread:#}");
                whole += 1;
            }
            doubtful += i32::from(thread["stop_reason"] == StopReason::Doubtful.text());
        }
        let expected = if place == "text" { whole } else { doubtful };
        assert!(expected >= 4, "{place}, {case}: {whole} whole, {doubtful} doubtful");
    }
}
