//! Lua's strings as ranges of memory: the host copies, the report decodes. And the plugin's own names.

use super::facts::Facts;
use crate::walk::{Walk, RUN};
use uunwind_core::plugin::Text;

/// Where the bytes of a string begin, in all versions but for 5.5's long ones.
const DATA: u64 = 24;
/// `size_t` length: of all strings up to 5.2, of long ones later.
const LENGTH: u64 = 16;
/// `tt`, and the length of a short string (5.3 and later); 5.5: negative for a long one.
const TYPE: u64 = 8;
const SHORT_LENGTH: u64 = 11;
/// `tt` of strings, without the collectable bit: short and long (5.3 and later); up to 5.2 the kinds are both 4 in the low
/// four bits.
const STRING: u8 = 4;
const LONG: u8 = 0x10;
/// No longer string is a name.
const NAME_LIMIT: u64 = 1 << 20;
/// Bytes of a source text that is not a file's name.
const SOURCE_LINE: u32 = 60;

/// A text of nothing.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 1 };

/// Name of a chunk, which has no caller's instruction.
pub const MAIN: &[u8] = b"main chunk";
/// What a finalizer is called.
pub const FINALIZER: &[u8] = b"__gc";
/// What a debug hook is called.
pub const HOOK: &[u8] = b"hook";
/// What the iterator of a `for` loop is called.
pub const ITERATOR: &[u8] = b"for iterator";
/// What the debug library calls the field of an integer key.
pub const INTEGER: &[u8] = b"integer index";

/// Names of metamethods by the runtime's number of the event (`TMS`, 5.3 and later).
pub const EVENTS: [&[u8]; 25] = [
    b"__index",
    b"__newindex",
    b"__gc",
    b"__mode",
    b"__len",
    b"__eq",
    b"__add",
    b"__sub",
    b"__mul",
    b"__mod",
    b"__pow",
    b"__div",
    b"__idiv",
    b"__band",
    b"__bor",
    b"__bxor",
    b"__shl",
    b"__shr",
    b"__unm",
    b"__bnot",
    b"__lt",
    b"__le",
    b"__concat",
    b"__call",
    b"__close",
];

/// A text of the plugin's own.
pub fn own(bytes: &'static [u8]) -> Text {
    Text { address: bytes.as_ptr() as u64, len: bytes.len() as u32, width: 1, utf8: 1 }
}

/// The name of an event.
pub fn of_event(name: &'static [u8]) -> Text {
    own(name)
}

/// The bytes of a string object. `None`: it is no string.
pub fn of_string(walk: &Walk<'_>, facts: &Facts, string: u64) -> Option<Text> {
    if string == 0 || !string.is_multiple_of(8) {
        return None;
    }
    // Apart, since the collector's mark, which lies between them, comes and goes.
    let kind = walk.byte(string.wrapping_add(TYPE))?;
    if kind & 0xf != STRING {
        return None;
    }
    let short = walk.byte(string.wrapping_add(SHORT_LENGTH))?;
    let is_long = if facts.minor == 5 { short >= 0x80 } else { facts.minor <= 2 || kind & LONG != 0 };
    let (mut data, mut len) = (string.wrapping_add(DATA), u64::from(short));
    if is_long {
        len = walk.word(string.wrapping_add(LENGTH))?;
        if facts.minor == 5 {
            data = walk.word(data)?;
        }
    }
    (len < NAME_LIMIT).then_some(Text { address: data, len: len as u32, width: 1, utf8: 1 })
}

/// Bytes of a source that tell it from others: more than is shown of a program's text.
const TOLD_APART: u32 = 256;

/// What tells a source from one that lay at the same address before, and was collected: a number that stands for its first bytes, and for
/// how many there are. 0: they cannot be read.
#[inline(never)]
pub fn contents(walk: &Walk<'_>, facts: &Facts, source: u64) -> u64 {
    sum_of_contents(walk, facts, source).unwrap_or(0)
}

#[inline(always)]
fn sum_of_contents(walk: &Walk<'_>, facts: &Facts, source: u64) -> Option<u64> {
    let text = of_string(walk, facts, source)?;
    let len = text.len.min(TOLD_APART);
    let mut sum = u64::from(text.len);
    let mut at = 0;
    while at < len {
        let mut some = [0; RUN];
        let left = len.wrapping_sub(at);
        let words = left.div_ceil(8).min(RUN as u32);
        let part = some.get_mut(..words as usize)?;
        if !walk.run(text.address.wrapping_add(u64::from(at)), part) {
            return None;
        }
        // What the last word holds behind the end.
        if let Some(last) = part.last_mut().filter(|_| left < words.wrapping_mul(8)) {
            *last &= u64::MAX >> ((left.wrapping_neg() & 7) * 8);
        }
        for word in part {
            sum = (sum ^ *word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
        at = at.wrapping_add(words.wrapping_mul(8));
    }
    Some(sum)
}

/// What a Proto's `source` says: a file's name (`@name`), a name (`=name`), or the program's own text.
#[inline(never)]
pub fn of_source(walk: &Walk<'_>, facts: &Facts, source: u64) -> Text {
    let Some(text) = of_string(walk, facts, source) else { return EMPTY };
    match (text.len, walk.byte(text.address)) {
        (1.., Some(b'@' | b'=')) => {
            Text { address: text.address.wrapping_add(1), len: text.len.wrapping_sub(1), ..text }
        }
        _ => first_line(walk, text),
    }
}

/// The first line of a program, cut.
fn first_line(walk: &Walk<'_>, text: Text) -> Text {
    let mut bytes = [0u8; SOURCE_LINE as usize];
    let len = text.len.min(SOURCE_LINE);
    let Some(piece) = bytes.get_mut(..len as usize) else { return EMPTY };
    if !walk.bytes(text.address, piece) {
        return EMPTY;
    }
    let end = piece.iter().position(|byte| *byte == b'\n' || *byte == b'\r').unwrap_or(piece.len());
    Text { len: end as u32, ..text }
}
