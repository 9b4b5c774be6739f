//! `--mode wall`: threads that wait are sampled, too, for as long as they wait by the program's own clock, and no wait
//! ends early or is stopped twice.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::running::Running;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, interpreters, paths, process, skips, uu};

const RATE: f64 = 99.0;

/// What the program measured of a thread.
struct Measured {
    seconds: f64,
    calls: u64,
    early: u64,
    /// Calls in which it was not ready for so long, without a CPU, that it may have been stopped for that.
    counted: u64,
    /// Those of them in which it went to sleep more than three times, and the most times in one.
    often: u64,
    most: u64,
}

fn measured(stdout: &str) -> BTreeMap<String, Measured> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, seconds, numbers @ ..] = &words[..] else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>().ok()?;
        let [calls, early, counted, often, most] = numbers[..] else { return None };
        Some(((*name).to_owned(), Measured { seconds: seconds.parse().ok()?, calls, early, counted, often, most }))
    };
    stdout.lines().filter_map(line).collect()
}

/// Each thread, the system call that it waits in, and its function.
const THREADS: [(&str, &str, &str); 5] = [
    ("sleeps", "clock_nanosleep", "in_sleep"),
    ("polls", "epoll_wait", "in_epoll"),
    ("reads", "read", "in_read"),
    ("recvs", "recvfrom", "in_recv"),
    ("locks", "futex", "in_lock"),
];

fn program(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options: Vec<&str> = ["-pthread"].iter().chain(options).copied().collect();
    let program = compile::gcc(&scratch, "wall", &["native/wall.c"], &options);
    (scratch, program)
}

/// Seconds of the samples that are wanted.
fn seconds(samples: &[Sample], is_wanted: impl Fn(&Sample) -> bool) -> f64 {
    samples.iter().filter(|sample| is_wanted(sample)).map(|sample| sample.weight).sum::<u64>() as f64 / RATE
}

fn waits_in(sample: &Sample, call: &str) -> bool {
    sample.frames.first().is_some_and(|frame| matches!(frame, Frame::Waiting { call: found } if found == call))
}

fn waits(sample: &Sample) -> bool {
    sample.kind == "waiting"
}

/// No call ended early, and none was stopped more than once: it went to sleep once for itself, and twice for a stop.
/// What waits for a lock may go to sleep for others that get it first. And one call of a thread may have been stopped
/// when it had waited: a virtual machine that loses a processor does not see for how long a thread was ready.
#[track_caller]
fn expect_undisturbed(measured: &BTreeMap<String, Measured>) {
    assert_eq!(measured.len(), THREADS.len());
    for (name, thread) in measured {
        assert!(thread.calls > 5, "{name}");
        assert_eq!(thread.early, 0, "{name}: calls that ended early");
        assert!(thread.counted > 0, "{name}: always ready for long");
        let (often, most) = (thread.often, thread.most);
        assert!(name == "locks" || often <= 1, "{name}: in {often} calls it went to sleep up to {most} times");
    }
}

/// Frames that wait are marked, the leaf of each waiting thread and of no other; their stacks are complete.
#[track_caller]
fn expect_marked(samples: &[Sample]) {
    for sample in samples {
        let marked = sample.frames.iter().filter(|frame| matches!(frame, Frame::Waiting { .. })).count();
        assert_eq!(marked, usize::from(waits(sample)), "{}", sample.text());
        assert!(!waits(sample) || matches!(sample.frames.first(), Some(Frame::Waiting { .. })), "{}", sample.text());
        assert!(sample.complete(), "{}", sample.text());
    }
}

