//! A flame graph of the second of two recordings, coloured by what changed since the first.

use super::names::names;
use super::{samples, Shares};
use crate::formats::folded::fold;
use crate::formats::printable;
use crate::formats::svg::visible_search;
use crate::stacks::Profile;
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{from_lines, Direction, Options, TextTruncateDirection};
use std::collections::{BTreeMap, HashMap};

/// Both recordings are scaled to this, fine enough for one sample in a million.
const WHOLE: f64 = 1e6;
/// What inferno says a box has.
const COUNT: &str = "millionths";
/// Above the stacks that only the first recording has.
const GONE: &str = "[only before]";
/// Around a box's number in its name, until it is drawn: characters that no name has.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

/// A box: what is called on one way from the root.
struct Box {
    /// Shares of both recordings, in percent.
    shares: [f64; 2],
    /// It stands below [`GONE`].
    is_gone: bool,
}

/// The boxes by their parents and names.
#[derive(Default)]
struct Tree {
    known: HashMap<(Option<usize>, bool, String), usize>,
    boxes: Vec<Box>,
}

impl Tree {
    /// The boxes of a stack, outermost first, each with what this stack has.
    fn add(&mut self, stack: &str, shares: [f64; 2], is_gone: bool) -> Vec<usize> {
        let mut parent = None;
        let mut way = Vec::new();
        for name in stack.split(';') {
            let next = self.boxes.len();
            let at = *self.known.entry((parent, is_gone, name.to_owned())).or_insert(next);
            if at == next {
                self.boxes.push(Box { shares: [0.0; 2], is_gone });
            }
            if let Some(found) = self.boxes.get_mut(at) {
                found.shares = [found.shares[0] + shares[0], found.shares[1] + shares[1]];
            }
            parent = Some(at);
            way.push(at);
        }
        way
    }
}

/// A flame graph of the second recording: red where a share grew, blue where it shrank, white where it did not change
/// by more than chance explains. What only the first one has stands beside it, below a remark.
pub fn picture(before: &Profile, after: &Profile, title: &str) -> Result<Vec<u8>, String> {
    let mut stacks: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    let both = names(before, after);
    for ((side, profile), names) in [before, after].into_iter().enumerate().zip(&both) {
        let whole: u64 = profile.stacks.iter().map(|stack| stack.weight).sum();
        let mut named = names.iter();
        let folded = fold(profile, |_| named.next().map(|name| name.replace([OPEN, CLOSE], "")).unwrap_or_default());
        for line in folded.lines() {
            let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
            let weight: u64 = weight.parse().unwrap_or(0);
            stacks.entry(stack.to_owned()).or_default()[side] += weight as f64 * 100.0 / whole.max(1) as f64;
        }
    }
    if stacks.is_empty() {
        return Err("neither recording has samples, so there is nothing to draw".to_owned());
    }
    let mut tree = Tree::default();
    let mut lines = Vec::new();
    for (stack, shares) in &stacks {
        let is_gone = shares[1] == 0.0;
        let mut way = tree.add(stack, *shares, false);
        let mut line = String::new();
        if is_gone {
            // It had this share in the first recording: its boxes there do not change by its being drawn here.
            way = tree.add(stack, *shares, true);
            line = format!("{GONE};");
        }
        let boxes = stack.split(';').zip(&way).map(|(name, number)| format!("{name}{OPEN}{number}{CLOSE}"));
        line += &boxes.collect::<Vec<_>>().join(";");
        let width = if is_gone { shares[0] } else { shares[1] };
        lines.push(format!("{line} {}", (width * WHOLE / 100.0) as u64));
    }
    let samples = samples(before, after);
    let mut palette = PaletteMap::default();
    let greatest = tree.boxes.iter().map(|b| Shares::new(b.shares, samples).growth().abs()).fold(1.0, f64::max);
    for line in &lines {
        for name in line.rsplit_once(' ').map_or("", |(stack, _)| stack).split(';') {
            let found = number(name).and_then(|number| tree.boxes.get(number));
            let colour = found.map_or(GREY, |found| colour(Shares::new(found.shares, samples), greatest));
            palette.insert(name.to_owned(), colour);
        }
    }
    palette.insert(String::new(), GREY);
    let mut options = Options::default();
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.min_width = 0.1;
    options.title = printable(title);
    options.subtitle = Some(
        "red: a greater share than before, blue: a smaller one, white: no change beyond what chance explains"
            .to_owned(),
    );
    options.count_name = COUNT.to_owned();
    options.palette_map = Some(&mut palette);
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut out).map_err(|e| e.to_string())?;
    let gone: f64 = stacks.values().filter(|shares| shares[1] == 0.0).map(|shares| shares[0]).sum();
    let shown = with_shares(&String::from_utf8_lossy(&out), &tree.boxes);
    let shown = with_tooltip(&with_tooltip(&shown, "all", "all"), GONE, &format!("{GONE} ({gone:.2} % before)"));
    Ok(visible_search(&shown).into_bytes())
}

/// Of boxes that compare nothing.
const GREY: Color = Color { r: 220, g: 220, b: 220 };

/// The colour of a box. `greatest`: the greatest change in the picture, in points.
fn colour(shares: Shares, greatest: f64) -> Color {
    if !shares.has_changed() {
        return Color { r: 245, g: 245, b: 245 };
    }
    let pale = (215.0 - 150.0 * (shares.growth().abs() / greatest).min(1.0)) as u8;
    match shares.growth() > 0.0 {
        true => Color { r: 255, g: pale, b: pale },
        false => Color { r: pale, g: pale, b: 255 },
    }
}

/// The number of the box in its name.
fn number(name: &str) -> Option<usize> {
    name.split_once(OPEN)?.1.split_once(CLOSE)?.0.parse().ok()
}

/// The picture without the boxes' numbers: a tooltip has the shares of its box.
fn with_shares(svg: &str, boxes: &[Box]) -> String {
    let mut out = String::with_capacity(svg.len());
    let mut rest = svg;
    while let Some((head, tail)) = rest.split_once(OPEN) {
        out.push_str(head);
        // In a tooltip: the number, and what inferno says of the box. In a box's text, which may be cut anywhere:
        // nothing that a reader would miss.
        let (inside, after) = tail.split_at(tail.find('<').unwrap_or(tail.len()));
        if out.rfind("<title>") > out.rfind("</title>") {
            let found = inside.split_once(CLOSE).and_then(|(number, _)| boxes.get(number.parse::<usize>().ok()?));
            out.push_str(&found.map_or_else(String::new, said));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The picture with this tooltip for the box with this name, of which inferno says how wide it is drawn.
fn with_tooltip(svg: &str, name: &str, tooltip: &str) -> String {
    let begin = format!("<title>{name} (");
    let Some((head, tail)) = svg.split_once(&begin) else { return svg.to_owned() };
    let Some((_, tail)) = tail.split_once("</title>") else { return svg.to_owned() };
    format!("{head}<title>{tooltip}</title>{tail}")
}

/// A box's shares, as its tooltip has them. The last bracket is what the page takes for no part of the name.
fn said(found: &Box) -> String {
    let [before, after] = found.shares;
    match found.is_gone {
        true => format!(" ({before:.2} % before, none now)"),
        false => format!(" ({after:.2} %, {before:.2} % before: {:+.2} points)", after - before),
    }
}
