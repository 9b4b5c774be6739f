//! `uu record --mode alloc`: what is recorded of a program that counts what it allocates and frees is what it counts
//! itself, exactly with `--all`, and within the error of the sampling otherwise.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::run;
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, go, interpreters, paths, uu};

/// Functions in which `holds` allocates what it counts.
const COUNTED: [&str; 2] = ["--focus", "^(work|keep_rest)$"];

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "holds", &["native/holds.c"], &["-O1", "-g", "-pthread"]);
    (scratch, program)
}

fn recorded(name: &str, options: &[&str], arguments: &[&str]) -> Recording {
    let (scratch, program) = program(name);
    let options: Vec<&str> = ["--mode", "alloc"].iter().chain(options).copied().collect();
    let words: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(arguments.iter().map(|word| OsStr::new(*word))).collect();
    uu::record(&scratch, &options, |_| {}, &words).expect_code(0)
}

/// The numbers in the line of the program's that begins so.
#[track_caller]
fn said(recording: &Recording, name: &str) -> Vec<u64> {
    let stdout = &recording.outcome.stdout;
    let line = stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("{name} was not said: {stdout}"));
    line.split(' ').map(|number| number.parse().expect("a number")).collect()
}

/// An allocation of a recording.
#[derive(Debug)]
struct Allocation {
    size: u64,
    time: u64,
    freed: Option<u64>,
    is_temporary: bool,
}

#[track_caller]
fn allocations(recording: &Recording, options: &[&str]) -> Vec<Allocation> {
    let json: Value = serde_json::from_str(&recording.report_with("json", options)).expect("JSON");
    let samples = json["samples"].as_array().expect("samples");
    let one = |one: &Value| {
        assert_eq!(one["tracked"], true);
        let sample = &samples[one["sample"].as_u64().expect("an index") as usize];
        let time = sample["time"].as_u64().expect("a time");
        let (size, freed) = (one["size"].as_u64().expect("a size"), one["freed"].as_u64());
        Allocation { size, time, freed, is_temporary: one["temporary"] == true }
    };
    json["allocations"].as_array().expect("allocations").iter().map(one).collect()
}

fn sum<'a>(of: impl Iterator<Item = &'a Allocation>) -> Vec<u64> {
    let (count, bytes) = of.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.size));
    vec![count, bytes]
}

/// Bytes of the counted functions, by the folded stacks.
fn weight(recording: &Recording, held: &str) -> u64 {
    let folded = recording.report_with("folded", &[&COUNTED[..], &["--memory", held]].concat());
    folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[track_caller]
fn expect_no_loss(recording: &Recording) {
    let stderr = &recording.outcome.stderr;
    for lost in ["were lost", "no room", "in none of these"] {
        assert!(!stderr.contains(lost), "{stderr}");
    }
}

/// One thread: each function of malloc(3), and the moment at which most was held.
#[test]
fn all_that_one_thread_allocates_is_recorded() {
    let recording = recorded("alloc-one", &["--all"], &["1", "20000"]);
    expect_no_loss(&recording);
    let all = allocations(&recording, &COUNTED);
    assert_eq!(sum(all.iter()), said(&recording, "total"));
    assert_eq!(sum(all.iter().filter(|one| one.freed.is_none())), said(&recording, "live"));
    assert!(all.iter().all(|one| one.freed.is_none_or(|freed| freed >= one.time)));
    assert_eq!([weight(&recording, "peak")], said(&recording, "peak")[..]);
    assert_eq!(
        [weight(&recording, "total"), weight(&recording, "end")],
        [said(&recording, "total")[1], said(&recording, "live")[1]]
    );
    // Whole stacks, from the function that called malloc's on, without a frame of uu's.
    for sample in recording.samples().iter().filter(|sample| sample.native_names().contains(&"work")) {
        assert!(sample.complete() && sample.kind == "allocation", "{}", sample.text());
        let names = sample.native_names();
        assert_eq!(names.last(), Some(&"_start"), "{}", sample.text());
    }
    let folded = recording.report_with("folded", &COUNTED);
    let leaves = folded.lines().filter_map(|line| line.rsplit_once(' ')?.0.rsplit(';').next());
    let leaves: Vec<&str> = leaves.collect();
    assert!(leaves.iter().all(|leaf| ["made", "work"].iter().any(|name| leaf.starts_with(name))), "{leaves:?}");
}

/// Eight threads free each other's blocks, also after all destructors, while children come and go: no free is lost.
#[test]
fn no_free_is_lost_in_a_storm() {
    let recording = recorded("alloc-storm", &["--all"], &["8", "6000", "fork"]);
    expect_no_loss(&recording);
    let all = allocations(&recording, &COUNTED);
    assert_eq!(sum(all.iter()), said(&recording, "total"));
    assert_eq!(sum(all.iter().filter(|one| one.freed.is_none())), said(&recording, "live"));
    // Each of the ten children keeps a hundred blocks, and those of its parent's that it freed are its parent's.
    let children = allocations(&recording, &["--focus", "^child$"]);
    assert_eq!(sum(children.iter())[0], 10 * 200);
    assert_eq!(children.iter().filter(|one| one.freed.is_none()).count(), 10 * 100);
}

/// The bytes that these samples stand for.
fn estimate<'a>(of: impl Iterator<Item = &'a Allocation>, interval: u64) -> f64 {
    of.map(|one| one.size as f64 / -(-(one.size as f64) / interval as f64).exp_m1()).sum()
}

