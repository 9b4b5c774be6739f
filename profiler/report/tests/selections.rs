//! Parts of a recording by function, module, process, thread and time; processes and threads above their stacks.

mod support;

use std::path::Path;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::Recording;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::selection::{pattern, Condition, Groups};
use uunwind_report::view::View;

fn recording() -> Recording {
    let mut read = Recording::parse(&support::recording(), Path::new("x.uu")).expect("whole");
    read.settings.start_monotonic = 0;
    // These count by samples.
    read.starts.clear();
    // A second between two samples of a batch.
    read.samples.iter_mut().for_each(|sample| sample.time = (sample.time - 10) * 1_000_000_000);
    read
}

fn view(conditions: &[Condition]) -> View {
    View { conditions: conditions.to_vec(), native_frames: NativeFrames::Show, ..View::default() }
}

/// Stacks and weights of the folded report.
fn folded(view: View) -> Vec<(String, u64)> {
    let text = match render(Format::Folded, &recording(), view) {
        Err(why) if why.contains("no sample is left") => return Vec::new(),
        report => String::from_utf8(report.expect("a report")).expect("UTF-8"),
    };
    let line = |line: &str| line.rsplit_once(' ').map(|(stack, n)| (stack.to_owned(), n.parse().expect("a number")));
    text.lines().map(|l| line(l).expect("a weight")).collect()
}

fn weight(conditions: &[Condition]) -> u64 {
    folded(view(conditions)).iter().map(|(_, weight)| weight).sum()
}

fn parsed(text: &str) -> Condition {
    Condition::parse(text).expect(text)
}

/// The weight of the samples that meet a condition, counted in the recording itself; a weight of 0 counts as 1.
fn of_samples(meets: impl Fn(usize, &uunwind_recording::Sample) -> bool) -> u64 {
    let recording = recording();
    let chosen = recording.samples.iter().enumerate().filter(|(at, sample)| meets(*at, sample));
    chosen.map(|(_, sample)| u64::from(sample.weight.max(1))).sum()
}

#[test]
fn threads_processes_and_time() {
    let all = weight(&[]);
    assert_eq!(all, of_samples(|_, _| true));
    assert_eq!(weight(&[parsed("thread=201")]), of_samples(|_, s| s.thread == 1));
    assert_eq!(weight(&[parsed("thread=20")]), 0, "a number is a whole id");
    assert_eq!(weight(&[parsed("thread=^worker")]), all);
    assert_eq!(weight(&[parsed("process=101")]), of_samples(|_, s| s.thread == 2));
    assert_eq!(weight(&[parsed("process=prog")]), all);
    let second = |sample: &uunwind_recording::Sample| sample.time / 1_000_000_000;
    assert_eq!(weight(&[parsed("time=2-5")]), of_samples(|_, s| (2..5).contains(&second(s))));
    assert_eq!(weight(&[parsed("time=2-")]), of_samples(|_, s| second(s) >= 2));
    let both = [parsed("time=-5"), parsed("thread=202")];
    assert_eq!(weight(&both), of_samples(|_, s| second(s) < 5 && s.thread == 2));
}

#[test]
fn functions_and_modules() {
    // Stack 4 is the only one with `leaf` as its innermost frame; see the support module.
    let matching = |name: &str| folded(view(&[])).iter().filter(|(stack, _)| stack.contains(name)).map(|s| s.1).sum();
    let all: u64 = weight(&[]);
    for name in ["main", "Class.method", "no such"] {
        let has: u64 = matching(name);
        assert_eq!(weight(&[Condition::Focus(pattern(name).expect("a pattern"))]), has, "{name}");
        assert_eq!(weight(&[Condition::Ignore(pattern(name).expect("a pattern"))]), all - has, "{name}");
    }
    assert!(weight(&[parsed("function=Class")]) > 0 && weight(&[parsed("function=^method")]) == 0);
    assert!(weight(&[parsed("module=/bin/prog$")]) > 0 && weight(&[parsed("module=/lib/")]) == 0);
}

/// No format shows nothing, as if that were all.
#[test]
fn that_no_sample_is_left_is_said() {
    let nothing = view(&[Condition::Focus(pattern("no such").expect("a pattern"))]);
    for format in [Format::Folded, Format::Svg, Format::Html, Format::Pprof, Format::Speedscope] {
        let why = render(format, &recording(), nothing.clone()).expect_err("nothing is left");
        assert!(why.contains("no sample is left by --filter"), "{format:?}: {why}");
    }
}

/// Which condition it is, and what there is.
#[test]
fn what_there_is_is_named() {
    let why = |texts: &[&str]| {
        let conditions = texts.iter().map(|text| parsed(text)).collect::<Vec<_>>();
        render(Format::Folded, &recording(), view(&conditions)).expect_err("nothing is left")
    };
    let said = why(&["thread=nobody"]);
    assert!(said.contains("no thread matches \"nobody\"; there are ") && said.contains("worker thread ("), "{said}");
    let said = why(&["state=running", "process=absent"]);
    assert!(said.contains("no process matches \"absent\"; there are ") && said.contains("prog"), "{said}");
    let said = why(&["module=/lib/"]);
    assert!(said.contains("no object matches \"/lib/\"; there are ") && said.contains("/bin/prog ("), "{said}");
    let said = why(&["function=no such"]);
    assert!(said.contains("no function or source file matches \"no such\"; there are "), "{said}");
    let said = why(&["time=1000-2000"]);
    assert!(said.contains("the samples are from "), "{said}");
    let said = why(&["thread=201", "process=--second"]);
    assert!(said.contains("each of them alone leaves some"), "{said}");
}

