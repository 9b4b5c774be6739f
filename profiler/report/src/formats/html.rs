//! A page of its own: a flame graph that can be searched, zoomed and filtered, with a time axis. It needs no network;
//! its script and its style are beside this file, and what it shows is packed into it.

mod columns;
mod tree;

use super::pprof::gzip;
use super::threads;
use crate::hide::NativeFrames;
use crate::stacks::{Kind, Line, Profile};
use columns::Columns;
use serde_json::{json, Value};
use std::collections::HashMap;
use tree::{Interner, Tree};
use uunwind_recording::{Amount, Held, Recording, Unit};

/// What the page shows of allocations, by choice.
const HELD: [(Held, &str); 4] = [
    (Held::Peak, "Held at the peak"),
    (Held::End, "Held at the end"),
    (Held::Total, "Allocated in all"),
    (Held::Temporary, "Freed before the thread's next allocation"),
];
const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: [&str; 6] = [
    include_str!("html/data.js"),
    include_str!("html/tree.js"),
    include_str!("html/colours.js"),
    include_str!("html/flames.js"),
    include_str!("html/times.js"),
    include_str!("html/page.js"),
];
/// Most moments that the time axis distinguishes.
const MOMENTS: u64 = 4000;
/// Longest title, in characters.
const TITLE: usize = 160;
/// The shortest moment, in ns.
const SHORTEST: u64 = 1_000_000;

/// What the flame graph distinguishes by colour, and what can be hidden.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Category {
    kind: &'static str,
    label: String,
}