/// The error of a sum over samples has a variance of at most the sum times the distance of samples.
fn bound(bytes: u64, interval: u64) -> f64 {
    const DEVIATIONS: f64 = 8.0;
    DEVIATIONS * (bytes as f64 * interval as f64).sqrt() + interval as f64
}

#[test]
fn samples_stand_for_all() {
    const INTERVAL: u64 = 16 << 10;
    let recording = recorded("alloc-sampled", &["--every-bytes", "16K"], &["8", "6000", "fork"]);
    expect_no_loss(&recording);
    let all = allocations(&recording, &COUNTED);
    let (total, live) = (said(&recording, "total"), said(&recording, "live"));
    assert!((all.len() as u64) < total[0], "{} of {}: all were sampled", all.len(), total[0]);
    for (held, wanted) in [("total", total[1]), ("end", live[1])] {
        let found = weight(&recording, held);
        let (difference, bound) = (found.abs_diff(wanted) as f64, bound(wanted, INTERVAL));
        assert!(difference <= bound, "{held}: {found} of {wanted}, {difference} apart, at most {bound}");
    }
    // Small and large ones have their share, each at its own size.
    let small = |one: &&Allocation| one.size < 4096;
    let sampled = estimate(all.iter().filter(small), INTERVAL);
    let truth = recorded("alloc-sampled-all", &["--all"], &["8", "6000", "fork"]);
    let truth: u64 = allocations(&truth, &COUNTED).iter().filter(small).map(|one| one.size).sum();
    // Two runs have the same random numbers, but threads meet in another order.
    let difference = (sampled - truth as f64).abs();
    assert!(difference <= bound(truth, INTERVAL) + 0.05 * truth as f64, "{sampled} of {truth}");
}

/// Go's tool reads the six values, and the sums of the first four are the program's.
#[test]
fn go_reads_the_heap_profile() {
    let recording = recorded("alloc-pprof", &["--all"], &["8", "2000"]);
    if !go::installed("allocations as Go's heap profiles") {
        return;
    }
    let scratch = paths::scratch("alloc-pprof-read");
    let file = scratch.join("x.pb.gz");
    let mut report = uu::command(&scratch, &["report"]);
    report.arg(&recording.file).args(COUNTED).arg("-o").arg(&file);
    run(&mut report, &scratch, uu::LIMIT).expect_code(0);
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-raw"]).arg(&file).env("HOME", &scratch);
    let raw = run(&mut pprof, &scratch, uu::LIMIT).expect_code(0).stdout;
    let begin = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt] \
                 temporary_objects/count temporary_space/bytes\n";
    let (_, samples) = raw.split_once(begin).unwrap_or_else(|| panic!("{raw}"));
    let mut sums = [0u64; 6];
    for line in samples.lines().take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Vec<u64> = values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if values.len() == sums.len() {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let all = allocations(&recording, &COUNTED);
    let temporary = sum(all.iter().filter(|one| one.is_temporary));
    assert!(temporary[0] > 0, "{all:?}");
    assert_eq!(sums[..], [said(&recording, "total"), said(&recording, "live"), temporary].concat());
}

