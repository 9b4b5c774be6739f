//! Notes and section names: build-ids, and the marks of Go.

use super::image::{Header, Image};
use object::elf::{self, SectionHeader64};
use object::read::elf::{FileHeader, NoteIterator, SectionHeader, SectionTable};
use object::read::StringTable;
use object::LittleEndian;

/// Notes are a few hundred bytes; a larger segment is cut.
const NOTES_LIMIT: u64 = 64 * 1024;
/// So are names of sections.
const NAMES_LIMIT: u64 = 1 << 20;
/// Build-ids are 8, 16 or 20 bytes; the loader's side reads at most this many.
const BUILD_ID_LIMIT: usize = 64;
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
    /// Offset in the file, in bytes (`sh_offset`).
    pub offset: u64,
    /// Size in the file, in bytes (`sh_size`).
    pub size: u64,
}

impl Image {
    /// The GNU build-id; `None`: the file has none, or its notes are damaged.
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
        let headers = self.section_headers()?;
        let names = headers.get(usize::from(self.header().e_shstrndx(LittleEndian)))?;
        let names = self.read_file(names.sh_offset(LittleEndian), names.sh_size(LittleEndian).min(NAMES_LIMIT))?;
        let names = StringTable::new(&*names, 0, names.len() as u64);
        let (_, header) = SectionTable::<Header, _>::new(&headers, names).section_by_name(LittleEndian, name)?;
        Some(Section {
            kind: header.sh_type(LittleEndian),
            flags: header.sh_flags(LittleEndian),
            address: header.sh_addr(LittleEndian),
            offset: header.sh_offset(LittleEndian),
            size: header.sh_size(LittleEndian),
        })
    }

    /// The section headers; `None` where they lie outside of the file or have another size than ELF's.
    pub(super) fn section_headers(&self) -> Option<Vec<SectionHeader64<LittleEndian>>> {
        let header = self.header();
        if usize::from(header.e_shentsize(LittleEndian)) != size_of::<SectionHeader64<LittleEndian>>() {
            return None;
        }
        let size = u64::from(header.e_shnum(LittleEndian)) * u64::from(header.e_shentsize(LittleEndian));
        self.read_all(header.e_shoff(LittleEndian), size)
    }

    /// Its ELF type, `ET_EXEC` or `ET_DYN`.
    pub fn kind(&self) -> u16 {
        self.header().e_type(LittleEndian)
    }
}

fn find_note(bytes: &[u8], owner: &[u8], kind: u32) -> Option<Vec<u8>> {
    // Aligned to 4 bytes whatever the segment says, as the walk's reader has it.
    let mut notes = NoteIterator::<Header>::new(LittleEndian, 4, bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.n_type(LittleEndian) == kind && note.name_bytes() == owner {
            return Some(note.desc().to_vec());
        }
    }
    None
}
