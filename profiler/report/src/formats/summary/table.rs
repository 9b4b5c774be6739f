//! The functions with most weight, by themselves and with the functions that they call.

use super::{percent, Style};
use crate::stacks::Profile;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Rows of each table.
const ROWS: usize = 15;
/// Columns used beside the name.
const USED: usize = 34;

/// Weight and number of samples; compared by weight first.
type Amount = (u64, u64);

#[derive(Clone, Copy, Default)]
struct Cost {
    own: Amount,
    total: Amount,
}

pub fn render(profile: &Profile, style: Style) -> String {
    let mut costs: HashMap<&str, Cost> = HashMap::new();
    let names: Vec<String> = profile.lines.iter().map(|l| l.merged()).collect();
    let mut weight = 0;
    let mut counted = HashSet::new();
    for stack in &profile.stacks {
        weight += stack.weight;
        counted.clear();
        for (depth, index) in stack.lines.iter().enumerate() {
            let Some(name) = names.get(*index as usize) else { continue };
            let cost = costs.entry(name).or_default();
            let add = |amount: &mut Amount| *amount = (amount.0 + stack.weight, amount.1 + stack.samples);
            if depth == 0 {
                add(&mut cost.own);
            }
            // A recursive function counts once in a stack.
            if counted.insert(name) {
                add(&mut cost.total);
            }
        }
    }
    let mut out = String::new();
    let mut rows: Vec<(&str, Cost)> = costs.into_iter().collect();
    for (title, amount) in [
        ("Hottest functions by themselves", (|c| c.own) as fn(&Cost) -> Amount),
        ("Hottest functions with what they call", |c| c.total),
    ] {
        rows.sort_by(|a, b| amount(&b.1).cmp(&amount(&a.1)).then(a.0.cmp(b.0)));
        // Writing to a String cannot fail.
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{gap}{}", style.heading(title));
        let _ = writeln!(out, "    share  samples  periods  function");
        for (name, cost) in rows.iter().filter(|(_, c)| amount(c) != (0, 0)).take(ROWS) {
            let (periods, samples) = amount(cost);
            let share = percent(periods, weight);
            let _ = writeln!(out, "  {share:>5.1} % {samples:>8} {periods:>8}  {}", style.name(name, USED));
        }
    }
    out
}
