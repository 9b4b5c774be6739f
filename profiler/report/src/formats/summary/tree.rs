//! A short tree of the branches with most weight, from the outermost frame towards the leaf. The whole tree is never
//! built: a recording may have a million distinct stacks, of which a few branches are printed. It shows the program:
//! what starts it and its threads is left out, and the interpreter's own code is charged to the line that called it.

use super::parts::Programs;
use super::{percent, starts, Style};
use crate::charge::without_internals;
use crate::stacks::{Line, Profile};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::Write;

/// Smallest share of a branch that is printed, in percent of all weight.
const SMALLEST: f64 = 5.0;
/// Most lines that are printed, and of a verbose summary.
const LINES: usize = 10;
const VERBOSE_LINES: usize = 40;
/// The heading.
const TIME: &str = "Where the time is (outermost first)";
const MEMORY: &str = "Where the memory is (outermost first)";
/// Depth at which a row ends. Hostile stacks are cut here.
const DEPTH: usize = 256;

/// What is left of a stack inside the branches that lead to it.
struct Branch<'p> {
    /// Leaf first.
    lines: &'p [u32],
    weight: u64,
}

/// A row before its inner frames are looked at; the heaviest comes first, then the one that was found first.
struct Pending<'p> {
    weight: u64,
    found: Reverse<usize>,
    caller: Option<usize>,
    /// The frame by which its branches were put together; none: a program's name.
    name: String,
    branches: Vec<Branch<'p>>,
}

impl Ord for Pending<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.weight, self.found).cmp(&(other.weight, other.found))
    }
}

impl PartialOrd for Pending<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending<'_> {}

/// The rows that may come next.
struct Heap<'p> {
    pending: BinaryHeap<Pending<'p>>,
    found: usize,
    total: u64,
}

impl<'p> Heap<'p> {
    /// Adds the rows below one; small ones are left out.
    fn add(&mut self, caller: Option<usize>, named: Vec<(String, Vec<Branch<'p>>)>) {
        let weigh = |branches: &[Branch<'_>]| branches.iter().fold(0u64, |sum, one| sum.saturating_add(one.weight));
        let mut named: Vec<_> = named.into_iter().map(|(name, branches)| (weigh(&branches), name, branches)).collect();
        named.retain(|(weight, ..)| percent(*weight, self.total) >= SMALLEST);
        named.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (weight, name, branches) in named {
            self.found += 1;
            self.pending.push(Pending { weight, found: Reverse(self.found), caller, name, branches });
        }
    }
}

/// A row, and the rows below it.
struct Row {
    text: String,
    weight: u64,
    inner: Vec<usize>,
}

/// `lines`: those of the profile, with paths as people say them. `programs`: the rows begin with them.
pub fn render(profile: &Profile, lines: &[Line], programs: Option<&Programs>, style: Style) -> String {
    let names = Names::new(lines);
    let total = profile.stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight));
    let charged = profile.stacks.iter().enumerate().filter_map(|(at, stack)| {
        let Cow::Owned(lines) = without_internals(profile, &stack.lines) else { return None };
        Some((at, lines.into()))
    });
    let charged: HashMap<usize, Box<[u32]>> = charged.collect();
    let mut outer: BTreeMap<Option<&str>, Vec<Branch<'_>>> = BTreeMap::new();
    for (at, stack) in profile.stacks.iter().enumerate() {
        let lines = charged.get(&at).unwrap_or(&stack.lines);
        let lines = lines.get(..lines.len() - starts::outermost(profile, lines)).unwrap_or_default();
        let branch = Branch { lines, weight: stack.weight };
        outer.entry(programs.and_then(|programs| programs.of(stack.thread))).or_default().push(branch);
    }
    let mut heap = Heap { pending: BinaryHeap::new(), found: 0, total };
    let first = outer.into_iter().flat_map(|(program, branches)| match program {
        Some(program) => vec![(program.to_owned(), branches)],
        None => names.split(branches),
    });
    heap.add(None, first.collect());
    let mut rows: Vec<Row> = Vec::new();
    let mut roots = Vec::new();
    let most = if style.verbose { VERBOSE_LINES } else { LINES };
    while rows.len() < most {
        let Some(Pending { weight, caller, name, mut branches, .. }) = heap.pending.pop() else { break };
        let text = names.run(name, &mut branches);
        let row = rows.len();
        match caller.and_then(|caller| rows.get_mut(caller)) {
            Some(caller) => caller.inner.push(row),
            None => roots.push(row),
        }
        rows.push(Row { text, weight, inner: Vec::new() });
        heap.add(Some(row), names.split(branches));
    }
    let title = if profile.held.is_some() { MEMORY } else { TIME };
    let mut out = format!("{}\n", style.heading(title));
    print(&rows, roots, total, style, &mut out);
    if !heap.pending.is_empty() {
        let more = if style.verbose { "use -o x.svg or -f folded" } else { "with -v, or -o x.svg" };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  (more branches: {more})");
    }
    out
}

