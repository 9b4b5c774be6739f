//! `uu record --mode alloc`: what a thread frees before it allocates anything else is marked so, as a program counts it
//! itself: exactly with `--all`, and within the error of the sampling otherwise.

use serde_json::Value;
use std::ffi::OsStr;
use uunwind_tests::uu::{self, Recording};
use uunwind_tests::{compile, paths};

/// The function in which `temporaries` allocates what it counts.
const COUNTED: [&str; 2] = ["--focus", "^work$"];

fn recorded(name: &str, options: &[&str], arguments: [&str; 2]) -> Recording {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "temporaries", &["native/temporaries.c"], &["-O1", "-g", "-pthread"]);
    let options = [&["--mode", "alloc", "--mmap"], options].concat();
    let words: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments.map(OsStr::new)).collect();
    let recording = uu::record(&scratch, &options, |_| {}, &words).expect_code(0);
    let stderr = &recording.outcome.stderr;
    for lost in ["were lost", "no room", "in none of these"] {
        assert!(!stderr.contains(lost), "{stderr}");
    }
    recording
}

/// The two numbers in the line of the program's that begins so.
#[track_caller]
fn said(recording: &Recording, name: &str) -> [u64; 2] {
    let stdout = &recording.outcome.stdout;
    let line = stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let (count, bytes) = line.and_then(|line| line.split_once(' ')).unwrap_or_else(|| panic!("{name}: {stdout}"));
    [count, bytes].map(|number| number.parse().expect("a number"))
}

/// Number and bytes of the allocations: all, and the temporary ones.
#[track_caller]
fn sums(recording: &Recording) -> [[u64; 2]; 2] {
    let json: Value = serde_json::from_str(&recording.report_with("json", &COUNTED)).expect("JSON");
    let mut sums = [[0; 2]; 2];
    for one in json["allocations"].as_array().expect("allocations") {
        let is_temporary = one["temporary"].as_bool().expect("it is said");
        assert!(!is_temporary || !one["freed"].is_null(), "{one}");
        for [count, bytes] in sums.iter_mut().take(1 + usize::from(is_temporary)) {
            (*count, *bytes) = (*count + 1, *bytes + one["size"].as_u64().expect("a size"));
        }
    }
    sums
}

/// Bytes of the function, by the folded stacks.
fn weight(recording: &Recording, held: &str) -> u64 {
    let folded = recording.report_with("folded", &[&COUNTED[..], &["--memory", held]].concat());
    folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[test]
fn what_is_freed_at_once_is_temporary() {
    for (name, arguments) in [("temporaries-one", ["1", "20000"]), ("temporaries-storm", ["8", "6000"])] {
        let recording = recorded(name, &["--all"], arguments);
        let [total, temporary] = [said(&recording, "total"), said(&recording, "temporary")];
        assert_eq!(sums(&recording), [total, temporary]);
        assert_eq!(weight(&recording, "temporary"), temporary[1]);
        let summary = recording.report_with("summary", &["--memory", "temporary"]);
        assert!(summary.contains("  temporary  ") && summary.contains("allocate and free at once most"), "{summary}");
    }
}

/// Whether an allocation is sampled says nothing of whether it is temporary: the estimate has no bias. The error of a
/// sum over samples has a variance of at most the sum times the distance of samples.
#[test]
fn samples_stand_for_all_that_is_temporary() {
    const INTERVAL: u64 = 32 << 10;
    const DEVIATIONS: f64 = 8.0;
    let recording = recorded("temporaries-sampled", &["--every-bytes", "32K"], ["8", "20000"]);
    for (held, wanted) in [("total", said(&recording, "total")), ("temporary", said(&recording, "temporary"))] {
        let (found, wanted) = (weight(&recording, held), wanted[1]);
        let bound = DEVIATIONS * (wanted as f64 * INTERVAL as f64).sqrt() + INTERVAL as f64;
        let difference = found.abs_diff(wanted) as f64;
        assert!(difference <= bound, "{held}: {found} of {wanted}, {difference} apart, at most {bound}");
    }
    assert!(sums(&recording)[0][0] < said(&recording, "total")[0], "all were sampled");
}