/// With frame pointers, no walk reaches the outermost frame without registers that only a stop can give.
#[test]
fn waits_are_as_long_as_the_program_measures_them() {
    for (name, options) in [("wall", &[][..]), ("wall-fp", &["-fno-omit-frame-pointer", "-O0"])] {
        let (scratch, program) = program(name, options);
        let words = [program.as_os_str(), OsStr::new("1.5")];
        let recording = uu::record(&scratch, &["--mode", "wall"], |_| {}, &words).expect_code(0);
        let (samples, measured) = (recording.samples(), measured(&recording.outcome.stdout));
        expect_undisturbed(&measured);
        expect_marked(&samples);
        for (name, call, function) in THREADS {
            let of = |sample: &Sample| sample.comm == name && waits(sample);
            let (found, wanted) = (seconds(&samples, of), measured[name].seconds);
            // A period at each end. What passed between the last look and a thread's end is counted as unseen: on a
            // loaded machine, looks are late.
            let unseen = seconds_in(&recording.outcome.stderr, " s of waiting were not seen");
            let is_close = found - wanted < wanted * 0.05 + 0.06 && wanted - found < wanted * 0.05 + 0.06 + unseen;
            assert!(is_close, "{name}: {found:.3} of {wanted:.3} s, {unseen} s unseen");
            let right = |s: &Sample| of(s) && waits_in(s, call) && s.native_names().contains(&function);
            let right = seconds(&samples, right);
            assert!(right > found * 0.9 - 0.05, "{name}: {right:.3} of {found:.3} s in {function}");
        }
        let spun = seconds(&samples, |sample| sample.comm == "spins" && !waits(sample));
        let in_main = seconds(&samples, |sample| sample.comm == "wall" && waits_in(sample, "clock_nanosleep"));
        assert!(spun > 0.05 && in_main > 1.3, "{spun:.3} {in_main:.3}: {}", recording.outcome.stderr);
        let stops = stops(&recording.outcome.stderr);
        assert!(stops.0 > 5 && (stops.1 > 0) == (name == "wall-fp"), "{stops:?}");
    }
}

/// The seconds before this text in the summary, of all threads; 0 without it.
fn seconds_in(summary: &str, text: &str) -> f64 {
    let line = summary.lines().find_map(|line| line.split_once(text));
    line.map_or(0.0, |(before, _)| before.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
}

/// How many waits the summary says were looked at, and how many of them by a stop.
#[track_caller]
fn stops(summary: &str) -> (u64, u64) {
    let line = summary
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("note       ")?.split_once(" waits were looked at, "));
    let (waits, rest) = line.expect("the note");
    let stops = rest.split_once(" of them by a stop").expect("the note").0;
    (waits.trim().parse().expect("a number"), stops.parse().expect("a number"))
}

#[track_caller]
fn attached(scratch: &Path, pid: u32, options: &[&str]) -> Recording {
    let file = scratch.join("recording.uu");
    let mut command = uu::command(scratch, &["record", "--mode", "wall", "--remote", "-p"]);
    command.arg(pid.to_string()).args(options).arg("-o").arg(&file);
    let outcome = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    Recording::made(file, outcome, scratch.to_path_buf())
}

#[test]
fn a_running_program_is_recorded_with_its_waits() {
    for (name, options) in [("wall-p", &[][..]), ("wall-p-fp", &["-fno-omit-frame-pointer", "-O0", "-static"])] {
        let (scratch, program) = program(name, options);
        let running = Running::ready(&mut Command::new(&program));
        let recording = attached(&scratch, running.pid(), &["-d", "1.5"]);
        let (mut running, samples) = (running, recording.samples());
        running.say("end");
        let lines: Vec<String> = std::iter::from_fn(|| Some(running.line()).filter(|line| !line.is_empty())).collect();
        expect_undisturbed(&measured(&lines.join("\n")));
        expect_marked(&samples);
        let unseen = seconds_in(&recording.outcome.stderr, " s of threads' time were not seen");
        let read = uunwind_recording::Recording::read(&recording.file).expect("a recording");
        let whole = (read.end.as_ref().expect("its end").time - read.settings.start_monotonic) as f64 / 1e9;
        for (name, call, function) in THREADS {
            let of = |sample: &Sample| sample.comm == name;
            let (found, waiting) = (seconds(&samples, of), seconds(&samples, |s| of(s) && waits_in(s, call)));
            // It began when all files had been looked at. On a loaded machine, the last look may be late, or miss a
            // thread.
            assert!(
                found + unseen > 1.2 && found < whole + 0.02,
                "{name}: {found:.3} of {whole:.3} s, {unseen} s unseen"
            );
            // From outside, a thread that is ready to run, as on a loaded machine, counts as running; and there are few
            // looks, one of which may stand for all the time.
            let looks = samples.iter().filter(|sample| of(sample)).count();
            let are_few = recording.outcome.stderr.contains("threads were looked at ");
            assert!(are_few || waiting > found * 0.2, "{name}: {waiting:.3} of {found:.3} s in {looks} looks");
            let right = |s: &Sample| of(s) && waits_in(s, call) && s.native_names().contains(&function);
            assert!(seconds(&samples, right) > waiting * 0.9 - 0.05, "{name}");
        }
        let spun = seconds(&samples, |sample| sample.comm == "spins" && !waits(sample));
        assert!(spun + unseen > 1.0, "{spun:.3}, {unseen} s unseen");
    }
}

