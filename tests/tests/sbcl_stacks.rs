//! SBCL, whose code has no unwind information and whose callers set up their callees' frames: functions whose calls are
//! known, interrupted at any instruction.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use uunwind_tests::chance::seconds;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::skips::skipped;
use uunwind_tests::{paths, uu};

/// Where `sbcl` is installed.
const SBCL: &str = "/usr/bin/sbcl";
/// How the functions are compiled: as by default, and with all that may be left out left out.
const COMPILED: [&str; 2] = ["((speed 1) (safety 1) (debug 1))", "((speed 3) (safety 0) (debug 0))"];
/// The function that is called first.
const OUTERMOST: &str = "top";

#[test]
fn complete_stacks_of_lisp_follow_its_calls() {
    if !std::path::Path::new(SBCL).exists() {
        return skipped("sbcl_stacks::complete_stacks_of_lisp_follow_its_calls", "SBCL (sbcl) is not here");
    }
    let scratch = paths::scratch("sbcl");
    let source = paths::source("lisp/graph.lisp");
    // One second each, also where it is for long: a machine with much to do takes its time.
    for compiled in (0..seconds(1.0) as usize).flat_map(|_| COMPILED) {
        let program = [SBCL.as_ref(), "--script".as_ref(), source.as_os_str(), compiled.as_ref(), OsStr::new("1")];
        let recording = uu::record(&scratch, &["-r", "4999"], |_| {}, &program).expect_code(0);
        let samples = recording.samples();
        for pid in samples.iter().map(|sample| sample.pid).collect::<HashSet<_>>() {
            let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
        }
        let mut calls: HashMap<&str, HashSet<&str>> = HashMap::new();
        let (mut quiet, mut routines) = (HashSet::new(), 0..0);
        for line in recording.outcome.stdout.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["calls", caller, callee] => drop(calls.entry(caller).or_default().insert(callee)),
                ["quiet", name] => drop(quiet.insert(name)),
                ["routines", start, end] => routines = hex(start)..hex(end),
                _ => {}
            }
        }
        assert!(!quiet.is_empty() && !routines.is_empty(), "{}", recording.outcome.text());
        let of_functions = samples.iter().filter(|sample| sample.frames.iter().any(is_in_map)).collect::<Vec<_>>();
        let complete = of_functions.iter().filter(|sample| sample.complete()).collect::<Vec<_>>();
        println!("{compiled}: {} samples, {} complete", of_functions.len(), complete.len());
        for sample in &complete {
            if let Err(why) = check(sample, &calls, &quiet, &routines) {
                panic!("{why}:\n{}", sample.text());
            }
        }
        assert!(of_functions.len() > 100, "{compiled}: only {} samples", of_functions.len());
        assert!(complete.len() * 5 > of_functions.len() * 4, "{compiled}: {} complete", complete.len());
    }
}

fn is_in_map(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { object, .. } if object == "perf-map")
}

/// From the innermost function of the program on, each is called by the next one, up to the outermost. `quiet`
/// functions call none of SBCL's assembly `routines`: an exit that passes frames by must not lack the frame that it
/// goes to.
fn check(
    sample: &Sample,
    calls: &HashMap<&str, HashSet<&str>>,
    quiet: &HashSet<&str>,
    routines: &Range<u64>,
) -> Result<(), String> {
    let first = sample.frames.iter().position(is_in_map).unwrap_or(0);
    let Some(last) = sample.frames.iter().rposition(is_in_map) else { return Ok(()) };
    let functions: Vec<&str> = sample.frames[first..=last].iter().map(Frame::name).collect();
    let in_routine = sample.addresses().first().is_some_and(|pc| routines.contains(pc));
    if let Some(name) = functions.first().filter(|name| in_routine && quiet.contains(*name)) {
        return Err(format!("{name} calls no assembly routine"));
    }
    for pair in functions.windows(2) {
        if !calls.get(pair[1]).is_some_and(|callees| callees.contains(pair[0])) {
            return Err(format!("{} does not call {}", pair[1], pair[0]));
        }
    }
    match functions.last() {
        Some(&OUTERMOST) => Ok(()),
        other => Err(format!("the outermost function is {other:?}")),
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("a number in hexadecimal digits")
}
