//! The hottest functions, by themselves and with what they call.

use super::{percent, Style};
use crate::stacks::Profile;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Rows of each table.
const ROWS: usize = 15;
/// Columns used beside the name.
const USED: usize = 34;

#[derive(Clone, Copy, Default)]
struct Cost {
    own: u64,
    total: u64,
    own_weight: u64,
    total_weight: u64,
}

pub fn render(profile: &Profile, style: Style) -> String {
    let mut costs: HashMap<String, Cost> = HashMap::new();
    let names: Vec<String> = profile.lines.iter().map(|l| l.merged()).collect();
    let mut samples = 0;
    for stack in &profile.stacks {
        samples += stack.samples;
        let mut counted = HashSet::new();
        for (depth, index) in stack.lines.iter().enumerate() {
            let Some(name) = names.get(*index as usize) else { continue };
            let cost = costs.entry(name.clone()).or_default();
            if depth == 0 {
                cost.own += stack.samples;
                cost.own_weight += stack.weight;
            }
            // A function that calls itself is in the stack once.
            if counted.insert(name) {
                cost.total += stack.samples;
                cost.total_weight += stack.weight;
            }
        }
    }
    let mut out = String::new();
    let mut rows: Vec<(&String, &Cost)> = costs.iter().collect();
    for (title, key) in [
        ("Hottest functions by themselves", (|c| (c.own, c.own_weight)) as fn(&Cost) -> (u64, u64)),
        ("Hottest functions with what they call", |c| (c.total, c.total_weight)),
    ] {
        rows.sort_by(|a, b| key(b.1).cmp(&key(a.1)).then(a.0.cmp(b.0)));
        // Writing to a String cannot fail.
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{gap}{}", style.heading(title));
        let _ = writeln!(out, "    share  samples   weight  function");
        for (name, cost) in rows.iter().filter(|(_, c)| key(c) != (0, 0)).take(ROWS) {
            let (count, weight) = key(cost);
            let share = percent(count, samples);
            let _ = writeln!(out, "  {share:>5.1} % {count:>8} {weight:>8}  {}", style.name(name, USED));
        }
    }
    out
}