/// The page. The profile has the glue's frames, marked; `native` is how the page begins.
pub fn render(recording: &Recording, profile: &Profile, native: NativeFrames) -> Result<Vec<u8>, String> {
    let (mut texts, mut functions, mut places) = (Interner::default(), Interner::default(), Interner::default());
    let mut categories = Interner::default();
    // Always there, and in this order, so that colours are the same in every picture.
    let remark = categories.of(Category { kind: "remark", label: "remarks".into() });
    let empty = texts.of(String::new());
    let frames = profile.lines.iter().map(|line| {
        let category = if line.kind == Kind::Marker { remark } else { categories.of(category(recording, line)) };
        let function = functions.of((texts.of(text(&line.function)), texts.of(text(&line.file)), category));
        places.of((function, line.line)) << 1 | u32::from(line.glue)
    });
    let mut frames: Vec<u32> = frames.collect();
    if functions.list.is_empty() {
        places.of((functions.of((empty, empty, remark)), 0));
    }
    let places = by_use(places.list, &mut frames, profile);
    let tree = Tree::new(profile, &frames);

    let (end, bucket) = moments(recording, profile);
    let of_thread: HashMap<u32, u32> =
        threads::sampled(recording, profile).iter().map(|(index, _)| *index).zip(0..).collect();
    let since = |time: u64| (time.saturating_sub(recording.settings.start_monotonic) / bucket) as u32;
    // Of allocations, the page has what was held at the peak, at the end, and all; or what was asked for alone.
    let choices: Vec<(Held, String)> = match profile.held {
        _ if !recording.is_alloc() => Vec::new(),
        Some(held @ Held::Grown(..)) => vec![(held, super::grown(held).unwrap_or_default())],
        _ => HELD.iter().map(|(held, text)| (*held, (*text).to_owned())).collect(),
    };
    let held: Vec<Vec<Amount>> = choices.iter().map(|(held, _)| recording.held(*held)).collect();
    let mut samples: HashMap<(u32, u32, u32), [u64; HELD.len()]> = HashMap::new();
    for entry in &profile.entries {
        let Some(stack) = profile.stacks.get(entry.stack as usize) else { continue };
        let thread = of_thread.get(&stack.thread).copied().unwrap_or(0);
        let node = tree.of_stack.get(entry.stack as usize).copied().unwrap_or(0);
        let weights = samples.entry((since(entry.time), thread, node)).or_default();
        if !recording.is_alloc() {
            weights[0] += entry.weight;
        }
        for (weight, held) in weights.iter_mut().zip(&held) {
            *weight += held.get(entry.sample as usize).map_or(0, |amount| amount.weight());
        }
    }
    let mut samples: Vec<((u32, u32, u32), [u64; HELD.len()])> = samples.into_iter().collect();
    samples.sort_unstable();
    // Bytes may be more than a number of a column holds.
    let most = samples.iter().flat_map(|(_, weights)| weights).fold(0, |most, weight| most.max(*weight));
    let is_of_events = recording.is_alloc() || recording.is_lock();
    let shift = if is_of_events { (u64::BITS - most.leading_zeros()).saturating_sub(u32::BITS) } else { 0 };
    let shown = choices.len().max(1);

    let mut columns = Columns::default();
    columns.texts(&texts.list);
    columns.numbers(functions.list.iter().map(|(name, ..)| *name));
    columns.numbers(functions.list.iter().map(|(_, file, _)| *file));
    columns.numbers(functions.list.iter().map(|(.., category)| *category));
    columns.numbers(places.iter().map(|(function, _)| *function));
    columns.numbers(places.iter().map(|(_, line)| *line));
    columns.numbers(tree.nodes.iter().map(|node| node.up));
    columns.numbers(tree.nodes.iter().map(|node| node.frame));
    columns.numbers((0..).zip(&tree.charged).map(|(node, to)| if *to == node { 0 } else { to + 1 }));
    columns.numbers(samples.iter().map(|((.., node), _)| *node));
    columns.numbers(samples.iter().map(|((_, thread, _), _)| *thread));
    for at in 0..shown {
        let weight = |weights: &[u64; HELD.len()]| weights.get(at).map_or(0, |weight| *weight >> shift);
        columns.numbers(samples.iter().map(|(_, weights)| u32::try_from(weight(weights)).unwrap_or(u32::MAX)));
    }
    let mut before = 0;
    columns.numbers(samples.iter().map(|((time, ..), _)| time - std::mem::replace(&mut before, *time)));
    let packed = gzip(&columns.bytes).map_err(|e| e.to_string())?;

    let facts = json!({
        "command": super::title(recording, TITLE),
        "native": match native {
            NativeFrames::Hide => "hide",
            NativeFrames::Leaf => "leaf",
            NativeFrames::Show => "show",
        },
        "summary": summary(recording, profile),
        "unit": recording.value().unit.name(),
        "period": recording.value().unit.least(recording.settings.rate) << shift,
        "held": choices.iter().map(|(_, text)| text).collect::<Vec<_>>(),
        "duration": end,
        "bucket": bucket,
        "buckets": end.div_ceil(bucket),
        "categories": categories.list.iter().map(|c| json!({"kind": c.kind, "label": c.label})).collect::<Vec<_>>(),
        "processes": (0..recording.processes.len() as u32).map(|index| process(recording, index)).collect::<Vec<_>>(),
        "threads": threads::sampled(recording, profile).iter().map(|(_, thread)| {
            json!({"process": thread.process, "label": super::printable(&thread.label())})
        }).collect::<Vec<_>>(),
        "counts": {
            "functions": functions.list.len(),
            "places": places.len(),
            "nodes": tree.nodes.len(),
            "samples": samples.len(),
        },
    });
    Ok(page(recording, &facts, &packed).into_bytes())
}

fn page(recording: &Recording, facts: &Value, packed: &[u8]) -> String {
    let title = super::title(recording, TITLE).replace('&', "&amp;").replace('<', "&lt;");
    // In a script, `<` could only begin its end.
    let facts = facts.to_string().replace('<', "\\u003c");
    let mut out = String::new();
    // The marks are searched in the page alone, not in what was put in their place.
    for (index, part) in PAGE.split('@').enumerate() {
        match (index % 2, part) {
            (0, text) => out.push_str(text),
            (_, "TITLE") => out.push_str(&title),
            (_, "STYLE") => out.push_str(STYLE.trim_end()),
            (_, "FACTS") => out.push_str(&facts),
            (_, "COLUMNS") => out.push_str(&columns::base64(packed)),
            (_, _) => {
                out.push_str("\"use strict\";\n");
                out.push_str(SCRIPT.join("\n").trim_end());
            }
        }
    }
    out
}

