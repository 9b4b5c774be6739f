//! `uu merge` of recordings of allocations and of waits: two times a recording is each of its values twice.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use uunwind_tests::process::run;
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, pprof, uu};

fn recorded(mode: &str, options: &[&str], source: &str, arguments: &[&str]) -> Recording {
    let scratch = paths::scratch(&format!("merged-{mode}"));
    let program = compile::gcc(&scratch, "program", &[source], &["-O1", "-g", "-pthread"]);
    let options: Vec<&str> = ["--mode", mode].iter().chain(options).copied().collect();
    let words = [program.as_os_str()].into_iter().chain(arguments.iter().map(|word| OsStr::new(*word)));
    uu::record(&scratch, &options, |_| {}, &words.collect::<Vec<_>>()).expect_code(0)
}

/// What `uu` writes of these recordings.
fn made(recording: &Recording, command: &str, options: &[&str], name: &str, files: &[&Path]) -> Vec<u8> {
    let folder = recording.file.parent().expect("a folder");
    let output = folder.join(name);
    let mut uu = uu::command(folder, &[command]);
    uu.args(options).arg("-o").arg(&output).args(files);
    run(&mut uu, folder, uu::LIMIT).expect_code(0);
    std::fs::read(output).expect("the result")
}

/// Each stack without what stands for locks, and its values.
fn values(packed: &[u8]) -> (Vec<String>, BTreeMap<String, Vec<u64>>) {
    let profile = pprof::read(&pprof::gunzip(packed));
    let mut stacks: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (stack, values) in profile.stacks {
        let functions: Vec<&str> = stack.split(';').filter(|function| !function.starts_with('[')).collect();
        let sums = stacks.entry(functions.join(";")).or_insert_with(|| vec![0; values.len()]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    (profile.types, stacks)
}

fn expect_twice(recording: &Recording) {
    let folder = recording.file.parent().expect("a folder");
    let copy = folder.join("copy.uu");
    std::fs::copy(&recording.file, &copy).expect("a copy");
    let (types, once) = values(&made(recording, "report", &[], "once.pb.gz", &[&recording.file]));
    let (merged, twice) = values(&made(recording, "merge", &[], "twice.pb.gz", &[&recording.file, &copy]));
    assert_eq!(types, merged);
    let expected: BTreeMap<_, _> =
        once.iter().map(|(stack, values)| (stack.clone(), values.iter().map(|n| 2 * n).collect::<Vec<_>>())).collect();
    assert!(once.len() > 3 && twice == expected, "{once:#?}\n{twice:#?}");
    for name in ["twice.svg", "twice.callgrind"] {
        made(recording, "merge", &[], name, &[&recording.file, &copy]);
    }
}

#[test]
fn allocations_are_added_up() {
    let recording = recorded("alloc", &["--all"], "native/holds.c", &["4", "2000"]);
    expect_twice(&recording);
    let file: &Path = &recording.file;
    for which in ["peak", "end", "total", "temporary"] {
        let folded = |command: &str, files: &[&Path]| {
            let text = made(&recording, command, &["--memory", which], "it.folded", files);
            let text = String::from_utf8(text).expect("text");
            let _ = std::fs::remove_file(file.with_file_name("it.folded"));
            text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
        };
        let once = folded("report", &[file]);
        assert!(once > 0, "{which}");
        assert_eq!(folded("merge", &[file, file]), 2 * once, "{which}");
    }
}

#[test]
fn waits_are_added_up() {
    let recording = recorded("lock", &["--all"], "native/contends.c", &["each"]);
    expect_twice(&recording);
    let text = made(&recording, "merge", &[], "all.folded", &[&recording.file]);
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains(";[waiting for a mutex] ") && !text.contains("0x") && !text.contains("held by"), "{text}");
}

/// Values of different kinds are not added, and times of one run say nothing of others.
#[test]
fn what_cannot_be_added_is_said() {
    let alloc = recorded("alloc", &["--all"], "native/holds.c", &["1", "100"]);
    let lock = recorded("lock", &["--all"], "native/contends.c", &["each"]);
    let folder = alloc.file.parent().expect("a folder");
    let said = |options: &[&str]| {
        let mut uu = uu::command(folder, &["merge"]);
        uu.arg("-o").arg(folder.join("x.folded")).args(options).arg(&alloc.file).arg(&lock.file);
        let done = run(&mut uu, folder, uu::LIMIT);
        (done.code(), done.stderr)
    };
    let (code, text) = said(&[]);
    assert!(code == 1 && text.contains("it is a recording of waits for locks") && text.contains("1 of 2"), "{text}");
    let (code, text) = said(&["--memory", "1-2"]);
    assert!(code == 125 && text.contains("merge takes peak, end, total or temporary"), "{text}");
}
