//! The names of semantic frames and of windows' functions: copied once, kept for ever, so that a frame can be described
//! long after its code is gone.
//!
//! A name's id leads to its record ([`Interned`]). A cache leads from a code object, by its address and the fingerprint
//! of its names, to the id; where the cache has lost an entry, the name is described again and gets the same id.

use crate::arena::map;
use crate::interned::Interned;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::plugin::{Description, Text, TABLE_LIMIT, TEXT_LIMIT};
use uunwind_ring::names::{NameEntry, Names, ENTRIES};

/// At most this number of MiB of names.
const MIB: usize = 64;
static NAMES: Interned<14, MIB> = Interned::new();
/// The cache's entries, mapped at the first name.
static CACHE: AtomicPtr<NameEntry> = AtomicPtr::new(core::ptr::null_mut());

/// A function that fills `out` with `len` bytes from the process address `address`, or returns false.
pub type Read = unsafe extern "C" fn(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool;

/// Words of a record before its texts.
const FIXED: usize = 4;
/// Most words of a record.
pub const NAME_WORDS: usize = FIXED + 2 * padded(TEXT_LIMIT) + padded(TABLE_LIMIT);

/// A name's record.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// Index of the plugin that described it; 0: a window's function.
    pub plugin: u8,
    /// Line on which the function begins.
    pub first_line: u32,
    /// Format of `table`.
    pub table_kind: u32,
    /// The function's name.
    pub function: Characters<'a>,
    /// The source file's name.
    pub file: Characters<'a>,
    /// The line table.
    pub table: &'a [u8],
}

/// A text as its runtime stores it.
#[derive(Clone, Copy, Debug)]
pub struct Characters<'a> {
    /// Characters of `width` bytes each, in this machine's byte order.
    pub bytes: &'a [u8],
    /// Bytes of a character: 1, 2 or 4.
    pub width: u8,
    /// The bytes are UTF-8; else, with a width of 1, they are Latin-1.
    pub utf8: bool,
    /// The text was longer than what is kept of it.
    pub cut: bool,
}

fn cache() -> Option<Names<'static>> {
    let bytes = ENTRIES * size_of::<NameEntry>();
    let mut entries = CACHE.load(Ordering::Acquire);
    if entries.is_null() {
        let new = map(bytes)?.cast::<NameEntry>();
        match CACHE.compare_exchange(entries, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => entries = new,
            Err(other) => {
                crate::arena::unmap(new.cast(), bytes);
                entries = other;
            }
        }
    }
    // SAFETY: zeroed memory is free entries; the mapping stays.
    Some(Names::new(unsafe { core::slice::from_raw_parts(entries, ENTRIES) }))
}

/// The id of a name that was described; 0: it has to be described. Async-signal-safe.
pub fn find(code: u64, fingerprint: u64) -> u32 {
    cache().map_or(0, |cache| cache.find(code, fingerprint))
}

/// Copies what names a code object, and returns its id; 0: something cannot be read, or there is no room, which is
/// counted. `room` is used for the copy. Async-signal-safe.
///
/// # Safety
/// `read` must be callable with `reader`.
pub unsafe fn describe(
    plugin: u32,
    description: &Description,
    read: Read,
    reader: *mut c_void,
    room: &mut [u64; NAME_WORDS],
) -> u32 {
    let (code, fingerprint) = (description.code, description.fingerprint);
    let words = fill(room, plugin, description, |address, out| {
        // SAFETY: the caller's function; `out` is writable.
        unsafe { read(reader, address, out.as_mut_ptr(), out.len()) }
    });
    // Nothing of the table is taken before the record is complete: this call may be left at any instruction.
    let id = words.map_or(0, |words| NAMES.add(words));
    if let Some(cache) = cache().filter(|_| id != 0) {
        cache.put(code, fingerprint, id);
    }
    id
}

