//! The program headers of a loaded object, read from memory: its build-id, its SFrame segment, and what identifies it.

use crate::memory::Reader;
use crate::object_key::{fnv, FNV_START};
use crate::objects::BuildId;
use crate::span::Span;

/// Where the program headers of an object in memory are.
pub(crate) struct Headers {
    start: u64,
    phoff: u64,
    phnum: u64,
}

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_SFRAME: u32 = 0x6474_e554;
const NT_GNU_BUILD_ID: u32 = 3;
const PHENT: u64 = 56;

impl Headers {
    /// Reads the ELF header at the start of the mapping (System V gABI, chapter 4).
    pub(crate) fn read(start: u64, bias: u64, reader: &mut Reader<'_>) -> Option<Headers> {
        if reader.u32(start)? != u32::from_le_bytes(*b"\x7fELF") {
            return None;
        }
        let phoff = reader.word(start.wrapping_add(32))?;
        let phentsize = u64::from(reader.u16(start.wrapping_add(54))?);
        let phnum = u64::from(reader.u16(start.wrapping_add(56))?);
        if phentsize != PHENT || phnum > 64 || phoff > u64::from(u32::MAX) {
            return None;
        }
        let headers = Headers { start, phoff, phnum };
        (phoff <= 4096 || headers.are_mapped(bias, reader)).then_some(headers)
    }

    /// Tools that add program headers append them to the file. Whether the memory at that distance from the object's
    /// start holds them: one of the segments that they describe must contain them, at the same offset as in the file.
    fn are_mapped(&self, bias: u64, reader: &mut Reader<'_>) -> bool {
        let end = self.phoff + self.phnum * PHENT;
        (0..self.phnum).any(|i| {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            let (kind, mut word) = (reader.u32(ph), |at| reader.word(ph.wrapping_add(at)));
            let (Some(offset), Some(address), Some(size)) = (word(8), word(16), word(32)) else { return false };
            kind == Some(PT_LOAD)
                && offset <= self.phoff
                && end <= offset.saturating_add(size)
                && address.wrapping_add(bias).wrapping_sub(offset) == self.start
        })
    }

    /// FNV-1a over the ELF header and the program headers, as loaded.
    pub(crate) fn hash(&self, reader: &mut Reader<'_>) -> u64 {
        let mut h = FNV_START;
        for (from, len) in [(0, 64), (self.phoff, self.phnum * PHENT)] {
            for i in 0..len / 8 {
                let word = reader.word(self.start.wrapping_add(from + i * 8)).unwrap_or(0);
                h = fnv(h, word.to_le_bytes().into_iter());
            }
        }
        h
    }

