//! The summary for a terminal: what was recorded, what was lost, where the time went.

mod facts;
mod fatal;
mod hints;
mod lock_waits;
mod locks;
mod memory;
mod names;
mod own_code;
mod parts;
mod samples;
mod starts;
mod table;
mod tree;
mod waits;

pub use waits::single_waits;

use crate::paths;
use crate::stacks::Profile;
use uunwind_recording::Recording;

/// How the summary is printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Use colours.
    pub colour: bool,
    /// Columns of the terminal; long names are cut to it.
    pub width: usize,
    /// Show what concerns the work of uu itself, too: plugins, replayed frames, what was done a slower way.
    pub verbose: bool,
}

/// The style of a summary in a file.
pub const PLAIN: Style = Style { colour: false, width: 100, verbose: false };

impl Style {
    /// A heading, bold if colours are used.
    fn heading(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[1m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A text that the reader should not miss, in colour if colours are used.
    fn alert(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[33m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The whole summary: how far it can be trusted, where the time is, and how it was recorded. `unusable`: objects (their
/// indices in the recording) whose names cannot be used, and the reason.
pub fn render(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut parts = vec![facts::head(recording, profile, style)];
    parts.extend(fatal::render(recording, profile, style));
    if !profile.stacks.is_empty() {
        let lines = paths::shortened(recording, &profile.lines);
        let printer = table::Printer::new(recording, profile, &lines, style);
        let [processes, threads] = parts::tables(recording, profile, &printer);
        let programs = parts::Programs::new(recording, profile);
        // The commands of a script are its lines.
        let (first, last) = if programs.is_some() { (processes, None) } else { (None, processes) };
        // The time of threads that wait, too, is how long each was there.
        let waits = profile.stacks.iter().any(|stack| profile.waits(stack));
        let threads = threads.filter(|_| programs.is_none() && !waits || style.verbose);
        parts.extend(first);
        parts.extend(lock_waits::render(recording, profile, &lines, style));
        parts.extend(waits::render(recording, profile, &lines, style));
        parts.push(tree::render(profile, &lines, programs.as_ref(), style));
        parts.extend(table::render(profile, &printer));
        parts.extend(last.into_iter().chain(threads));
    }
    let mut rest = facts::rest(recording, profile, unusable, style);
    hints::render(recording, profile, style, &mut rest);
    parts.push(rest);
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// `part` of `whole` as a percentage.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// A number with its noun in singular or plural.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
