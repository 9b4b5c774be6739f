//! What must be known of an ELF file before its symbols are used: that it is the file that was mapped, and where its
//! code sections lie.

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{elf, Endianness, ReadCache, ReadRef};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Facts of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Build-id; empty when it has none.
    pub build_id: Vec<u8>,
    /// ELF header followed by the program headers, byte for byte.
    pub headers: Vec<u8>,
    /// Address ranges of sections with code.
    pub code: Vec<Range<u64>>,
}

impl Elf {
    /// Reads a 64-bit ELF file.
    pub fn read(path: &Path) -> Result<Elf, String> {
        let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
        if !meta.is_file() {
            return Err("not a regular file".to_owned());
        }
        let file = File::open(path).map_err(|e| e.to_string())?;
        Elf::parse(&ReadCache::new(file)).map_err(|e| e.to_string())
    }

    /// Reads a 64-bit ELF image. Any bytes are safe to give.
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
        for section in header.sections(endian, data)?.iter() {
            if section.sh_flags(endian) & u64::from(elf::SHF_EXECINSTR) != 0 {
                let start = section.sh_addr(endian);
                out.code.push(start..start.saturating_add(section.sh_size(endian)));
            }
        }
        Ok(out)
    }

    /// Whether two addresses lie in the same section with code.
    pub fn same_section(&self, a: u64, b: u64) -> bool {
        self.code.iter().any(|section| section.contains(&a) && section.contains(&b))
    }
}
