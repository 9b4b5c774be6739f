//! The text that names a chunk's source: the name after `@` or `=`; or, if the source is the program's own text,
//! `[string "its first line..."]`, as the runtimes print it: `luaO_chunkid`
//! (<https://github.com/lua/lua/blob/v5.4.0/lobject.c>) and `lj_debug_shortname`
//! (<https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_debug.c>).

use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Text, OWN_TEXT};

/// Limit of bytes of a composed text (`LUA_IDSIZE`).
pub const ID_SIZE: usize = 60;

const BEGIN: &[u8; PREFIX] = b"[string \"";
const BUILTIN: &[u8; PREFIX] = b"[builtin:";
const PREFIX: usize = 9;
const CUT: &[u8] = b"...";

/// Number of a source's first bytes that determine the text.
const HEAD: usize = ID_SIZE - PREFIX;

/// How a runtime composes and truncates the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// As Lua 5.1 does.
    Lua51,
    /// As Lua 5.2 and later do.
    Lua,
    /// As LuaJIT does.
    LuaJit,
    /// As LuaJIT does for its own functions that are written in Lua: the source is a name.
    LuaJitBuiltin,
}

impl Style {
    /// Limits in bytes: of a line that is shown whole, and of a truncated one.
    fn limits(self) -> (usize, usize) {
        match self {
            Style::Lua51 => (43, 43),
            Style::Lua => (44, 45),
            Style::LuaJit | Style::LuaJitBuiltin => (48, 45),
        }
    }

    /// Does this byte end the first line?
    fn ends_line(self, byte: u8) -> bool {
        match self {
            Style::Lua51 => byte == b'\n' || byte == b'\r',
            Style::Lua => byte == b'\n',
            Style::LuaJit | Style::LuaJitBuiltin => byte < b' ',
        }
    }

    /// The text before the line and after it.
    fn frame(self) -> (&'static [u8; PREFIX], &'static [u8]) {
        match self {
            Style::LuaJitBuiltin => (BUILTIN, b"]"),
            _ => (BEGIN, b"\"]"),
        }
    }
}

/// Limit of bytes of a name; of a longer one the last ones are shown.
const NAME_LIMIT: u32 = 512;

/// The part of a chunk's source from which the text follows.
#[derive(Clone, Copy)]
pub struct Source {
    /// The bytes that are shown; or the first [`HEAD`] bytes of a source that is no name.
    text: Text,
    /// Bytes of the whole source.
    len: u32,
    /// `text` is shown as it is.
    is_name: bool,
}

impl Source {
    /// The source in the bytes of a string object. `None`: they are unreadable.
    #[inline(never)]
    pub fn of(guest: &Guest<'_>, string: Text) -> Option<Source> {
        let first = if string.len == 0 { 0 } else { guest.byte(string.address)? };
        let is_name = matches!(first, b'@' | b'=');
        let len = match is_name {
            true => string.len.wrapping_sub(1).min(NAME_LIMIT),
            false => string.len.min(HEAD as u32),
        };
        let skipped = if is_name { string.len.wrapping_sub(len) } else { 0 };
        let text = Text { address: string.address.wrapping_add(u64::from(skipped)), len, ..string };
        Some(Source { text, len: string.len, is_name })
    }

    /// A source with a name that the plugin itself gives it.
    pub fn named(text: Text) -> Source {
        Source { text, len: text.len, is_name: true }
    }

    /// A checksum of all that the text follows from. `None`: it is unreadable.
    pub fn sum(&self, guest: &Guest<'_>) -> Option<u64> {
        Some(guest.sum(&self.text)?.wrapping_add(u64::from(self.len) << 1 | u64::from(self.is_name)))
    }

