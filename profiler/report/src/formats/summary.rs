//! The summary for a terminal: what was obtained, what was lost, where the time went.

mod facts;
mod table;
mod tree;

use crate::recording::Recording;
use crate::stacks::Profile;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Use colours.
    pub colour: bool,
    /// Columns of the terminal; long names are cut to it.
    pub width: usize,
}

impl Style {
    /// A heading.
    fn heading(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[1m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Something that the reader should not miss.
    fn alert(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[33m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A name, made printable and cut to what is left beside `used` columns.
    fn name(self, name: &str, used: usize) -> String {
        let name = super::printable(name);
        let room = self.width.saturating_sub(used).max(20);
        if name.chars().count() <= room {
            return name;
        }
        let head: String = name.chars().take(room - 1).collect();
        format!("{head}…")
    }
}

/// The whole summary. `unusable`: objects without names, and why.
pub fn render(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut out = facts::render(recording, profile, unusable, style);
    if !recording.samples.is_empty() {
        out.push('\n');
        out.push_str(&table::render(profile, style));
        out.push('\n');
        out.push_str(&tree::render(profile, style));
    }
    out
}

/// `part` of `whole` as a percentage.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}
