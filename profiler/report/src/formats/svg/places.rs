//! The frames of the picture, each with the lines that were executing.

use super::escape;
use crate::stacks::{Line, Stack};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Most lines of a function that a tooltip shows.
const LINES: usize = 4;

/// The position of a frame in the picture: where it begins, in periods, and its depth.
type Place = (u64, usize);

/// The contents of a frame of the picture.
struct Frame {
    weight: u64,
    /// Weight by executing line, with the name of its file; without, where the frame's own name has it.
    lines: BTreeMap<(String, u32), u64>,
}

/// The frames of the picture; stacks are merged by function and sorted.
pub struct Frames {
    frames: HashMap<Place, Frame>,
    /// Stacks in sorted order, outermost frame first, with their weights.
    folded: Vec<String>,
    total: u64,
}

impl Frames {
    pub fn new(lines: &[Line], all: &[Stack]) -> Frames {
        let texts: Vec<String> = lines.iter().map(|line| escape(&line.merged())).collect();
        let text = |line: &u32| texts.get(*line as usize).map_or("", String::as_str);
        let mut tree = Tree::default();
        let mut stacks: Vec<(Vec<u32>, String, &Stack)> = Vec::new();
        for stack in all.iter().filter(|stack| stack.weight > 0) {
            let path = tree.add(stack.lines.iter().rev().map(text), stack.weight);
            let names = stack.lines.iter().rev().map(text).collect::<Vec<_>>().join(";");
            let names = if names.is_empty() { "[no frames]" } else { &names };
            stacks.push((path, format!("{names} {}", stack.weight), stack));
        }
        // inferno merges what is alike in neighbours, so callers stay together.
        stacks.sort_by(|a, b| tree.order(&a.0, &b.0));
        let (mut frames, mut folded, mut total) = (HashMap::new(), Vec::new(), 0);
        // The frames of the previous stack: name and place of each, outermost first.
        let mut open: Vec<(&str, Place)> = Vec::new();
        for (_, folded_line, stack) in stacks {
            let names = stack.lines.iter().rev().map(text);
            let same = open.iter().zip(names.clone()).take_while(|((name, _), new)| name == new).count();
            open.truncate(same);
            for (depth, name) in names.clone().enumerate().skip(same) {
                open.push((name, (total, depth)));
            }
            for ((_, place), line) in open.iter().zip(stack.lines.iter().rev()) {
                let frame = frames.entry(*place).or_insert(Frame { weight: 0, lines: BTreeMap::new() });
                frame.weight += stack.weight;
                let place = lines.get(*line as usize).map(place_in_source).unwrap_or_default();
                *frame.lines.entry(place).or_default() += stack.weight;
            }
            total += stack.weight;
            folded.push(folded_line);
        }
        Frames { frames, folded, total }
    }

    /// One line for each stack.
    pub fn folded(&self) -> &[String] {
        &self.folded
    }

    fn is_drawn(&self, frame: &Frame, percent: f64) -> bool {
        frame.weight as f64 * 100.0 >= percent * self.total as f64
    }

    /// Number of levels of frames that are at least `percent` wide.
    pub fn depth(&self, percent: f64) -> usize {
        let drawn = self.frames.iter().filter(|(_, frame)| self.is_drawn(frame, percent));
        drawn.map(|((_, depth), _)| depth + 1).max().unwrap_or(0)
    }

    /// Number of frames that are narrower than `percent`.
    pub fn narrower(&self, percent: f64) -> usize {
        self.frames.values().filter(|frame| !self.is_drawn(frame, percent)).count()
    }

    /// Adds the executing lines to the tooltips of a picture: after the share, within its parentheses, which the
    /// picture's script removes from a tooltip to get the function's name.
    pub fn add_lines(&self, svg: &str) -> String {
        const TITLE: &str = ")</title>";
        let top = svg.split(TITLE).skip(1).filter_map(|after| number(after, " y=\"")).min().unwrap_or(0);
        let mut out = String::with_capacity(svg.len() * 5 / 4);
        let mut rest = svg;
        while let Some((before, after)) = rest.split_once(TITLE) {
            out.push_str(before);
            let (y, start) = (number(after, " y=\""), number(after, " fg:x=\""));
            // The root of the picture is above all frames.
            let depth = y.and_then(|y| y.checked_sub(top)).map(|below| (below / FRAME_HEIGHT) as usize);
            let place = start.zip(depth.and_then(|depth| depth.checked_sub(1)));
            out.push_str(&place.and_then(|place| self.frames.get(&place)).map_or_else(String::new, lines));
            out.push_str(TITLE);
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

/// The executing line, with the name of its file unless the frame's own name has that.
fn place_in_source(line: &Line) -> (String, u32) {
    match line.kind.is_semantic() {
        true => (String::new(), line.line),
        false => (escape(line.file.rsplit('/').next().unwrap_or_default()), line.line),
    }
}

/// The frames by what calls them: siblings stand in the order of their weights, as in the page.
#[derive(Default)]
struct Tree<'t> {
    nodes: HashMap<(u32, &'t str), u32>,
    /// Weight and name of each node; the first one's number is 1.
    of: Vec<(u64, &'t str)>,
}

impl<'t> Tree<'t> {
    /// Adds a stack; returns its nodes, outermost first.
    fn add(&mut self, names: impl Iterator<Item = &'t str>, weight: u64) -> Vec<u32> {
        let mut node = 0;
        let step = |name: &'t str| {
            let next = self.of.len() as u32 + 1;
            node = *self.nodes.entry((node, name)).or_insert_with(|| {
                self.of.push((0, name));
                next
            });
            if let Some(of) = self.of.get_mut(node as usize - 1) {
                of.0 = of.0.saturating_add(weight);
            }
            node
        };
        names.map(step).collect()
    }

    /// The heavier sibling first, and what a frame does itself before what it calls.
    fn order(&self, a: &[u32], b: &[u32]) -> Ordering {
        let differs = a.iter().zip(b).find(|(a, b)| a != b);
        let Some((a_node, b_node)) = differs else { return a.len().cmp(&b.len()) };
        let of = |node: &u32| self.of.get(*node as usize - 1).copied().unwrap_or_default();
        let ((a, a_name), (b, b_name)) = (of(a_node), of(b_node));
        b.cmp(&a).then_with(|| a_name.cmp(b_name))
    }
}

/// Height of a level in pixels, inferno's default.
const FRAME_HEIGHT: u64 = 16;

/// The number that follows the first occurrence of `before` in a text.
fn number(text: &str, before: &str) -> Option<u64> {
    text.split_once(before)?.1.split('"').next()?.parse().ok()
}

/// The lines with most weight, as text.
fn lines(frame: &Frame) -> String {
    let mut lines: Vec<(&(String, u32), u64)> =
        frame.lines.iter().map(|(place, weight)| (place, *weight)).filter(|(place, _)| place.1 != 0).collect();
    lines.sort_by_key(|(place, weight)| (std::cmp::Reverse(*weight), *place));
    let mut out = String::new();
    for (index, ((file, line), weight)) in lines.iter().take(LINES).enumerate() {
        let before = match (index, file.is_empty()) {
            (0, true) => "; line ".to_owned(),
            (0, false) => format!("; {file}:"),
            (_, true) => ", ".to_owned(),
            (_, false) => format!(", {file}:"),
        };
        // Writing to a String cannot fail.
        let _ = match lines.len() {
            1 => write!(out, "{before}{line}"),
            _ => write!(out, "{before}{line}: {weight}"),
        };
    }
    if lines.len() > LINES {
        let _ = write!(out, " and {} more", lines.len() - LINES);
    }
    out
}
