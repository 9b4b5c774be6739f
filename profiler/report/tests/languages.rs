//! What reports show of languages: what the recording says of them, and what is added to recordings without it.

mod support;

use std::path::Path;
use support::recording;
use uunwind_built_in::HALVES;
use uunwind_core::frame::semantic_word;
use uunwind_language::Language;
use uunwind_recording::languages::{add_columns, complete, undecoded};
use uunwind_recording::{CodeLine, Name, Node, Recording, Sample, Start};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::view::View;
use uunwind_ring::record::{SAMPLE_APART, SAMPLE_FACTS_PENDING, SAMPLE_NO_PLUGINS};
use uunwind_ring::FLAG_WALL;

fn read() -> Recording {
    Recording::parse(&recording(), Path::new("x.uu")).expect("whole")
}

/// The semantic frame of the recording, as the format `samples` has it.
fn frame(recording: &Recording) -> String {
    let text = render(Format::Samples, recording, NativeFrames::Show).expect("text");
    let text = String::from_utf8(text).expect("UTF-8");
    text.lines().find(|line| line.contains("Class.method")).expect("the frame").to_owned()
}

#[test]
fn the_sections_come_back_as_they_were_written() {
    let read = read();
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let language = Language {
        plugin: "python".to_owned(),
        label: "py".to_owned(),
        glue: texts(&["run_*", "call"]),
        loaders: texts(&["<loader>"]),
        starters: texts(&["start"]),
        ..Language::default()
    };
    assert_eq!(read.languages, [language]);
    assert_eq!(read.lines, [CodeLine { process: 0, name: 1, position: 4, line: 13 }]);
    assert!(undecoded(&read).is_empty());
    assert_eq!(frame(&read), "  py Class.method (/src/file.py:13) code 0xc0de pos 4 first 10");
}

/// A recording of a uu that left the decoding of lines to reports, or one that was cut.
#[test]
fn a_recording_without_the_sections_is_completed() {
    let mut old = read();
    old.languages.clear();
    old.lines.clear();
    let missing = undecoded(&old);
    assert_eq!((missing.len(), missing[0].plugin, &missing[0].positions[..]), (1, "python", &[4][..]));
    // Without anybody who knows the language: its plugin's name and the first line.
    assert_eq!(frame(&old), "  python Class.method (/src/file.py:10) code 0xc0de pos 4 first 10");
    complete(&mut old, HALVES);
    // The second entry of the table: code 12, two lines after the first.
    assert_eq!(frame(&old), "  py Class.method (/src/file.py:12) code 0xc0de pos 4 first 10");
    let python = HALVES.iter().map(|half| half.language()).find(|l| l.plugin == "python").expect("it is built in");
    assert!(old.languages.contains(&python) && undecoded(&old).is_empty());
    let again = old.clone();
    complete(&mut old, HALVES);
    assert_eq!((old.languages, old.lines), (again.languages, again.lines));
}

/// What a recording says stays, whatever this uu knows.
#[test]
fn what_is_there_is_kept() {
    let before = read();
    let mut after = before.clone();
    complete(&mut after, HALVES);
    assert_eq!(after.lines, before.lines);
    assert_eq!(after.languages.iter().filter(|language| language.plugin == "python").count(), 1);
    assert!(after.languages.contains(&before.languages[0]));
}

#[test]
fn columns_are_shown_where_the_table_has_them() {
    let mut wanted = read();
    // The second entry: two lines after the first, from column 4 up to before column 20, counted from 0.
    wanted.names[0].table = vec![0xd1, 0, 0, 0xe1, 4, 20];
    wanted.lines.clear();
    complete(&mut wanted, HALVES);
    add_columns(&mut wanted, HALVES);
    assert_eq!(frame(&wanted), "  py Class.method (/src/file.py:12:5-20) code 0xc0de pos 4 first 10");
    let folded = render(Format::Folded, &wanted, NativeFrames::Hide).expect("text");
    let folded = String::from_utf8(folded).expect("UTF-8");
    assert!(folded.contains("Class.method (/src/file.py:12:5-20)"), "{folded}");
    // A long entry: it ends two lines further on.
    wanted.names[0].table = vec![0xd1, 0, 0, 0x80 | 14 << 3 | 1, 4, 2, 5, 21];
    add_columns(&mut wanted, HALVES);
    assert_eq!(frame(&wanted), "  py Class.method (/src/file.py:12:5-14:20) code 0xc0de pos 4 first 10");
    // Where the recording has another line, columns of that one are not known.
    wanted.lines = vec![CodeLine { process: 0, name: 1, position: 4, line: 13 }];
    assert_eq!(frame(&wanted), "  py Class.method (/src/file.py:13) code 0xc0de pos 4 first 10");
}

