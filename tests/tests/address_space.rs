//! Limits of address space (RLIMIT_AS, `ulimit -v`): uu takes a small part of one that it was started with, and nothing
//! of one that the program sets itself.

use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

const MIB: u64 = 1 << 20;

/// The number after a word at the beginning of a line.
#[track_caller]
fn number(text: &str, word: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("no {word}: {text}"));
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// What the program prints alone, below a limit of so many MiB.
fn alone(program: &Path, scratch: &Path, limit: Option<u64>, arguments: &[&str]) -> String {
    let mut command = below(program, limit);
    process::run(command.args(arguments), scratch, uu::LIMIT).expect_code(0).stdout
}

/// A command that starts a program below a limit.
fn below(program: &Path, limit: Option<u64>) -> Command {
    let mut command = Command::new("/bin/sh");
    let limit = limit.map_or("unlimited".to_owned(), |mib| (mib * MIB / 1024).to_string());
    command.args(["-c", &format!("ulimit -v {limit} && exec \"$0\" \"$@\"")]).arg(program);
    command
}

/// As [`alone`], recorded; and the summary.
fn recorded(program: &Path, scratch: &Path, limit: Option<u64>, arguments: &[&str]) -> (String, String) {
    let file = scratch.join("recording.uu");
    let mut command = below(paths::uu().as_ref(), limit);
    command.args(["record", "-q", "-o"]).arg(&file).arg("--").arg(program).args(arguments);
    command.env("XDG_CACHE_HOME", scratch.join("cache")).env("XDG_CONFIG_HOME", scratch.join("config"));
    let outcome = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    let recording = uu::Recording::made(file, outcome, scratch.to_path_buf());
    (recording.outcome.stdout.clone(), recording.report("summary"))
}

#[test]
fn a_recording_takes_a_small_part_of_a_limit() {
    let scratch = paths::scratch("address-space");
    let program = compile::gcc(&scratch, "room", &["native/room.c"], &["-O1"]);
    for limit in [256, 400, 1024] {
        let (output, summary) = recorded(&program, &scratch, Some(limit), &[]);
        let (own, left) = (number(&alone(&program, &scratch, Some(limit), &[]), "room "), number(&output, "room "));
        // Rings and rules take a fifth at most; a group of threads and uu's objects 45 MiB.
        assert!(left <= own && own - left <= limit / 5 + 45, "{limit}: {left} of {own}");
        assert!(summary.contains("work"), "{limit}: {summary}");
        assert!(summary.contains(&format!("address space is limited to {limit} MiB")), "{limit}: {summary}");
    }
    std::fs::remove_dir_all(scratch).expect("removed");
}

/// Here uu reserves what it always does, and the program gets the limit that it has set, and reads it.
#[test]
fn a_limit_that_the_program_sets_is_its_own() {
    let scratch = paths::scratch("own-limit");
    let program = compile::gcc(&scratch, "room", &["native/room.c"], &["-O1"]);
    for arguments in [&["100"][..], &["400"], &["200", "fork"]] {
        let own = alone(&program, &scratch, None, arguments);
        let (output, summary) = recorded(&program, &scratch, None, arguments);
        assert_eq!(number(&output, "limit "), number(&own, "limit "), "{arguments:?}");
        assert!(output.lines().next() == own.lines().next(), "{output}{own}");
        let (own, left) = (number(&own, "room "), number(&output, "room "));
        assert!(left >= own, "{arguments:?}: {left} of {own}");
        assert!(summary.contains("work"), "{summary}");
    }
    std::fs::remove_dir_all(scratch).expect("removed");
}
