//! The part of the summary's head about the samples: whole stacks, and what is missing or in doubt.

use super::{percent, Style};
use crate::hide::is_own;
use crate::resolve::{is_complete, stop_text};
use crate::stacks::{Profile, IN_HANDLER};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use uunwind_core::frame::{frames, Frame, FLAG_BY_CODE};
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::objects::{lookup_address, ObjectMap};
use uunwind_recording::{Node, Recording, Sample};
use uunwind_ring::record::{
    SAMPLE_APART, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_LATE, SAMPLE_NO_PLUGINS,
};

/// The samples of the threads that are shown.
pub fn of_shown<'r>(recording: &'r Recording, profile: &'r Profile) -> impl Iterator<Item = &'r Sample> {
    recording.samples.iter().filter(|sample| !profile.idle.threads.contains(&sample.thread))
}

/// How many stacks are whole, and what is missing or in doubt in the others.
pub fn render(recording: &Recording, profile: &Profile, style: Style, out: &mut String) {
    let (mut total, mut complete, mut by_fp, mut doubtful, mut unknown) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let (mut deep, deep_nodes) = (0u64, without_middle(recording));
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    let mut own = Vec::new();
    for sample in of_shown(recording, profile) {
        total += 1;
        match sample.reason() {
            _ if is_complete(sample) && deep_nodes.get(sample.stack as usize) == Some(&true) => deep += 1,
            _ if is_complete(sample) => complete += 1,
            Some(r) if r.is_complete() && sample.flags & SAMPLE_FACTS_PENDING != 0 => unknown += 1,
            Some(r) if r.is_complete() => doubtful += 1,
            Some(StopReason::FramePointerEnd) => by_fp += 1,
            Some(StopReason::Doubtful) => doubtful += 1,
            _ if sample.flags & SAMPLE_APART != 0 && is_in_uu(recording, sample) => own.push(sample),
            _ => *failed.entry(stop_text(sample)).or_default() += 1,
        }
    }
    let fails: u64 = failed.values().sum();
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not known yet") };
    let in_handler = if own.is_empty() { String::new() } else { format!(", {} in uu's handler", own.len()) };
    let by_fp = if by_fp == 0 { String::new() } else { format!(", {by_fp} ended by frame pointers") };
    let deep = if deep == 0 { String::new() } else { format!(", {deep} too deep for all frames") };
    let doubtful =
        if doubtful == 0 { String::new() } else { format!(", {doubtful} doubtful (callers may be missing)") };
    let lost = recording.lost.iter().fold(0u64, |sum, lost| sum.saturating_add(lost.samples));
    let _ = writeln!(
        out,
        "  samples    {total}: {complete} complete ({:.1} %){deep}{unknown}{by_fp}{doubtful}{in_handler}, {fails} failed, {lost} lost",
        percent(complete, total)
    );
    for (reason, count) in failed {
        let _ = writeln!(out, "             {count:>8} failed: {reason}");
    }
    if !deep.is_empty() {
        let text = "[frames left out] stands for those in the middle of stacks that are too deep";
        let _ = writeln!(out, "             {text}");
    }
    if fails > 0 {
        let _ = writeln!(out, "             uu report -f samples has these stacks; what to do: docs/stop-reasons.md");
    }
    for (bit, text) in [
        (SAMPLE_BLOCKED, "held back while the signal was blocked (what became due meanwhile is in [signals blocked])"),
        (
            SAMPLE_LATE,
            "late, though nothing held them back: the machine ran something else (the excess is in [late tick])",
        ),
        (
            SAMPLE_FACTS_PENDING,
            "through files that were not analysed yet, or could not be: whether functions of an interpreter are missing is \
             not known",
        ),
        (SAMPLE_DESYNC, "with interpreter frames missing or doubtful"),
        (SAMPLE_NO_PLUGINS, "walked without plugins (SEGV blocked, or a small signal stack)"),
    ] {
        let count = of_shown(recording, profile).filter(|s| s.flags & bit != 0).count();
        // Of those with facts pending, the line before has the number: they are few, at the start, with nothing to do.
        if count > 0 && (style.verbose || bit != SAMPLE_FACTS_PENDING) {
            let _ = writeln!(out, "             {count:>8} {text}");
        }
    }
    let by_frame_pointer = with_frame_pointers(recording);
    let is_so = |sample: &&Sample| by_frame_pointer.get(sample.stack as usize).is_some_and(|is_so| *is_so);
    let count = of_shown(recording, profile).filter(is_so).count();
    if count > 0 {
        let text = "by the frame pointers of code without unwind data (if it keeps none, callers are missing)";
        let _ = writeln!(out, "             {count:>8} {text}");
    }
    if style.verbose {
        let count = with_rules_from_code(recording, &mut of_shown(recording, profile));
        if count > 0 {
            let text = "through code that nothing describes, by rules made from its instructions";
            let _ = writeln!(out, "             {count:>8} {text}");
        }
    }
    let others = of_shown(recording, profile).filter(|s| s.flags & SAMPLE_APART != 0).count() - own.len();
    if !own.is_empty() {
        let weight = |samples: &mut dyn Iterator<Item = &Sample>| {
            samples.fold(0u64, |sum, sample| sum.saturating_add(u64::from(sample.weight.max(1))))
        };
        let (cost, all) = (weight(&mut own.iter().copied()), weight(&mut of_shown(recording, profile)));
        let _ = writeln!(
            out,
            "             {:>8} taken by the kernel in uu's own handler: {:.1} % of the time, shown as {IN_HANDLER}. It is uu's \
             cost, and not the program's; a lower rate (-r) lowers it",
            own.len(),
            percent(cost, all)
        );
    }
    if others > 0 {
        let _ = writeln!(
            out,
            "             {:>8} taken by the kernel while the thread took no stack of its own: after one of thousands of \
             frames, for a while; with SIGTRAP blocked; or, with events of the user mode alone, in page faults",
            others
        );
    }
    let starts = recording.periods_of_starts() as f64 / f64::from(recording.settings.rate.max(1));
    if starts > 0.0 {
        let _ = writeln!(
            out,
            "             {starts:>7.2}s used by threads and processes that ended without a sample, before their sampling began: \
             [process start] is exec, the dynamic loader and uu's own start"
        );
    }
}

