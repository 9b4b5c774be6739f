//! Calls on other stacks, below and above the caller's, whose unwind data leads back: each is walked to the root, by
//! captures, walks, the sampler, and from outside; and nothing that only looks like one is.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, process, uu};

const CHAIN: [&str; 6] = ["innermost", "third", "second", "nested", "run", "main"];

fn program(scratch: &Path) -> PathBuf {
    compile::with_library(scratch, "other_stacks", &["-pthread"])
}

/// At each instruction of the calls, and of the functions that make them; where the innermost one runs, beside libgcc.
#[test]
fn every_instruction_of_a_call_on_another_stack_has_its_stack() {
    let scratch = paths::scratch("other-stacks");
    for (name, options) in [("plain", &[][..]), ("framed", &["-fno-omit-frame-pointer"])] {
        let folder = scratch.join(name);
        std::fs::create_dir_all(&folder).expect("scratch");
        let program = compile::with_library(&folder, "other_stacks", &[&["-pthread"], options].concat());
        let out = process::run(Command::new(program).arg("check"), &scratch, uu::LIMIT).expect_code(0).stdout;
        println!("{out}");
        let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] > 500 && numbers[0] == numbers[1], "{out}");
    }
}

/// A saved stack pointer that was overwritten leads to a return address that is stale, and not to a complete stack.
#[test]
fn an_overwritten_stack_pointer_is_not_followed() {
    let scratch = paths::scratch("other-stacks-overwritten");
    let out = process::run(Command::new(program(&scratch)).arg("overwritten"), &scratch, uu::LIMIT);
    let stop = out.stdout.trim().rsplit(' ').next().and_then(|word| word.parse().ok());
    assert_eq!(stop.and_then(StopReason::from_number), Some(StopReason::BadCfa), "{}", out.text());
}

#[test]
fn samples_on_other_stacks_are_whole() {
    let scratch = paths::scratch("other-stacks-sampled");
    let program = program(&scratch);
    let arguments = [program.as_os_str(), "burn".as_ref(), "2400".as_ref()];
    let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &arguments).expect_code(0).samples();
    let on_them: Vec<&Sample> = samples.iter().filter(|sample| sample.native_names().contains(&"innermost")).collect();
    assert!(on_them.len() > 100, "{} samples", on_them.len());
    for sample in on_them {
        let known: Vec<&str> = sample.native_names().into_iter().filter(|name| CHAIN.contains(name)).collect();
        assert!(sample.complete() && known == CHAIN, "{}", sample.text());
    }
}

/// A copy has the current stack only: who called on it is not in the copy, and the report says so.
#[test]
fn copies_end_where_their_stack_does() {
    let scratch = paths::scratch("other-stacks-copied");
    let program = program(&scratch);
    let arguments = [program.as_os_str(), "burn".as_ref(), "2400".as_ref()];
    let options = ["-r", "999", "--unwind", "offline"];
    let samples = uu::record(&scratch, &options, |_| {}, &arguments).expect_code(0).samples();
    let on_them: Vec<&Sample> = samples.iter().filter(|sample| sample.native_names().contains(&"innermost")).collect();
    assert!(on_them.len() > 100, "{} samples", on_them.len());
    let reasons = [StopReason::UnreadableStack, StopReason::StackCut, StopReason::WordLeftOut];
    for sample in on_them {
        let stop = StopReason::from_number(sample.stop).expect("a reason");
        assert!(reasons.contains(&stop) && !sample.native_names().contains(&"main"), "{}", sample.text());
    }
}

#[test]
fn a_dump_goes_through_other_stacks() {
    let scratch = paths::scratch("other-stacks-dumped");
    let program = program(&scratch);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    assert_eq!(running.line(), "waiting");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p", &running.pid().to_string()]);
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    running.kill();
    let dump: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()));
    let [thread] = threads(&dump) else { panic!("{dump:#}") };
    let known: Vec<&str> = functions(thread).into_iter().filter(|name| CHAIN.contains(name)).collect();
    assert_eq!((known, &thread["complete"]), (CHAIN.to_vec(), &Value::Bool(true)), "{dump:#}");
}

/// gcc's split stacks: `__morestack` runs a function on a new part of the stack, wherever that lies.
#[test]
fn split_stacks_are_walked_through() {
    let scratch = paths::scratch("other-stacks-split");
    let program = compile::with_library(&scratch, "split_stacks", &["-fsplit-stack"]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0).stdout;
    println!("{out}");
    let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] > 1000 && numbers[1] > 0, "{out}");
}
