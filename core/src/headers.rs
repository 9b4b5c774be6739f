//! The program headers of a loaded object, read from memory: its build-id, its SFrame segment, and what identifies it.

use crate::memory::Reader;
use crate::objects::{fnv, BuildId, FNV_START};

/// Where the program headers of an object in memory are.
pub(crate) struct Headers {
    start: u64,
    phoff: u64,
    phnum: u64,
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
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

    /// Tools that add program headers put them behind everything else. Whether what lies there in memory is them: a segment
    /// that they tell of must hold them, as far from the object's start as they are in the file.
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

    /// The SFrame segment, if it lies inside the image.
    pub(crate) fn sframe(&self, bias: u64, image: (u64, u64), reader: &mut Reader<'_>) -> Option<(u64, u64)> {
        for i in 0..self.phnum {
            let ph = self.start.wrapping_add(self.phoff + i * PHENT);
            if reader.u32(ph)? == PT_GNU_SFRAME {
                let at = reader.word(ph.wrapping_add(16))?.wrapping_add(bias);
                let len = reader.word(ph.wrapping_add(40))?;
                let inside = image.0 <= at && at.checked_add(len)? <= image.1 && len != 0;
                return inside.then_some((at, len));
            }
        }
        None
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
