//! A short tree: from the outermost frame inwards, the branches that matter.

use super::{percent, Style};
use crate::stacks::Profile;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Smallest share of a branch that is shown, in percent of all samples.
const SMALLEST: f64 = 5.0;
/// Most lines.
const LINES: usize = 40;
/// Deepest frame that is looked at; real stacks that matter here are flatter, and hostile ones end here.
const DEPTH: usize = 256;

#[derive(Default)]
struct Branch {
    samples: u64,
    inner: BTreeMap<String, Branch>,
}

pub fn render(profile: &Profile, style: Style) -> String {
    let names: Vec<String> = profile.lines.iter().map(|l| l.merged()).collect();
    let mut root = Branch::default();
    for stack in profile.stacks.iter().filter(|s| s.samples > 0) {
        root.samples += stack.samples;
        let mut at = &mut root;
        for name in stack.lines.iter().rev().take(DEPTH).filter_map(|i| names.get(*i as usize)) {
            at = at.inner.entry(name.clone()).or_default();
            at.samples += stack.samples;
        }
    }
    let mut out = format!("{}\n", style.heading("Where the samples are (outermost first)"));
    let mut printer = Printer { style, total: root.samples, left: LINES, out: &mut out };
    printer.branch(&root, 0);
    if printer.left == 0 {
        out.push_str("  (more branches: use -o x.svg or -f folded)\n");
    }
    out
}

struct Printer<'a> {
    style: Style,
    total: u64,
    left: usize,
    out: &'a mut String,
}

impl Printer<'_> {
    fn branch(&mut self, branch: &Branch, indent: usize) {
        let mut inner: Vec<(&String, &Branch)> = branch.inner.iter().collect();
        inner.sort_by(|a, b| b.1.samples.cmp(&a.1.samples).then(a.0.cmp(b.0)));
        for (name, mut next) in inner {
            let share = percent(next.samples, self.total);
            if share < SMALLEST || self.left == 0 {
                return;
            }
            // A chain without a branching is one line: its ends are what matters.
            let (mut last, mut skipped) = (name, 0);
            while let [(inner_name, inner)] = next.inner.iter().take(2).collect::<Vec<_>>()[..] {
                if inner.samples != next.samples {
                    break;
                }
                (last, next, skipped) = (inner_name, inner, skipped + 1);
            }
            let text = match skipped {
                0 => name.clone(),
                1 => format!("{name} > {last}"),
                _ => format!("{name} > ({} more) > {last}", skipped - 1),
            };
            self.left -= 1;
            let text = self.style.name(&text, 12 + indent);
            // Writing to a String cannot fail.
            let _ = writeln!(self.out, "  {share:>5.1} % {:indent$}{text}", "");
            self.branch(next, (indent + 2).min(60));
        }
    }
}
