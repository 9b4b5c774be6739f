//! Threads and processes that live for a part of the kernel's tick have their share of the samples.

use uunwind_tests::{compile, paths, uu};

/// Threads, each of a millisecond: at 99 Hz some 150 samples, whose number varies by a twelfth.
const THREADS: &str = "1500";
/// The share of the CPU time that is sampled, at least and at most: five times that from what is due.
const SHARE: std::ops::Range<f64> = 0.6..1.4;

#[test]
fn threads_shorter_than_a_tick_have_their_share() {
    let scratch = paths::scratch("short-threads");
    let program = compile::gcc(&scratch, "short_threads", &["native/short_threads.c"], &["-pthread"]);
    for rate in ["99", "1000"] {
        let words = [program.as_os_str(), THREADS.as_ref(), "1000".as_ref()];
        let recording = uu::record(&scratch, &["-r", rate], |_| {}, &words).expect_code(0);
        let used: f64 = recording.outcome.stdout.trim().parse().expect("nanoseconds");
        let samples = recording.samples();
        let computing = samples.iter().filter(|sample| sample.frames.iter().any(|frame| frame.name() == "computes"));
        let periods: f64 = computing.map(|sample| sample.weight as f64).sum();
        let share = periods * 1e9 / rate.parse::<f64>().expect("a rate") / used;
        println!("at {rate} Hz: {share:.2} of {:.2} s", used / 1e9);
        assert!(SHARE.contains(&share), "at {rate} Hz {share} of the CPU time is sampled");
    }
}

/// Most of what such a program uses lies before its first instruction, where no timer of ours runs.
#[test]
fn programs_shorter_than_a_tick_have_their_share() {
    let scratch = paths::scratch("short-programs");
    let program = compile::gcc(&scratch, "short_programs", &["native/short_programs.c"], &[]);
    for rate in ["99", "999"] {
        let words = [program.as_os_str(), "400".as_ref(), "/bin/true".as_ref()];
        let recording = uu::record(&scratch, &["-r", rate], |_| {}, &words).expect_code(0);
        let used: f64 = recording.outcome.stdout.trim().parse().expect("microseconds");
        let started: f64 = recording
            .report("folded")
            .lines()
            .filter_map(|line| line.strip_prefix("[process start] ")?.parse::<f64>().ok())
            .sum();
        let share = started * 1e6 / rate.parse::<f64>().expect("a rate") / used;
        println!("at {rate} Hz: {share:.2} of {:.2} s", used / 1e6);
        assert!(SHARE.contains(&share), "at {rate} Hz {share} of the CPU time is shown");
        // Most have ended before their command line can be read: then they have their program's name.
        let by_process = recording.report_with("folded", &["--by", "process"]);
        let starts = || by_process.lines().filter_map(|line| line.split_once(";[process start] "));
        assert!(starts().count() > 0, "{by_process}");
        assert!(starts().all(|(process, _)| !process.starts_with('?')), "{by_process}");
        // They are no samples, and the rest of the summary says so.
        assert!(recording.samples().iter().all(|sample| !sample.frames.is_empty()));
    }
}