/// Writes the record. `None`: something cannot be read.
fn fill<'r>(
    words: &'r mut [u64; NAME_WORDS],
    plugin: u32,
    description: &Description,
    read: impl Fn(u64, &mut [u8]) -> bool,
) -> Option<&'r [u64]> {
    let kept = |text: &Text| Text { len: text.len.min(TEXT_LIMIT), ..*text };
    let (function, file) = (kept(&description.name), kept(&description.file));
    // A part of a table would show wrong lines.
    let table_len = if description.table.len > TABLE_LIMIT { 0 } else { description.table.len };
    let table = Text { len: table_len, ..description.table };
    let shape = |text: &Text| {
        u64::from(text.width as u8) | u64::from(text.is_utf8()) << 8 | u64::from(text.len > TEXT_LIMIT) << 9
    };
    let (fixed, mut rest) = words.split_first_chunk_mut::<FIXED>()?;
    *fixed = [
        u64::from(plugin as u8) | shape(&description.name) << 16 | shape(&description.file) << 32,
        u64::from(description.first_line) | u64::from(description.table_kind) << 32,
        u64::from(function.len) | u64::from(file.len) << 32,
        u64::from(table.len),
    ];
    let mut len = FIXED;
    for text in [function, file, table] {
        let (room, after) = rest.split_at_mut_checked(padded(text.len))?;
        rest = after;
        len += room.len();
        // The bytes after the text are part of what makes records equal.
        if let Some(last) = room.last_mut() {
            *last = 0;
        }
        // SAFETY: words are bytes, too; `room` has at least `len` of them.
        let bytes = unsafe { core::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), text.len as usize) };
        if !bytes.is_empty() && !read(text.address, bytes) {
            return None;
        }
    }
    words.get(..len)
}

/// Words that this number of bytes takes.
const fn padded(bytes: u32) -> usize {
    (bytes as usize).div_ceil(8)
}

/// The name with this id. Async-signal-safe.
pub fn get(id: u32) -> Option<Name<'static>> {
    let words = NAMES.get(id)?;
    let (fixed, rest) = words.split_first_chunk::<FIXED>()?;
    let [shapes, lines, lens, table_len] = *fixed;
    let (function_len, file_len) = (lens as u32, (lens >> 32) as u32);
    let (function, rest) = rest.split_at_checked(padded(function_len))?;
    let (file, table) = rest.split_at_checked(padded(file_len))?;
    let characters = |words: &'static [u64], len: u32, shape: u64| {
        let (width, utf8, cut) = (shape as u8, shape >> 8 & 1 != 0, shape >> 9 & 1 != 0);
        Some(Characters { bytes: bytes(words).get(..len as usize)?, width, utf8, cut })
    };
    Some(Name {
        plugin: shapes as u8,
        first_line: lines as u32,
        table_kind: (lines >> 32) as u32,
        function: characters(function, function_len, shapes >> 16)?,
        file: characters(file, file_len, shapes >> 32)?,
        table: bytes(table).get(..table_len as usize)?,
    })
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are bytes, too.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) }
}

/// Number of times that a name found no room.
pub fn lost() -> u64 {
    NAMES.lost()
}

impl Characters<'_> {
    /// Writes the text as UTF-8, as far as there is room for whole characters. Returns the number of bytes, and whether
    /// the text was written to its end. What is no character becomes U+FFFD.
    pub fn write(&self, out: &mut [u8]) -> (usize, bool) {
        let (len, whole) = self.write_kept(out);
        (len, whole && !self.cut)
    }

    fn write_kept(&self, out: &mut [u8]) -> (usize, bool) {
        if self.utf8 && self.width == 1 {
            return write_utf8(if self.cut { whole_characters(self.bytes) } else { self.bytes }, out);
        }
        let mut at = 0;
        for unit in self.bytes.chunks_exact(usize::from(self.width.max(1))) {
            let number = unit.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
            if !push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER), out, &mut at) {
                return (at, false);
            }
        }
        (at, true)
    }
}

/// UTF-8 that was cut at some byte, without the part of a character at its end.
pub fn whole_characters(bytes: &[u8]) -> &[u8] {
    let is_first = |byte: &u8| byte & 0xc0 != 0x80;
    // A character has at most four bytes.
    let Some(back) = bytes.iter().rev().take(4).position(is_first) else { return bytes };
    let (before, last) = bytes.split_at_checked(bytes.len().wrapping_sub(back + 1)).unwrap_or((bytes, &[]));
    let len = last.first().map_or(0, |first| first.leading_ones() as usize);
    if len > last.len() {
        before
    } else {
        bytes
    }
}

fn write_utf8(bytes: &[u8], out: &mut [u8]) -> (usize, bool) {
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if !push(character, out, &mut at) {
                return (at, false);
            }
        }
        if !chunk.invalid().is_empty() && !push(char::REPLACEMENT_CHARACTER, out, &mut at) {
            return (at, false);
        }
    }
    (at, true)
}