/// A thread that runs for long after a stop, to wait in its call again, is not stopped again: it would begin the call
/// anew each time. It may be once more after it has waited, when it runs to end its call.
#[test]
fn a_call_that_takes_long_to_begin_is_not_stopped_again_for_that() {
    let scratch = paths::scratch("wall-many-polled");
    let options = ["-pthread", "-fno-omit-frame-pointer"];
    let program = compile::gcc(&scratch, "many_polled", &["native/many_polled.c"], &options);
    let mut running = Running::start(&mut Command::new(&program));
    if running.line() == "few" {
        return skips::skipped("a call that takes long to begin", "too few files may be open");
    }
    let recording = attached(&scratch, running.pid(), &["-d", "2", "-r", "999"]);
    running.say("end");
    let most: u64 = running.line().parse().expect("a number");
    // Once to wait, twice for a stop and a second one, and seldom once more; a call that is stopped again and again
    // would last until the recording ends.
    assert!(most <= 10, "a thread has gone to sleep {most} times in one call");
    let (_, stops) = stops(&recording.outcome.stderr);
    assert!(stops > 0, "never stopped: {}", recording.outcome.stderr);
}

/// Every kind of wait goes on; threads that only wait are idle, and all are shown where there are no others.
#[test]
fn no_kind_of_wait_ends() {
    let scratch = paths::scratch("wall-kinds");
    let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread", "-fno-omit-frame-pointer"]);
    let mut running = Running::start(&mut Command::new(&program));
    let ready = running.line();
    let kinds: usize = ready.strip_prefix("ready ").and_then(|n| n.parse().ok()).expect("their number");
    let recording = attached(&scratch, running.pid(), &["-d", "0.5"]);
    assert_eq!(running.end(), Some(0), "some call was interrupted");
    let samples = recording.samples();
    expect_marked(&samples);
    let mut threads: BTreeMap<u32, (String, u64)> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.comm != "waits") {
        assert_eq!(sample.frames[0].name(), sample.comm);
        threads.entry(sample.tid).or_insert((sample.comm.clone(), 0)).1 += sample.weight;
    }
    assert_eq!(threads.len(), kinds);
    for (name, weight) in threads.values() {
        assert!((35..=55).contains(weight), "{name}: {weight} of 50 periods");
    }
    let (waits, stops) = stops(&recording.outcome.stderr);
    assert_eq!(waits, kinds as u64 + 1, "each was looked at once");
    assert!(stops <= waits);
    let folded = |options: &[&str]| recording.report_with("folded", options);
    assert_eq!(folded(&[]), folded(&["-i"]));
    let mut nothing = uu::command(&scratch, &["report", "-f", "folded", "--filter", "state=running"]);
    let said = process::run(nothing.arg(&recording.file), &scratch, uu::LIMIT).expect_code(125).stderr;
    assert!(said.contains("no sample is left by --filter"), "{said}");
    assert_eq!(folded(&["--filter", "state=waiting"]), folded(&[]));
}

