//! A copy of an ELF file with an SFrame section, made from its `.eh_frame`, and, if that is wanted, from the machine
//! code of functions that it leaves out.
//!
//! Nothing of the file is moved: new program headers, the section and new section headers are put after its end, in one
//! new loadable segment. Its address lies as far from the first segment's as its place in the file from the file's
//! start, so that whoever finds the program headers by the ELF header (older kernels, static programs, unwinders) finds
//! the new ones. Between the old end and the segment lies a hole, as long as the program's `.bss` needs.

use super::binary::{Binary, View, PT_GNU_SFRAME, SHT_GNU_SFRAME};
use super::compare::{compare, coverage};
use super::unwind_row::{untangle, words, Piece};
use super::write::{self, Written};
use super::{eh_frame, from_code, sframe, Refusal};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader as _, ProgramHeader, SectionHeader as _};
use object::{elf, LittleEndian, U16, U32, U64};
use uunwind_sframe::table::Machine;

const PAGE: u64 = 4096;
/// The headers of the files that SFrame is made for.
type FileHeader = elf::FileHeader64<LittleEndian>;
type SegmentHeader = elf::ProgramHeader64<LittleEndian>;
type SectionHeader = elf::SectionHeader64<LittleEndian>;
/// Most program headers that readers of our kind look at in a process.
const MOST_SEGMENTS: usize = 64;
/// End of the addresses that programs have on x86-64.
const USER_END: u64 = 1 << 47;
/// Largest hole: programs with more `.bss` are refused.
const LARGEST_HOLE: u64 = 128 << 20;

/// A file with SFrame.
pub struct Made {
    /// The new file's bytes.
    pub bytes: Vec<u8>,
    /// The new section's bytes, and what they cover.
    pub written: Written,
    /// The section's file address.
    pub address: u64,
    /// It has a section header too; without one (in files that have none) only the segment describes it.
    pub has_section_header: bool,
    /// Bytes of text, and those that `.eh_frame` and the new section cover.
    pub text: u64,
    /// Bytes of `text` with a rule of `.eh_frame`.
    pub by_eh_frame: u64,
    /// Bytes of `text` with a rule that was made from the code.
    pub by_code: u64,
    /// Bytes of `text` with a rule of the new section.
    pub by_sframe: u64,
    /// FDEs that could not be read.
    pub damaged: usize,
}

/// Makes it, and holds it to `.eh_frame`, row for row. `version` is 2 or 3.
pub fn make(binary: &Binary, version: u8) -> Result<Made, Refusal> {
    make_of(binary, version, false)
}

/// As [`make`], also with the functions that `.eh_frame` leaves out, by their machine code.
pub fn make_with_code(binary: &Binary, version: u8) -> Result<Made, Refusal> {
    make_of(binary, version, true)
}

fn make_of(binary: &Binary, version: u8, with_code: bool) -> Result<Made, Refusal> {
    let view = binary.view()?;
    let place = NewSegment::of(binary, &view)?;
    let mut source = eh_frame::read(&view);
    let text = view.text_span();
    for piece in source.pieces.iter_mut().filter(|p| p.start < text.start || p.end > text.end) {
        piece.rule = Err("not in the text of the file");
    }
    let (text_bytes, by_eh_frame) = coverage(&view.text, &[&source.pieces]);
    let mut by_code = if with_code { from_code::read(binary, &source.pieces) } else { Vec::new() };
    // Sections of a damaged file may lie anywhere.
    by_code.retain(|piece| text.start <= piece.start && piece.end <= text.end);
    let code_bytes = coverage(&view.text, &[&by_code]).1;
    source.pieces.extend(by_code);
    untangle(&mut source.pieces);
    if source.pieces.is_empty() {
        let why = if with_code { "" } else { "; its code may give some rows (--from-code)" };
        return Err(binary.refuse(format!("it has no .eh_frame that SFrame could be made from{why}")));
    }
    let written = write::section(&source.pieces, version, place.section);
    let bytes = place.assemble(binary, &view, &written.bytes)?;
    let made = Binary { path: binary.path.clone(), bytes };
    let result = check(&made, &view, &source.pieces, &written).map_err(|e| binary.refuse(e))?;
    Ok(Made {
        by_code: code_bytes,
        by_sframe: coverage(&view.text, &[&result]).1,
        bytes: made.bytes,
        written,
        address: place.section,
        has_section_header: !view.elf.elf_section_table().is_empty(),
        text: text_bytes,
        by_eh_frame,
        damaged: source.damaged.len(),
    })
}

