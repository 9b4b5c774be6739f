//! Flame graph: stacks merged by function, colours by language, made with inferno. It has a search field and zooms.

use super::folded::{escape, fold};
use crate::recording::Recording;
use crate::stacks::{Kind, Line, Profile};
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{from_lines, Options};

/// Draws the flame graph. An error when there is nothing to draw.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    let folded = fold(profile, Line::merged);
    if folded.is_empty() {
        return Err("the recording has no samples, so there is nothing to draw".to_owned());
    }
    let mut palette = PaletteMap::default();
    for line in &profile.lines {
        let name = escape(&line.merged());
        let colour = colour(line.kind, &name);
        palette.insert(name, colour);
    }
    let mut options = Options::default();
    options.title = format!("CPU: {}", escape(&super::command(recording)));
    options.subtitle =
        Some("blue: interpreted code, green: made at run time, orange: machine code, grey: remarks".to_owned());
    options.count_name = "periods".to_owned();
    options.palette_map = Some(&mut palette);
    let mut out = Vec::new();
    from_lines(&mut options, folded.lines(), &mut out).map_err(|e| e.to_string())?;
    Ok(out)
}

/// A colour of the language's family; the name picks the shade, so that a function looks the same in every graph.
fn colour(kind: Kind, name: &str) -> Color {
    let shade = (uunwind_ring::facts::key(name.as_bytes()) >> 32) as u8 % 48;
    let (r, g, b) = match kind {
        Kind::Semantic => (90 + shade, 150 + shade, 225),
        Kind::Jit => (90 + shade, 190 + shade / 2, 90),
        Kind::Native => (225 + shade / 2, 120 + shade, 50),
        Kind::Inlined => (235, 170 + shade, 110),
        Kind::Marker => (150 + shade / 2, 150 + shade / 2, 150 + shade / 2),
    };
    Color { r, g, b }
}