fn push(character: char, out: &mut [u8], at: &mut usize) -> bool {
    match out.get_mut(*at..*at + character.len_utf8()) {
        Some(room) => {
            // The room is as long as the character; `encode_utf8` panics in shorter ones only.
            *at += character.encode_utf8(room).len();
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn read(_: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
        if address == 1 {
            return false;
        }
        // SAFETY: the tests' texts are static and long enough; address 1 is what cannot be read.
        unsafe { core::ptr::copy_nonoverlapping(address as *const u8, out, len) };
        true
    }

    fn text(bytes: &'static [u8], width: u16, utf8: u16) -> Text {
        Text { address: bytes.as_ptr() as u64, len: bytes.len() as u32, width, utf8 }
    }

    fn add(code: u64, name: Text) -> u32 {
        let description = Description {
            code,
            fingerprint: 9,
            name,
            file: text(b"a file.py", 1, 0),
            table: text(&[1, 2, 3], 1, 0),
            first_line: 77,
            table_kind: 1,
        };
        // SAFETY: a function that ignores its reader.
        unsafe { describe(2, &description, read, core::ptr::null_mut(), &mut [!0; NAME_WORDS]) }
    }

    fn written(characters: Characters<'_>, room: usize) -> (String, bool) {
        let mut out = vec![0; room];
        let (len, whole) = characters.write(&mut out);
        (String::from_utf8(out[..len].to_vec()).expect("UTF-8"), whole)
    }

    #[test]
    fn a_name_is_kept_and_equal_ones_are_one() {
        assert_eq!(find(0x1000, 9), 0);
        let id = add(0x1000, text("größe".as_bytes(), 1, 1));
        assert_eq!((find(0x1000, 9), find(0x1000, 8)), (id, 0));
        assert_eq!(add(0x2000, text("größe".as_bytes(), 1, 1)), id, "the same code, loaded twice");
        assert_ne!(add(0x3000, text(b"other", 1, 1)), id);
        let name = get(id).expect("it was described");
        assert_eq!((name.plugin, name.first_line, name.table_kind, name.table), (2, 77, 1, &[1, 2, 3][..]));
        assert_eq!(written(name.function, 99), ("größe".to_owned(), true));
        assert_eq!(written(name.file, 99), ("a file.py".to_owned(), true));
        assert_eq!(written(name.function, 3), ("gr".to_owned(), false), "no half characters");
        let unreadable = Text { address: 1, len: 5, width: 1, utf8: 1 };
        assert_eq!(add(0x4000, unreadable), 0);
    }

    #[test]
    fn runtimes_characters_become_utf8() {
        let of = |bytes, width, utf8| Characters { bytes, width, utf8, cut: false };
        assert_eq!(written(of(&[0x67, 0xf6], 1, false), 9).0, "gö");
        assert_eq!(written(of(&[0x67, 0, 0xac, 0x20], 2, false), 9).0, "g€");
        assert_eq!(written(of(&[0x40, 0xf6, 1, 0, 0, 0xd8, 0, 0], 4, false), 9).0, "🙀\u{fffd}");
        assert_eq!(written(of(&[b'a', 0xff, b'b'], 1, true), 9).0, "a\u{fffd}b");
        assert_eq!(written(of(&[1, 2, 3], 0, false), 9).0, "\u{1}\u{2}\u{3}");
    }
    #[test]
    fn a_text_that_is_longer_than_what_is_kept_is_cut_at_a_character() {
        // "ö" has two bytes: the limit lies in the middle of one.
        let long: &'static [u8] = Vec::leak([b"a".to_vec(), "ö".repeat(600).into_bytes()].concat());
        let name = get(add(0x5000, text(long, 1, 1))).expect("it was described");
        assert_eq!(written(name.function, 4000), (format!("a{}", "ö".repeat(511)), false));
        let wide: &'static [u8] = Vec::leak(b"x\0\0\0".repeat(300));
        let name = get(add(0x6000, text(wide, 4, 0))).expect("it was described");
        assert_eq!(written(name.function, 4000), ("x".repeat(256), false), "256 characters of four bytes");
        let just: &'static [u8] = Vec::leak(vec![b'y'; TEXT_LIMIT as usize]);
        let name = get(add(0x7000, text(just, 1, 1))).expect("it was described");
        assert_eq!(written(name.function, 4000), ("y".repeat(TEXT_LIMIT as usize), true));
    }
}
