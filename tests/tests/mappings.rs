//! `uu record --mode alloc --mmap`: anonymous mappings are recorded as a program that maps in every way counts them
//! itself, beside what it allocates.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_tests::uu::{self, Recording};
use uunwind_tests::{compile, interpreters, paths};

/// The function in which `maps` maps what it counts.
const COUNTED: [&str; 2] = ["--focus", "^work$"];

fn program(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options = [&["-O1", "-g", "-pthread"], options].concat();
    let program = compile::gcc(&scratch, "maps", &["native/maps.c"], &options);
    (scratch, program)
}

fn recorded_of(scratch: &Path, program: &Path, options: &[&str], arguments: &[&str]) -> Recording {
    let options: Vec<&str> = ["--mode", "alloc"].iter().chain(options).copied().collect();
    let words: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(arguments.iter().map(|word| OsStr::new(*word))).collect();
    let recording = uu::record(scratch, &options, |_| {}, &words).expect_code(0);
    let stderr = &recording.outcome.stderr;
    for lost in ["were lost", "no room", "in none of these"] {
        assert!(!stderr.contains(lost), "{stderr}");
    }
    recording
}

fn recorded(name: &str, options: &[&str], arguments: &[&str]) -> Recording {
    let (scratch, program) = program(name, &[]);
    recorded_of(&scratch, &program, options, arguments)
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
    is_mapping: bool,
    size: u64,
    /// Bytes that were never unmapped.
    left: u64,
}

#[track_caller]
fn allocations(recording: &Recording, options: &[&str]) -> Vec<Allocation> {
    let json: Value = serde_json::from_str(&recording.report_with("json", options)).expect("JSON");
    let one = |one: &Value| {
        assert_eq!(one["tracked"], true);
        let (size, parts) = (one["size"].as_u64().expect("a size"), one["parts"].as_array().expect("parts"));
        let left = parts.last().map_or(size, |part| part["left"].as_u64().expect("bytes"));
        let left = if one["freed"].is_null() { left } else { 0 };
        Allocation { is_mapping: one["mapping"] == true, size, left }
    };
    json["allocations"].as_array().expect("allocations").iter().map(one).collect()
}

fn sizes<'a>(of: impl Iterator<Item = &'a Allocation>) -> Vec<u64> {
    let (count, bytes) = of.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.size));
    vec![count, bytes]
}

