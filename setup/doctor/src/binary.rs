//! An ELF file as unwinders see it: its text, and where its unwind data lies.

use super::Refusal;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, SectionFlags};
use std::path::{Path, PathBuf};
use uunwind_core::span::Span;
use uunwind_elf::files;

/// `PT_GNU_SFRAME`.
pub const PT_GNU_SFRAME: u32 = 0x6474_e554;
/// `SHT_GNU_SFRAME`.
pub const SHT_GNU_SFRAME: u32 = 0x6fff_fff4;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 4 << 30;

/// A file, read whole.
pub struct Binary {
    /// Path by which it was opened.
    pub path: PathBuf,
    /// Its bytes, all of them. They are hostile.
    pub bytes: Vec<u8>,
}

/// A range of addresses, with the bytes that the file has for it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'d> {
    /// File address of the first byte.
    pub address: u64,
    /// What the file holds for the range.
    pub bytes: &'d [u8],
}

impl Part<'_> {
    /// End of the range, exclusive.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// A section of code.
#[derive(Clone, Debug)]
pub struct Text {
    /// The section's name; of a file without sections `segment`.
    pub name: String,
    /// First file address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
}

/// The parts of a file that say how to unwind its code.
pub struct View<'d> {
    /// The parsed file.
    pub elf: ElfFile64<'d, Endianness>,
    /// `e_machine`.
    pub machine: u16,
    /// A relocatable object: addresses in it mean nothing yet.
    pub relocatable: bool,
    /// Code, by address, without overlaps.
    pub text: Vec<Text>,
    /// Loaded segments.
    pub loads: Vec<Part<'d>>,
    /// `.eh_frame`.
    pub eh_frame: Option<Part<'d>>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Part<'d>>,
    /// SFrame by its segment, as a process finds it.
    pub sframe_segment: Option<Part<'d>>,
    /// SFrame by its section.
    pub sframe_section: Option<Part<'d>>,
}

impl Binary {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Binary, Refusal> {
        let refuse = |e: std::io::Error| Refusal(format!("{}: cannot be read: {e}", path.display()));
        Ok(Binary { path: path.to_path_buf(), bytes: files::read(path, LARGEST).map_err(refuse)? })
    }

    /// A refusal that names the file.
    pub fn refuse(&self, why: impl std::fmt::Display) -> Refusal {
        Refusal(format!("{}: {why}", self.path.display()))
    }

    /// What would end after the end of the file, and where.
    fn cut_off(&self) -> Option<(&'static str, u64)> {
        let len = self.bytes.len() as u64;
        let header_bytes = size_of::<elf::FileHeader64<Endianness>>() as u64;
        if len < header_bytes {
            return Some(("ELF header ends", header_bytes));
        }
        let header = elf::FileHeader64::<Endianness>::parse(&*self.bytes).ok()?;
        let endian = header.endian().ok()?;
        let end = |at: u64, count: u16, size: u16| at.saturating_add(u64::from(count) * u64::from(size));
        let programs = end(header.e_phoff(endian), header.e_phnum(endian), header.e_phentsize(endian));
        let sections = end(header.e_shoff(endian), header.e_shnum(endian), header.e_shentsize(endian));
        let all = [("program headers end", programs), ("section headers end", sections)];
        all.into_iter().find(|(_, end)| *end > len)
    }

