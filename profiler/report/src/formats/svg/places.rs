//! The frames of the picture, each with the lines that were executing.

use super::escape;
use crate::stacks::{Line, Profile, Stack};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Most lines of a function that a tooltip shows.
const LINES: usize = 4;

/// The position of a frame in the picture: where it begins, in periods, and its depth.
type Place = (u64, usize);

/// The contents of a frame of the picture.
struct Frame {
    weight: u64,
    /// Weight by executing line.
    lines: BTreeMap<u32, u64>,
}

/// The frames of the picture; stacks are merged by function and sorted.
pub struct Frames {
    frames: HashMap<Place, Frame>,
    /// Stacks in sorted order, outermost frame first, with their weights.
    folded: Vec<String>,
    total: u64,
}

impl Frames {
    pub fn new(profile: &Profile) -> Frames {
        let texts: Vec<String> = profile.lines.iter().map(|line| escape(&line.merged())).collect();
        let text = |line: &u32| texts.get(*line as usize).map_or("", String::as_str);
        let mut stacks: Vec<(String, &Stack)> = Vec::new();
        for stack in profile.stacks.iter().filter(|stack| stack.weight > 0) {
            let names = stack.lines.iter().rev().map(text).collect::<Vec<_>>().join(";");
            let names = if names.is_empty() { "[no frames]" } else { &names };
            stacks.push((format!("{names} {}", stack.weight), stack));
        }
        // The order that inferno expects.
        stacks.sort_by(|a, b| a.0.cmp(&b.0));
        let (mut frames, mut folded, mut total) = (HashMap::new(), Vec::new(), 0);
        // The frames of the previous stack: name and place of each, outermost first.
        let mut open: Vec<(&str, Place)> = Vec::new();
        for (folded_line, stack) in stacks {
            let names = stack.lines.iter().rev().map(text);
            let same = open.iter().zip(names.clone()).take_while(|((name, _), new)| name == new).count();
            open.truncate(same);
            for (depth, name) in names.clone().enumerate().skip(same) {
                open.push((name, (total, depth)));
            }
            for ((_, place), line) in open.iter().zip(stack.lines.iter().rev()) {
                let frame = frames.entry(*place).or_insert(Frame { weight: 0, lines: BTreeMap::new() });
                frame.weight += stack.weight;
                let line = profile.lines.get(*line as usize).map_or(0, |line: &Line| line.line);
                *frame.lines.entry(line).or_default() += stack.weight;
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

/// Height of a level in pixels, inferno's default.
const FRAME_HEIGHT: u64 = 16;

/// The number that follows the first occurrence of `before` in a text.
fn number(text: &str, before: &str) -> Option<u64> {
    text.split_once(before)?.1.split('"').next()?.parse().ok()
}

/// The lines with most weight, as text.
fn lines(frame: &Frame) -> String {
    let mut lines: Vec<(u32, u64)> =
        frame.lines.iter().map(|(line, weight)| (*line, *weight)).filter(|l| l.0 != 0).collect();
    lines.sort_by_key(|(line, weight)| (std::cmp::Reverse(*weight), *line));
    let mut out = String::new();
    for (index, (line, weight)) in lines.iter().take(LINES).enumerate() {
        let before = if index == 0 { "; line " } else { ", " };
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
