//! Several recordings shown as one.

mod support;

use std::path::Path;
use uunwind_recording::Recording;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_ring::FLAG_WALL;

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