    /// Whether it is what `objcopy --only-keep-debug` leaves: its code has addresses, and no bytes.
    pub fn is_debug_only(&self, view: &View<'_>) -> bool {
        let executable =
            |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0);
        let mut code = view.elf.sections().filter(|section| executable(section.flags())).peekable();
        code.peek().is_some() && code.all(|section| section.kind() == object::SectionKind::UninitializedData)
    }

    /// Finds these parts. Errors: it is no ELF file, or one of another kind; the text says which.
    pub fn view(&self) -> Result<View<'_>, Refusal> {
        if self.bytes.is_empty() {
            return Err(self.refuse("an empty file"));
        }
        if !self.bytes.starts_with(&elf::ELFMAG) {
            let found = String::from_utf8_lossy(self.bytes.get(..4).unwrap_or(&self.bytes)).into_owned();
            return Err(self.refuse(format!("not an ELF file (it begins with {found:?})")));
        }
        if self.bytes.get(4) != Some(&elf::ELFCLASS64) {
            return Err(self.refuse("a 32-bit ELF file; only 64-bit ones can hold SFrame"));
        }
        if let Some((what, end)) = self.cut_off() {
            let len = self.bytes.len();
            return Err(self.refuse(format!("cut off: its {what} at byte {end}, the file at {len}. Get it whole")));
        }
        let parsed = ElfFile64::<Endianness>::parse(&*self.bytes);
        let file = parsed.map_err(|e| self.refuse(format!("damaged ELF file: {e}")))?;
        let (endian, header) = (file.endian(), file.elf_header());
        let mut view = View {
            machine: header.e_machine(endian),
            relocatable: header.e_type(endian) == elf::ET_REL,
            text: Vec::new(),
            loads: Vec::new(),
            eh_frame: None,
            eh_frame_hdr: None,
            sframe_segment: None,
            sframe_section: None,
            elf: file,
        };
        view.segments();
        view.sections();
        view.text.retain(|text| text.start < text.end);
        view.text.sort_by_key(|text| text.start);
        let mut end = 0;
        view.text.retain_mut(|text| {
            text.start = text.start.max(end);
            end = end.max(text.end);
            text.start < text.end
        });
        Ok(view)
    }
}

impl<'d> View<'d> {
    fn segments(&mut self) {
        let endian = self.elf.endian();
        let mut text = Vec::new();
        for header in self.elf.elf_program_headers() {
            let Ok(bytes) = header.data(endian, self.elf.data()) else { continue };
            let part = Part { address: header.p_vaddr(endian), bytes };
            match header.p_type(endian) {
                elf::PT_LOAD => {
                    if header.p_flags(endian) & elf::PF_X != 0 {
                        text.push(Text { name: "segment".into(), start: part.address, end: part.end() });
                    }
                    self.loads.push(part);
                }
                elf::PT_GNU_EH_FRAME => self.eh_frame_hdr = Some(part),
                PT_GNU_SFRAME => self.sframe_segment = Some(part),
                _ => {}
            }
        }
        self.text = text;
        // Of a file without sections: what the index points to, up to the end of its segment.
        self.eh_frame = self.eh_frame_hdr.and_then(|hdr| {
            let pointer = hdr.bytes.get(4..8).filter(|_| hdr.bytes.get(1) == Some(&0x1b))?;
            let pointer = i32::from_le_bytes(pointer.try_into().ok()?);
            self.at(hdr.address.wrapping_add(4).wrapping_add_signed(i64::from(pointer)))
        });
    }

    fn sections(&mut self) {
        let mut text = Vec::new();
        for section in self.elf.sections() {
            let (Ok(name), SectionFlags::Elf { sh_flags }) = (section.name(), section.flags()) else { continue };
            let Ok(bytes) = section.data() else { continue };
            let part = Part { address: section.address(), bytes };
            if sh_flags & u64::from(elf::SHF_ALLOC) == 0 {
                continue;
            }
            match name {
                ".eh_frame" => self.eh_frame = Some(part),
                ".sframe" => self.sframe_section = Some(part),
                _ if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0 => {
                    text.push(Text { name: name.to_owned(), start: part.address, end: part.end() });
                }
                _ => {}
            }
        }
        if !text.is_empty() {
            self.text = text;
        }
    }

    /// What the file has from an address to the end of its segment.
    pub fn at(&self, address: u64) -> Option<Part<'d>> {
        self.loads.iter().find_map(|load| {
            let bytes = load.bytes.get(usize::try_from(address.checked_sub(load.address)?).ok()?..)?;
            (!bytes.is_empty()).then_some(Part { address, bytes })
        })
    }

    /// SFrame, as it will be found in a process, or else by its section; and which of the two.
    pub fn sframe(&self) -> Option<(Part<'d>, &'static str)> {
        let segment = self.sframe_segment.map(|part| (part, "segment PT_GNU_SFRAME"));
        segment.or(self.sframe_section.map(|part| (part, "section .sframe, which no segment describes")))
    }

    /// From the first address of code to the one after the last.
    pub fn text_span(&self) -> Span {
        match (self.text.first(), self.text.last()) {
            (Some(first), Some(last)) => Span::new(first.start, last.end),
            _ => Span::EMPTY,
        }
    }

    /// Name of the code section at an address.
    pub fn text_name(&self, address: u64) -> &str {
        let text = self.text.iter().find(|text| text.start <= address && address < text.end);
        text.map_or("no section", |text| text.name.as_str())
    }
}
