//! Strings (<https://github.com/v8/v8/blob/11.3.244/src/objects/string.h>): flat ones as they are, ropes joined in the
//! plugin's own room.

use crate::heap::{Heap, Object};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Text, OWN_TEXT, TEXT_LIMIT};

/// There is no text.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 0 };
/// `StringRepresentationMask` and its values, `StringEncodingMask`, and `kUncachedExternalStringMask`.
const FORM: u16 = 7;
const SEQUENTIAL: u16 = 0;
const CONS: u16 = 1;
const EXTERNAL: u16 = 2;
const SLICED: u16 = 3;
const THIN: u16 = 5;
const ONE_BYTE: u16 = 8;
const UNCACHED: u16 = 0x10;
/// Limit of strings that only lead to another one.
const STEPS: u32 = 4;
/// Limit of the parts of a rope, and of those that wait at the same time.
const PARTS: u32 = 32;
const DEPTH: usize = 8;
/// Limit in bytes of a text that is joined; a handler's stack is short.
pub const ROOM: usize = 80;

/// A text of the plugin's own.
pub fn own(text: &'static [u8]) -> Text {
    Text { address: text.as_ptr() as u64, len: text.len() as u32, width: 1, utf8: 1 | OWN_TEXT }
}

/// A string: its characters lie together, or it is a rope.
pub enum Form {
    /// Its characters.
    Flat(Text),
    /// Two strings, one after the other.
    Rope(u64, u64),
}

/// The string that a pointer leads to. `None`: it is none, or cannot be read.
pub fn string(heap: &Heap<'_, '_>, tagged: u64) -> Option<Form> {
    let mut object = heap.object(tagged)?;
    for _ in 0..STEPS {
        if object.kind >= heap.facts.type_nonstring {
            return None;
        }
        let first = |heap: &Heap<'_, '_>, object| heap.field(object, heap.facts.string_first);
        match object.kind & FORM {
            SEQUENTIAL => {
                let chars = object.address.wrapping_add(heap.facts.string_chars.into());
                return Some(Form::Flat(text(heap, object, chars, 0)?));
            }
            EXTERNAL if object.kind & UNCACHED == 0 => {
                let chars = heap.field(object, heap.facts.string_data)?;
                return Some(Form::Flat(text(heap, object, chars, 0)?));
            }
            CONS => {
                let (left, right) =
                    (first(heap, object)?, heap.field(object, heap.facts.string_first.wrapping_add(8))?);
                let is_empty = heap.half(heap.object(right)?, heap.facts.string_length)? == 0;
                if !is_empty {
                    return Some(Form::Rope(left, right));
                }
                object = heap.object(left)?;
            }
            SLICED => {
                let offset = crate::heap::integer(heap.field(object, heap.facts.string_offset)?)?;
                let parent = heap.object(first(heap, object)?)?;
                let chars = match parent.kind & FORM {
                    SEQUENTIAL => parent.address.wrapping_add(heap.facts.string_chars.into()),
                    EXTERNAL if parent.kind & UNCACHED == 0 => heap.field(parent, heap.facts.string_data)?,
                    _ => return None,
                };
                return Some(Form::Flat(text(heap, object, chars, u64::try_from(offset).ok()?)?));
            }
            THIN => object = heap.object(first(heap, object)?)?,
            _ => return None,
        }
    }
    None
}

fn text(heap: &Heap<'_, '_>, object: Object, chars: u64, from: u64) -> Option<Text> {
    let width: u16 = if object.kind & ONE_BYTE != 0 { 1 } else { 2 };
    let len = heap.half(object, heap.facts.string_length)?.checked_mul(u32::from(width))?;
    Some(Text { address: chars.wrapping_add(from * u64::from(width)), len, width, utf8: 0 })
}

/// The characters of a string, if they lie together.
pub fn flat(heap: &Heap<'_, '_>, tagged: u64) -> Option<Text> {
    match string(heap, tagged)? {
        Form::Flat(text) => Some(text),
        Form::Rope(..) => None,
    }
}

/// Mixes a word into a checksum of 64 bits.
pub fn mixed(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 29
}

/// Mixes a string's characters into a checksum. `None`: they cannot be read.
#[inline(never)]
pub fn hash(heap: &Heap<'_, '_>, tagged: u64, sum: u64) -> Option<u64> {
    let mut joined = Joined::new();
    let text = joined.whole(heap, tagged)?;
    let own = match text.is_own() {
        true => joined.room.iter().take(joined.len).fold(0, |sum, byte| mixed(sum, u64::from(*byte) + 1)),
        false => heap.guest.hash(text.address, text.len.min(TEXT_LIMIT) as usize)?,
    };
    Some(mixed(sum, own))
}

/// A text that is being joined, of one byte a character.
pub struct Joined {
    room: [u8; ROOM],
    len: usize,
}

impl Joined {
    /// No text yet.
    pub fn new() -> Joined {
        Joined { room: [0; ROOM], len: 0 }
    }

    /// The characters of a string, wherever they lie; a rope that is too long is cut. `None`: it cannot be read, or is
    /// a rope of wide characters.
    #[inline(never)]
    pub fn whole(&mut self, heap: &Heap<'_, '_>, tagged: u64) -> Option<Text> {
        if let Form::Flat(text) = string(heap, tagged)? {
            return Some(text);
        }
        let mut waiting = [0; DEPTH];
        let (mut count, mut next) = (0usize, tagged);
        for _ in 0..PARTS {
            match string(heap, next)? {
                Form::Rope(left, right) => {
                    *waiting.get_mut(count)? = right;
                    count = count.wrapping_add(1);
                    next = left;
                    continue;
                }
                Form::Flat(text) => self.add(heap.guest, &text)?,
            }
            count = match count.checked_sub(1) {
                Some(left) => left,
                None => return Some(self.text()),
            };
            next = waiting.get(count).copied()?;
        }
        None
    }

    fn add(&mut self, guest: &Guest<'_>, text: &Text) -> Option<()> {
        if text.width != 1 {
            return None;
        }
        let end = self.len.saturating_add(text.len as usize).min(ROOM);
        let room = self.room.get_mut(self.len..end)?;
        if !guest.bytes(text.address, room) {
            return None;
        }
        self.len = end;
        Some(())
    }

    /// Valid as long as this is not moved.
    fn text(&self) -> Text {
        Text { address: self.room.as_ptr() as u64, len: self.len as u32, width: 1, utf8: OWN_TEXT }
    }
}
