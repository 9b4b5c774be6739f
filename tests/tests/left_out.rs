//! Threads in whose handlers a fault would have no stack, so that no plugin is called: a stack through a language whose
//! frames are missing therefore does not count as complete, and one of C does.

use std::ffi::OsStr;
use uunwind_tests::samples::Sample;
use uunwind_tests::skips::skipped;
use uunwind_tests::{compile, interpreters, paths, uu};

/// Works on a thread with an alternate stack that is as small as the kernel takes it, and before that on another one.
const PYTHON: &str = "\
import ctypes, time
class Stack(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('flags', ctypes.c_int), ('size', ctypes.c_size_t)]
def works(n):
    end = time.process_time() + 0.4
    while time.process_time() < end: n += sum(range(200))
    return n
works(0)
room = ctypes.create_string_buffer(2048)
stack = Stack(ctypes.addressof(room), 0, len(room))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
works(1)
";

/// The number of complete stacks, by the summary.
fn complete(recording: &uu::Recording) -> usize {
    let summary = recording.report("summary");
    let line = summary.lines().find(|line| line.starts_with("  samples ")).unwrap_or_else(|| panic!("{summary}"));
    let word = line.split_whitespace().nth(2);
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn stacks_without_the_frames_of_a_plugin_are_not_complete() {
    let Some(python) = interpreters::modern().into_iter().next() else {
        let what = "left_out::stacks_without_the_frames_of_a_plugin_are_not_complete";
        return skipped(what, "there is no CPython of 3.11 or later");
    };
    let scratch = paths::scratch("left-out");
    let program = [python.path.as_os_str(), OsStr::new("-c"), OsStr::new(PYTHON)];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    let has_work = |sample: &Sample| sample.frames.iter().any(|frame| frame.is_python() && frame.name() == "works");
    let (without, with): (Vec<&Sample>, Vec<&Sample>) =
        samples.iter().partition(|sample| sample.flags.contains("no-plugins"));
    assert!(with.iter().filter(|sample| has_work(sample)).count() > 20, "{} samples", with.len());
    assert!(without.len() > 20, "{} of {} without plugins", without.len(), samples.len());
    // Also of what ends in a library of C.
    for sample in &without {
        assert!(!sample.frames.iter().any(|frame| frame.is_python()), "{}", sample.text());
        assert!(sample.flags.contains("desync") || !sample.complete(), "{}", sample.text());
    }
    assert!(complete(&recording) <= with.len(), "{}", recording.report("summary"));
}

#[test]
fn stacks_that_no_plugin_claims_are_complete() {
    let scratch = paths::scratch("left-out-native");
    let program = compile::gcc(&scratch, "faults", &["native/faults.c"], &["-pthread"]);
    let program = [program.as_os_str(), OsStr::new("small")];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
    let samples = recording.samples();
    let without = samples.iter().filter(|sample| sample.flags.contains("no-plugins") && sample.complete());
    let without: Vec<&Sample> = without.collect();
    assert!(without.len() > 20, "{} of {} without plugins", without.len(), samples.len());
    assert!(complete(&recording) >= without.len(), "{}", recording.report("summary"));
    for sample in without {
        assert!(!sample.flags.contains("desync"), "{}", sample.text());
    }
}