/// The rows in the order of the tree.
fn print(rows: &[Row], roots: Vec<usize>, total: u64, style: Style, out: &mut String) {
    let (mut open, mut order) = (roots.into_iter().rev().map(|row| (row, 0)).collect::<Vec<_>>(), Vec::new());
    while let Some((at, indent)) = open.pop() {
        let Some(row) = rows.get(at) else { continue };
        order.push((row, indent));
        open.extend(row.inner.iter().rev().map(|inner| (*inner, (indent + 2).min(60))));
    }
    let texts: Vec<String> = order.iter().map(|(row, _)| row.text.clone()).collect();
    // By the deepest: how names are cut does not depend on where they stand.
    let deepest = order.iter().map(|(_, indent)| *indent).max().unwrap_or(0);
    let (shown, legend) = style.names_with_legend(&texts, 12 + deepest);
    for ((row, indent), text) in order.iter().zip(shown) {
        let _ = writeln!(out, "  {:>5.1} % {:indent$}{text}", percent(row.weight, total), "");
    }
    out.push_str(&legend);
}

/// The names of the lines, each text once.
struct Names {
    list: Vec<String>,
    /// Index in `list` of the name of each line.
    of_line: Vec<u32>,
}

impl Names {
    fn new(lines: &[Line]) -> Names {
        let (mut known, mut list) = (HashMap::new(), Vec::new());
        let of_line = lines.iter().map(|line| {
            *known.entry(line.merged()).or_insert_with_key(|name: &String| {
                list.push(name.clone());
                list.len() as u32 - 1
            })
        });
        let of_line = of_line.collect();
        Names { list, of_line }
    }

    /// The name of the outermost frame that is left of a branch.
    fn next(&self, branch: &Branch<'_>) -> Option<u32> {
        let line = branch.lines.last()?;
        self.of_line.get(*line as usize).copied()
    }

    /// Takes the outermost frame, and those inside it that are the same function: a recursion is one frame.
    fn step(&self, branch: &mut Branch<'_>) {
        let name = self.next(branch);
        while let Some((_, inner)) = branch.lines.split_last().filter(|_| self.next(branch) == name) {
            branch.lines = inner;
        }
    }

    /// Branches by their next frame, which is taken. Those that end here are left out.
    fn split<'p>(&self, branches: Vec<Branch<'p>>) -> Vec<(String, Vec<Branch<'p>>)> {
        let mut by_name: HashMap<u32, Vec<Branch<'p>>> = HashMap::new();
        for mut branch in branches {
            if let Some(name) = self.next(&branch) {
                self.step(&mut branch);
                by_name.entry(name).or_default().push(branch);
            }
        }
        let text = |name: u32| self.list.get(name as usize).cloned().unwrap_or_default();
        by_name.into_iter().map(|(name, branches)| (text(name), branches)).collect()
    }

    /// The text of a row that begins with a frame: a run of frames without branching becomes one row with its two ends.
    /// Takes these frames.
    fn run(&self, first: String, branches: &mut [Branch<'_>]) -> String {
        let (mut frames, mut last) = (1, None);
        while frames < DEPTH {
            let Some(name) = branches.first().and_then(|branch| self.next(branch)) else { break };
            if !branches.iter().all(|branch| self.next(branch) == Some(name)) {
                break;
            }
            branches.iter_mut().for_each(|branch| self.step(branch));
            (frames, last) = (frames + 1, self.list.get(name as usize));
        }
        match (frames, last) {
            (_, None) => first,
            (2, Some(last)) => format!("{first} > {last}"),
            (frames, Some(last)) => format!("{first} > ({} more) > {last}", frames - 2),
        }
    }
}