/// For each node's number, whether frames were left out between it and its outermost caller.
fn without_middle(recording: &Recording) -> Vec<bool> {
    let is_one = |node: &Node| matches!(frames(&[node.word, node.position]).next(), Some(Frame::Omitted { .. }));
    // Of most recordings there is nothing to remember.
    if !recording.nodes.iter().any(is_one) {
        return Vec::new();
    }
    let mut found = Vec::with_capacity(recording.nodes.len() + 1);
    found.push(false);
    for node in &recording.nodes {
        let itself = is_one(node);
        // Callers have smaller numbers.
        found.push(itself || found.get(node.parent as usize) == Some(&true));
    }
    found
}

/// For each node's number, whether a frame pointer led to it or to one of its callers.
fn with_frame_pointers(recording: &Recording) -> Vec<bool> {
    let mut found = vec![false];
    for node in &recording.nodes {
        let itself = match frames(&[node.word, node.position]).next() {
            Some(Frame::Native { by_frame_pointer, .. } | Frame::Window { by_frame_pointer, .. }) => by_frame_pointer,
            _ => false,
        };
        // Callers have smaller numbers.
        let above = found.get(node.parent as usize).is_some_and(|is_so| *is_so);
        found.push(itself || above);
    }
    found
}

/// How many of these samples' walks went on somewhere by a rule made from the machine code.
fn with_rules_from_code(recording: &Recording, samples: &mut dyn Iterator<Item = &Sample>) -> usize {
    let in_objects = recording.symbols.iter().flat_map(|symbols| symbols.by_code.iter().copied());
    let in_objects: HashSet<(u32, u64)> = in_objects.collect();
    if in_objects.is_empty() && !recording.nodes.iter().any(|node| node.word & FLAG_BY_CODE != 0) {
        return 0;
    }
    let mut map = ObjectMap::new(recording);
    let mut known: HashMap<(u32, u32), bool> = HashMap::new();
    let mut is_so = |process: u32, stack: u32| {
        let (mut node, mut callee_has_one) = (stack, false);
        while let Some(entry) = (node as usize).checked_sub(1).and_then(|index| recording.nodes.get(index)) {
            node = entry.parent;
            let frame = frames(&[entry.word, entry.position]).next();
            match frame {
                Some(Frame::Native { by_frame_pointer, .. } | Frame::Window { by_frame_pointer, .. })
                    if callee_has_one && !by_frame_pointer =>
                {
                    return true;
                }
                Some(Frame::Native { address, exact, by_code, .. }) => {
                    let places = map.places(recording, process, lookup_address(address, exact));
                    callee_has_one = by_code || places.into_iter().any(|place| in_objects.contains(&place));
                }
                Some(Frame::Window { by_code, .. }) => callee_has_one = by_code,
                _ => {}
            }
        }
        false
    };
    let process = |sample: &Sample| recording.threads.get(sample.thread as usize).map(|thread| thread.process);
    let keys = samples.filter_map(|sample| Some((process(sample)?, sample.stack)));
    keys.filter(|key| *known.entry(*key).or_insert_with(|| is_so(key.0, key.1))).count()
}

/// Whether a sample without a user stack was taken in code of uu's own.
fn is_in_uu(recording: &Recording, sample: &Sample) -> bool {
    let mut node = sample.stack;
    // Frames of the kernel, and then the instruction in user mode.
    let mut pc = None;
    while let Some(entry) = (node as usize).checked_sub(1).and_then(|index| recording.nodes.get(index)) {
        if let Some(Frame::Native { address, .. }) = frames(&[entry.word]).next() {
            pc = Some(address);
        }
        node = entry.parent;
    }
    let process = recording.threads.get(sample.thread as usize).map(|thread| thread.process);
    let object = recording.objects.iter().find(|object| {
        Some(object.process) == process && pc.is_some_and(|pc| (object.start..object.end).contains(&pc))
    });
    object.is_some_and(|object| is_own(&object.path))
}
