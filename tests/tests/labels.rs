//! Labels that a program sets by `uu_label_set()`: each sample has those that its thread had set, in every format that
//! has labels.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::attached::Attached;
use uunwind_tests::gate;
use uunwind_tests::process::run;
use uunwind_tests::running::Running;
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, go, paths, uu};

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let include = format!("-I{}", paths::root().join("ffi/include").display());
    let options = ["-O1", "-g", "-pthread", "-ldl", &include];
    let program = compile::gcc(&scratch, "switched", &["native/switched.c"], &options);
    (scratch, program)
}

fn recorded(scratch: &Path, program: &Path, options: &[&str], what: &str) -> Recording {
    uu::record(scratch, options, |_| {}, &[program.as_os_str(), what.as_ref()]).expect_code(0)
}

/// Each function of the program, with the labels that it sets before it burns there.
const LABELS: [(&str, &str); 7] = [
    ("of_first", "request=/first"),
    ("of_second", "request=/second"),
    ("of_both", "request=/second, user=7"),
    ("of_child", "request=/second, user=7"),
    ("of_none", ""),
    ("of_thread", "request=/third"),
    ("main", ""),
];

/// Of an object of JSON: `KEY=VALUE, KEY=VALUE`.
fn line(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", value.as_str().expect("text"))).collect::<Vec<_>>().join(", ")
}

fn function(name: &str) -> Option<&'static str> {
    LABELS.iter().map(|(function, _)| *function).find(|function| *function == name && *function != "main")
}

/// The labels that stacks with each of the functions have.
type Found = BTreeMap<&'static str, BTreeSet<String>>;

fn expected() -> Found {
    let own = LABELS.iter().filter(|(function, _)| *function != "main");
    own.map(|(function, labels)| (*function, BTreeSet::from([(*labels).to_owned()]))).collect()
}

fn of_json(recording: &Recording, options: &[&str]) -> Found {
    let json: Value = serde_json::from_str(&recording.report_with("json", options)).expect("JSON");
    let mut found = Found::new();
    for stack in json["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames").iter();
        let name = |frame: &Value| function(json["frames"][frame.as_u64()? as usize]["function"].as_str()?);
        let Some(function) = frames.filter_map(name).next() else { continue };
        found.entry(function).or_default().insert(line(&stack["labels"]));
    }
    found
}

#[test]
fn samples_have_the_labels_of_their_thread() {
    let (scratch, program) = program("labels-all");
    let stream = scratch.join("stream.jsonl");
    let options = ["-r", "499", "--stream", stream.to_str().expect("UTF-8")];
    let recording = recorded(&scratch, &program, &options, "labels");
    assert_eq!(of_json(&recording, &[]), expected());

    // By conditions.
    for (filter, functions) in [
        ("label=user", &["of_both", "of_child"][..]),
        ("label=user:7", &["of_both", "of_child"]),
        ("label=request:^/(first|third)$", &["of_first", "of_thread"]),
    ] {
        let found = of_json(&recording, &["--filter", filter]);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), functions, "{filter}");
    }
    for (filter, text) in
        [("label=user:70", "no sample has the label user:70; there are request:/"), ("label=", "label= has no value")]
    {
        let mut report = uu::command(&scratch, &["report", "--filter", filter]);
        let refused = run(report.arg(&recording.file), &scratch, uu::LIMIT).expect_code(125);
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }

    // Above the stacks.
    let mut found = Found::new();
    for stack in recording.report_with("folded", &["--by", "label"]).lines() {
        let (frames, _) = stack.rsplit_once(' ').expect("a weight");
        let Some(function) = frames.split(';').find_map(function) else { continue };
        let labels = frames.split(';').next().and_then(|first| first.strip_prefix('[')?.strip_suffix(']'));
        found.entry(function).or_default().insert(labels.unwrap_or_default().to_owned());
    }
    assert_eq!(found, expected());

    // By the names of speedscope's profiles.
    let json: Value = serde_json::from_str(&recording.report("speedscope")).expect("JSON");
    let mut found = Found::new();
    for profile in json["profiles"].as_array().expect("profiles") {
        let name = profile["name"].as_str().expect("a name");
        let labels = name.split_once(" [").map_or("", |(_, rest)| rest.trim_end_matches(']'));
        for frame in profile["samples"].as_array().expect("samples").iter().flat_map(|s| s.as_array().expect("frames"))
        {
            let name = json["shared"]["frames"][frame.as_u64().expect("an index") as usize]["name"].as_str();
            let Some(function) = name.and_then(function) else { continue };
            found.entry(function).or_default().insert(labels.to_owned());
        }
    }
    assert_eq!(found, expected());

    // As it was recorded.
    let lines = std::fs::read_to_string(&stream).expect("the stream");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let labels: BTreeSet<String> =
        lines.filter(|value| value["type"] == "sample").map(|value| line(&value["labels"])).collect();
    assert_eq!(labels, expected().into_values().flatten().collect());
}