/// The summary names the line of Python that holds the memory, and the other one as what allocates most. Builds without
/// the GIL take large objects, too, from an allocator of their own.
#[test]
fn lines_of_python_hold_memory() {
    for python in interpreters::supported().iter().filter(|python| python.flags.is_empty()) {
        let scratch = paths::scratch(&format!("alloc-python-{}", python.label));
        let script = paths::source("python/holds.py");
        let words = [python.path.as_os_str(), script.as_os_str()];
        let options = ["--mode", "alloc", "--every-bytes", "64K"];
        let recording = uu::record(&scratch, &options, |_| {}, &words).expect_code(0);
        for (held, title, function, other) in
            [("peak", "held", "keeps", "drops"), ("total", "allocate", "drops", "keeps")]
        {
            let summary = recording.report_with("summary", &["--memory", held]);
            let title = format!("Lines of Python that {title} most");
            let (_, table) = summary.split_once(&title).unwrap_or_else(|| panic!("{summary}"));
            let first = table.lines().nth(2).unwrap_or_default();
            let is_right = first.contains(function) && first.contains("holds.py") && !first.contains(other);
            assert!(is_right, "{}: {summary}", python.label);
        }
        let folded = recording.report_with("folded", &["--memory", "peak", "--focus", "^keeps$"]);
        let kept: u64 = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
        let wanted = 200 * 100_000;
        let is_close = (kept.abs_diff(wanted) as f64) < bound(wanted, 64 << 10);
        assert!(is_close, "{}: {kept} of {wanted}", python.label);
    }
}

/// Small objects of Python come from malloc with `--python-malloc` only, each with its own size.
#[test]
fn small_objects_of_python_are_seen_with_an_option() {
    const INTERVAL: u64 = 4 << 10;
    for python in interpreters::modern().iter().take(2) {
        let scratch = paths::scratch(&format!("alloc-small-{}", python.label));
        let script = paths::source("python/small.py");
        let words = [python.path.as_os_str(), script.as_os_str()];
        let options = ["--mode", "alloc", "--every-bytes", "4K"];
        for more in [&[][..], &["--python-malloc"]] {
            let recording = uu::record(&scratch, &[&options, more].concat(), |_| {}, &words).expect_code(0);
            let wanted: u64 = recording.outcome.stdout.trim().parse().expect("a number");
            // What the list, and the formatting, need besides has other sizes.
            let all = allocations(&recording, &["--focus", "^keeps$"]);
            let kept = estimate(all.iter().filter(|one| one.size == wanted / 100_000), INTERVAL) as u64;
            let said = format!("{}: {kept} of {wanted}: {}", python.label, recording.outcome.stderr);
            if more.is_empty() {
                assert!(kept < wanted / 20 && recording.outcome.stderr.contains("in arenas"), "{said}");
            } else {
                assert!((kept.abs_diff(wanted) as f64) < bound(wanted, INTERVAL), "{said}");
                assert!(!recording.outcome.stderr.contains("in arenas"), "{said}");
            }
        }
    }
}

#[track_caller]
fn refused(scratch: &Path, options: &[&str], program: &[&OsStr], code: i32, parts: &[&str]) {
    let recording = uu::record(scratch, options, |_| {}, program).expect_code(code);
    for part in parts {
        assert!(recording.outcome.stderr.contains(part), "{part:?}: {}", recording.outcome.text());
    }
}

