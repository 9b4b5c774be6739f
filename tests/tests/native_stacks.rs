//! Native stacks: against libunwind in the same process, against a shadow stack at every instruction, and against a
//! known call graph wherever a timer interrupts it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::samples::{self, Frame, Sample};
use uunwind_tests::{call_graph, compile, lua_steps, paths, uu};

/// An explicit signal is lost if a tick is pending at that moment, so the rate is as low as possible.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// Records `program`, with an oracle file. Returns the oracle's text and the samples.
#[track_caller]
fn record(scratch: &Path, options: &[&str], program: &[&OsStr]) -> (String, Vec<Sample>) {
    let oracle = scratch.join("oracle");
    let environment = |command: &mut std::process::Command| {
        command.env("UU_TEST_ORACLE", &oracle).env("UU_TEST_RING", lua_steps::ring());
    };
    let samples = uu::record(scratch, options, environment, program).expect_code(0).samples();
    (std::fs::read_to_string(&oracle).expect("the program wrote its oracle"), samples)
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("an address")
}

/// Whether the names fit a chain in which `*` stands for any frames. What lies outside `main` is not asked.
fn fits(names: &[&str], chain: &[&str]) -> bool {
    match chain.split_first() {
        None => true,
        Some((&"*", rest)) => (0..=names.len()).any(|skip| fits(&names[skip..], rest)),
        Some((want, rest)) => names.split_first().is_some_and(|(name, names)| name == want && fits(names, rest)),
    }
}

/// Compares explicit samples with the lines of point.c, in the order of each thread.
#[track_caller]
fn compare_points(oracle: &str, samples: &[Sample]) -> usize {
    let mut by_thread: BTreeMap<&str, std::collections::VecDeque<&Sample>> = BTreeMap::new();
    let tids: Vec<(String, &Sample)> =
        samples.iter().filter(|s| s.kind == "explicit").map(|s| (s.tid.to_string(), s)).collect();
    for (tid, sample) in &tids {
        by_thread.entry(tid).or_default().push_back(sample);
    }
    let mut count = 0;
    for line in oracle.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, tid, label, chain, expected @ ..] = &words[..] else { panic!("not an oracle line: {line}") };
        let sample =
            by_thread.get_mut(tid).and_then(|queue| queue.pop_front()).unwrap_or_else(|| panic!("{label}: no sample"));
        let expected: Vec<u64> = expected.iter().map(|w| hex(w)).collect();
        let (names, addresses) = (sample.native_names(), sample.addresses());
        let context = || format!("{label}: {chain}\nlibunwind: {expected:x?}\n{}", sample.text());
        assert!(sample.complete(), "not whole: {}", context());
        assert!(
            !sample.frames.iter().any(|f| matches!(f, Frame::Native { by_frame_pointer: true, .. })),
            "{}",
            context()
        );
        assert!(matches!(sample.frames.first(), Some(Frame::Native { exact: true, .. })), "{}", context());
        assert!(fits(&names, &chain.split(',').collect::<Vec<_>>()), "names differ: {}", context());
        // The innermost frames both lie in point(), at different instructions.
        assert_eq!(addresses[1..], expected[1..], "{}", context());
        count += 1;
    }
    assert_eq!(by_thread.values().map(|q| q.len()).sum::<usize>(), 0, "samples that were not requested");
    count
}

#[test]
fn chains_fit_or_do_not() {
    assert!(
        fits(&["a", "b", "c"], &["a", "*", "c"]) && fits(&["a", "c"], &["a", "*", "c"]) && fits(&["a", "b"], &["a"])
    );
    assert!(!fits(&["a", "b"], &["a", "c"]) && !fits(&["a"], &["a", "*", "c"]));
}

#[test]
fn c_places_agree_with_libunwind() {
    let scratch = paths::scratch("places");
    let program =
        compile::gcc(&scratch, "places", &["native/places.c", "native/point.c"], &["-pthread", "-ldl", "-lunwind"]);
    let plugin = compile::shared(&scratch, "plugin.so", &["native/plugin.c"]);
    let (oracle, samples) = record(&scratch, EXPLICIT, &[program.as_ref(), plugin.as_ref()]);
    assert_eq!(compare_points(&oracle, &samples), 16);
}

#[test]
fn rust_places_agree_with_libunwind() {
    let scratch = paths::scratch("rust-places");
    let point = compile::gcc(&scratch, "point.o", &["native/point.c"], &["-c", "-fPIC"]);
    let link = format!("link-arg={}", point.display());
    let program = compile::rustc(&scratch, "places", "native/places.rs", &["-C", &link, "-C", "link-arg=-lunwind"]);
    let (oracle, samples) = record(&scratch, EXPLICIT, &[program.as_ref()]);
    assert_eq!(compare_points(&oracle, &samples), 4);
}