/// What is recorded of `switched attached`, which has libuunwind, while it does what it is told.
#[track_caller]
fn attached(scratch: &Path, running: &mut Running, options: &[&str]) -> Recording {
    let attached = Attached::begin_inside(scratch, running.pid(), options);
    running.say("go");
    assert_eq!(running.line(), "done 0 0");
    attached.signal(libc::SIGINT);
    let said = attached.end_alone();
    let out = run(&mut uu::command(scratch, &["version"]), scratch, uu::LIMIT);
    assert!(said.contains("sampler in the process") && !said.contains("not heard"), "{said}");
    Recording::made(scratch.join("recording.uu"), out, scratch.to_path_buf())
}

/// With `-p`, too: of time and of allocations, in recordings that follow each other.
#[test]
fn a_running_process_has_labels() {
    let (scratch, program) = program("labels-attached");
    let mut command = Command::new(&program);
    command.arg("attached").env("LD_PRELOAD", paths::tree().join("lib/libuunwind.so.0"));
    let mut running = Running::ready(&mut command);
    let alone = |running: &mut Running| {
        running.say("alone");
        running.line()
    };
    let unrecorded = format!("unrecorded {}", -libc::ENOTCONN);
    assert_eq!(alone(&mut running), unrecorded);
    let mut expected = expected();
    // A child has no sampler.
    expected.remove("of_child");
    for _ in 0..2 {
        let recording = attached(&scratch, &mut running, &["-r", "499"]);
        assert_eq!(of_json(&recording, &[]), expected);
        // What is paused is not sampled.
        assert!(!recording.report("folded").contains("paused"));
        assert_eq!(alone(&mut running), unrecorded);
        assert!(!gate::looks(running.pid()).has_sampler());
    }
    for mode in ["alloc", "lock"] {
        let recording = attached(&scratch, &mut running, &["--mode", mode, "--all"]);
        expect_labels_of_events(&recording);
        assert_eq!(alone(&mut running), unrecorded);
    }
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Go's tool reads them.
#[test]
fn go_reads_the_labels() {
    let (scratch, program) = program("labels-pprof");
    let recording = recorded(&scratch, &program, &["-r", "499"], "labels");
    if !go::installed("labels of threads in pprof") {
        return;
    }
    let file = scratch.join("x.pb.gz");
    run(uu::command(&scratch, &["report"]).arg(&recording.file).arg("-o").arg(&file), &scratch, uu::LIMIT)
        .expect_code(0);
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-tags"]).arg(&file).env("HOME", &scratch);
    let tags = run(&mut pprof, &scratch, uu::LIMIT).expect_code(0).stdout;
    for (key, values) in [("request", &["/first", "/second", "/third"][..]), ("user", &["7"])] {
        let (_, list) = tags.split_once(&format!(" {key}: Total")).unwrap_or_else(|| panic!("{tags}"));
        let list = list.split("\n\n").next().unwrap_or_default();
        let shown: BTreeSet<&str> =
            list.lines().filter_map(|line| line.rsplit_once(": ").map(|(_, value)| value)).collect();
        assert!(values.iter().all(|value| shown.contains(value)), "{key}: {tags}");
    }
}

/// Samples of allocations have them, too, and those of waits.
#[test]
fn events_have_labels() {
    let (scratch, program) = program("labels-events");
    for mode in ["alloc", "lock"] {
        expect_labels_of_events(&recorded(&scratch, &program, &["--mode", mode, "--all"], "labels"));
    }
}

#[track_caller]
fn expect_labels_of_events(recording: &Recording) {
    let json: Value = serde_json::from_str(&recording.report("json")).expect("JSON");
    let stacks = json["stacks"].as_array().expect("stacks");
    // It allocates, as pthread_create does, and waits in pthread_join under the labels of the thread.
    let of_create = stacks.iter().filter(|stack| {
        let mut frames = stack["frames"].as_array().expect("frames").iter();
        frames.any(|frame| json["frames"][frame.as_u64().expect("an index") as usize]["function"] == "labels")
    });
    let labels: BTreeSet<String> = of_create.map(|stack| line(&stack["labels"])).collect();
    assert!(labels.contains("request=/second, user=7"), "{labels:?}");
}

#[test]
fn labels_that_cannot_be_set_are_refused() {
    let (scratch, program) = program("labels-refused");
    let recording = recorded(&scratch, &program, &["-r", "499"], "refused");
    let expected = [
        ("null", libc::EINVAL),
        ("empty", libc::EINVAL),
        ("long-value", libc::ENAMETOOLONG),
        ("long-value-by-one", libc::ENAMETOOLONG),
        ("long-key", libc::ENAMETOOLONG),
        ("no-utf8", libc::EILSEQ),
        ("cut-utf8", libc::EILSEQ),
        ("longest-value", 0),
        ("take-away", 0),
        ("too-many", libc::ENOSPC),
        ("changed", 0),
        ("too-much", libc::ENOSPC),
    ];
    let expected: String = expected.iter().map(|(what, errno)| format!("{what} {}\n", -errno)).collect();
    assert_eq!(recording.outcome.stdout, expected);
    // What was refused has changed nothing.
    let found = of_json(&recording, &[]);
    let labels = found["of_first"].iter().next().expect("labels").split(", ").collect::<Vec<_>>();
    assert!(labels.len() == 16 && labels.contains(&"k3=w") && labels.contains(&"k15=v"), "{labels:?}");
    assert!(labels.iter().all(|label| !label.starts_with("more=")), "{labels:?}");
}
