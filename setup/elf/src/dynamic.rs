//! The dynamic section: what an object needs, where it looks for it, and where its symbols are.

use super::image::Image;
use object::{elf, LittleEndian};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// More entries than any linker makes.
const ENTRY_LIMIT: u64 = 4096;
/// Names of objects and paths are shorter.
const STRING_LIMIT: u64 = 4096;

/// The entries up to `DT_NULL`.
#[derive(Clone, Default, Debug)]
pub struct Dynamic {
    entries: Vec<(i64, u64)>,
}

impl Dynamic {
    /// Reads the section; empty when there is none or it lies outside the file.
    pub(super) fn read(image: &Image) -> Dynamic {
        let entries = image.segment(elf::PT_DYNAMIC).and_then(|segment| {
            let limit = ENTRY_LIMIT * size_of::<elf::Dyn64<LittleEndian>>() as u64;
            let entries = image.read_all(segment.offset, segment.file_size.min(limit))?;
            let entry = |entry: &elf::Dyn64<_>| (entry.d_tag.get(LittleEndian), entry.d_val.get(LittleEndian));
            Some(entries.iter().map(entry).take_while(|(tag, _)| *tag != elf::DT_NULL).collect())
        });
        Dynamic { entries: entries.unwrap_or_default() }
    }

    /// Is there a dynamic section at all?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Value of the first entry with this tag.
    pub fn value(&self, tag: i64) -> Option<u64> {
        self.entries.iter().find(|(t, _)| *t == tag).map(|(_, value)| *value)
    }

    /// The string at each entry with this tag (`DT_NEEDED`, `DT_RPATH`, `DT_RUNPATH`, `DT_SONAME`), in order.
    pub fn strings(&self, image: &Image, tag: i64) -> Vec<OsString> {
        let entries = self.entries.iter().filter(|(t, _)| *t == tag);
        entries.filter_map(|(_, offset)| self.string(image, *offset)).map(OsString::from_vec).collect()
    }

    /// The whole table of the strings, of at most `most` bytes: names of symbols and of their versions are in it, too.
    pub fn string_table(&self, image: &Image, most: u64) -> Option<Vec<u8>> {
        let (table, size) = (self.value(elf::DT_STRTAB)?, self.value(elf::DT_STRSZ)?);
        let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= most)?];
        image.read_address(table, &mut bytes).then_some(bytes)
    }

    fn string(&self, image: &Image, offset: u64) -> Option<Vec<u8>> {
        let (table, size) = (self.value(elf::DT_STRTAB)?, self.value(elf::DT_STRSZ)?);
        let mut left = size.checked_sub(offset)?.min(STRING_LIMIT);
        let mut at = table.checked_add(offset)?;
        let mut string = Vec::new();
        while left > 0 {
            let mut piece = [0u8; 64];
            let piece = piece.get_mut(..left.min(64) as usize)?;
            if !image.read_address(at, piece) {
                return None;
            }
            match piece.iter().position(|b| *b == 0) {
                Some(end) => {
                    string.extend_from_slice(piece.get(..end)?);
                    return Some(string);
                }
                None => string.extend_from_slice(piece),
            }
            left -= piece.len() as u64;
            at = at.checked_add(piece.len() as u64)?;
        }
        None
    }
}