/// The file as written, read again: no check may fail, and every rule must be the one that `.eh_frame` has.
fn check(made: &Binary, old: &View<'_>, wanted: &[Piece], written: &Written) -> Result<Vec<Piece>, String> {
    let view = made.view().map_err(|e| e.to_string())?;
    let part = view.sframe_segment.ok_or("the new segment is not found again: please report this")?;
    let found = sframe::read_part(part, old.text_span());
    if let Some(fault) = found.faults.first() {
        return Err(format!("the new section fails check {}: please report this", fault.check as u8));
    }
    if let Some(wrong) = compare(wanted, &found.pieces).first() {
        let said = |rule| words(rule, Machine::Amd64);
        let (start, first, second) = (wrong.start, said(&wrong.first), said(&wrong.second));
        return Err(format!("at {start:#x} the new section says {second} for {first}: please report this"));
    }
    // Equal where both speak; and nothing left out but what is listed.
    let bytes = |pieces: &[Piece]| pieces.iter().filter(|p| p.rule.is_ok()).map(|p| p.end - p.start).sum::<u64>();
    let within = |p: &&Piece| !written.beyond.iter().any(|b| b.start <= p.start && p.end <= b.end);
    let expected: u64 = wanted.iter().filter(within).map(|p| p.end - p.start).sum();
    if bytes(&found.pieces) != expected {
        return Err(format!(
            "the new section covers {} bytes instead of {expected}: please report this",
            bytes(&found.pieces)
        ));
    }
    Ok(found.pieces)
}

/// Where things go.
struct NewSegment {
    /// The ELF header of the file.
    file: FileHeader,
    /// Place in the file of the new segment.
    offset: u64,
    /// File address of its first byte.
    address: u64,
    /// File address of the section in it.
    section: u64,
}

fn up(n: u64, to: u64) -> u64 {
    n.next_multiple_of(to)
}

impl NewSegment {
    fn of(binary: &Binary, view: &View<'_>) -> Result<NewSegment, Refusal> {
        let bytes = &binary.bytes;
        if view.machine != elf::EM_X86_64 {
            return Err(binary.refuse(format!("for machine {}; SFrame is made for x86-64 only", view.machine)));
        }
        if view.relocatable {
            return Err(binary.refuse("a relocatable object; assemble it with `as --gsframe`, or link it first"));
        }
        if let Some((part, whence)) = view.sframe().filter(|(part, _)| !part.bytes.is_empty()) {
            let len = part.bytes.len();
            return Err(binary.refuse(format!("it has SFrame already, {len} bytes ({whence}); see `uu sframe dump`")));
        }
        let Ok((file, _)) = pod::from_bytes::<FileHeader>(bytes) else {
            return Err(binary.refuse("it ends before its ELF header does"));
        };
        let headers = program_headers(bytes, file);
        let loads = || headers.iter().filter(|h| h.p_type(LittleEndian) == elf::PT_LOAD);
        let Some(first) = loads().next().filter(|h| h.p_offset(LittleEndian) == 0) else {
            return Err(binary.refuse("its first segment does not hold the ELF header, so new headers have no place"));
        };
        if headers.len() + 2 > MOST_SEGMENTS {
            return Err(binary.refuse(format!("it has {} program headers already", headers.len())));
        }
        let base = first.p_vaddr(LittleEndian);
        let end = loads().map(|h| h.p_vaddr(LittleEndian).saturating_add(h.p_memsz(LittleEndian))).max().unwrap_or(0);
        if end > USER_END || base > end {
            return Err(binary.refuse(format!("its segments lie at {base:#x}..{end:#x}, where no program can be")));
        }
        let len = bytes.len() as u64;
        let described = described(bytes, file);
        if described < len {
            let more = len - described;
            return Err(binary.refuse(format!(
                "{more} bytes follow after all that its headers describe; a program that reads its own end would not find them"
            )));
        }
        let offset = up(len.max(end.saturating_sub(base)), PAGE);
        if offset - up(len, PAGE) > LARGEST_HOLE {
            let size = end.saturating_sub(base);
            return Err(
                binary.refuse(format!("it takes {size} bytes of address space; the copy's hole would be too large"))
            );
        }
        let address = base + offset;
        let table = ((headers.len() + 2) * size_of::<SegmentHeader>()) as u64;
        Ok(NewSegment { file: *file, offset, address, section: up(address + table, 8) })
    }

    fn assemble(&self, binary: &Binary, view: &View<'_>, section: &[u8]) -> Result<Vec<u8>, Refusal> {
        let old = program_headers(&binary.bytes, &self.file);
        let last_load = old.iter().rposition(|h| h.p_type(LittleEndian) == elf::PT_LOAD).unwrap_or(0);
        let within = self.section - self.address;
        let len = within + section.len() as u64;
        let table = (old.len() as u64 + 2) * size_of::<SegmentHeader>() as u64;
        let mut headers = Vec::new();
        for (n, header) in old.iter().enumerate() {
            if header.p_type(LittleEndian) == elf::PT_PHDR {
                headers.push(segment(elf::PT_PHDR, self.offset, self.address, table, 8));
            } else {
                headers.push(*header);
            }
            if n == last_load {
                headers.push(segment(elf::PT_LOAD, self.offset, self.address, len, PAGE));
            }
        }
        let size = section.len() as u64;
        headers.push(segment(PT_GNU_SFRAME, self.offset + within, self.section, size, 8));
        let headers = pod::bytes_of_slice(&headers);

        // All at once: section headers and names are copied too, and are no longer than the file.
        let room = self.offset as usize + headers.len() + section.len() + binary.bytes.len() + 2 * PAGE as usize;
        let mut out = Vec::with_capacity(room);
        out.extend_from_slice(&binary.bytes);
        out.resize(self.offset as usize, 0);
        out.extend_from_slice(headers);
        out.resize((self.offset + within) as usize, 0);
        out.extend_from_slice(section);
        let mut file = self.file;
        file.e_phoff = number(self.offset);
        file.e_phnum = U16::new(LittleEndian, old.len() as u16 + 2);
        if !view.elf.elf_section_table().is_empty() {
            self.section_headers(binary, section.len() as u64, &mut file, &mut out)?;
        }
        out[..size_of::<FileHeader>()].copy_from_slice(pod::bytes_of(&file));
        Ok(out)
    }

