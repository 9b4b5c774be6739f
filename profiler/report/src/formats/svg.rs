//! Flame graph, root at the top: stacks merged by function, coloured by language, drawn by inferno. It can be searched
//! and zoomed.

mod places;

use super::folded::escape;
use crate::paths::shortened;
use crate::stacks::{Kind, Profile};
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{from_lines, Direction, Options, TextTruncateDirection};
use places::Frames;
use std::fmt::Write;
use uunwind_recording::{Held, Recording, Unit};

/// Levels of frames that a browser window shows without scrolling, at 900 pixels and 16 pixels a level.
const SCREEN: usize = 45;
/// Candidates for the smallest width of a frame that is drawn, in percent of the picture. The first is less than a
/// pixel; the others are tried in order while narrow frames alone would make the picture higher than a screen.
const NARROWEST: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 1.0];
/// Longest title, in characters; a longer one would leave the picture on both sides.
const TITLE: usize = 130;

/// Draws the flame graph. An error when there is nothing to draw.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    if profile.stacks.is_empty() {
        return Err("the recording has no samples, so there is nothing to draw".to_owned());
    }
    let lines = shortened(recording, &profile.lines);
    let frames = Frames::new(&lines, &profile.stacks);
    let mut palette = PaletteMap::default();
    // The root, which has no name.
    palette.insert(String::new(), Color { r: 200, g: 200, b: 200 });
    for line in &lines {
        let name = escape(&line.merged());
        let colour = colour(line.kind, &name);
        palette.insert(name, colour);
    }
    let narrowest = narrowest(&frames);
    let mut options = Options::default();
    options.direction = Direction::Inverted;
    // A function's name precedes its file.
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.min_width = narrowest;
    // `frames` has put the lines in order, and relies on it. inferno takes lines as they are, last one first, for
    // charts only: otherwise they must be sorted by name.
    options.flame_chart = true;
    let grown = profile.held.and_then(super::grown).map(|text| format!("Memory {text}"));
    let title = match profile.held {
        Some(Held::Grown(..)) => grown.as_deref().unwrap_or_default(),
        Some(Held::Peak) => "Memory held at its peak",
        Some(Held::End | Held::Now) => "Memory held at the end",
        Some(Held::Total) => "Memory allocated",
        Some(Held::Temporary) => "Memory freed before the thread's next allocation",
        None => recording.value().title,
    };
    options.title = format!("{title}: {}", escape(&super::title(recording, TITLE)).replace("\\\\", "\\"));
    let is_wall = super::is_wall(recording);
    options.subtitle = Some(subtitle(&frames, narrowest, is_wall));
    options.count_name = match recording.value().unit {
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
        Unit::Time | Unit::Count => "periods",
    }
    .to_owned();
    options.palette_map = Some(&mut palette);
    let mut out = Vec::new();
    from_lines(&mut options, frames.folded().iter().rev().map(String::as_str), &mut out).map_err(|e| e.to_string())?;
    Ok(visible_search(&frames.add_lines(&String::from_utf8_lossy(&out))).into_bytes())
}

/// inferno draws the word that opens the search so faintly that nobody finds it.
pub fn visible_search(svg: &str) -> String {
    svg.replacen("opacity:0.1; cursor:pointer", "opacity:0.75; cursor:pointer", 1)
}

/// The smallest width of a frame that is drawn, in percent. A picture is higher than a screen only if wide frames are
/// deep as well.
fn narrowest(frames: &Frames) -> f64 {
    let fits = NARROWEST.into_iter().find(|width| frames.depth(*width) <= SCREEN);
    let deepest = frames.depth(1.0);
    // A higher limit that does not make the picture fit would hide frames for nothing.
    fits.or_else(|| NARROWEST.into_iter().find(|width| frames.depth(*width) == deepest)).unwrap_or(1.0)
}

fn subtitle(frames: &Frames, narrowest: f64, is_wall: bool) -> String {
    let mut text = "blue: interpreted, green: made at run time, orange: machine code, grey: remarks".to_owned();
    if is_wall {
        text += ", violet: waiting";
    }
    let hidden = frames.narrower(narrowest);
    if hidden > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {hidden} frames narrower than {narrowest} % are not drawn");
    }
    text
}

/// A colour of the language's range. The name selects the shade, so a function has the same colour in every graph.
fn colour(kind: Kind, name: &str) -> Color {
    let shade = (uunwind_core::object_key::key(name.as_bytes()) >> 32) as u8 % 48;
    let (r, g, b) = match kind {
        Kind::Semantic => (90 + shade, 150 + shade, 225),
        Kind::Awaiting => (150 + shade, 180 + shade / 2, 230),
        Kind::Jit => (90 + shade, 190 + shade / 2, 90),
        Kind::Native => (225 + shade / 2, 120 + shade, 50),
        Kind::Inlined => (235, 170 + shade, 110),
        Kind::Kernel => (200 + shade / 2, 90, 60 + shade),
        Kind::Waiting => (175 + shade / 2, 130 + shade / 2, 200),
        Kind::Marker => (150 + shade / 2, 150 + shade / 2, 150 + shade / 2),
    };
    Color { r, g, b }
}
