//! CPython from 3.11 on keeps frames in chunks that it unmaps when their first frame ends: that of a function that
//! makes a generator some instructions before the thread's state stops pointing to it. A sample in between lacks
//! frames, and says so; the plugin goes on.

use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{interpreters, paths, uu};

/// Whether a function of Python is on the stack.
fn is_of(sample: &Sample, function: &str) -> bool {
    sample.frames.iter().any(|frame| matches!(frame, Frame::Python { name, .. } if name == function))
}

#[test]
fn frames_in_memory_that_is_given_back() {
    for python in interpreters::modern() {
        let scratch = paths::scratch("python-chunks");
        let script = paths::source("python/chunks.py");
        let program = [python.path.as_os_str(), script.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
        let said = &recording.outcome.stderr;
        assert!(!said.contains("plugin \"python\""), "{}: {said}", python.label);
        let samples = recording.samples();
        let inside = |s: &&Sample| is_of(s, "main");
        let (with, marked) =
            (samples.iter().filter(inside).count(), samples.iter().filter(|s| s.flags.contains("desync")).count());
        println!("{}: {} samples, {with} with Python's frames, {marked} doubtful", python.label, samples.len());
        assert!(with > 50, "{}: {with} of {} samples: {said}", python.label, samples.len());
        let has_python = |s: &&Sample| s.frames.iter().any(|frame| matches!(frame, Frame::Python { .. }));
        let loops = |s: &&Sample| s.native_names().contains(&"_PyEval_EvalFrameDefault");
        for sample in samples.iter().filter(|s| loops(s) && !has_python(s)) {
            assert!(sample.flags.contains("desync"), "{}: {}", python.label, sample.text());
        }
    }
}
