//! Lua's strings as ranges of memory, which the host copies and the report decodes; and names that the plugin
//! itself gives. `TString`: <https://github.com/lua/lua/blob/v5.4.0/lobject.h>,
//! <https://github.com/lua/lua/blob/v5.1.1/lobject.h>, <https://github.com/lua/lua/blob/v5.5.0/lobject.h>.

use super::facts::Facts;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Text, OWN_TEXT};

/// Offset of a string's bytes, in all versions; for 5.5's long strings, of the pointer to them (`contents`).
const DATA: u64 = 24;
/// Offset of the length as `size_t`: of all strings up to 5.2, of long ones later (`u.lnglen`).
const LENGTH: u64 = 16;
/// Offset of `tt`, and of a short string's length as a byte (`shrlen`, 5.3 and later; 5.5: negative for a long string).
const TYPE: u64 = 8;
const SHORT_LENGTH: u64 = 11;
/// Low four bits of a string's `tt` (`LUA_TSTRING`), and the bit of a long one (`LUA_VLNGSTR`, 5.3 and later).
const STRING: u8 = 4;
const LONG: u8 = 0x10;
/// Limit in bytes: a longer string is taken for no name.
const NAME_LIMIT: u64 = 1 << 20;

/// The empty text.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 1 };

/// Name of a chunk's main function, which no instruction names.
pub const MAIN: &[u8] = b"main chunk";
/// Name of a finalizer.
pub const FINALIZER: &[u8] = b"__gc";
/// Name of a debug hook.
pub const HOOK: &[u8] = b"hook";
/// Name of the iterator of a generic `for` loop.
pub const ITERATOR: &[u8] = b"for iterator";
/// Name that the debug library gives a field with an integer key (`getobjname` in
/// <https://github.com/lua/lua/blob/v5.4.0/ldebug.c>).
pub const INTEGER: &[u8] = b"integer index";

/// Names of metamethods by the number of the event (`TMS` in <https://github.com/lua/lua/blob/v5.4.0/ltm.h>).
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

/// A static text of the plugin.
pub fn own(bytes: &'static [u8]) -> Text {
    Text { address: bytes.as_ptr() as u64, len: bytes.len() as u32, width: 1, utf8: 1 | OWN_TEXT }
}

/// The bytes of the `TString` at the process address `string`. `None`: there is no string, or it is too long for a
/// name.
pub fn of_string(guest: &Guest<'_>, facts: &Facts, string: u64) -> Option<Text> {
    if string == 0 || !string.is_multiple_of(8) {
        return None;
    }
    // Not as one word: the byte between them (`marked`) changes with each cycle of the garbage collector.
    let kind = guest.byte(string.wrapping_add(TYPE))?;
    if kind & 0xf != STRING {
        return None;
    }
    let short = guest.byte(string.wrapping_add(SHORT_LENGTH))?;
    let is_long = if facts.minor == 5 { short >= 0x80 } else { facts.minor <= 2 || kind & LONG != 0 };
    let (mut data, mut len) = (string.wrapping_add(DATA), u64::from(short));
    if is_long {
        len = guest.word(string.wrapping_add(LENGTH))?;
        if facts.minor == 5 {
            data = guest.word(data)?;
        }
    }
    (len < NAME_LIMIT).then_some(Text { address: data, len: len as u32, width: 1, utf8: 1 })
}
