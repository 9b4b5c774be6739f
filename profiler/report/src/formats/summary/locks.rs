//! How the threads stood to the lock of their runtime, and why this is not known of some samples.

use super::percent;
use super::samples::of_shown;
use crate::formats::is_wall;
use crate::stacks::Profile;
use std::collections::HashMap;
use std::fmt::Write;
use uunwind_recording::{Lock, Recording, Sample, Start};
use uunwind_ring::record::{SampleKind, SAMPLE_APART, SAMPLE_FACTS_PENDING, SAMPLE_NO_PLUGINS};

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// Why a sample does not say how its thread stood to the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Unsampled,
    Kernel,
    NoPlugins,
    Pending,
    OtherProcess,
    Early,
    Unreadable,
}

/// All reasons, with their texts.
const REASONS: [(Why, &str); 6] = [
    (Why::Unsampled, "threads and processes that ended without a sample"),
    (Why::Early, "samples before their process ran an interpreter"),
    (Why::Pending, "samples before the interpreter's file was analysed"),
    (Why::Kernel, "samples that the kernel took"),
    (Why::NoPlugins, "samples without plugins"),
    (
        Why::Unreadable,
        "samples in which the interpreter's memory could not be read, or the stack ended before its code",
    ),
];

pub fn render(recording: &Recording, profile: &Profile, out: &mut String) {
    let left_out = recording.left_out;
    if left_out.samples > 0 {
        let all = left_out.samples.saturating_add(recording.samples.len() as u64);
        let _ = writeln!(
            out,
            "  shown      the samples of threads that held the GIL: {} of {all} (--gil)",
            recording.samples.len()
        );
        if let Some(why) = recording.without_holders() {
            // In perf, -g asks for whole stacks.
            let _ = writeln!(out, "             {why}; leave -g (--gil) out to see everything");
        }
        return;
    }
    // A sample that a thread requested stands for no time. Where all are such ones, they are counted themselves.
    let is_timed = |sample: &&Sample| sample.kind != SampleKind::Explicit.number();
    let only_requested = !of_shown(recording, profile).any(|sample| is_timed(&sample));
    let firsts = firsts(recording);
    let mut weights = [0u64; Lock::ALL.len()];
    let mut reasons = [0u64; REASONS.len()];
    let add = |sum: Option<&mut u64>, weight: u64| {
        if let Some(sum) = sum {
            *sum = sum.saturating_add(weight);
        }
    };
    let of = |why: Why| REASONS.iter().position(|(reason, _)| *reason == why).unwrap_or(0);
    // A process without an interpreter has no such lock: nothing about it is unknown.
    let mut others = false;
    for sample in of_shown(recording, profile).filter(|sample| only_requested || is_timed(sample)) {
        let weight = u64::from(sample.weight.max(1));
        let why = why(recording, sample, &firsts);
        if why == Some(Why::OtherProcess) {
            others = true;
            continue;
        }
        add(weights.get_mut(sample.lock() as usize), weight);
        if let Some(why) = why {
            add(reasons.get_mut(of(why)), weight);
        }
    }
    if weights[1..].iter().all(|weight| *weight == 0) {
        return;
    }
    if !only_requested {
        let process = |thread: u32| recording.threads.get(thread as usize).map(|thread| thread.process);
        let has_one = |thread: u32| process(thread).is_some_and(|process| firsts.contains_key(&process));
        let (starts, of_others): (Vec<&Start>, Vec<&Start>) =
            recording.starts.iter().partition(|start| has_one(start.thread));
        others |= !of_others.is_empty();
        let starts = starts.iter().fold(0u64, |sum, start| sum.saturating_add(u64::from(start.weight)));
        add(weights.get_mut(Lock::Unknown as usize), starts);
        add(reasons.get_mut(of(Why::Unsampled)), starts);
    }
    let total = weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
    let [unknown, none, held, waiting] = weights.map(|weight| percent(weight, total));
    let (time, little) = match is_wall(recording) {
        _ if only_requested => ("samples", ""),
        true => (recording.value().text, ""),
        false => (recording.value().text, ". Waiting takes little CPU time"),
    };
    let of = if others { " of processes with an interpreter" } else { "" };
    let _ = writeln!(
        out,
        "  GIL        held in {held:.1} % of the {time}{of}, waited for in {waiting:.1} %, neither in {none:.1} %{little}"
    );
    let named: Vec<_> = reasons.iter().zip(REASONS).filter(|(weight, _)| **weight > 0).collect();
    let text: Vec<String> = match named[..] {
        [] => return,
        [(_, (_, text))] => vec![text.to_owned()],
        _ => named.iter().map(|(weight, (_, text))| format!("{text} ({:.1} %)", percent(**weight, total))).collect(),
    };
    let _ = writeln!(out, "             not known in {unknown:.1} %: {}", text.join(", "));
}

/// By process, the time of the first sample that says how its thread stood to the lock.
fn firsts(recording: &Recording) -> HashMap<u32, u64> {
    let mut firsts = HashMap::new();
    for sample in recording.samples.iter().filter(|sample| sample.lock() != Lock::Unknown) {
        if let Some(thread) = recording.threads.get(sample.thread as usize) {
            let first = firsts.entry(thread.process).or_insert(sample.time);
            *first = sample.time.min(*first);
        }
    }
    firsts
}

/// Why a sample does not say it; `None`: it does.
fn why(recording: &Recording, sample: &Sample, firsts: &HashMap<u32, u64>) -> Option<Why> {
    if sample.lock() != Lock::Unknown {
        return None;
    }
    let process = recording.threads.get(sample.thread as usize).map(|thread| thread.process);
    let first = process.and_then(|process| firsts.get(&process));
    let flagged =
        [(SAMPLE_APART, Why::Kernel), (SAMPLE_NO_PLUGINS, Why::NoPlugins), (SAMPLE_FACTS_PENDING, Why::Pending)]
            .into_iter()
            .find(|(flag, _)| sample.flags & flag != 0)
            .map(|(_, why)| why);
    Some(match (first, flagged) {
        (None, _) => Why::OtherProcess,
        (_, Some(why)) => why,
        (Some(first), None) if sample.time < *first => Why::Early,
        (Some(_), None) => Why::Unreadable,
    })
}
