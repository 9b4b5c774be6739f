//! Two recordings compared: where the share of a function in the CPU time changed. Shares, not times, are compared: two
//! runs seldom do the same amount of work.

use crate::formats::folded::fold;
use crate::formats::printable;
use crate::stacks::{Line, Profile};
use inferno::flamegraph::{from_lines, Direction, Options, TextTruncateDirection};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

/// The share of a function in the CPU time of two recordings, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function, with the file of an interpreted one.
    pub function: String,
    /// By itself: before and after.
    pub own: [f64; 2],
    /// With what it calls: before and after.
    pub total: [f64; 2],
}

impl Change {
    /// By how many percentage points its share grew: by itself or with what it calls, whichever is more.
    pub fn growth(&self) -> f64 {
        (self.own[1] - self.own[0]).max(self.total[1] - self.total[0])
    }

    fn change_of_own(&self) -> f64 {
        self.own[1] - self.own[0]
    }
}

/// Every function of either recording; the greatest change of time by itself comes first.
pub fn changes(before: &Profile, after: &Profile) -> Vec<Change> {
    let mut shares: BTreeMap<String, ([f64; 2], [f64; 2])> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        let names: Vec<String> = profile.lines.iter().map(Line::merged).collect();
        let whole: u64 = profile.stacks.iter().map(|stack| stack.weight).sum();
        let mut met: HashSet<&str> = HashSet::new();
        for stack in &profile.stacks {
            let share = stack.weight as f64 * 100.0 / whole.max(1) as f64;
            met.clear();
            for (depth, name) in stack.lines.iter().filter_map(|line| names.get(*line as usize)).enumerate() {
                // A recursive function counts once in a stack.
                if !met.insert(name) {
                    continue;
                }
                let (own, total) = shares.entry(name.clone()).or_default();
                total[side] += share;
                if depth == 0 {
                    own[side] += share;
                }
            }
        }
    }
    let mut changes: Vec<Change> =
        shares.into_iter().map(|(function, (own, total))| Change { function, own, total }).collect();
    changes.sort_by(|a, b| b.change_of_own().abs().total_cmp(&a.change_of_own().abs()));
    changes
}

/// The changes as a table, the first `rows` of them that are at least a tenth of a point.
pub fn table(changes: &[Change], rows: usize) -> String {
    let mut out = String::from(
        "             by itself        with what it calls\n  change  before   after    before   after  function\n",
    );
    let mut shown = 0;
    for change in changes.iter().filter(|c| c.change_of_own().abs() >= 0.1).take(rows) {
        let ([own_before, own_after], [before, after]) = (change.own, change.total);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  {:>+6.1} {own_before:>7.1} {own_after:>7.1}   {before:>7.1} {after:>7.1}  {}",
            change.change_of_own(),
            printable(&change.function)
        );
        shown += 1;
    }
    if shown == 0 {
        out.push_str("  no function's share changed by a tenth of a point\n");
    }
    out
}

/// A flame graph of the second recording: red where a stack's share grew, blue where it shrank.
pub fn picture(before: &Profile, after: &Profile, title: &str) -> Result<Vec<u8>, String> {
    // Both are scaled to the same whole, fine enough for one sample in a million.
    const WHOLE: f64 = 1e6;
    let mut stacks: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        let whole: u64 = profile.stacks.iter().map(|stack| stack.weight).sum();
        for line in fold(profile, Line::merged).lines() {
            let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
            let weight: u64 = weight.parse().unwrap_or(0);
            stacks.entry(stack.to_owned()).or_default()[side] += (weight as f64 * WHOLE / whole.max(1) as f64) as u64;
        }
    }
    if stacks.is_empty() {
        return Err("neither recording has samples, so there is nothing to draw".to_owned());
    }
    let lines: Vec<String> =
        stacks.iter().map(|(stack, [before, after])| format!("{stack} {before} {after}")).collect();
    let mut options = Options::default();
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.min_width = 0.1;
    options.title = printable(title);
    options.subtitle = Some("red: a greater share than before, blue: a smaller one".to_owned());
    options.count_name = "millionths".to_owned();
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut out).map_err(|e| e.to_string())?;
    Ok(out)
}
