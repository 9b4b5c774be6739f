//! Greenlets: each one's stack ends where the greenlet begins, with all of its Python frames and no frame of the code
//! that started it.

use std::path::Path;
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, interpreters, packages, paths, process, skips, uu};

/// The versions of greenlet, and how a greenlet's stack ends there. Version 1 runs them in a function that whoever
/// starts one passes through, too: whose stack it is is not known there.
const VERSIONS: [(&str, StopReason); 3] = [
    ("greenlet==1.1.3", StopReason::StackInTransit),
    ("greenlet==2.0.2", StopReason::SwitchedStack),
    ("greenlet==3.5.6", StopReason::SwitchedStack),
];

/// The Python functions of a greenlet that works, and of the main program, leaf first.
const IN_GREENLET: [&str; 8] = ["work", "inner", "inner", "inner", "inner", "inner", "inner", "in_greenlet"];

fn functions(sample: &Sample) -> Vec<&str> {
    sample.frames.iter().filter(|f| f.is_python()).map(|f| f.name()).collect()
}

#[test]
fn a_greenlets_stack_ends_at_its_base() {
    // All three versions have wheels for these alone.
    let Some(python) = interpreters::installed().into_iter().find(|python| [10, 11].contains(&python.version.0)) else {
        return skips::skipped("greenlet 1, 2 and 3", "neither Python 3.10 nor 3.11 is installed");
    };
    for (package, stop) in VERSIONS {
        if let Some(folder) = packages::folder(&python, &[package]) {
            stacks_end_at_the_base(&python.path, &folder, package, stop);
            a_switch_is_recognised_without_a_table(&python.path, &folder, package, stop);
        }
    }
}

fn stacks_end_at_the_base(python: &Path, folder: &Path, package: &str, stop: StopReason) {
    let scratch = paths::scratch(package);
    let script = paths::source("python/greenlets.py");
    let program = [python.as_os_str(), script.as_os_str(), "2".as_ref()];
    let recording =
        uu::record(&scratch, &["-r", "499"], |command| _ = command.env("PYTHONPATH", folder), &program).expect_code(0);
    let (mut inside, mut switching) = (0, 0);
    for sample in recording.samples() {
        let functions = functions(&sample);
        if functions.first() != Some(&"work") {
            switching += usize::from(sample.stop == StopReason::StackInTransit.number());
            continue;
        }
        inside += 1;
        assert_eq!(functions, IN_GREENLET, "{package}: {}", sample.text());
        assert_eq!(sample.stop, stop.number(), "{package}: {}", sample.text());
        assert_eq!(sample.complete(), stop == StopReason::SwitchedStack, "{package}: {}", sample.text());
        let outermost = sample.native_names().last().copied().unwrap_or_default();
        assert!(["inner_bootstrap", "g_initialstub"].iter().any(|name| outermost.contains(name)), "{}", sample.text());
    }
    println!("{package}: {inside} samples in greenlets, {switching} while they switch");
    assert!(inside > 100, "{inside} samples in greenlets: {}", recording.outcome.text());
}

/// At each instruction of switches, where no rule table is: nothing has prepared them.
fn a_switch_is_recognised_without_a_table(python: &Path, folder: &Path, package: &str, stop: StopReason) {
    let scratch = paths::scratch(&format!("switches-{package}"));
    let helper = compile::shared_with_library(&scratch, "switches.so", &["python/switches.c"]);
    let mut command = Command::new(python);
    command.env("PYTHONPATH", folder).arg(paths::source("python/switches.py")).arg(&helper);
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    println!("{package}: {}", out.text());
    let count = |what: &str| -> u64 {
        let part = out.stdout.split([':', ',']).find_map(|part| part.trim().strip_suffix(what));
        part.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("no number of '{what}': {}", out.text()))
    };
    assert_eq!((count("beyond a base"), count("others")), (0, 0), "{package}: {}", out.text());
    assert!(count("whole") > 1000 && count("in transit") > 10, "{package}: {}", out.text());
    assert_eq!(count("at a base") > 1000, stop == StopReason::SwitchedStack, "{package}: {}", out.text());
}
