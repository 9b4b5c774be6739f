//! The texts that name a function: parts that are read in the process, joined in the plugin's own room.

use super::Guest;
use crate::plugin::{Text, OWN_TEXT};

/// There is no text.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 1 };
/// Limit of words of a text that ends with a NUL.
const WORDS: u64 = 64;

/// A text of the plugin's own.
pub fn own(text: &'static [u8]) -> Text {
    Text { address: text.as_ptr() as u64, len: text.len() as u32, width: 1, utf8: 1 | OWN_TEXT }
}

/// The text that ends with a NUL. `None`: it is unreadable, or too long.
pub fn until_nul(guest: &Guest<'_>, address: u64) -> Option<Text> {
    let mut len = 0u64;
    for _ in 0..WORDS {
        let at = address.wrapping_add(len);
        let bytes = 8u64.wrapping_sub(at & 7);
        let word = guest.in_word(at)?;
        for byte in 0..bytes {
            if word >> (8 * (byte & 7)) & 0xff == 0 {
                let len = len.wrapping_add(byte) as u32;
                return Some(Text { address, len, width: 1, utf8: 1 });
            }
        }
        len = len.wrapping_add(bytes);
    }
    None
}

/// Limit in bytes of a text that is joined; a handler's stack is short.
pub const ROOM: usize = 240;

/// A text that is being joined, in UTF-8.
pub struct Joined {
    room: [u8; ROOM],
    len: usize,
    is_whole: bool,
}

impl Default for Joined {
    fn default() -> Self {
        Joined::new()
    }
}

impl Joined {
    /// No text yet.
    pub fn new() -> Joined {
        Joined { room: [0; ROOM], len: 0, is_whole: true }
    }

    /// Adds a text of the process's, in UTF-8 or Latin-1.
    pub fn add(&mut self, guest: &Guest<'_>, text: &Text) {
        if !text.is_utf8() {
            return self.add_latin_1(guest, text);
        }
        let end = self.len.saturating_add(text.len as usize);
        let added = self.room.get_mut(self.len..end).is_some_and(|room| guest.bytes(text.address, room));
        self.is_whole &= added;
        self.len = if added { end } else { self.len };
    }

    fn add_latin_1(&mut self, guest: &Guest<'_>, text: &Text) {
        for at in 0..text.len.min(ROOM as u32) {
            match guest.byte(text.address.wrapping_add(at.into())) {
                Some(byte @ 0x80..) => {
                    self.add_byte(0xc0 | byte >> 6);
                    self.add_byte(0x80 | byte & 0x3f);
                }
                Some(byte) => self.add_byte(byte),
                None => self.is_whole = false,
            }
        }
        self.is_whole &= text.len as usize <= ROOM;
    }

    /// Adds a text of the process's up to its first NUL.
    pub fn add_line(&mut self, guest: &Guest<'_>, text: &Text) {
        let start = self.len;
        self.add(guest, text);
        let added = self.room.get(start..self.len).unwrap_or_default();
        self.len = start.saturating_add(added.iter().position(|byte| *byte == 0).unwrap_or(added.len()));
    }

    /// Adds a byte.
    pub fn add_byte(&mut self, byte: u8) {
        match self.room.get_mut(self.len) {
            Some(room) => (*room, self.len) = (byte, self.len.wrapping_add(1)),
            None => self.is_whole = false,
        }
    }

    /// The text, valid as long as this is not moved; `None`: something could not be read, or it was too long.
    pub fn text(&self) -> Option<Text> {
        let text = Text { address: self.room.as_ptr() as u64, len: self.len as u32, width: 1, utf8: 1 | OWN_TEXT };
        self.is_whole.then_some(text)
    }
}

/// Mixes a word into a checksum of 64 bits.
pub fn mixed(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 29
}
