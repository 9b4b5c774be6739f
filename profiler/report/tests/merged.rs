//! Several recordings shown as one.

mod support;

use std::path::Path;
use uunwind_recording::{Object, Recording};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;
use uunwind_ring::{FLAG_ALLOC, FLAG_WALL};

fn recording() -> Recording {
    Recording::parse(&support::recording(), Path::new("x.uu")).expect("a recording")
}

/// Threads and times of what was used before a sample.
fn starts(recording: &Recording) -> Vec<(u32, u64)> {
    recording.starts.iter().map(|start| (start.thread, start.time)).collect()
}

/// Merged with itself, a recording has every stack twice, under its own names.
#[test]
fn recordings_are_shown_as_one() {
    let folded = |recording: &Recording| {
        let text = render(Format::Folded, recording, NativeFrames::Show).expect("text");
        let text = String::from_utf8(text).expect("UTF-8");
        let mut sums = std::collections::BTreeMap::new();
        for line in text.lines() {
            let (stack, weight) = line.rsplit_once(' ').expect("a weight");
            *sums.entry(stack.to_owned()).or_insert(0) += weight.parse::<u64>().expect("a number");
        }
        sums
    };
    let one = recording();
    let mut both = one.clone();
    let mut later = one.clone();
    // As if it had been made by another machine, whose clock is elsewhere.
    later.settings.start_monotonic += 1000;
    later.samples.iter_mut().for_each(|sample| sample.time += 1000);
    later.objects.iter_mut().filter(|object| object.time > 0).for_each(|object| object.time += 1000);
    later.starts.iter_mut().for_each(|start| start.time += 1000);
    later.jit.places.iter_mut().for_each(|place| place.time += 1000);
    both.merge(later).expect("of the same rate");
    let doubled = folded(&one).into_iter().map(|(stack, weight)| (stack, weight * 2)).collect();
    assert_eq!(folded(&both), doubled);
    assert_eq!(starts(&both), [(2, 12), (5, 12)]);
    assert_eq!(both.end.as_ref().map(|end| end.samples), one.end.as_ref().map(|end| end.samples * 2));
    let mut other = one.clone();
    other.settings.rate += 1;
    assert!(both.merge(other).expect_err("another rate").contains("Hz"));
    let mut wall = one.clone();
    wall.settings.flags |= FLAG_WALL;
    let samples = both.samples.len();
    let why = both.merge(wall.clone()).expect_err("another time");
    assert!(why.contains("it is a recording of wall-clock time, and another one of CPU time"), "{why}");
    assert_eq!(both.samples.len(), samples, "nothing was added");
    let mut walls = wall.clone();
    walls.merge(wall).expect("of the same time");
}

/// Of allocations, a stack that is met again is not resolved again; it has the lines that it has anyway, also where the
/// code at an address has changed in between.
#[test]
fn stacks_of_allocations_are_those_of_other_samples() {
    let mut one = recording();
    // Another object comes to the place of the program's.
    let (path, build_id) = (b"/lib/other.so".to_vec(), vec![4]);
    one.objects.push(Object { time: 25, path, build_id, facts_key: 8, ..one.objects[0].clone() });
    for (sample, time) in one.samples.iter_mut().zip((0..).map(|n| n * 7 % 45)) {
        sample.time = time;
        sample.flags &= !(uunwind_ring::record::SAMPLE_BLOCKED | uunwind_ring::record::SAMPLE_LATE);
    }
    let stacks = |recording: &Recording| {
        let mut resolver = Resolver::new(recording);
        let profile = Merger::new(&mut resolver, NativeFrames::Show).profile();
        let name = |line: &u32| profile.lines[*line as usize].function.clone();
        let stacks = profile.stacks.iter().map(|s| (s.thread, s.samples, s.lines.iter().map(name).collect::<Vec<_>>()));
        stacks.collect::<std::collections::BTreeSet<_>>()
    };
    let plain = stacks(&one);
    assert!(plain.iter().any(|(.., lines)| lines.iter().any(|line| line.starts_with("other.so"))), "{plain:?}");
    one.settings.flags = FLAG_ALLOC;
    assert_eq!(stacks(&one), plain);
    // All that are numbered from 1 on and freed; two recordings as one have twice as much.
    let memory = one.memory();
    let mut both = one.clone();
    both.merge(one.clone()).expect("of the same rate");
    assert_eq!(both.memory().total.count.round(), (memory.total.count * 2.0).round());
    assert_eq!(both.allocations.iter().filter(|one| one.freed.is_some()).count(), 10);
}

/// Each format either shows allocations, or says why not.
#[test]
fn formats_show_allocations_or_say_why_not() {
    let mut one = recording();
    one.settings.flags = FLAG_ALLOC;
    for format in Format::rendered() {
        match render(format, &one, NativeFrames::Show) {
            Ok(bytes) => assert!(!bytes.is_empty(), "{format:?}"),
            Err(why) => {
                assert!(why.contains("shows time, and this is a recording of allocations"), "{format:?}: {why}")
            }
        }
    }
}