/// Two bits of a sample's flags say how its thread stood to the lock of its runtime.
#[test]
fn holders_of_the_lock_can_be_shown_alone() {
    let mut all = read();
    all.samples.truncate(4);
    all.starts.clear();
    for (sample, lock) in all.samples.iter_mut().zip([2, 2, 3, 0]) {
        (sample.flags, sample.weight) = (lock << Sample::LOCK_SHIFT, 5);
    }
    let summary = |recording: &Recording| {
        let text = render(Format::Summary, recording, NativeFrames::Hide).expect("text");
        String::from_utf8(text).expect("UTF-8")
    };
    let shares = "held in 50.0 % of the CPU time, waited for in 25.0 %, neither in 0.0 %. Waiting";
    assert!(summary(&all).contains(shares), "{}", summary(&all));
    // The reason follows, once.
    for (flag, at, reason) in [
        (0, u64::MAX, "samples in which the interpreter's memory could not be read"),
        (0, 0, "samples before their process ran an interpreter"),
        (SAMPLE_FACTS_PENDING, 0, "samples before the interpreter's file was analysed"),
        (SAMPLE_NO_PLUGINS, 0, "samples without plugins"),
        (SAMPLE_APART, 0, "samples that the kernel took"),
    ] {
        let mut unknown = all.clone();
        (unknown.samples[3].flags, unknown.samples[3].time) = (flag, at);
        unknown.samples[3].thread = unknown.samples[0].thread;
        let text = summary(&unknown);
        assert!(text.contains(&format!("\n             not known in 25.0 %: {reason}")), "{text}");
        assert_eq!(text.matches("25.0 %: ").count(), 1, "{text}");
    }
    let mut known = all.clone();
    known.samples.truncate(3);
    assert!(!summary(&known).contains("not known in"), "{}", summary(&known));
    let text = render(Format::Samples, &all, NativeFrames::Show).expect("text");
    let text = String::from_utf8(text).expect("UTF-8");
    let locks: Vec<_> = text.lines().filter_map(|line| line.rsplit_once(" lock ")).map(|(_, lock)| lock).collect();
    assert_eq!(locks[..4], ["held", "held", "waiting", "?"]);
    let before = summary(&all).lines().find(|line| line.starts_with("  CPU time")).map(str::to_owned);
    all.keep_holders();
    assert_eq!((all.samples.len(), all.left_out.samples, all.left_out.timed), (2, 2, (2, 10)));
    let after = summary(&all);
    assert!(after.contains("the samples of threads that held the GIL: 2 of 4 (--gil)"), "{after}");
    assert_eq!(all.without_holders(), None);
    // What is not shown was sampled, all the same.
    assert_eq!(after.lines().find(|line| line.starts_with("  CPU time")).map(str::to_owned), before);
}

/// An empty page would be taken for a program that did nothing.
#[test]
fn where_no_sample_shows_a_holder_the_reason_is_said_in_every_format() {
    for (lock, why) in [
        (0, "no sample of this recording says how its thread stood to the GIL"),
        (1, "no thread was seen to hold the GIL"),
        (3, "no thread was seen to hold the GIL"),
    ] {
        let mut none = read();
        none.samples.iter_mut().for_each(|sample| sample.flags = lock << Sample::LOCK_SHIFT);
        none.keep_holders();
        for format in Format::rendered() {
            let error = render(format, &none, NativeFrames::Hide).expect_err(format.offer().name);
            assert!(error.starts_with("no sample is left by --gil: ") && error.contains(why), "{format:?}: {error}");
        }
    }
}

/// The lines of the summary speak of one time: with processes that ended early, and without threads that are not shown.
#[test]
fn shares_of_the_lock_are_of_the_time_that_is_named() {
    let mut some = read();
    (some.samples, some.starts, some.lost) = (some.samples[..4].to_vec(), Vec::new(), Vec::new());
    for (sample, lock) in some.samples.iter_mut().zip([2, 2, 1, 1]) {
        (sample.flags, sample.weight, sample.kind, sample.thread) = (lock << Sample::LOCK_SHIFT, 5, 0, 0);
    }
    let summary = |recording: &Recording, idle: bool| {
        let view = View { idle, ..View::default() };
        String::from_utf8(render(Format::Summary, recording, view).expect("text")).expect("UTF-8")
    };
    let line = |text: &str, label: &str| text.lines().find(|line| line.starts_with(label)).expect(label).to_owned();
    let mut early = some.clone();
    early.starts = vec![Start { thread: 1, time: 12, weight: 20 }];
    let text = line(&summary(&early, false), "  GIL");
    assert!(text.contains("held in 25.0 % of the CPU time"), "{text}");
    let why = "not known in 50.0 %: threads and processes that ended without a sample\n";
    assert!(summary(&early, false).contains(why), "{}", summary(&early, false));

    early.samples[2..].iter_mut().for_each(|sample| sample.kind = 1);
    let text = line(&summary(&early, false), "  GIL");
    assert!(text.contains("held in 33.3 % of the CPU time"), "{text}");
    assert!(summary(&early, false).contains("not known in 66.7 %"), "{}", summary(&early, false));
    early.samples.iter_mut().for_each(|sample| sample.kind = 1);
    let text = line(&summary(&early, false), "  GIL");
    assert!(text.contains("held in 50.0 % of the samples") && text.contains("neither in 50.0 %"), "{text}");

    // Two samples are of a thread that was only seen waiting, in one place.
    let mut wall = some.clone();
    wall.settings.flags |= FLAG_WALL;
    wall.names.push(Name { process: 0, plugin: 0, id: 77, name: "read".into(), ..wall.names[0].clone() });
    wall.nodes.push(Node { parent: 0, word: semantic_word(0, 77), position: 0 });
    for sample in &mut wall.samples[2..] {
        (sample.thread, sample.stack) = (1, wall.nodes.len() as u32);
    }
    let (shown, all) = (summary(&wall, false), summary(&wall, true));
    assert!(shown.contains("  idle       1 thread") && !all.contains("  idle "), "{shown}");
    assert!(line(&shown, "  GIL").contains("held in 100.0 % of the threads' time"), "{shown}");
    assert!(line(&all, "  GIL").contains("held in 50.0 % of the threads' time"), "{all}");
    assert!(shown.contains("  samples    2: ") && all.contains("  samples    4: "), "{shown}{all}");
}
