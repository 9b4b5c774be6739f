//! Folded stacks: one line per stack, outermost frame first, frames separated by `;`, then a space and the weight in
//! sampling periods.
//!
//! `;` inside a frame is written `\x3b`, a newline `\n`, other control characters as Rust escapes them, a backslash
//! `\\`.

use crate::stacks::{Line, Profile};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Folded stacks with the executing line of semantic frames.
pub fn render(profile: &Profile) -> String {
    fold(profile, Line::folded)
}

/// Folded stacks, each frame named by `text`. Stacks with equal text are merged into one line.
pub fn fold(profile: &Profile, mut text: impl FnMut(&Line) -> String) -> String {
    let texts: Vec<String> = profile.lines.iter().map(|line| escape(&text(line))).collect();
    let mut merged: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let names = stack.lines.iter().rev().filter_map(|i| texts.get(*i as usize));
        let key = names.map(String::as_str).collect::<Vec<_>>().join(";");
        let key = if key.is_empty() { "[no frames]".to_owned() } else { key };
        *merged.entry(key).or_default() += stack.weight;
    }
    let mut out = String::new();
    for (stack, weight) in merged {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{stack} {weight}");
    }
    out
}

/// A frame's text in a folded stack.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ';' => out.push_str("\\x3b"),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_escaped() {
        assert_eq!(escape("<[u8; 4]>::f\n\\\u{1b}"), "<[u8\\x3b 4]>::f\\n\\\\\\u{1b}");
    }
}
