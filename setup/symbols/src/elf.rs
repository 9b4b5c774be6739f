//! What identifies an ELF file, by which it is verified to be the file that was mapped.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{elf, Endianness, Object, ReadRef};
use std::path::Path;
use uunwind_elf::blocks::Blocks;
use uunwind_elf::files;

/// What identifies an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Build-id; empty if the file has none.
    pub build_id: Vec<u8>,
    /// ELF header and program headers, byte for byte.
    pub headers: Vec<u8>,
}

impl Elf {
    /// Reads a 64-bit ELF file.
    pub fn read(path: &Path) -> Result<Elf, String> {
        let file = files::open(path).map_err(|e| e.to_string())?;
        Elf::parse(&Blocks::new(file)).map_err(|e| e.to_string())
    }

    /// Reads a 64-bit ELF image. Any bytes may be passed.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> object::Result<Elf> {
        let header = elf::FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let mut out = Elf { headers: object::bytes_of(header).to_vec(), ..Elf::default() };
        let segments = header.program_headers(endian, data)?;
        for segment in segments {
            out.headers.extend_from_slice(object::bytes_of(segment));
        }
        for segment in segments {
            let Some(mut notes) = segment.notes(endian, data)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                    out.build_id = note.desc().to_vec();
                }
            }
        }
        Ok(out)
    }
}

/// Whether a file has debug information of its own. Any bytes may be passed.
pub fn has_debug_information(path: &Path) -> bool {
    let Ok(file) = files::open(path) else { return false };
    let cache = Blocks::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return false };
    [".debug_info", ".zdebug_info"].iter().any(|name| elf.section_by_name(name).is_some())
}