/// C and Rust routines, libc and the dynamic linker, a sample at each instruction.
#[test]
fn every_instruction_agrees_with_the_shadow_stack() {
    steps_agree("stepper", &["-Wl,--ld-generated-unwind-info"]);
}

/// The same with frame pointers, as distributions compile: a frame pointer that was restored too early leads past a
/// caller.
#[test]
fn every_instruction_agrees_with_frame_pointers() {
    steps_agree("stepper-frame-pointers", &["-fno-omit-frame-pointer"]);
}

/// The same, where no unwind data describes how the program calls functions of libraries.
#[test]
fn every_instruction_agrees_where_linkage_tables_have_no_unwind_data() {
    steps_agree("stepper-bare-linkage", &["-Wl,--no-ld-generated-unwind-info"]);
}

/// The same, where `.debug_frame` alone describes the program: rows that depend on the code are run for each pc.
#[test]
fn every_instruction_agrees_with_debug_frame_alone() {
    steps_agree("stepper-debug-frame", &["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
}

/// The same, where nothing describes the program, neither unwind information nor frame pointers: by its machine code.
#[test]
fn every_instruction_agrees_where_nothing_describes_the_program() {
    steps_agree("stepper-undescribed", &["-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
}

/// Code that is described by a row which no rule can hold ends the stack: its frame pointer is not followed.
#[test]
fn described_code_without_a_rule_ends_the_stack() {
    let scratch = paths::scratch("described-without-rule");
    let program =
        compile::gcc(&scratch, "described", &["native/described_without_rule.c"], &["-fno-omit-frame-pointer"]);
    let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0).samples();
    let spinning: Vec<&Sample> =
        samples.iter().filter(|sample| sample.native_names().first() == Some(&"spins")).collect();
    assert!(spinning.len() > 20, "only {} of {} samples", spinning.len(), samples.len());
    for sample in spinning {
        let is_unsupported = sample.stop == StopReason::UnsupportedRule.number();
        let is_at_return = sample.complete() && sample.native_names().get(1) == Some(&"calls");
        assert!(is_unsupported && sample.native_names() == ["spins"] || is_at_return, "{}", sample.text());
    }
}

#[track_caller]
fn steps_agree(name: &str, more: &[&str]) {
    let scratch = paths::scratch(name);
    compile::shared(&scratch, "libfar.so", &["native/far.c"]);
    let routine = compile::rustc(&scratch, "libroutine.a", "native/routine.rs", &["-C", "panic=abort"]);
    let (folder, search) = (format!("-L{}", scratch.display()), format!("-Wl,-rpath,{}", scratch.display()));
    let options = [
        "-DWITH_RUST",
        "-Wl,-z,lazy",
        routine.to_str().expect("UTF-8"),
        &folder,
        "-lfar",
        &search,
        "-lgcc_s",
        "-lm",
        "-ldl",
        "-pthread",
    ];
    let options = [more, &options].concat();
    let program = compile::gcc(&scratch, "stepper", &["native/stepper.c", "native/routines.c"], &options);
    let (oracle, samples) = record(&scratch, EXPLICIT, &[program.as_ref(), OsStr::new("1")]);
    let lines: Vec<&str> = oracle.lines().collect();
    assert!(lines.len() > 5000, "only {} instructions were stepped", lines.len());
    let mut wrong: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let wanted: Vec<Vec<u64>> = lines.iter().map(|line| line.split(' ').skip(3).map(hex).collect()).collect();
    let mut nth = 0;
    for sample in &samples {
        let addresses = sample.addresses();
        let Some(want) = wanted.get(nth) else { break };
        // The timer's signal replaces the explicit one if it is pending at that moment; other samples of the timer are
        // ignored.
        if sample.kind != "explicit" && addresses.first() != want.first() {
            continue;
        }
        let names = sample.native_names();
        let in_main = names.get(want.len()) == Some(&"main") || want.len() == 1 && names.first() == Some(&"main");
        // glibc describes the last instructions of longjmp as if the jump were done, with the stack pointer in a
        // register: the callers are those that the thread has after the jump. A stack that ends there, with a reason,
        // is no wrong one either.
        let lands = || wanted[nth..].iter().take(16).any(|after| addresses[1..].starts_with(after));
        let in_jump =
            names.first() == Some(&"__longjmp") && (if sample.complete() { lands() } else { names.len() == 1 });
        if !(addresses.starts_with(want) && in_main && sample.complete() || in_jump) {
            let place = match &sample.frames[..] {
                [Frame::Native { symbol, offset, object, .. }, ..] => format!("{symbol}+{offset:#x} ({object})"),
                _ => "nowhere".to_owned(),
            };
            let entry = wrong.entry(place).or_insert_with(|| (0, format!("expected {want:x?}\n{}", sample.text())));
            entry.0 += 1;
        }
        nth += 1;
    }
    assert_eq!(nth, wanted.len(), "samples were lost");
    let total: usize = wrong.values().map(|w| w.0).sum();
    let places: Vec<&String> = wrong.keys().collect();
    let first = wrong.values().next().map_or("", |w| &w.1);
    assert_eq!(total, 0, "of {} stacks, {total} differ, at {places:#?}\nthe first: {first}", lines.len());
}

fn graph_program(scratch: &Path, seconds: f64) -> PathBuf {
    let source = scratch.join("graph.c");
    std::fs::write(&source, call_graph::source(seconds)).expect("scratch");
    compile::gcc_files(scratch, "graph", &[source], &[])
}

#[test]
fn timer_samples_fit_the_call_graph() {
    let scratch = paths::scratch("call-graph");
    let program = graph_program(&scratch, 4.0);
    let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0).samples();
    let weight: u64 = samples.iter().map(|s| s.weight).sum();
    // 4 s of CPU at 999 Hz; overruns are part of the weight.
    assert!((3600..=4400).contains(&weight), "{weight} ticks in {} samples", samples.len());
    let mut chains = 0;
    for sample in &samples {
        let length = call_graph::check(sample).unwrap_or_else(|e| panic!("{e}\n{}", sample.text()));
        assert!(sample.complete(), "{}", sample.text());
        chains += usize::from(length > 1);
    }
    assert!(chains * 10 > samples.len() * 9, "only {chains} of {} samples lie in the chains", samples.len());
}

#[track_caller]
fn same_on_small_stacks(kind: &str) {
    let scratch = paths::scratch("small-stacks");
    let program = compile::gcc(&scratch, "small_stacks", &["native/small_stacks.c"], &["-pthread"]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref(), kind.as_ref()]).expect_code(0);
    assert!(recording.outcome.stdout.contains("done 0"), "{}", recording.outcome.text());
    let samples = recording.samples();
    let (whole, reasons) = samples::completeness(&samples);
    println!("{kind}: {} samples, {:.1} % whole, others {reasons:?}", samples.len(), whole * 100.0);
    assert!(samples.len() > 50 && whole == 1.0, "{} samples, {reasons:?}", samples.len());
}

#[test]
fn threads_with_16_kb_stacks_live_and_are_sampled() {
    same_on_small_stacks("threads");
}

#[test]
fn handlers_on_one_page_alternate_stacks_live() {
    same_on_small_stacks("handlers");
}

/// The vDSO, the kernel's object in every process, has unwind information, but no file.
#[test]
fn the_vdso_is_walked_through() {
    let scratch = paths::scratch("vdso");
    let source = scratch.join("vdso.c");
    let text = "#include <time.h>\n#include <stdio.h>\nint main(void) { struct timespec t; long n = 0; do { for (int i = 0; \
        i < 1000; i++) { clock_gettime(CLOCK_MONOTONIC, &t); n += t.tv_nsec & 1; } clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); \
        } while (t.tv_sec < 1); printf(\"%d\\n\", n > 0); return 0; }\n";
    std::fs::write(&source, text).expect("scratch");
    let program = compile::gcc_files(&scratch, "vdso", &[source], &[]);
    let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0).samples();
    let inside =
        |s: &&Sample| matches!(s.frames.first(), Some(Frame::Native { object, .. }) if object.contains("vdso"));
    let inside: Vec<&Sample> = samples.iter().filter(inside).collect();
    assert!(inside.len() > 30, "{} of {} samples lie in the vDSO", inside.len(), samples.len());
    for sample in inside {
        assert!(sample.complete() && sample.native_names().contains(&"main"), "{}", sample.text());
    }
}

#[test]
fn timers_go_when_their_threads_go() {
    let scratch = paths::scratch("timers");
    let program = compile::gcc(&scratch, "timers", &["native/timers.c"], &["-pthread"]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0);
    let left = recording.outcome.stdout.trim().strip_prefix("timers ").and_then(|n| n.parse::<i32>().ok());
    // The main thread's own, and at most that of a thread that is just ending.
    assert!(left.is_some_and(|n| (1..=2).contains(&n)), "{}", recording.outcome.text());
}
