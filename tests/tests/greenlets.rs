//! Greenlets: each one's stack ends where the greenlet begins, with all of its Python frames and no frame of the code
//! that started it.

use uunwind_core::stop_reason::StopReason;
use uunwind_tests::samples::Sample;
use uunwind_tests::{packages, paths, uu};

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
