//! The summary for a terminal: what was recorded, what was lost, where the time went.

mod facts;
mod fatal;
mod hints;
mod table;
mod tree;
mod waits;

pub use waits::single_waits;

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

    /// A name, made printable and cut to the columns that remain beside `used` columns: first the path is cut, then the
    /// end.
    fn name(self, name: &str, used: usize) -> String {
        let name = super::printable(name);
        let room = self.width.saturating_sub(used).max(20);
        let too_much = name.chars().count().saturating_sub(room);
        if too_much == 0 {
            return name;
        }
        if let Some((function, path)) = name.rsplit_once(" (").filter(|(_, path)| path.contains('/')) {
            // The mark takes one column, and what is cut begins with a slash, or is longer than it.
            let tail: String = path.chars().skip(too_much).collect();
            if let Some((_, rest)) = tail.split_once('/') {
                return format!("{function} (…/{rest}");
            }
        }
        let head: String = name.chars().take(room - 1).collect();
        format!("{head}…")
    }
}

/// The whole summary. `unusable`: objects (indices in the recording) whose names cannot be used, and the reason.
pub fn render(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut out = facts::render(recording, profile, unusable, style);
    hints::render(recording, profile, style, &mut out);
    out.push_str(&fatal::render(recording, profile, style));
    if !recording.samples.is_empty() {
        out.push('\n');
        out.push_str(&waits::render(recording, profile, style));
        out.push_str(&table::render(recording, profile, style));
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

/// A number with its noun in singular or plural.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_the_function_and_the_end_of_the_path() {
        let style = Style { colour: false, width: 50, verbose: false };
        let name = "work (/usr/lib/runtime/dist-packages/package/module.py:12)";
        assert_eq!(style.name(name, 10), "work (…/package/module.py:12)");
        let name = "work (../../sysdeps/unix/sysv/linux/x86_64/write.c:26)";
        assert_eq!(style.name(name, 10), "work (…/unix/sysv/linux/x86_64/write.c:26)".replace("unix/", ""));
        assert_eq!(style.name("short (/a.py)", 10), "short (/a.py)");
        let long = "a_very_long_function_name_without_a_path_in_it";
        assert_eq!(style.name(long, 10), "a_very_long_function_name_without_a_pat…");
        assert_eq!(style.name("esc\u{1b}[1m", 10), "esc\\u{1b}[1m");
    }
}