#[test]
fn what_cannot_be_sampled_says_why() {
    let scratch = paths::scratch("alloc-refused");
    let alloc = ["--mode", "alloc"];
    let fixed = compile::gcc(&scratch, "static", &["native/holds.c"], &["-static", "-pthread"]);
    // That of time has another way.
    for (mode, way) in [("alloc", "There is no other way"), ("lock", "There is no other way"), ("cpu", "uu record -p")]
    {
        refused(&scratch, &["--mode", mode], &[fixed.as_ref()], 125, &["is statically linked", way]);
    }
    let own = compile::gcc(&scratch, "own", &["native/own_allocator.c"], &["-pthread", "-rdynamic"]);
    let recording = uu::record(&scratch, &alloc, |_| {}, &[own.as_ref()]);
    assert!(recording.outcome.stderr.contains("defines malloc itself"), "{}", recording.outcome.text());
    let (_, holds) = program("alloc-refused-holds");
    let program = [holds.as_os_str()];
    for (options, text) in [
        (&["--unwind", "offline"][..], "--unwind and --mode alloc"),
        (&["--kernel"], "--kernel and --mode alloc"),
        (&["--explicit"], "--explicit and --mode alloc"),
        (&["-r", "500"], "-r (--rate) and --mode alloc"),
        (&["--every-bytes", "7"], "--every-bytes 7"),
    ] {
        refused(&scratch, &[&alloc, options].concat(), &program, 125, &[text]);
    }
    for option in ["--all", "--python-malloc"] {
        refused(&scratch, &[option], &program, 125, &[option, "--mode alloc"]);
    }
}

/// An allocator before libc's whose functions call each other by their names: each allocation is counted once.
#[test]
fn what_an_allocator_calls_itself_is_not_counted_again() {
    let (scratch, program) = program("alloc-nested");
    let front = compile::shared(&scratch, "heap_in_front.so", &["native/heap_in_front.c"]);
    let configure = |command: &mut Command| {
        command.env("LD_PRELOAD", &front);
    };
    let words = [program.as_os_str(), OsStr::new("1"), OsStr::new("2000")];
    for options in [&["--mode", "alloc", "--all"][..], &["--mode", "alloc", "--all", "--mmap"]] {
        let recording = uu::record(&scratch, options, configure, &words).expect_code(0);
        assert!(!recording.outcome.stderr.contains("were lost"), "{}", recording.outcome.stderr);
        let all = allocations(&recording, &COUNTED);
        assert_eq!(sum(all.iter()), said(&recording, "total"), "{options:?}");
        assert_eq!(sum(all.iter().filter(|one| one.freed.is_none())), said(&recording, "live"), "{options:?}");
    }
}

/// More sampled allocations live than there is room for: those that have none are in the total, which is said; the
/// program lives on, and when others are freed there is room again.
#[test]
fn a_full_table_is_said() {
    /// Of the smallest table, which a distance of 4 MiB and more has (docs/design/allocations.md).
    const ROOM: u64 = 4096 * 7;
    const NUMBER: u64 = ROOM + 10_000;
    const KEPT: u64 = 1000;
    const SIZE: u64 = 1 << 26;
    let scratch = paths::scratch("alloc-full");
    let program = compile::gcc(&scratch, "fills", &["native/fills.c"], &["-O0"]);
    let heap = compile::shared(&scratch, "endless_heap.so", &["native/endless_heap.c"]);
    let configure = |command: &mut Command| {
        command.env("LD_PRELOAD", &heap);
    };
    // All are sampled: each is sixteen distances.
    let options = ["--mode", "alloc", "--every-bytes", "4M"];
    let number = NUMBER.to_string();
    let recording = uu::record(&scratch, &options, configure, &[program.as_os_str(), number.as_ref()]).expect_code(0);
    let stderr = &recording.outcome.stderr;
    let words = "sampled allocations are in the total only: no room to remember them until they are freed";
    let said = stderr.lines().find_map(|line| line.trim().strip_suffix(words)?.trim().parse::<u64>().ok());
    let json: Value = serde_json::from_str(&recording.report("json")).expect("JSON");
    let all = json["allocations"].as_array().expect("allocations");
    let large = || all.iter().filter(|one| one["size"] == SIZE);
    let untracked = large().filter(|one| one["tracked"] == false).count() as u64;
    assert_eq!(said, Some(untracked), "{stderr}");
    // A bucket may be full before all others are.
    assert!((NUMBER - ROOM..NUMBER - ROOM / 2).contains(&untracked), "{untracked}: {stderr}");
    let live = large().filter(|one| one["tracked"] == true && one["freed"].is_null()).count() as u64;
    // One is missed with a probability of exp(-16).
    assert!((KEPT - 1..=KEPT).contains(&live), "{live}: {stderr}");
    assert!((NUMBER + KEPT - 1..=NUMBER + KEPT).contains(&(large().count() as u64)), "{stderr}");
}