    /// See [`unwind_key`]: of the object as it is mapped.
    pub(crate) fn unwind_key(&self, bias: u64, reader: &mut Reader<'_>) -> u64 {
        let mut index = (0, 0);
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph) == Some(PT_GNU_EH_FRAME) {
                let address = reader.word(ph.wrapping_add(16)).unwrap_or(0);
                index = (address.wrapping_add(bias), reader.word(ph.wrapping_add(32)).unwrap_or(0));
                break;
            }
        }
        let parts = [(self.start, 64), (self.start.wrapping_add(self.phoff), self.phnum * PHENT), index];
        parts.into_iter().fold(UNWIND_KEY_START, |key, (at, len)| {
            unwind_key(
                key,
                (0..len.min(UNWIND_KEY_BYTES) / 8).map(|i| reader.word(at.wrapping_add(i * 8)).unwrap_or(0)),
            )
        })
    }

    /// The SFrame segment, if it lies inside the image.
    pub(crate) fn sframe(&self, bias: u64, image: Span, reader: &mut Reader<'_>) -> Option<Span> {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? == PT_GNU_SFRAME {
                let at = reader.word(ph.wrapping_add(16))?.wrapping_add(bias);
                let len = reader.word(ph.wrapping_add(40))?;
                let section = Span::new(at, at.checked_add(len)?);
                return (image.covers(section) && len != 0).then_some(section);
            }
        }
        None
    }

    /// Hands out each executable segment: where it begins and ends in the process.
    pub(crate) fn each_executable(&self, bias: u64, reader: &mut Reader<'_>, mut each: impl FnMut(Span)) {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            let (kind, flags) = (reader.u32(ph), reader.u32(ph.wrapping_add(4)));
            if kind != Some(PT_LOAD) || flags.is_none_or(|flags| flags & PF_X == 0) {
                continue;
            }
            let (address, size) = (reader.word(ph.wrapping_add(16)), reader.word(ph.wrapping_add(40)));
            if let (Some(address), Some(size)) = (address, size) {
                let start = address.wrapping_add(bias);
                each(Span::sized(start, size));
            }
        }
    }

    /// Hands out each loaded segment: where it begins and ends in the process.
    pub(crate) fn each_segment(&self, bias: u64, reader: &mut Reader<'_>, mut each: impl FnMut(Span)) {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph) != Some(PT_LOAD) {
                continue;
            }
            let (address, size) = (reader.word(ph.wrapping_add(16)), reader.word(ph.wrapping_add(40)));
            if let (Some(address), Some(size)) = (address, size) {
                each(Span::sized(address.wrapping_add(bias), size));
            }
        }
    }

    /// Where `.eh_frame_hdr` is (process address); `None`: there is none.
    pub(crate) fn eh_frame_hdr(&self, bias: u64, reader: &mut Reader<'_>) -> Option<u64> {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? == PT_GNU_EH_FRAME {
                return Some(reader.word(ph.wrapping_add(16))?.wrapping_add(bias));
            }
        }
        None
    }

    /// The page with the last byte of the file that the loader has mapped: its process address. A file that becomes
    /// shorter loses this page first. `None`: nothing of it is loaded, or its headers cannot be read.
    pub(crate) fn last_page(&self, bias: u64, reader: &mut Reader<'_>) -> Option<u64> {
        let (mut end_of_file, mut last) = (0, None);
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? != PT_LOAD {
                continue;
            }
            let (offset, address) = (reader.word(ph.wrapping_add(8))?, reader.word(ph.wrapping_add(16))?);
            let size = reader.word(ph.wrapping_add(32))?;
            let end = offset.checked_add(size)?;
            if size != 0 && end > end_of_file {
                let last_byte = address.wrapping_add(size - 1).wrapping_add(bias);
                (end_of_file, last) = (end, Some(last_byte & !0xfff));
            }
        }
        last
    }

    /// The offset in the file of the byte that is mapped at the process address `address`; `None`: no loaded segment of
    /// the file covers it.
    pub(crate) fn file_offset(&self, address: u64, bias: u64, reader: &mut Reader<'_>) -> Option<u64> {
        (0..self.phnum).find_map(|i| {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? != PT_LOAD {
                return None;
            }
            let (offset, start) = (reader.word(ph.wrapping_add(8))?, reader.word(ph.wrapping_add(16))?);
            let distance = address.wrapping_sub(start.wrapping_add(bias));
            (distance < reader.word(ph.wrapping_add(32))?).then(|| offset.wrapping_add(distance))
        })
    }

    pub(crate) fn build_id(&self, bias: u64, reader: &mut Reader<'_>) -> Option<(BuildId, u64)> {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? != PT_NOTE {
                continue;
            }
            let at = reader.word(ph.wrapping_add(16))?.wrapping_add(bias);
            let size = reader.word(ph.wrapping_add(40))?.min(4096);
            if let Some(id) = build_id_in(at, size, reader) {
                return Some(id);
            }
        }
        None
    }
}

/// The key of no part at all.
pub const UNWIND_KEY_START: u64 = FNV_START;
/// At most this number of bytes of each part count for [`unwind_key`].
pub const UNWIND_KEY_BYTES: u64 = 4096;

/// Adds the words of one part to the key that binds a rule table to its object. The parts are the ELF header, the
/// program headers and the segment `PT_GNU_EH_FRAME` (the index of the unwind information), of each at most
/// [`UNWIND_KEY_BYTES`]; the first `key` is [`UNWIND_KEY_START`]. An object has the same bytes there in its file and in
/// memory, since nothing in them is relocated; two objects that share a build-id, by mistake or on purpose, do not.
pub fn unwind_key(key: u64, words: impl Iterator<Item = u64>) -> u64 {
    words.fold(key.rotate_left(7), |key, word| (key ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31))
}

/// Searches one note segment (gABI, "Note Section"): at most 32 notes.
fn build_id_in(start: u64, size: u64, reader: &mut Reader<'_>) -> Option<(BuildId, u64)> {
    let mut offset = 0u64;
    for _ in 0..32 {
        if offset + 12 > size {
            return None;
        }
        let note = start.wrapping_add(offset);
        let name_len = u64::from(reader.u32(note)?);
        let len = u64::from(reader.u32(note.wrapping_add(4))?);
        let kind = reader.u32(note.wrapping_add(8))?;
        let name_padded = (name_len + 3) & !3;
        let desc = 12 + name_padded;
        if kind == NT_GNU_BUILD_ID
            && name_len == 4
            && reader.u32(note.wrapping_add(12))? == u32::from_le_bytes(*b"GNU\0")
        {
            let at = note.wrapping_add(desc);
            return BuildId::read(at, len, reader).map(|id| (id, at));
        }
        offset = offset.checked_add(desc)?.checked_add((len + 3) & !3)?;
    }
    None
}
