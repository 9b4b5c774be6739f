//! `uu record --stream`: a reader that parses as lines come has the recording's samples; readers that stop or go away
//! disturb nobody.

use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread;
use uunwind_tests::{paths, uu};

fn fifo(scratch: &Path) -> PathBuf {
    let path = scratch.join("stream");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    path
}

const PROGRAM: &str = "
import os, signal
def leaf(): signal.raise_signal(signal.SIGPROF)
def other(n): return leaf() if n == 0 else other(n - 1)
for i in range(300):
    other(i % 7)
";

#[test]
fn a_reader_has_the_samples_of_the_recording() {
    let scratch = paths::scratch("stream");
    let path = fifo(&scratch);
    let lines = {
        let path = path.clone();
        thread::spawn(move || {
            let lines = BufReader::new(File::open(path).expect("the stream")).lines();
            let parsed = lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
            parsed.collect::<Vec<_>>()
        })
    };
    let stream = path.to_string_lossy();
    let options = ["--explicit", "-r", "1", "--stream", &stream];
    let program = ["/usr/bin/python3".as_ref(), "-c".as_ref(), PROGRAM.as_ref()];
    let recording = uu::record(&scratch, &options, |_| {}, &program).expect_code(0);
    let lines = lines.join().expect("the reader");
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!((&lines[0]["type"], &lines[0]["format"]), (&Value::from("begin"), &Value::from("uu stream")));
    assert_eq!(lines.last().expect("lines")["type"], "end");
    let by_id =
        |kind| of(kind).into_iter().map(|line| (line["id"].as_u64().expect("id"), line)).collect::<HashMap<_, _>>();
    let (frames, threads, objects) = (by_id("frame"), by_id("thread"), by_id("object"));
    let samples = of("sample");
    let recorded = recording.samples();
    assert!(recorded.len() >= 300);
    assert_eq!(samples.len(), recorded.len());
    for (streamed, recorded) in samples.iter().zip(&recorded) {
        let thread = &threads[&streamed["thread"].as_u64().expect("a thread")];
        assert_eq!(
            (thread["pid"].as_u64(), thread["tid"].as_u64()),
            (Some(recorded.pid.into()), Some(recorded.tid.into()))
        );
        assert_eq!(streamed["weight"].as_u64(), Some(recorded.weight));
        assert_eq!(streamed["complete"].as_bool(), Some(recorded.complete()));
        let stack = streamed["frames"].as_array().expect("frames").iter().map(|id| &frames[&id.as_u64().expect("id")]);
        let python: Vec<&str> = stack
            .clone()
            .filter(|f| f["kind"] == "interpreted")
            .map(|f| f["function"].as_str().expect("a name"))
            .collect();
        // Every Python frame: a sample by time may come in the imports of a start.
        let expected: Vec<&str> =
            recorded.frames.iter().filter(|frame| frame.is_python()).map(|frame| frame.name()).collect();
        assert_eq!(python, expected);
        for frame in stack.filter(|frame| frame["kind"] == "native" && !frame["object"].is_null()) {
            let object = &objects[&frame["object"].as_u64().expect("an id")];
            assert!(
                object["path"].as_str().is_some_and(|path| path.starts_with('/') || path.contains("vdso")),
                "{object}"
            );
        }
    }
    let leaf = frames.values().find(|frame| frame["function"] == "leaf").expect("a frame");
    assert_eq!((&leaf["line"], &leaf["language"]), (&Value::from(3), &Value::from("py")));
    std::fs::remove_dir_all(scratch).expect("removed");
}

/// A program that takes this number of samples.
fn busy(scratch: &Path, stream: &Path) -> uu::Recording {
    let source = "import os, signal\nfor i in range(20000): signal.raise_signal(signal.SIGPROF)\nprint('done')";
    let stream = stream.to_string_lossy();
    let options = ["--explicit", "-r", "1", "--stream", &stream];
    let program = ["/usr/bin/python3".as_ref(), "-c".as_ref(), source.as_ref()];
    let recording = uu::record(scratch, &options, |_| {}, &program).expect_code(0);
    assert_eq!(recording.outcome.stdout.trim(), "done");
    recording
}

#[test]
fn a_reader_that_goes_away_disturbs_nobody() {
    let scratch = paths::scratch("stream-gone");
    let path = fifo(&scratch);
    let reader = {
        let path = path.clone();
        thread::spawn(move || File::open(path).expect("the stream").read(&mut [0; 100]).expect("some bytes"))
    };
    let recording = busy(&scratch, &path);
    assert!(reader.join().expect("the reader") > 0);
    assert!(recording.outcome.stderr.contains("--stream: "), "{}", recording.outcome.stderr);
    assert!(recording.samples().len() > 10_000);
    std::fs::remove_dir_all(scratch).expect("removed");
}

#[test]
fn a_reader_that_takes_nothing_disturbs_nobody() {
    let scratch = paths::scratch("stream-stuck");
    let path = fifo(&scratch);
    // It is opened, and not read: the pipe of the kernel fills, then what uu lets wait.
    let reader = {
        let path = path.clone();
        thread::spawn(move || File::open(path).expect("the stream"))
    };
    let recording = busy(&scratch, &path);
    assert!(recording.outcome.stderr.contains("took nothing for two seconds"), "{}", recording.outcome.stderr);
    assert!(recording.samples().len() > 10_000);
    drop(reader.join().expect("the reader"));
    std::fs::remove_dir_all(scratch).expect("removed");
}
