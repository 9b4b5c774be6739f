//! Greenlets: each one's stack ends where the greenlet begins, with all of its Python frames and no frame of the code
//! that started it.

use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, packages, paths, process, uu};

/// The Python functions of a greenlet that works, and of the main program, leaf first.
const IN_GREENLET: [&str; 8] = ["work", "inner", "inner", "inner", "inner", "inner", "inner", "in_greenlet"];

fn functions(sample: &Sample) -> Vec<&str> {
    sample.frames.iter().filter(|f| f.is_python()).map(|f| f.name()).collect()
}

#[test]
fn a_greenlets_stack_ends_at_its_base() {
    let Some(python) = packages::environment("greenlet", &["greenlet==3.5.6"]) else { return };
    let scratch = paths::scratch("greenlets");
    let script = paths::source("python/greenlets.py");
    let program = [python.as_os_str(), script.as_os_str(), "4".as_ref()];
    let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &program).expect_code(0);
    let (mut inside, mut switching) = (0, 0);
    let at_base = |sample: &Sample| sample.stop == StopReason::SwitchedStack.number();
    // The module's rule table comes after the first sample that meets it.
    for sample in recording.samples().iter().skip_while(|sample| !at_base(sample)) {
        let functions = functions(sample);
        if sample.stop == StopReason::StackInTransit.number() {
            switching += 1;
        }
        if functions.first() != Some(&"work") {
            continue;
        }
        inside += 1;
        assert_eq!(functions, IN_GREENLET, "{}", sample.text());
        assert!(at_base(sample), "{}", sample.text());
        let outermost = sample.native_names().last().copied().unwrap_or_default();
        assert!(outermost.contains("inner_bootstrap"), "{}", sample.text());
    }
    println!("{inside} samples in greenlets, {switching} while they switch");
    assert!(inside > 100, "{inside} samples in greenlets: {}", recording.outcome.text());
}

/// At each instruction of switches, where no rule table is: nothing has prepared them.
#[test]
fn a_switch_is_recognised_without_a_table() {
    let Some(python) = packages::environment("greenlet", &["greenlet==3.5.6"]) else { return };
    let scratch = paths::scratch("greenlets_switch");
    let helper = compile::shared_with_library(&scratch, "switches.so", &["python/switches.c"]);
    let mut command = Command::new(&python);
    command.arg(paths::source("python/switches.py")).arg(&helper);
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    println!("{}", out.text());
    let count = |what: &str| -> u64 {
        let part = out.stdout.split([':', ',']).find_map(|part| part.trim().strip_suffix(what));
        part.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("no number of '{what}': {}", out.text()))
    };
    assert_eq!((count("beyond a base"), count("others")), (0, 0), "{}", out.text());
    assert!(count("at a base") > 1000 && count("whole") > 1000 && count("in transit") > 10, "{}", out.text());
}
