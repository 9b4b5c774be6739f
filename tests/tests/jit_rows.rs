//! Code that a JIT reports to GDB's list without unwind data: its stacks are whole, by rules made from the machine
//! code, and never by those of other code that was at the same address.

use std::process::Command;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, paths, uu};

fn explicit(recording: &uu::Recording) -> Vec<Sample> {
    recording.samples().into_iter().filter(|sample| sample.kind == "explicit").collect()
}

fn is_by_frame_pointer(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { by_frame_pointer: true, .. } | Frame::Jit { by_frame_pointer: true, .. })
}

/// A compiler's code, with tables of jumps, variable-length arrays, and rbp for other things than frames.
#[test]
fn compiled_code_without_unwind_data() {
    let scratch = paths::scratch("jit-rows");
    let program = compile::gcc(&scratch, "jit_rows", &["native/jit_rows.c"], &[]);
    let plain = ["-c", "-fPIC", "-fvisibility=hidden", "-fomit-frame-pointer", "-fcf-protection=none"];
    let without_rows =
        ["-fno-asynchronous-unwind-tables", "-fno-exceptions", "-fno-stack-protector", "-fno-ipa-cp", "-fno-ipa-sra"];
    for level in ["-O1", "-O2", "-O3"] {
        let object = scratch.join(format!("code{level}.o"));
        let mut gcc = Command::new("gcc");
        gcc.args(plain).args(without_rows).arg(level).arg(paths::source("native/jit_rows_code.c"));
        assert!(gcc.arg("-o").arg(&object).status().expect("gcc runs").success());
        let words = [program.as_os_str(), "compiled".as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
        let samples = explicit(&recording);
        // The numbers 0 to 7: one of them calls back twice.
        assert_eq!(samples.len(), 9, "{level}: {}", recording.outcome.text());
        for (n, sample) in samples.iter().enumerate() {
            let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
            let last = n == 8;
            let right: &[&str] = if last {
                &["call_back", "choose", "jit_entry", "run_compiled", "main"]
            } else {
                &["call_back", "leaf", "choose", "jit_entry", "run_compiled", "main"]
            };
            let is_right = names.starts_with(right) && names.last() == Some(&"_start");
            let guessed = sample.frames.iter().any(is_by_frame_pointer);
            assert!(sample.complete() && is_right && !guessed, "{level}, {n}: {}", sample.text());
        }
    }
}

/// The owner of an address dies without a word, and another takes its place: its frame is another one.
#[test]
fn replaced_code_is_not_stepped_by_the_rules_of_the_code_before() {
    let scratch = paths::scratch("jit-rows-replaced");
    let program = compile::gcc(&scratch, "jit_rows", &["native/jit_rows.c"], &[]);
    let words = [program.as_os_str(), "replaced".as_ref()];
    let recording = uu::record(&scratch, &["--explicit"], |_| {}, &words).expect_code(0);
    let samples = explicit(&recording);
    let [first, between, second] = &samples[..] else { panic!("{}", recording.outcome.text()) };
    let names = |sample: &'_ Sample| sample.frames.iter().map(|f| f.name().to_owned()).collect::<Vec<_>>();
    for sample in [first, second] {
        // Which of both names the code has is a question of times.
        let [call_back, replaced, rest @ ..] = &names(sample)[..] else { panic!("{}", sample.text()) };
        let is_right = call_back == "call_back" && ["first", "second"].contains(&replaced.as_str());
        let is_right = is_right && rest.iter().take(3).eq(["run_code", "run_replaced", "main"]);
        assert!(sample.complete() && is_right && !sample.frames.iter().any(is_by_frame_pointer), "{}", sample.text());
    }
    let names = names(between);
    assert!(!names.iter().any(|name| name == "decoy"), "{}", between.text());
    let goes_on = names.get(2).is_some_and(|name| name == "run_code");
    assert!(goes_on || !between.complete(), "{}", between.text());
}