/// Bytes of the mappings of these functions, by the folded stacks.
fn weight(recording: &Recording, held: &str, options: &[&str]) -> u64 {
    let folded = recording.report_with("folded", &[options, &["--memory", held]].concat());
    folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// All that is mapped, and what is left of it; of malloc's blocks, each once.
#[track_caller]
fn expect_exact(recording: &Recording) {
    let all = allocations(recording, &COUNTED);
    let mappings = || all.iter().filter(|one| one.is_mapping);
    assert_eq!(sizes(mappings()), said(recording, "total"));
    assert_eq!(mappings().map(|one| one.left).sum::<u64>(), said(recording, "live")[0]);
    assert_eq!(sizes(all.iter().filter(|one| !one.is_mapping)), said(recording, "blocks"));
}

/// One thread: each way to map and to unmap, in parts, too, and the moment at which most was held.
#[test]
fn all_that_one_thread_maps_is_recorded() {
    let recording = recorded("maps-one", &["--mmap", "--all"], &["1", "20000"]);
    expect_exact(&recording);
    assert_eq!(weight(&recording, "end", &COUNTED), said(&recording, "live")[0]);
    // A block of malloc's may stand on top of the most that is mapped.
    let (peak, block) = (weight(&recording, "peak", &COUNTED), 1 << 20);
    let wanted = said(&recording, "peak")[0];
    assert!((wanted..=wanted + block).contains(&peak), "{peak}, {wanted}");
    for sample in recording.samples().iter().filter(|sample| sample.kind == "mapping") {
        assert!(sample.complete(), "{}", sample.text());
        assert_eq!(sample.native_names().last(), Some(&"_start"), "{}", sample.text());
    }
    let summary = recording.report("summary");
    assert!(summary.contains("by mmap") && summary.contains("every anonymous mapping"), "{summary}");
}

/// Eight threads unmap each other's mappings, while children come and go: nothing that is unmapped is lost.
#[test]
fn nothing_that_is_unmapped_is_lost_in_a_storm() {
    let recording = recorded("maps-storm", &["--mmap", "--all"], &["8", "6000", "fork"]);
    expect_exact(&recording);
    // Each of the ten children keeps half of what it maps, and what it unmaps of its parent's is its parent's.
    let children = allocations(&recording, &["--focus", "^child$"]);
    assert_eq!(sizes(children.iter()), [10 * 256, 10 * 256 * 3 * 4096]);
    assert_eq!(children.iter().map(|one| one.left).sum::<u64>(), 10 * 128 * 3 * 4096);
}

/// What an allocator maps that calls mmap by its name is in the blocks that it returns, and not counted again.
#[test]
fn what_the_allocator_maps_is_not_counted_twice() {
    let scratch = paths::scratch("maps-allocator-object");
    let allocator = compile::shared(&scratch, "map_malloc.so", &["native/map_malloc.c"]);
    let (scratch, program) = program("maps-allocator", &[allocator.to_str().expect("UTF-8")]);
    let recording = recorded_of(&scratch, &program, &["--mmap", "--all"], &["4", "3000"]);
    expect_exact(&recording);
    let all = allocations(&recording, &["--ignore", "^work$"]);
    assert_eq!(sizes(all.iter().filter(|one| one.is_mapping)), [0, 0]);
}

#[test]
fn without_the_option_nothing_that_is_mapped_is_recorded() {
    let recording = recorded("maps-without", &["--all"], &["1", "5000"]);
    let all = allocations(&recording, &COUNTED);
    assert_eq!(sizes(all.iter()), said(&recording, "blocks"));
}

/// The error of a sum over samples has a variance of at most the sum times the distance of samples.
fn bound(bytes: u64, interval: u64) -> f64 {
    const DEVIATIONS: f64 = 8.0;
    DEVIATIONS * (bytes as f64 * interval as f64).sqrt() + interval as f64
}

#[test]
fn samples_stand_for_all_mappings() {
    const INTERVAL: u64 = 256 << 10;
    let recording = recorded("maps-sampled", &["--mmap", "--every-bytes", "256K"], &["8", "6000", "fork"]);
    let all = allocations(&recording, &COUNTED);
    let (total, live) = (said(&recording, "total"), said(&recording, "live")[0]);
    let mappings = all.iter().filter(|one| one.is_mapping).count() as u64;
    assert!(mappings < total[0], "{mappings} of {}: all were sampled", total[0]);
    // Of malloc's blocks, which are freed at once, nothing is held.
    let blocks = said(&recording, "blocks")[1];
    for (held, wanted) in [("total", total[1] + blocks), ("end", live)] {
        let found = weight(&recording, held, &COUNTED);
        let (difference, bound) = (found.abs_diff(wanted) as f64, bound(wanted, INTERVAL));
        assert!(difference <= bound, "{held}: {found} of {wanted}, {difference} apart, at most {bound}");
    }
}

/// The arenas in which small objects of Python lie are mappings: the line that fills them has them.
#[test]
fn arenas_of_python_are_seen() {
    for python in interpreters::modern().iter().take(2) {
        let scratch = paths::scratch(&format!("maps-arenas-{}", python.label));
        let script = paths::source("python/small.py");
        let words = [python.path.as_os_str(), script.as_os_str()];
        let options = ["--mode", "alloc", "--mmap", "--all"];
        let recording = uu::record(&scratch, &options, |_| {}, &words).expect_code(0);
        let wanted: u64 = recording.outcome.stdout.trim().parse().expect("a number");
        let all = allocations(&recording, &["--focus", "^keeps$"]);
        let [count, bytes] = sizes(all.iter().filter(|one| one.is_mapping))[..] else { unreachable!() };
        // Objects begin at multiples of 16 bytes, arenas are of 1 MiB or less, and the first one was there.
        let said = format!("{}: {bytes} bytes in {count} arenas of {wanted}", python.label);
        assert!((wanted - (1 << 20)..wanted + wanted / 4).contains(&bytes) && bytes / count >= 256 << 10, "{said}");
        let summary = recording.report("summary");
        assert!(summary.contains("as whole arenas"), "{summary}");
    }
}
