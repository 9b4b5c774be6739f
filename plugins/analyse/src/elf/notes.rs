//! Notes and section names: build-ids, and the marks of Go.

use super::bytes::{u16_at, u32_at, u64_at};
use super::image::Image;
use object::elf;

/// Notes are a few hundred bytes; a larger segment is cut.
const NOTES_LIMIT: u64 = 64 * 1024;
/// So are names of sections.
const NAMES_LIMIT: u64 = 1 << 20;
/// Build-ids are 8, 16 or 20 bytes; the loader's side reads at most this many.
const BUILD_ID_LIMIT: usize = 64;
/// `sizeof(Elf64_Shdr)`.
const SECTION: u16 = 64;
/// Type of Go's build-id note.
const GO_BUILD_ID: u32 = 4;

/// One section header.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Address before the load bias is added; 0 for what is not loaded.
    pub address: u64,
    /// Place in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

impl Image {
    /// The GNU build-id.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        self.note(b"GNU\0", elf::NT_GNU_BUILD_ID).filter(|id| !id.is_empty() && id.len() <= BUILD_ID_LIMIT)
    }

    /// Was it made by the Go compiler?
    pub fn is_go(&self) -> bool {
        self.note(b"Go\0\0", GO_BUILD_ID).is_some() || self.has_section(b".go.buildinfo")
    }

    /// Content of the first note with this owner and type.
    fn note(&self, owner: &[u8], kind: u32) -> Option<Vec<u8>> {
        let segments = self.segments().iter().filter(|s| s.kind == elf::PT_NOTE);
        segments
            .filter_map(|s| self.read_file(s.offset, s.file_size.min(NOTES_LIMIT)))
            .find_map(|bytes| find_note(&bytes, owner, kind))
    }

    /// Is there a section with this name? Files without section headers have none.
    fn has_section(&self, name: &[u8]) -> bool {
        self.section(name).is_some()
    }

    /// The first section with this name.
    pub fn section(&self, name: &[u8]) -> Option<Section> {
        let (start, count, entry, names) = self.section_table();
        if entry != SECTION || names >= count {
            return None;
        }
        let table = self.read_file(start, u64::from(count) * u64::from(SECTION))?;
        let header = |index: u16| table.chunks_exact(usize::from(SECTION)).nth(usize::from(index));
        let strings = header(names)?;
        let strings = self.read_file(u64_at(strings, 24), u64_at(strings, 32).min(NAMES_LIMIT))?;
        (0..count).find_map(|index| {
            let header = header(index)?;
            let found = strings.get(u32_at(header, 0) as usize..)?.get(..name.len().checked_add(1)?)?;
            (found.split_last() == Some((&0, name))).then(|| Section {
                kind: u32_at(header, 4),
                flags: u64_at(header, 8),
                address: u64_at(header, 16),
                offset: u64_at(header, 24),
                size: u64_at(header, 32),
            })
        })
    }

    /// Its ELF type, `ET_EXEC` or `ET_DYN`.
    pub fn kind(&self) -> u16 {
        u16_at(&self.identity(), 16)
    }
}

fn find_note(mut bytes: &[u8], owner: &[u8], kind: u32) -> Option<Vec<u8>> {
    // Each round takes at least the 12 bytes of a note header.
    while bytes.len() >= 12 {
        let (name_len, content_len) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4) as usize);
        let found = u32_at(bytes, 8);
        let content = 12usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let name = bytes.get(12..12usize.checked_add(name_len)?)?;
        if found == kind && name == owner {
            return bytes.get(content..content.checked_add(content_len)?).map(<[u8]>::to_vec);
        }
        bytes = bytes.get(content.checked_add(content_len.checked_next_multiple_of(4)?)?..)?;
    }
    None
}
