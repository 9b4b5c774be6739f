//! A short tree of the branches with most weight, from the outermost frame towards the leaf. The whole tree is never
//! built: a recording may have a million distinct stacks, of which a few branches are printed.

use super::{percent, Style};
use crate::stacks::{Profile, Stack};
use std::collections::HashMap;
use std::fmt::Write;

/// Smallest share of a branch that is printed, in percent of all weight.
const SMALLEST: f64 = 5.0;
/// Most lines that are printed.
const LINES: usize = 40;
/// Depth at which a branch ends. Branches with much weight are flatter; hostile stacks are cut here.
const DEPTH: usize = 256;

pub fn render(profile: &Profile, style: Style) -> String {
    let mut names = Names::default();
    let of_line: Vec<u32> = profile.lines.iter().map(|line| names.id(line.merged())).collect();
    let mut stacks: Vec<&Stack> = profile.stacks.iter().collect();
    let total = stacks.iter().map(|stack| stack.weight).sum();
    let mut out = format!("{}\n", style.heading("Where the time is (outermost first)"));
    let mut printer = Printer { style, names: &names.list, of_line: &of_line, total, left: LINES, out: &mut out };
    printer.branches(&mut stacks, 0, 0);
    if printer.left == 0 {
        out.push_str("  (more branches: use -o x.svg or -f folded)\n");
    }
    out
}

/// Texts, each stored once and identified by its index.
#[derive(Default)]
struct Names {
    ids: HashMap<String, u32>,
    list: Vec<String>,
}

impl Names {
    fn id(&mut self, name: String) -> u32 {
        let next = self.list.len() as u32;
        *self.ids.entry(name).or_insert_with_key(|name| {
            self.list.push(name.clone());
            next
        })
    }
}

struct Printer<'a> {
    style: Style,
    names: &'a [String],
    /// Name of each line.
    of_line: &'a [u32],
    total: u64,
    left: usize,
    out: &'a mut String,
}

impl Printer<'_> {
    /// Index of the name of the frame with `depth` frames outside it.
    fn name(&self, stack: &Stack, depth: usize) -> Option<u32> {
        let line = stack.lines.len().checked_sub(depth + 1).and_then(|at| stack.lines.get(at))?;
        self.of_line.get(*line as usize).copied()
    }

    fn text(&self, name: u32) -> &str {
        self.names.get(name as usize).map_or("", String::as_str)
    }

    /// Prints the next depth of these stacks, whose `depth` outermost frames are equal. Reorders the stacks.
    fn branches(&mut self, mut stacks: &mut [&Stack], depth: usize, indent: usize) {
        let mut weights: HashMap<u32, u64> = HashMap::new();
        for stack in stacks.iter() {
            if let Some(name) = self.name(stack, depth) {
                *weights.entry(name).or_default() += stack.weight;
            }
        }
        let shown = weights.into_iter().filter(|(_, weight)| percent(*weight, self.total) >= SMALLEST);
        let mut shown: Vec<(u32, u64)> = shown.collect();
        shown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| self.text(a.0).cmp(self.text(b.0))));
        for (name, weight) in shown {
            if self.left == 0 || depth >= DEPTH {
                return;
            }
            let mut count = 0;
            for at in 0..stacks.len() {
                if stacks.get(at).is_some_and(|stack| self.name(stack, depth) == Some(name)) {
                    stacks.swap(at, count);
                    count += 1;
                }
            }
            let (inner, others) = stacks.split_at_mut(count);
            stacks = others;
            self.branch(inner, depth, indent, weight);
        }
    }

    /// Prints one branch. A run of frames without branching becomes one line with its two ends.
    fn branch(&mut self, stacks: &mut [&Stack], depth: usize, indent: usize, weight: u64) {
        let at = |depth| stacks.first().and_then(|stack| self.name(stack, depth));
        let same = |depth| depth < DEPTH && stacks.iter().all(|stack| self.name(stack, depth) == at(depth));
        let mut inner = depth + 1;
        while at(inner).is_some() && same(inner) {
            inner += 1;
        }
        let (first, last) = (self.text(at(depth).unwrap_or(0)), self.text(at(inner - 1).unwrap_or(0)));
        let text = match inner - depth {
            1 => first.to_owned(),
            2 => format!("{first} > {last}"),
            frames => format!("{first} > ({} more) > {last}", frames - 2),
        };
        self.left -= 1;
        let text = self.style.name(&text, 12 + indent);
        let share = percent(weight, self.total);
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "  {share:>5.1} % {:indent$}{text}", "");
        self.branches(stacks, inner, (indent + 2).min(60));
    }
}