    /// The text; composed in `room`, if it is not in the process as it stands. `None`: the source is unreadable.
    #[inline(never)]
    pub fn shown(&self, guest: &Guest<'_>, style: Style, room: &mut [u8; ID_SIZE]) -> Option<Text> {
        if self.is_name {
            return Some(self.text);
        }
        let head = room.get_mut(PREFIX..)?.get_mut(..self.text.len as usize)?;
        if !guest.bytes(self.text.address, head) {
            return None;
        }
        let len = compose(style, room, self.text.len as usize, self.len.into());
        let utf8 = self.text.utf8 | OWN_TEXT;
        Some(Text { address: room.as_ptr() as u64, len: len as u32, utf8, ..self.text })
    }
}

/// Writes the text for a source of `len` bytes, whose first `head` bytes are in `room` already, after the prefix.
/// Returns the length of the text in bytes. In place, since a handler's stack is short.
fn compose(style: Style, room: &mut [u8; ID_SIZE], head: usize, len: u64) -> usize {
    let (begin, end) = style.frame();
    let (whole, cut) = style.limits();
    let (prefix, rest) = room.split_at_mut(PREFIX);
    prefix.iter_mut().zip(begin).for_each(|(to, from)| *to = *from);
    let bytes = rest.get(..head).unwrap_or_default();
    // The runtimes use C's string functions here, which end at a zero byte.
    let text = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let line = bytes.iter().take(text).position(|byte| style.ends_line(*byte)).unwrap_or(text);
    let is_all = line == text && (text < bytes.len() || bytes.len() as u64 == len);
    let (shown, cut) = match is_all && line <= whole {
        true => (line, &b""[..]),
        false => (line.min(cut), CUT),
    };
    let after = cut.iter().chain(end);
    let written = rest.iter_mut().skip(shown).zip(after).map(|(to, from)| *to = *from).count();
    PREFIX.wrapping_add(shown).wrapping_add(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(style: Style, source: &str) -> String {
        let mut room = [0; ID_SIZE];
        let head = source.len().min(HEAD);
        room[PREFIX..][..head].copy_from_slice(&source.as_bytes()[..head]);
        let len = compose(style, &mut room, head, source.len() as u64);
        String::from_utf8(room[..len].to_vec()).expect("what was given")
    }

    /// As `debug.getinfo(f, "S").short_src` of Lua 5.1.5, 5.4.4 and LuaJIT 2.1 is for lines of these lengths.
    #[test]
    fn texts_are_those_of_the_runtimes() {
        for style in [Style::Lua51, Style::Lua, Style::LuaJit] {
            assert_eq!(id(style, "return 1"), "[string \"return 1\"]");
            assert_eq!(id(style, "return 1\nreturn 2"), "[string \"return 1...\"]");
            assert_eq!(id(style, "\n"), "[string \"...\"]");
            assert_eq!(id(style, ""), "[string \"\"]");
        }
        let line = |count| "x".repeat(count);
        let shown = |style, count| id(style, &line(count));
        let (whole, cut) = (|n| format!("[string \"{}\"]", line(n)), |n| format!("[string \"{}...\"]", line(n)));
        assert_eq!([43, 44, 99].map(|n| shown(Style::Lua51, n)), [whole(43), cut(43), cut(43)]);
        assert_eq!([44, 45, 99].map(|n| shown(Style::Lua, n)), [whole(44), cut(45), cut(45)]);
        assert_eq!([47, 48, 49, 99].map(|n| shown(Style::LuaJit, n)), [whole(47), whole(48), cut(45), cut(45)]);
        assert_eq!(id(Style::LuaJit, &(line(47) + "\n")), cut(45));
        assert_eq!(id(Style::LuaJit, "a\tb"), "[string \"a...\"]");
        assert_eq!(id(Style::LuaJit, "a\0b"), "[string \"a\"]");
        assert_eq!(id(Style::LuaJitBuiltin, "foreach"), "[builtin:foreach]");
        assert_eq!(id(Style::Lua51, "a\rb"), "[string \"a...\"]");
        assert_eq!(id(Style::Lua, "a\rb"), "[string \"a\rb\"]");
    }
}