/// Of a recording in which each reason ends one sample, the third of five.
#[test]
fn stop_reasons() {
    let mut recording = recording();
    assert!(recording.samples.len() >= 5, "{}", recording.samples.len());
    let weight = |recording: &Recording, text: &str| -> u64 {
        let report = render(Format::Folded, recording, view(&[parsed(text)])).expect(text);
        let lines = String::from_utf8(report).expect("UTF-8");
        lines.lines().map(|line| line.rsplit_once(' ').expect("a weight").1.parse::<u64>().expect("a number")).sum()
    };
    recording.samples.iter_mut().for_each(|sample| sample.stop = StopReason::Complete.number());
    for reason in StopReason::ALL.iter().filter(|reason| **reason != StopReason::Complete) {
        recording.samples[2].stop = reason.number();
        let third = u64::from(recording.samples[2].weight.max(1));
        let by_number = format!("stop={}", reason.number());
        assert_eq!(weight(&recording, &by_number), third, "{reason:?}");
        let failed = render(Format::Folded, &recording, view(&[parsed("stop=failed")]));
        assert_eq!(failed.is_ok(), !reason.is_complete() && !reason.is_plausible(), "{reason:?}");
        if failed.is_ok() {
            assert_eq!(weight(&recording, "stop=failed"), third, "{reason:?}");
        }
    }
    let why = render(Format::Folded, &recording, view(&[parsed("stop=20")])).expect_err("none ended so");
    assert!(why.contains("the samples ended with 1 (complete), 67 (unaligned argument)"), "{why}");
}

/// The format that has every sample by itself has those that meet the conditions, with the numbers that they have
/// without any.
#[test]
fn samples_one_by_one() {
    let blocks = |conditions: &[Condition]| -> Vec<String> {
        let report = render(Format::Samples, &recording(), view(conditions)).expect("a report");
        let text = String::from_utf8(report).expect("UTF-8");
        text.split_terminator("\n\n").map(str::to_owned).collect()
    };
    let all = blocks(&[]);
    assert_eq!(all.len(), recording().all_samples().count());
    let of = |meets: &dyn Fn(&uunwind_recording::Sample) -> bool| -> Vec<String> {
        let recording = recording();
        let chosen = recording.samples.iter().zip(&all).filter(|(sample, _)| meets(sample));
        chosen.map(|(_, block)| block.clone()).collect()
    };
    assert_eq!(blocks(&[parsed("thread=201")]), of(&|sample| sample.thread == 1));
    assert_eq!(blocks(&[parsed("time=1-2")]), of(&|sample| sample.time / 1_000_000_000 == 1));
    assert_eq!(blocks(&[parsed("stop=1")]), of(&|sample| sample.stop == 1));
    let with_main = blocks(&[parsed("function=^main$")]);
    assert!(!with_main.is_empty() && with_main.iter().all(|block| block.contains(" main+")), "{with_main:?}");
}

#[test]
fn wrong_conditions_are_explained() {
    for (text, says) in [
        ("nonsense", "it takes function="),
        ("colour=red", "there is no \"colour\""),
        ("function=(", "is no regular expression"),
        ("time=3-2", "is no time"),
        ("time=x-2", "is no time"),
        ("stop=9999", "is no stop reason"),
        ("stop=", "is no stop reason"),
    ] {
        let why = Condition::parse(text).expect_err(text);
        assert!(why.contains(says), "{text}: {why}");
    }
}

#[test]
fn processes_and_threads_above_their_stacks() {
    let groups = Groups { process: true, thread: true, label: false };
    let stacks = folded(View { groups, ..view(&[]) });
    assert!(stacks.iter().all(|(stack, _)| stack.starts_with("prog ")), "{stacks:?}");
    let of = |start: &str| stacks.iter().filter(|(s, _)| s.starts_with(start)).map(|s| s.1).sum::<u64>();
    assert_eq!(of("prog --second (pid 101);worker thread (thread 202);"), of_samples(|_, s| s.thread == 2));
    assert_eq!(of("prog (pid 100);worker thread (thread 201);"), of_samples(|_, s| s.thread == 1));
    assert_eq!(weight(&[parsed("process=--second")]), of_samples(|_, s| s.thread == 2));
    let why = render(Format::Pprof, &recording(), View { groups, ..view(&[]) }).expect_err("it has its own");
    assert!(why.contains("pprof") || why.contains("pb"), "{why}");
}

#[test]
fn lines_tell_frames_apart() {
    let by_line = folded(View { lines: true, ..view(&[]) });
    assert!(by_line.iter().any(|(stack, _)| stack.contains("main:8")), "{by_line:?}");
    assert!(by_line.iter().any(|(stack, _)| stack.contains("(/src/file.py:13)")), "{by_line:?}");
    assert!(!by_line.iter().any(|(stack, _)| stack.contains("method:13")), "{by_line:?}");
}
