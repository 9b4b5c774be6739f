//! A copy of an ELF file with an SFrame section, made from its `.eh_frame`.
//!
//! Nothing of the file is moved: new program headers, the section and new section headers are put behind its end, in one
//! new loadable segment. Its address lies as far from the first segment's as its place in the file from the file's start,
//! so that whoever finds the program headers by the ELF header (older kernels, static programs, unwinders) finds the new
//! ones. Between the old end and the segment lies a hole, as long as the program's `.bss` needs.

use super::binary::{Binary, View, PT_GNU_SFRAME, SHT_GNU_SFRAME};
use super::compare::{compare, coverage};
use super::piece::{words, Piece};
use super::write::{self, Written};
use super::{eh_frame, sframe, Refusal};
use crate::elf::bytes::{u16_at, u32_at, u64_at};
use object::elf;
use uunwind_sframe::table::Machine;

const PAGE: u64 = 4096;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
/// Most program headers that readers of our kind look at in a process.
const MOST_SEGMENTS: usize = 64;
/// Behind every address of a program.
const USER_END: u64 = 1 << 47;
/// Largest hole: programs with more `.bss` are refused.
const LARGEST_HOLE: u64 = 128 << 20;

/// A file with SFrame.
pub struct Made {
    /// The new file's bytes.
    pub bytes: Vec<u8>,
    /// The section.
    pub written: Written,
    /// Its address.
    pub address: u64,
    /// It has a section header too; without one (in files that have none) only the segment tells of it.
    pub has_section_header: bool,
    /// Bytes of text, and those that `.eh_frame` and the new section tell of.
    pub text: u64,
    /// See `text`.
    pub by_eh_frame: u64,
    /// See `text`.
    pub by_sframe: u64,
    /// FDEs that could not be read.
    pub damaged: usize,
}

