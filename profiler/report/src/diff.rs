//! Two recordings compared: where the share of a function in the CPU time changed. Shares, not times, are compared: two
//! runs seldom do the same amount of work.

use crate::formats::folded::fold;
use crate::formats::printable;
use crate::formats::svg::visible_search;
use crate::stacks::{Line, Profile};
use inferno::flamegraph::{from_lines, Direction, Options, TextTruncateDirection};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    let mut changes: Vec<Change> =
        shares.into_iter().map(|(function, (own, total))| Change { function, own, total }).collect();
    changes.sort_by(|a, b| b.change_of_own().abs().total_cmp(&a.change_of_own().abs()));
    changes
}

/// By which a function of either recording is known in both: the names of the lines of each. The same code in another
/// folder is the same function, so an interpreted function has its file's name only; with as many of its folders as
/// distinguish it from another one in the same recording.
fn names(before: &Profile, after: &Profile) -> [Vec<String>; 2] {
    let mut depths: HashMap<(&str, &str), usize> = HashMap::new();
    for profile in [before, after] {
        let mut files: HashMap<(&str, &str), HashSet<&str>> = HashMap::new();
        for line in profile.lines.iter().filter(|line| has_file(line)) {
            files.entry((&line.function, tail(&line.file, 1))).or_default().insert(&line.file);
        }
        for (key, files) in files {
            let most = files.iter().map(|file| file.split('/').count()).max().unwrap_or(1);
            let differ = |depth: &usize| {
                files.iter().map(|file| tail(file, *depth)).collect::<HashSet<_>>().len() == files.len()
            };
            let depth = (1..=most).find(differ).unwrap_or(most);
            let known = depths.entry(key).or_default();
            *known = depth.max(*known);
        }
    }
    [before, after].map(|profile| {
        let name = |line: &Line| match has_file(line) {
            true => {
                let depth = depths.get(&(line.function.as_str(), tail(&line.file, 1))).copied().unwrap_or(1);
                format!("{} ({})", line.function, tail(&line.file, depth))
            }
            false => line.merged(),
        };
        profile.lines.iter().map(name).collect()
    })
}

/// Whether a function is known by its file, too.
fn has_file(line: &Line) -> bool {
    line.kind.is_semantic() && !line.file.is_empty()
}

/// The last `parts` parts of a path.
fn tail(path: &str, parts: usize) -> &str {
    path.rmatch_indices('/').nth(parts.saturating_sub(1)).map_or(path, |(at, _)| &path[at + 1..])
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

/// A flame graph of the second recording: red where a stack's share grew, blue where it shrank. What only the first one
/// has stands beside it, below a remark.
pub fn picture(before: &Profile, after: &Profile, title: &str) -> Result<Vec<u8>, String> {
    let mut stacks: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let both = names(before, after);
    for ((side, profile), names) in [before, after].into_iter().enumerate().zip(&both) {
        let whole: u64 = profile.stacks.iter().map(|stack| stack.weight).sum();
        let mut named = names.iter();
        let folded = fold(profile, |_| named.next().cloned().unwrap_or_default());
        for line in folded.lines() {
            let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
            let weight: u64 = weight.parse().unwrap_or(0);
            stacks.entry(stack.to_owned()).or_default()[side] += (weight as f64 * WHOLE / whole.max(1) as f64) as u64;
        }
    }
    if stacks.is_empty() {
        return Err("neither recording has samples, so there is nothing to draw".to_owned());
    }
    let is_gone = |shares: &[u64; 2]| shares[0] > 0 && shares[1] == 0;
    // A box is as wide as its second number, so what is gone has its former width, and half of what it is said to have
    // had: the difference colours it.
    let line = |(stack, shares): (&String, &[u64; 2])| match is_gone(shares) {
        true => format!("{GONE};{stack} {} {}", 2 * shares[0], shares[0]),
        false => format!("{stack} {} {}", shares[0], shares[1]),
    };
    let lines: Vec<String> = stacks.iter().map(line).collect();
    let gone: u64 = stacks.values().filter(|shares| is_gone(shares)).map(|shares| shares[0]).sum();
    let mut options = Options::default();
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.min_width = 0.1;
    options.title = printable(title);
    options.subtitle = Some("red: a greater share than before, blue: a smaller one".to_owned());
    options.count_name = COUNT.to_owned();
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut out).map_err(|e| e.to_string())?;
    let whole = stacks.values().map(|shares| shares[1]).sum::<u64>().max(1);
    let shown = with_shares(&String::from_utf8_lossy(&out), (whole + gone) as f64 / whole as f64);
    Ok(visible_search(&shown).into_bytes())
}

/// Both recordings are scaled to this, fine enough for one sample in a million.
const WHOLE: f64 = 1e6;
/// What a box has, as its tooltip says.
const COUNT: &str = "millionths";
/// Above the stacks that only the first recording has.
const GONE: &str = "[only before]";

/// The picture with tooltips whose shares are of the second recording, not of all that is drawn.
fn with_shares(svg: &str, drawn: f64) -> String {
    let mut out = String::with_capacity(svg.len());
    let mut rest = svg;
    let before = format!(" {COUNT}, ");
    while let Some((head, tail)) = rest.split_once(&before) {
        out.push_str(head);
        let Some((numbers, after)) = tail.split_once(")</title>") else {
            out.push_str(&before);
            rest = tail;
            continue;
        };
        let scaled = |text: &str| text.trim_end_matches('%').parse::<f64>().map(|percent| percent * drawn).ok();
        let mut parts = numbers.split("; ").map(scaled);
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(share), Some(change)) => out.push_str(&format!("{before}{share:.2}%; {change:+.2}%)</title>")),
            _ => out.push_str(&format!("{before}{numbers})</title>")),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
