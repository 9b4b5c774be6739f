//! `uu report --memory FROM-TO`: what was allocated after one moment and held at another one.

use serde_json::Value;
use std::ffi::OsStr;
use uunwind_tests::process::run;
use uunwind_tests::uu::{self, Recording};
use uunwind_tests::{compile, paths};

fn recorded(name: &str, arguments: &[&str]) -> Recording {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "grows", &["native/grows.c"], &["-O1", "-g"]);
    let file = scratch.join("recording.uu");
    let words: Vec<&OsStr> =
        [program.as_os_str(), file.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
    uu::record(&scratch, &["--mode", "alloc", "--mmap", "--all"], |_| {}, &words).expect_code(0)
}

/// The two moments: each in the middle between two calls of `mark`, in seconds.
#[track_caller]
fn moments(recording: &Recording) -> [String; 2] {
    let json: Value = serde_json::from_str(&recording.report_with("json", &["--focus", "^mark$"])).expect("JSON");
    let samples = json["samples"].as_array().expect("samples");
    let times: Vec<u64> = samples.iter().map(|sample| sample["time"].as_u64().expect("a time")).collect();
    let [a, b, c, d] = times[..] else { panic!("four marks: {times:?}") };
    [(a, b), (c, d)].map(|(a, b)| format!("{:.9}", (a + b) as f64 / 2e9))
}

/// Bytes of each function, by the folded stacks.
#[track_caller]
fn bytes_of(recording: &Recording, memory: &str) -> Vec<(&'static str, u64)> {
    let folded = recording.report_with("folded", &[&format!("--memory={memory}")]);
    let of = |function: &'static str| {
        let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
        let own = lines.filter(|(stack, _)| stack.split(';').any(|frame| frame == function));
        (function, own.map(|(_, bytes)| bytes.parse::<u64>().expect("bytes")).sum())
    };
    ["before", "between", "after"].map(of).to_vec()
}

#[test]
fn what_came_between_two_moments_and_stayed() {
    let recording = recorded("growth", &[]);
    let [from, to] = moments(&recording);
    let pages = |count: u64| count * 4096;
    for (memory, before, between, after) in [
        (format!("{from}-{to}"), 0, 50 * 2000 + pages(40), 0),
        // From the beginning to the first one; and from it to the end.
        (format!("-{from}"), 100 * 1000, 0, 0),
        (format!("{from}-"), 0, 30 * 2000 + pages(10), 10 * 3000),
        (format!("-{to}"), 90 * 1000, 50 * 2000 + pages(40), 0),
    ] {
        let wanted = [("before", before), ("between", between), ("after", after)];
        assert_eq!(bytes_of(&recording, &memory), wanted, "{memory}");
    }
    let summary = recording.report_with("summary", &["--memory", &format!("{from}-{to}")]);
    assert!(summary.contains("what was allocated after ") && summary.contains("  held  "), "{summary}");
}

/// The page and pprof have these, too; what is no such time is refused by name.
#[test]
fn formats_have_what_came_between() {
    let recording = recorded("growth-formats", &[]);
    let [from, to] = moments(&recording);
    let scratch = paths::scratch("growth-formats-report");
    let report = |memory: &str, output: &str| {
        let mut report = uu::command(&scratch, &["report", "--memory", memory, "-o"]);
        run(report.arg(scratch.join(output)).arg(&recording.file), &scratch, uu::LIMIT)
    };
    let both = format!("{from}-{to}");
    for output in ["x.html", "x.pb.gz", "x.svg"] {
        report(&both, output).expect_code(0);
    }
    let page = std::fs::read_to_string(scratch.join("x.html")).expect("a page");
    assert!(page.contains("\"held\":[\"allocated after "), "{}", &page[..page.len().min(2000)]);
    let picture = std::fs::read_to_string(scratch.join("x.svg")).expect("a picture");
    assert!(picture.contains("Memory allocated after ") && !picture.contains(">before"), "{picture}");
    for (memory, output, text) in
        [("3-1", "x.svg", "--memory 3-1"), (&*both, "x.json", "--memory"), ("soon", "x.svg", "FROM-TO")]
    {
        let outcome = report(memory, output).expect_code(125);
        assert!(outcome.stderr.contains(text), "{}", outcome.text());
    }
}

/// Two runs allocate the same, and hold different parts of it at the end.
#[test]
fn what_was_held_is_compared() {
    let (before, after) = (recorded("growth-before", &[]), recorded("growth-after", &["x"]));
    let scratch = paths::scratch("growth-diff");
    let diff = |options: &[&str], code: i32| {
        let mut diff = uu::command(&scratch, &["diff"]);
        run(diff.args(options).args([&before.file, &after.file]), &scratch, uu::LIMIT).expect_code(code)
    };
    let total = diff(&["--memory", "total", "--fail-over", "1%"], 0).stdout;
    assert_eq!(diff(&[], 0).stdout, total);
    assert!(!total.contains("between"), "{total}");
    let outcome = diff(&["--memory", "end", "--fail-over", "10%"], 1);
    assert!(outcome.stdout.contains("between") && outcome.stderr.contains("between"), "{}", outcome.text());
    let outcome = diff(&["--memory", "most"], 125);
    assert!(outcome.stderr.contains("--memory most"), "{}", outcome.text());
}
