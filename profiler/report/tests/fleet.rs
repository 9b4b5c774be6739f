//! Many recordings added up.

use std::collections::BTreeMap;
use uunwind_recording::{Process, Recording, Settings, Thread};
use uunwind_report::fleet::{Fleet, LEFT_OUT};
use uunwind_report::formats::folded::fold;
use uunwind_report::formats::pprof;
use uunwind_report::stacks::{Kind, Line, Profile, Stack};

/// A recording at this rate of one thread with this name, of a program that lay at other addresses in each run.
fn run(rate: u32, name: &str, address: u64) -> Recording {
    let process = Process { exe: b"/usr/bin/server".to_vec(), pid: address as u32, ..Process::default() };
    let thread = Thread { process: 0, tid: address as u32, name: name.to_owned() };
    let settings = Settings { rate, start_unix: address, ..Settings::default() };
    Recording { settings, processes: vec![process], threads: vec![thread], ..Recording::default() }
}

/// Its profile: stacks of these functions, innermost first, with their weights.
fn profile(address: u64, stacks: &[(&[&str], u64)]) -> Profile {
    let mut out = Profile::default();
    for (functions, weight) in stacks {
        let mut line = |function: &&str| {
            let line = Line { kind: Kind::Native, object: Some(0), address, ..Line::marker(function.to_string()) };
            out.lines.push(line);
            out.lines.len() as u32 - 1
        };
        let lines = functions.iter().map(&mut line).collect();
        out.stacks.push(Stack { thread: 0, lines, labels: 0, samples: *weight, weight: *weight });
    }
    out
}

fn sums(profile: &Profile) -> BTreeMap<String, u64> {
    let folded = fold(profile, |line| line.function.clone());
    let line =
        |line: &str| line.rsplit_once(' ').map(|(stack, weight)| (stack.to_owned(), weight.parse().expect("a number")));
    folded.lines().filter_map(line).collect()
}

#[test]
fn times_are_added_by_names_whatever_the_rate_and_the_addresses() {
    let mut fleet = Fleet::new(1 << 20);
    for run_number in 0..100u64 {
        let (rate, name) = if run_number % 2 == 0 { (100, "main") } else { (1000, "worker") };
        let address = 0x1000 * (run_number + 1);
        let shown = profile(address, &[(&["work", "main"], 3), (&["rest", "main"], 1)]);
        fleet.add(&run(rate, name, address), &shown).expect("it is added");
    }
    let (recording, all) = fleet.finish();
    // 50 times 3 periods of 10 ms, and of 1 ms.
    let ms = 1_000_000;
    let expected = [("main;rest", 550 * ms), ("main;work", 1650 * ms)].map(|(stack, time)| (stack.to_owned(), time));
    assert_eq!(sums(&all), BTreeMap::from(expected));
    assert_eq!((all.lines.len(), all.stacks.len(), recording.threads.len(), recording.processes.len()), (3, 4, 2, 1));
    assert_eq!(recording.settings.start_unix, 0x1000, "the earliest");
    assert!(pprof::render(&recording, &all).windows(6).any(|text| text == b"worker"));
}

/// However many stacks there are, memory is bounded, and no time is lost.
#[test]
fn stacks_with_little_time_become_one() {
    let mut fleet = Fleet::new(200 << 10);
    let mut time = 0;
    for run_number in 0..200u64 {
        let names: Vec<String> = (0..50).map(|nth| format!("rare_{run_number}_{nth}")).collect();
        let mut stacks: Vec<(Vec<&str>, u64)> = names.iter().map(|name| (vec![name.as_str(), "main"], 1)).collect();
        stacks.push((vec!["work", "main"], 500));
        let stacks: Vec<(&[&str], u64)> = stacks.iter().map(|(stack, weight)| (&stack[..], *weight)).collect();
        fleet.add(&run(1000, "main", run_number), &profile(run_number, &stacks)).expect("it is added");
        time += 550 * 1_000_000;
    }
    let left_out = fleet.left_out();
    let (_, all) = fleet.finish();
    let sums = sums(&all);
    assert!((5000..10_000).contains(&left_out) && all.stacks.len() < 1000, "{left_out} {}", all.stacks.len());
    assert_eq!(sums.values().sum::<u64>(), time);
    assert_eq!(sums.get("main;work"), Some(&(200 * 500 * 1_000_000)), "what has much time is whole");
    // Each stack that is not there has its time in the one that stands for it.
    let rare = sums.keys().filter(|stack| stack.contains("rare_")).count() as u64;
    assert_eq!(sums.get(LEFT_OUT), Some(&((10_000 - rare) * 1_000_000)));
    assert_eq!(rare + left_out, 10_000);
}

#[test]
fn values_of_different_kinds_are_not_added() {
    let shown = profile(1, &[(&["work"], 1)]);
    let of = |flags: u64| {
        let mut recording = run(100, "main", 1);
        recording.settings.flags = flags as u32;
        recording
    };
    let kinds = [0, Settings::WALL, Settings::ALLOC, Settings::LOCK];
    for first in kinds {
        let mut fleet = Fleet::new(1 << 20);
        assert_eq!(fleet.add(&of(first.into()), &shown), Ok(()));
        for second in kinds {
            let it = of(second.into());
            let says = format!("it is a recording of {}", it.value().kind);
            match fleet.add(&it, &shown) {
                Ok(()) => assert_eq!(first, second),
                Err(why) => assert!(first != second && why.starts_with(&says), "{first} {second}: {why}"),
            }
        }
    }
}