    /// A new table of section headers with one more, and the names with its name.
    fn section_headers(
        &self,
        binary: &Binary,
        size: u64,
        file: &mut FileHeader,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let count = file.e_shnum(LittleEndian);
        let table = section_headers(&binary.bytes, file);
        let names = usize::from(file.e_shstrndx(LittleEndian));
        let strings = table
            .get(names)
            .and_then(|header| range(&binary.bytes, header.sh_offset(LittleEndian), header.sh_size(LittleEndian)));
        let (Some(strings), true) = (strings, count < elf::SHN_LORESERVE - 1) else {
            return Err(
                binary.refuse("its section headers cannot be extended; `strip --strip-section-headers` removes them")
            );
        };
        let strings_at = out.len() as u64;
        out.extend_from_slice(strings);
        out.extend_from_slice(b".sframe\0");
        let strings_end = out.len() as u64;
        out.resize(up(strings_end, 8) as usize, 0);
        let table_at = out.len() as u64;
        let mut table = table.to_vec();
        if let Some(header) = table.get_mut(names) {
            header.sh_offset = number(strings_at);
            header.sh_size = number(strings_end - strings_at);
        }
        table.push(SectionHeader {
            sh_name: U32::new(LittleEndian, strings.len() as u32),
            sh_type: U32::new(LittleEndian, SHT_GNU_SFRAME),
            sh_flags: number(u64::from(elf::SHF_ALLOC)),
            sh_addr: number(self.section),
            sh_offset: number(self.offset + (self.section - self.address)),
            sh_size: number(size),
            sh_link: U32::default(),
            sh_info: U32::default(),
            sh_addralign: number(8),
            sh_entsize: U64::default(),
        });
        out.extend_from_slice(pod::bytes_of_slice(&table));
        file.e_shoff = number(table_at);
        file.e_shnum = U16::new(LittleEndian, count + 1);
        Ok(())
    }
}

fn number(n: u64) -> U64<LittleEndian> {
    U64::new(LittleEndian, n)
}

fn segment(kind: u32, offset: u64, address: u64, size: u64, align: u64) -> SegmentHeader {
    SegmentHeader {
        p_type: U32::new(LittleEndian, kind),
        p_flags: U32::new(LittleEndian, elf::PF_R),
        p_offset: number(offset),
        p_vaddr: number(address),
        p_paddr: number(address),
        p_filesz: number(size),
        p_memsz: number(size),
        p_align: number(align),
    }
}

fn range(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(len).ok()?)
}

/// The headers of `size` bytes each at a place in the file; none where they lie outside of it, or have another size.
fn headers<T: Pod>(bytes: &[u8], at: u64, count: u16, size: u16) -> &[T] {
    let table = range(bytes, at, u64::from(count) * u64::from(size)).filter(|_| usize::from(size) == size_of::<T>());
    table.and_then(|table| pod::slice_from_bytes(table, count.into()).ok()).map_or(&[], |(headers, _)| headers)
}

fn program_headers<'a>(bytes: &'a [u8], file: &FileHeader) -> &'a [SegmentHeader] {
    let (at, count) = (file.e_phoff(LittleEndian), file.e_phnum(LittleEndian));
    headers(bytes, at, count, file.e_phentsize(LittleEndian))
}

fn section_headers<'a>(bytes: &'a [u8], file: &FileHeader) -> &'a [SectionHeader] {
    let (at, count) = (file.e_shoff(LittleEndian), file.e_shnum(LittleEndian));
    headers(bytes, at, count, file.e_shentsize(LittleEndian))
}

/// Where the last thing that the headers describe ends in the file.
fn described(bytes: &[u8], file: &FileHeader) -> u64 {
    let (segments, sections) = (program_headers(bytes, file), section_headers(bytes, file));
    let table_end = match u64::from(file.e_shnum(LittleEndian)) {
        0 => 0,
        count => file.e_shoff(LittleEndian).saturating_add(count * size_of::<SectionHeader>() as u64),
    };
    let sections = sections.iter().filter(|h| h.sh_type(LittleEndian) != elf::SHT_NOBITS);
    let ends = sections.map(|h| h.sh_offset(LittleEndian).saturating_add(h.sh_size(LittleEndian)));
    let ends = ends.chain(segments.iter().map(|h| h.p_offset(LittleEndian).saturating_add(h.p_filesz(LittleEndian))));
    ends.chain([table_end]).max().unwrap_or(0)
}
