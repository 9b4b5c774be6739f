//! Forked children and programs that a program starts are followed, unless `--no-children` says otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, uu};

fn record(options: &[&str]) -> Vec<Sample> {
    let scratch = paths::scratch("family");
    let program = compile::gcc(&scratch, "family", &["native/family.c"], &[]);
    let recording = uu::record(&scratch, options, |_| {}, &[program.as_ref()]).expect_code(0);
    assert!(recording.outcome.stdout.contains("failed children 0"), "{}", recording.outcome.text());
    recording.samples()
}

/// Ticks by the worker function that is on the stack.
fn by_worker(samples: &[Sample]) -> BTreeMap<String, (u64, BTreeSet<u32>)> {
    let mut found: BTreeMap<String, (u64, BTreeSet<u32>)> = BTreeMap::new();
    for sample in samples {
        for name in sample.native_names().into_iter().filter(|n| n.ends_with("_work")) {
            let entry = found.entry(name.to_owned()).or_default();
            entry.0 += sample.weight;
            entry.1.insert(sample.pid);
        }
    }
    found
}

#[test]
fn forked_and_started_children_are_followed() {
    let found = by_worker(&record(&["-r", "500"]));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["exec_work", "forked_work", "parent_work"]);
    let mut pids: BTreeSet<u32> = BTreeSet::new();
    for (name, (ticks, mine)) in &found {
        // 0.4 s at 500 Hz.
        assert!((140..=260).contains(ticks), "{name}: {ticks} ticks, 200 expected");
        assert_eq!(mine.len(), 1, "{name} ran in one process");
        pids.extend(mine);
    }
    assert_eq!(pids.len(), 3, "three processes");
}

#[test]
fn no_children_leaves_them_out() {
    let found = by_worker(&record(&["-r", "500", "--no-children"]));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["parent_work"]);
}

/// make, gcc, cc1, as: some hundred processes. The result is the same as without `uu`.
#[test]
fn a_make_of_small_files_is_followed() {
    const FILES: usize = 200;
    let scratch = paths::scratch("make");
    let mut names = Vec::new();
    for i in 0..FILES {
        let lines: String =
            (0..8).map(|k| format!("int f{i}_{k}(int n) {{ return printf(\"%d\", n) * {k}; }}\n")).collect();
        let text = format!("#include <stdio.h>\n{lines}");
        std::fs::write(scratch.join(format!("f{i}.c")), text).expect("scratch");
        names.push(format!("f{i}.o"));
    }
    let rules = format!("all: {}\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n", names.join(" "));
    std::fs::write(scratch.join("Makefile"), rules).expect("scratch");
    let program = ["make", "-j2", "-C"].map(OsStr::new);
    let program = [&program[..], &[scratch.as_os_str()]].concat();
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
    assert!(names.iter().all(|n| scratch.join(n).is_file()), "not all was made: {}", recording.outcome.text());
    let samples = recording.samples();
    let mut by_name: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for sample in &samples {
        by_name.entry(&sample.comm).or_default().insert(sample.pid);
    }
    let compilers = by_name.get("cc1").map_or(0, BTreeSet::len);
    let (whole, reasons) = uunwind_tests::samples::completeness(&samples);
    println!(
        "make: {} samples, {compilers} compilers, {:.2} % whole, others {reasons:?}",
        samples.len(),
        whole * 100.0
    );
    // CPU timers expire at the kernel's ticks only: a cc1 that is shorter than a tick may end before its first sample.
    assert!(compilers >= FILES / 2, "cc1 was sampled in {compilers} processes: {by_name:?}");
    // All of them are seen: make; gcc, cc1 and as for each file.
    let summary = recording.report("summary");
    let seen = summary.lines().find_map(|line| line.trim().strip_prefix("processes "));
    let seen = seen.and_then(|rest| rest.trim().split(',').next()?.parse::<usize>().ok());
    assert!(seen.is_some_and(|seen| seen > 3 * FILES), "{seen:?} processes were seen: {summary}");
    assert!(whole >= 0.99, "{reasons:?}");
}