/// Makes it, and holds it to `.eh_frame`, row for row. `version` is 2 or 3.
pub fn make(binary: &Binary, version: u8) -> Result<Made, Refusal> {
    let view = binary.view()?;
    let place = Place::of(binary, &view)?;
    let mut source = eh_frame::read(&view);
    let text = view.text_span();
    for piece in source.pieces.iter_mut().filter(|p| p.start < text.0 || p.end > text.1) {
        piece.rule = Err("not in the text of the file");
    }
    if source.pieces.is_empty() {
        return Err(binary.refuse("it has no .eh_frame that SFrame could be made from"));
    }
    let written = write::section(&source.pieces, version, place.section);
    let bytes = place.assemble(binary, &view, &written.bytes)?;
    let made = Binary { path: binary.path.clone(), bytes };
    let result = check(&made, &view, &source.pieces, &written).map_err(|e| binary.refuse(e))?;
    let (text, by_eh_frame) = coverage(&view.text, &[&source.pieces]);
    Ok(Made {
        by_sframe: coverage(&view.text, &[&result]).1,
        bytes: made.bytes,
        written,
        address: place.section,
        has_section_header: !view.elf.elf_section_table().is_empty(),
        text,
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
    let told = |p: &&Piece| !written.beyond.iter().any(|b| b.start <= p.start && p.end <= b.end);
    let expected: u64 = wanted.iter().filter(told).map(|p| p.end - p.start).sum();
    if bytes(&found.pieces) != expected {
        return Err(format!(
            "the new section tells of {} bytes instead of {expected}: please report this",
            bytes(&found.pieces)
        ));
    }
    Ok(found.pieces)
}

/// Where things go.
struct Place {
    /// Place in the file of the new segment.
    offset: u64,
    /// Its address.
    address: u64,
    /// Address of the section in it.
    section: u64,
}

fn up(n: u64, to: u64) -> u64 {
    n.next_multiple_of(to)
}

impl Place {
    fn of(binary: &Binary, view: &View<'_>) -> Result<Place, Refusal> {
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
        let headers = program_headers(bytes);
        let loads = || headers.iter().filter(|h| u32_at(h, 0) == elf::PT_LOAD);
        let Some(first) = loads().next().filter(|h| u64_at(h, 8) == 0) else {
            return Err(binary.refuse("its first segment does not hold the ELF header, so new headers have no place"));
        };
        if headers.len() + 2 > MOST_SEGMENTS {
            return Err(binary.refuse(format!("it has {} program headers already", headers.len())));
        }
        let base = u64_at(first, 16);
        let end = loads().map(|h| u64_at(h, 16).saturating_add(u64_at(h, 40))).max().unwrap_or(0);
        if end > USER_END || base > end {
            return Err(binary.refuse(format!("its segments lie at {base:#x}..{end:#x}, where no program can be")));
        }
        let len = bytes.len() as u64;
        let described = described(bytes, &headers);
        if described < len {
            let more = len - described;
            return Err(binary.refuse(format!(
                "{more} bytes follow behind all that its headers describe; a program that reads its own end would not find them"
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
        let table = ((headers.len() + 2) * PROGRAM_HEADER) as u64;
        Ok(Place { offset, address, section: up(address + table, 8) })
    }

    fn assemble(&self, binary: &Binary, view: &View<'_>, section: &[u8]) -> Result<Vec<u8>, Refusal> {
        let old = program_headers(&binary.bytes);
        let last_load = old.iter().rposition(|h| u32_at(h, 0) == elf::PT_LOAD).unwrap_or(0);
        let within = self.section - self.address;
        let len = within + section.len() as u64;
        let table = (old.len() as u64 + 2) * PROGRAM_HEADER as u64;
        let mut headers = Vec::new();
        for (n, header) in old.iter().enumerate() {
            if u32_at(header, 0) == elf::PT_PHDR {
                put_segment(&mut headers, elf::PT_PHDR, self.offset, self.address, table, 8);
            } else {
                headers.extend_from_slice(header);
            }
            if n == last_load {
                put_segment(&mut headers, elf::PT_LOAD, self.offset, self.address, len, PAGE);
            }
        }
        let size = section.len() as u64;
        put_segment(&mut headers, PT_GNU_SFRAME, self.offset + within, self.section, size, 8);

        // All at once: section headers and names are copied too, and are no longer than the file.
        let room = self.offset as usize + headers.len() + section.len() + binary.bytes.len() + 2 * PAGE as usize;
        let mut out = Vec::with_capacity(room);
        out.extend_from_slice(&binary.bytes);
        out.resize(self.offset as usize, 0);
        out.extend(headers);
        out.resize((self.offset + within) as usize, 0);
        out.extend_from_slice(section);
        put(&mut out, 32, &self.offset.to_le_bytes());
        put(&mut out, 56, &(old.len() as u16 + 2).to_le_bytes());
        if !view.elf.elf_section_table().is_empty() {
            self.section_headers(binary, section.len() as u64, &mut out)?;
        }
        Ok(out)
    }

    /// A new table of section headers with one more, and the names with its name.
    fn section_headers(&self, binary: &Binary, size: u64, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let bytes = &binary.bytes;
        let (at, count, names) = (u64_at(bytes, 40), u16_at(bytes, 60), usize::from(u16_at(bytes, 62)));
        let table = range(bytes, at, u64::from(count) * SECTION_HEADER as u64);
        let names_header = table.and_then(|t| t.chunks_exact(SECTION_HEADER).nth(names));
        let strings = names_header.and_then(|h| range(bytes, u64_at(h, 24), u64_at(h, 32)));
        let (Some(table), Some(strings), true) = (table, strings, count > 0 && count < elf::SHN_LORESERVE - 1) else {
            return Err(
                binary.refuse("its section headers cannot be extended; `strip --strip-section-headers` removes them")
            );
        };
        let strings_at = out.len() as u64;
        out.extend_from_slice(strings);
        out.extend_from_slice(b".sframe\0");
        let strings_end = out.len() as u64;
        out.resize(up(strings_end, 8) as usize, 0);
        let table_at = out.len();
        out.extend_from_slice(table);
        let names_at = table_at + names * SECTION_HEADER;
        put(out, names_at + 24, &strings_at.to_le_bytes());
        put(out, names_at + 32, &(strings_end - strings_at).to_le_bytes());
        let mut header = [0u8; SECTION_HEADER];
        put(&mut header, 0, &(strings.len() as u32).to_le_bytes());
        put(&mut header, 4, &SHT_GNU_SFRAME.to_le_bytes());
        put(&mut header, 8, &u64::from(elf::SHF_ALLOC).to_le_bytes());
        put(&mut header, 16, &self.section.to_le_bytes());
        put(&mut header, 24, &(self.offset + (self.section - self.address)).to_le_bytes());
        put(&mut header, 32, &size.to_le_bytes());
        put(&mut header, 48, &8u64.to_le_bytes());
        out.extend_from_slice(&header);
        put(out, 40, &(table_at as u64).to_le_bytes());
        put(out, 60, &(count + 1).to_le_bytes());
        Ok(())
    }
}

fn put(out: &mut [u8], at: usize, value: &[u8]) {
    out[at..at + value.len()].copy_from_slice(value);
}

fn put_segment(out: &mut Vec<u8>, kind: u32, offset: u64, address: u64, size: u64, align: u64) {
    out.extend(kind.to_le_bytes());
    out.extend(elf::PF_R.to_le_bytes());
    [offset, address, address, size, size, align].iter().for_each(|n| out.extend(n.to_le_bytes()));
}

fn range(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(len).ok()?)
}

/// The program headers; none where they lie outside of the file.
fn program_headers(bytes: &[u8]) -> Vec<&[u8]> {
    let (at, size, count) = (u64_at(bytes, 32), u16_at(bytes, 54), u16_at(bytes, 56));
    let table =
        range(bytes, at, u64::from(count) * PROGRAM_HEADER as u64).filter(|_| usize::from(size) == PROGRAM_HEADER);
    table.map_or(Vec::new(), |table| table.chunks_exact(PROGRAM_HEADER).collect())
}

/// Where the last thing that the headers describe ends in the file.
fn described(bytes: &[u8], segments: &[&[u8]]) -> u64 {
    let (at, count) = (u64_at(bytes, 40), u64::from(u16_at(bytes, 60)));
    let table_end = if count == 0 { 0 } else { at.saturating_add(count * SECTION_HEADER as u64) };
    let sections = range(bytes, at, count * SECTION_HEADER as u64).unwrap_or(&[]).chunks_exact(SECTION_HEADER);
    let sections = sections.filter(|h| u32_at(h, 4) != elf::SHT_NOBITS);
    let ends = sections.map(|h| u64_at(h, 24).saturating_add(u64_at(h, 32)));
    let ends = ends.chain(segments.iter().map(|h| u64_at(h, 8).saturating_add(u64_at(h, 32))));
    ends.chain([table_end]).max().unwrap_or(0)
}