#[test]
fn idle_threads_are_shown_if_that_is_wanted() {
    let (scratch, program) = program("wall-idle", &[]);
    let words = [program.as_os_str(), OsStr::new("0.8")];
    let recording = uu::record(&scratch, &["--mode", "wall"], |_| {}, &words).expect_code(0);
    let folded = |options: &[&str]| recording.report_with("folded", options);
    // The main thread sleeps all the time, in `main`.
    let is_main = |line: &&str| line.contains("main;") && line.contains("waiting in clock_nanosleep");
    let weight = |text: &str| {
        text.lines().filter(is_main).filter_map(|l| l.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    assert!(weight(&folded(&["-i"])) > 60, "{}", folded(&["-i"]));
    let running = folded(&["--filter", "state=running"]);
    assert!(running.contains("spins") && !running.contains("[waiting in"), "{running}");
    let waiting = folded(&["-i", "--filter", "state=waiting"]);
    assert!(!waiting.contains("spins") && waiting.contains("in_recv") && waiting.contains("[waiting in recvfrom]"));
    // All threads wait as long: which five of them come first is chance.
    let summary = recording.report_with("summary", &["-i", "-v"]);
    for part in ["Wall-clock profile", "of time: running", "Longest waits", "[waiting in recvfrom] < "] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
}

/// Frames of Python stand in the stacks of threads that wait, with their lines, and each says what it waits in.
#[test]
fn functions_of_python_wait() {
    for python in interpreters::modern() {
        let scratch = paths::scratch("wall-python");
        let source = paths::source("python/wall.py");
        let words = [python.path.as_os_str(), source.as_os_str(), OsStr::new("1.2")];
        let recording = uu::record(&scratch, &["--mode", "wall"], |_| {}, &words).expect_code(0);
        let samples = recording.samples();
        // A thread computes under the GIL all the time, for which the others wait when their own waits are over.
        let state = |lock: &str| samples.iter().filter(|sample| waits(sample) && sample.lock == lock).count();
        let (waiting, unknown, none) = (state("waiting"), state("?"), state("none"));
        assert!(waiting > 0 && none > waiting && unknown * 10 < none, "{}: {waiting}, {unknown}, {none}", python.label);
        for (function, line) in [("sleeps", 13), ("locks", 17), ("receives", 21)] {
            let chain = |sample: &Sample| {
                let names = sample.frames.iter().filter(|f| f.is_python()).map(|f| f.name()).collect::<Vec<_>>();
                waits(sample) && names.starts_with(&[function, "inner"])
            };
            let found = seconds(&samples, chain);
            assert!(found > 0.3, "{}: {function}: {found:.3} s: {}", python.label, recording.outcome.stderr);
            for sample in samples.iter().filter(|sample| chain(sample)) {
                let is_there =
                    |f: &Frame| matches!(f, Frame::Python { name, line: l, .. } if name == function && *l == line);
                assert!(sample.complete() && sample.frames.iter().any(is_there), "{}: {}", python.label, sample.text());
            }
        }
    }
}

/// Each wait has the length that the program measures, whatever the rate is; those that were looked at have their
/// stacks.
#[test]
fn single_waits_have_their_lengths() {
    let scratch = paths::scratch("wall-naps");
    let program = compile::gcc(&scratch, "naps", &["native/naps.c"], &["-pthread"]);
    // Many threads make a look long: what is found late in it is not taken for what was there when it began.
    let words = [program.as_os_str(), "200".as_ref()];
    let recording = uu::record(&scratch, &["--mode", "wall"], |_| {}, &words).expect_code(0);
    let naps = recording.outcome.stdout.lines().filter_map(|line| {
        let (name, length) = line.split_once(' ')?;
        Some((name.to_owned(), length.parse::<f64>().ok()?))
    });
    let naps: Vec<(String, f64)> = naps.collect();
    assert_eq!(naps.len(), 31);
    let report: serde_json::Value = serde_json::from_str(&recording.report_with("json", &["-i"])).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let (waits, stacks, frames) = (list(&report["waits"]), list(&report["stacks"]), list(&report["frames"]));
    if waits.is_empty() && recording.outcome.stderr.contains("lengths of single waits are missing") {
        return skips::skipped("lengths of single waits", "the kernel does not report them");
    }
    let functions = |wait: &serde_json::Value| {
        let stack = wait["stack"].as_u64().and_then(|stack| stacks.get(stack as usize));
        let lines = stack.map_or_else(Vec::new, |stack| list(&stack["frames"]));
        let name = |line: &serde_json::Value| frames[line.as_u64().expect("an index") as usize]["function"].clone();
        lines.iter().map(|line| name(line).as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    // In the order in which they ended, as the naps; the first one began before the recorder knew of the thread.
    // Standard output is a file, for which nothing waits long.
    let long: Vec<_> = waits.iter().collect();
    let length = |wait: &&serde_json::Value| wait["duration"].as_f64().expect("ns") / 1e6;
    // On a loaded machine, looks are late, and a thread may lose its CPU between the call and its sleep.
    for (name, function, least) in [("1", "naps_1", 0), ("50", "naps_50", 0), ("300", "naps_300", 5)] {
        let measured: Vec<f64> = naps.iter().filter(|(nap, _)| nap == name).map(|(_, length)| *length).collect();
        let asked: f64 = name.parse().expect("ms");
        let is_one = |found: f64| measured.iter().any(|nap| found <= *nap && found > asked * 0.5);
        let looked = long.iter().filter(|wait| functions(wait).contains(&function.to_owned()));
        let looked: Vec<f64> = looked.map(&length).collect();
        assert!(looked.iter().all(|found| is_one(*found)), "{name}: {looked:?} of {measured:?}");
        assert!((least..=10).contains(&looked.len()), "{name}: {} of 10 naps were looked at", looked.len());
        // All were seen, with a stack or without one, and none longer than the program's own clock has it.
        let all = long.iter().filter(|wait| is_one(length(wait))).count();
        assert!(all >= 9, "{name}: {all} of 10 naps");
    }
    let summary = recording.report_with("summary", &["-i"]);
    assert!(summary.contains("single waits") && summary.contains("naps_300"), "{summary}");
}

/// The same of a program that runs already. Between the first and the last nap that was found, each has its wait, and
/// no other time is one: a stop for the stack is none.
#[test]
fn waits_of_a_running_program_have_their_lengths() {
    let scratch = paths::scratch("wall-p-naps");
    let program = compile::gcc(&scratch, "naps", &["native/naps.c"], &["-pthread"]);
    let mut running = Running::ready(Command::new(&program).args(["3", "until"]));
    let recording = attached(&scratch, running.pid(), &["-d", "2"]);
    running.say("end");
    let lines = std::iter::from_fn(|| Some(running.line()).filter(|line| !line.is_empty()));
    // In milliseconds: which nap, its begin, its length.
    let nap = |line: String| {
        let words: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [name, length, begin] = words[..] else { panic!("{line}") };
        (name, begin, begin + length)
    };
    let naps: Vec<(f64, f64, f64)> = lines.map(nap).collect();
    let report: serde_json::Value = serde_json::from_str(&recording.report_with("json", &["-i"])).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let (stacks, frames, threads) = (list(&report["stacks"]), list(&report["frames"]), list(&report["threads"]));
    let read = uunwind_recording::Recording::read(&recording.file).expect("a recording");
    let is_main = |thread: u64| threads[thread as usize]["tid"].as_u64() == Some(running.pid().into());
    let waits = list(&report["waits"]);
    let waits: Vec<_> = waits.iter().filter(|wait| is_main(wait["thread"].as_u64().expect("an index"))).collect();
    if waits.is_empty() && recording.outcome.stderr.contains("lengths of single waits are missing") {
        return skips::skipped("single waits of a running program", "the kernel does not report them");
    }
    assert!(!recording.outcome.stderr.contains("found no room"), "{}", recording.outcome.stderr);
    // On a loaded machine a thread may not stop in time: naps about that are missing, and that is said.
    let is_late = recording.outcome.stderr.contains("did not in time");
    let (mut looked, mut found) = (0, Vec::new());
    for wait in waits {
        let ns = |name: &str| wait[name].as_u64().expect("ns");
        let begin = (read.settings.start_monotonic + ns("begin")) as f64 / 1e6;
        let end = begin + ns("duration") as f64 / 1e6;
        // To the microsecond, in which the program writes its times.
        let nap = naps.iter().position(|nap| nap.1 <= begin + 0.002 && end <= nap.2 + 0.002);
        let nap = nap.unwrap_or_else(|| panic!("{begin} to {end} lies in none of {naps:?}"));
        found.push(nap);
        let (name, ..) = naps[nap];
        if let Some(stack) = wait["stack"].as_u64() {
            let lines = list(&stacks[stack as usize]["frames"]);
            let names = lines.iter().map(|line| &frames[line.as_u64().expect("an index") as usize]["function"]);
            let function = format!("naps_{name}");
            assert!(names.clone().any(|name| *name == function), "{function}: {:?}", names.collect::<Vec<_>>());
            looked += 1;
        }
    }
    let (first, last) = found.first().copied().zip(found.last().copied()).expect("waits");
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "each nap is one wait: {found:?} of {naps:?}");
    assert!(is_late || found.len() == last - first + 1, "naps are missing: {found:?} of {naps:?}");
    assert!(found.len() > 5 && looked > 1, "{} waits, {looked} with stacks", found.len());
}

/// A stop for the stack, which every thread of Python's needs once, splits no wait: each nap is one, and no longer than
/// the program's own clock has it.
#[test]
fn a_stop_for_the_stack_splits_no_wait() {
    for python in interpreters::modern().into_iter().take(1) {
        let scratch = paths::scratch("wall-python-naps");
        let source = paths::source("python/naps.py");
        // A stop comes a period after a nap's begin: late enough for both parts to be seen, were there two.
        let options = ["--mode", "wall", "-r", "20"];
        let words = [python.path.as_os_str(), source.as_os_str()];
        let recording = uu::record(&scratch, &options, |_| {}, &words).expect_code(0);
        let report: serde_json::Value = serde_json::from_str(&recording.report_with("json", &["-i"])).expect("JSON");
        let list = |name: &str| report[name].as_array().expect("a list").clone();
        let (waits, threads) = (list("waits"), list("threads"));
        if waits.is_empty() && recording.outcome.stderr.contains("lengths of single waits are missing") {
            return skips::skipped("single waits of stopped threads", "the kernel does not report them");
        }
        assert!(stops(&recording.outcome.stderr).1 >= 3, "{}", recording.outcome.stderr);
        let ns = |value: &serde_json::Value| value.as_u64().expect("ns");
        // Two clocks are compared.
        let (long, close, start) = (20_000_000, 2_000_000, ns(&report["start"]));
        let mut before = None;
        for line in recording.outcome.stdout.lines() {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
            let [tid, begin, end] = numbers[..] else { panic!("{line}") };
            let in_nap = |wait: &&serde_json::Value| {
                let (at, length) = (start + ns(&wait["begin"]), ns(&wait["duration"]));
                let thread = &threads[ns(&wait["thread"]) as usize];
                ns(&thread["tid"]) == tid && length > long && at + close > begin && at < end
            };
            let found: Vec<u64> = waits.iter().filter(in_nap).map(|wait| ns(&wait["duration"])).collect();
            // The thread's first nap may have begun before anybody looked.
            let may_be_unseen = before.replace(tid) != Some(tid);
            let is_whole = |length: u64| length > 250_000_000 && length < end - begin;
            let is_right = matches!(found[..], [length] if is_whole(length)) || found.is_empty() && may_be_unseen;
            assert!(is_right, "{}: {found:?} of a nap of {} ns", python.label, end - begin);
        }
    }
}