fn category(recording: &Recording, line: &Line) -> Category {
    match line.kind {
        Kind::Native | Kind::Inlined => Category { kind: "native", label: "machine code".into() },
        Kind::Jit => Category { kind: "jit", label: "made at run time".into() },
        Kind::Kernel => Category { kind: "kernel", label: "kernel".into() },
        Kind::Waiting => Category { kind: "waiting", label: "waiting".into() },
        Kind::Marker => Category { kind: "remark", label: "remarks".into() },
        Kind::Semantic | Kind::Awaiting => {
            let known = recording.languages.iter().any(|language| language.plugin == line.plugin);
            let label = if known { super::printable(&line.plugin) } else { "interpreter".into() };
            Category { kind: "language", label }
        }
    }
}

/// A text of one line.
fn text(text: &str) -> String {
    super::printable(text)
}

fn process(recording: &Recording, index: u32) -> String {
    super::printable(&format!("{} (pid {})", threads::program(recording, index), threads::pid(recording, index)))
}

/// Numbers the places by how often stacks have them: frequent ones get small numbers, which are short. Renumbers the
/// frames.
fn by_use(places: Vec<(u32, u32)>, frames: &mut [u32], profile: &Profile) -> Vec<(u32, u32)> {
    let mut uses = vec![0u64; places.len()];
    for frame in
        profile.stacks.iter().flat_map(|stack| stack.lines.iter()).filter_map(|line| frames.get(*line as usize))
    {
        if let Some(uses) = uses.get_mut((frame >> 1) as usize) {
            *uses += 1;
        }
    }
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(uses[*place]));
    let mut number = vec![0u32; places.len()];
    for (new, old) in (0..).zip(&order) {
        number[*old] = new;
    }
    for frame in frames.iter_mut() {
        *frame = number[(*frame >> 1) as usize] << 1 | *frame & 1;
    }
    order.into_iter().map(|old| places[old]).collect()
}

/// How long the time axis is, and how long each of its moments, in ns.
fn moments(recording: &Recording, profile: &Profile) -> (u64, u64) {
    let start = recording.settings.start_monotonic;
    let last = profile.entries.last().map_or(0, |entry| entry.time.saturating_sub(start));
    // A recording that is cut off has no end, and a damaged one may have any.
    let end = recording.end.as_ref().map_or(0, |end| end.time.saturating_sub(start)).max(last).max(1);
    (end, (end / MOMENTS).max(SHORTEST))
}

fn summary(recording: &Recording, profile: &Profile) -> String {
    let weight = profile.stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight));
    let lost: u64 = recording.lost.iter().fold(0, |sum, lost| sum.saturating_add(lost.samples));
    let value = recording.value();
    let amount = value.unit.amount(weight, recording.settings.rate);
    let samples = recording.samples.len();
    let mut text = match recording.is_alloc() {
        false => format!("{amount} of {} in {samples} samples", value.text),
        true => {
            let memory = recording.memory();
            let [peak, end, temporary] =
                [memory.peak, memory.end, memory.temporary].map(|held| Unit::Bytes.amount(held.weight(), 1));
            format!(
                "{amount} allocated, {temporary} of it temporary, {peak} held at the peak, {end} not freed at the end, in \
                 {samples} samples"
            )
        }
    };
    if let Some(end) = &recording.end {
        let wall = end.time.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
        text = format!("{text}, {wall:.2} s long");
    }
    if lost > 0 {
        text = format!("{text}; {lost} samples were lost");
    }
    if recording.warnings.is_empty() {
        text
    } else {
        format!("{text}; the recording is not whole")
    }
}
