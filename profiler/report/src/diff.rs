//! Two recordings compared: where the share of a function in the CPU time changed. Shares, not times, are compared: two
//! runs seldom do the same amount of work. What chance alone explains, with as few samples as there are, is no change.

mod names;
mod picture;

use crate::formats::printable;
use crate::formats::summary::Style;
use crate::stacks::Profile;
use names::names;
pub use picture::picture;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

/// Standard errors of a difference of shares that chance explains: of three hundred functions that did not change, one
/// is beyond it.
const ERRORS: f64 = 3.0;
/// Smallest change that is shown, in points.
const LEAST: f64 = 0.1;
/// Columns of the table before the name.
const USED: usize = 54;

/// A share of the CPU time of two recordings, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// In the first recording.
    pub before: f64,
    /// In the second one.
    pub after: f64,
    /// By how many points the two may differ by chance.
    pub chance: f64,
}

impl Shares {
    /// `samples`: how many each recording has.
    fn new([before, after]: [f64; 2], samples: [u64; 2]) -> Shares {
        let [first, second] = samples.map(|samples| samples.max(1) as f64);
        // Both are taken for samples of one share, which is what chance alone would mean.
        let share = ((before * first + after * second) / (first + second) / 100.0).clamp(0.0, 1.0);
        let error = (share * (1.0 - share) * (1.0 / first + 1.0 / second)).sqrt();
        Shares { before, after, chance: ERRORS * 100.0 * error }
    }

    /// By how many points it grew.
    pub fn growth(&self) -> f64 {
        self.after - self.before
    }

    /// Whether it changed by more than chance explains.
    pub fn has_changed(&self) -> bool {
        self.growth().abs() >= LEAST && self.growth().abs() > self.chance
    }
}

/// A function's shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function, with the file of an interpreted one.
    pub function: String,
    /// By itself.
    pub own: Shares,
    /// With what it calls.
    pub total: Shares,
}

impl Change {
    /// The share that grew more: by itself or with what it calls.
    pub fn grown(&self) -> Shares {
        // By itself first: where both grew by as much, that is the reason.
        match self.total.growth() > self.own.growth() {
            true => self.total,
            false => self.own,
        }
    }

    fn has_changed(&self) -> bool {
        self.own.has_changed() || self.total.has_changed()
    }

    /// By how many points the share changed that changed most.
    fn most(&self) -> f64 {
        self.own.growth().abs().max(self.total.growth().abs())
    }
}

/// Every function of either recording: those that changed by more than chance explains first, the greatest change
/// first, by itself or with what it calls.
pub fn changes(before: &Profile, after: &Profile) -> Vec<Change> {
    let mut shares: BTreeMap<String, ([f64; 2], [f64; 2])> = BTreeMap::new();
    let both = names(before, after);
    for ((side, profile), names) in [before, after].into_iter().enumerate().zip(&both) {
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
    let samples = samples(before, after);
    let change = |(function, (own, total))| {
        let (own, total) = (Shares::new(own, samples), Shares::new(total, samples));
        Change { function, own, total }
    };
    let mut changes: Vec<Change> = shares.into_iter().map(change).collect();
    // Of functions that call each other and changed by as much, the one that changed by itself is the reason.
    let order = |change: &Change| (change.has_changed(), (change.most() * 10.0).round(), change.own.growth().abs());
    changes.sort_by(|a, b| {
        let ((a_changed, a_most, a_own), (b_changed, b_most, b_own)) = (order(a), order(b));
        b_changed.cmp(&a_changed).then(b_most.total_cmp(&a_most)).then(b_own.total_cmp(&a_own))
    });
    changes
}

/// Number of samples of each profile.
fn samples(before: &Profile, after: &Profile) -> [u64; 2] {
    [before, after].map(|profile| profile.stacks.iter().map(|stack| stack.samples).sum())
}

/// The changes as a table, the first `rows` of them, and what was left out of it.
pub fn table(changes: &[Change], rows: usize, style: Style) -> String {
    let changed: Vec<&Change> = changes.iter().filter(|change| change.has_changed()).collect();
    let within = changes.iter().filter(|change| !change.has_changed() && change.most() >= LEAST);
    let within: Vec<&Change> = within.collect();
    let mut out = String::new();
    let shown = &changed[..changed.len().min(rows)];
    if !shown.is_empty() {
        out.push_str(
            "  by itself                with what it calls\n  change  before   after   change  before   after  function\n",
        );
    }
    let functions: Vec<String> = shown.iter().map(|change| change.function.clone()).collect();
    let (names, legend) = style.names_with_legend(&functions, USED);
    for (change, name) in shown.iter().zip(names) {
        let shares =
            |shares: &Shares| format!("{:>+6.1} {:>7.1} {:>7.1}", shares.growth(), shares.before, shares.after);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {}   {}  {name}", shares(&change.own), shares(&change.total));
    }
    out.push_str(&legend);
    if let Some(left_out) = changed.len().checked_sub(rows).filter(|left_out| *left_out > 0) {
        let _ = writeln!(out, "  {left_out} more functions changed by less");
    }
    if changed.is_empty() {
        out.push_str("  no function's share changed by more than chance explains\n");
    }
    if let Some(greatest) = within.first() {
        let share = match greatest.total.growth().abs() > greatest.own.growth().abs() {
            true => greatest.total,
            false => greatest.own,
        };
        let _ = writeln!(
            out,
            "  {} left out, whose change may be chance: at most {:+.1} points, of {}, where chance explains {:.1}",
            if within.len() == 1 { "1 function is".to_owned() } else { format!("{} functions are", within.len()) },
            share.growth(),
            printable(&greatest.function),
            share.chance
        );
    }
    out
}
