//! Programs that lock all their memory (mlockall): uu's is not locked, and does not count for their limit.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, skips, uu};

const MIB: u64 = 1 << 20;
/// What mlockall takes.
const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ON_FAULT: u32 = 4;

/// Whether the command may have this limit: not above the hard one here. Else it is skipped by name.
fn may(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid structure.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let may = is_known && bytes <= limit.rlim_max;
    if !may {
        skips::skipped(&format!("a program that may lock {} MiB", bytes / MIB), "`ulimit -H -l` is lower");
    }
    may
}

/// From now on the command has this limit of locked memory, in bytes, and no right to lock more.
fn limit(command: &mut Command, bytes: u64) {
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            const CAP_IPC_LOCK: u32 = 14;
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            let done = libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0;
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            if done {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// The number after a word at the beginning of a line.
#[track_caller]
fn number(text: &str, word: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("no {word}: {text}"));
    line.trim().parse().unwrap_or_else(|_| panic!("{line}"))
}

/// What the program prints alone, and recorded; and the recording.
fn both(program: &Path, scratch: &Path, bytes: Option<u64>, arguments: &[&str]) -> (String, String, uu::Recording) {
    let mut alone = Command::new(program);
    alone.args(arguments);
    bytes.into_iter().for_each(|bytes| limit(&mut alone, bytes));
    let alone = process::run(&mut alone, scratch, uu::LIMIT).expect_code(0).stdout;
    let words: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
    let limited = |command: &mut Command| bytes.into_iter().for_each(|bytes| limit(command, bytes));
    let recording = uu::record(scratch, &["-r", "199"], limited, &words).expect_code(0);
    (alone, recording.outcome.stdout.clone(), recording)
}

fn program(name: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "locks_all", &["native/locks_all.c"], &["-O1", "-pthread"]);
    (scratch, program)
}

#[test]
fn a_program_with_a_limit_locks_what_it_locks_alone() {
    let (scratch, program) = program("locked-memory");
    for bytes in [0, MIB, 7 * MIB, 32 * MIB, 512 * MIB] {
        if !may(bytes) {
            continue;
        }
        for flags in [CURRENT, FUTURE, CURRENT | FUTURE, CURRENT | FUTURE | ON_FAULT, ON_FAULT, 8, 0] {
            let (alone, recorded, recording) = both(&program, &scratch, Some(bytes), &[&flags.to_string(), "0", "0.3"]);
            let context = format!("{bytes} {flags}: {alone}\n{}", recording.outcome.text());
            for word in ["locked", "later", "threads"] {
                assert_eq!(number(&recorded, word), number(&alone, word), "{word} {context}");
            }
            // Fewer by small mappings that differ from one run to the next.
            let (own, with_uu) = (number(&alone, "VmLck:"), number(&recorded, "VmLck:"));
            assert!(with_uu.abs_diff(own) < 1024, "{context}");
            assert!(
                recording.samples().iter().any(|sample| sample.frames.iter().any(|f| f.name() == "work")),
                "{context}"
            );
        }
    }
}

/// Threads for which uu maps memory of its own, below a limit and without one: that is neither locked, nor filled.
#[test]
fn later_threads_of_it_are_sampled() {
    let (scratch, program) = program("locked-threads");
    let flags = (CURRENT | FUTURE).to_string();
    if may(512 * MIB) {
        let (alone, recorded, recording) = both(&program, &scratch, Some(512 * MIB), &[&flags, "90", "0.05"]);
        let context = format!("{alone}\n{}", recording.outcome.text());
        assert_eq!(number(&recorded, "threads"), number(&alone, "threads"), "{context}");
        let threads: HashSet<u32> = recording.samples().iter().map(|sample| sample.tid).collect();
        assert!(threads.len() > 80, "{} {context}", threads.len());
    }
    // SAFETY: a call without preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skips::skipped("locked memory without a limit", "needs root");
    }
    let (alone, recorded, recording) = both(&program, &scratch, None, &[&flags, "90", "0.05"]);
    let context = format!("{alone}\n{}", recording.outcome.text());
    let threads: HashSet<u32> = recording.samples().iter().map(|sample| sample.tid).collect();
    assert!(threads.len() > 80, "{} {context}", threads.len());
    let (own, with_uu) = (number(&alone, "VmLck:"), number(&recorded, "VmLck:"));
    assert!(with_uu.abs_diff(own) < 1024, "{context}");
}
