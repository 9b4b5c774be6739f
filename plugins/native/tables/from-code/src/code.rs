//! What is analysed: the code of a file, where its functions begin, and what it says of them.

use super::{noreturn, padding};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use object::elf::{
    FileHeader64, EM_X86_64, PF_W, PF_X, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, SHF_EXECINSTR,
};
use object::read::elf::ElfFile;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget, SectionFlags, SegmentFlags, SymbolKind,
};
use std::collections::HashSet;
use uunwind_core::span::Span;

/// Bytes at a file address.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// File address of the first one.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// The bytes from an address on.
    pub fn from(&self, address: u64) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(address.checked_sub(self.start)?).ok()?..).filter(|rest| !rest.is_empty())
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        Span::sized(self.start, self.bytes.len() as u64)
    }
}

/// The code of a file. Addresses are file addresses.
#[derive(Clone, Debug, Default)]
pub struct Code<'a> {
    /// Executable code, by address, without what links procedures.
    pub text: Vec<Part<'a>>,
    /// What is never written: tables of jumps may lie there.
    pub constants: Vec<Part<'a>>,
    /// Where data begins, by address: what instructions and relocations take the addresses of. A table of jumps of
    /// unknown size ends at the next one. Bytes that only look like such an instruction count, too.
    pub starts: Vec<u64>,
    /// What another source describes, by address.
    pub described: Vec<Span>,
    /// Where functions begin for certain.
    pub entries: Vec<u64>,
    /// Where functions may begin: addresses of code in data, and targets of what may be calls.
    pub candidates: Vec<u64>,
    /// Parts of functions that lie elsewhere (`.cold`): they are jumped to, or entered by exceptions, with their
    /// functions' frames.
    pub parts: Vec<Span>,
    /// Functions that never return.
    pub never: HashSet<u64>,
    /// Words that hold the addresses of such functions.
    pub never_by_word: HashSet<u64>,
    /// Stubs of functions that return.
    pub returning: HashSet<u64>,
    /// Words that hold the addresses of such functions.
    pub returning_by_word: HashSet<u64>,
    /// Where the program starts: no return address lies there.
    pub start: Option<u64>,
}

/// Bytes of code without rows that start files leave in each program and library, at most.
const START_FILES: usize = 320;
/// Instructions that a program starts with before it calls the C library, at most.
const START_INSTRUCTIONS: usize = 32;
/// Bytes of code that are always analysed: it costs nothing.
const SMALL: usize = 32 << 10;
/// Sections with stubs of the procedure linkage table begin so.
const LINKAGE: &[u8] = b".plt";

/// Whether a symbol's name is one that compilers give to a part of a function.
fn is_part(name: &[u8]) -> bool {
    let mark = b".cold";
    let ends = |at: usize| matches!(name.get(at + mark.len()), None | Some(b'.'));
    name.windows(mark.len()).enumerate().any(|(at, found)| found == mark && ends(at))
}

/// Versions of symbols of glibc and of libstdc++ begin so: all of their functions that never return, or not always, are
/// known by name.
const KNOWN_LIBRARIES: [&[u8]; 3] = [b"GLIBC_2", b"GLIBCXX_3", b"CXXABI_1"];

impl<'a> Code<'a> {
    /// The code of an ELF file. `described`: the functions that another source describes. Nothing, if it cannot be
    /// read, or is another CPU's, or all of it is described but what start files have.
    pub fn of_file(bytes: &'a [u8], described: &[Span]) -> Code<'a> {
        let mut code = Code { described: described.to_vec(), ..Code::default() };
        code.described.retain(|span| span.start < span.end);
        code.described.sort_unstable_by_key(|span| (span.start, span.end));
        if let Ok(file) = ElfFile::<FileHeader64<LittleEndian>>::parse(bytes) {
            if file.elf_header().e_machine.get(LittleEndian) == EM_X86_64 {
                code.read(&file);
            }
        }
        code
    }

    fn read(&mut self, file: &ElfFile<'a, FileHeader64<LittleEndian>>) {
        let mut linkage = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            let (Ok(name), Ok(bytes)) = (section.name_bytes(), section.data()) else { continue };
            if sh_flags & u64::from(SHF_EXECINSTR) == 0 || bytes.is_empty() {
                continue;
            }
            let part = Part { start: section.address(), bytes };
            if name.starts_with(LINKAGE) {
                linkage.push(part);
            } else {
                self.text.push(part);
            }
        }
        let has_sections = !self.text.is_empty();
        for segment in file.segments() {
            let (SegmentFlags::Elf { p_flags }, Ok(bytes)) = (segment.flags(), segment.data()) else { continue };
            let part = Part { start: segment.address(), bytes };
            if p_flags & PF_X != 0 && !has_sections {
                self.text.push(part);
            }
            if p_flags & PF_W == 0 {
                self.constants.push(part);
            }
        }
        self.text.sort_by_key(|part| part.start);
        // Sections that overlap are none that a linker wrote.
        let mut end = 0;
        self.text.retain(|part| {
            let is_after = part.start >= end && part.start.checked_add(part.bytes.len() as u64).is_some();
            end = if is_after { part.span().end } else { end };
            is_after
        });
        let size: usize = self.text.iter().map(|part| part.bytes.len()).sum();
        if size > SMALL && self.undescribed(START_FILES) <= START_FILES {
            self.text.clear();
            return;
        }
        self.symbols(file);
        self.relocations(file);
        self.stubs(&linkage);
        self.start = Some(file.entry()).filter(|start| *start != 0);
        self.started();
        self.called();
        self.addresses();
        self.parts.sort_unstable_by_key(|span| (span.start, span.end));
        let parts = core::mem::take(&mut self.parts);
        let is_part = |at: u64| parts.binary_search_by_key(&at, |span| span.start).is_ok();
        self.entries.retain(|at| !is_part(*at));
        self.candidates.retain(|at| !is_part(*at));
        self.parts = parts;
        for list in [&mut self.entries, &mut self.candidates, &mut self.starts] {
            list.sort_unstable();
            list.dedup();
        }
    }

    fn symbols(&mut self, file: &ElfFile<'a, FileHeader64<LittleEndian>>) {
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if !symbol.is_definition() || self.part(symbol.address()).is_none() {
                continue;
            }
            if symbol.name_bytes().is_ok_and(is_part) {
                self.parts.push(Span::sized(symbol.address(), symbol.size().max(1)));
            } else if symbol.kind() == SymbolKind::Text && symbol.size() > 0 {
                self.entries.push(symbol.address());
            } else {
                self.candidates.push(symbol.address());
            }
            if symbol.name().is_ok_and(noreturn::is_one) {
                self.never.insert(symbol.address());
            }
        }
    }

    fn relocations(&mut self, file: &ElfFile<'a, FileHeader64<LittleEndian>>) {
        let Some(relocations) = file.dynamic_relocations() else { return };
        let names = file.dynamic_symbol_table();
        let (sections, data) = (file.elf_section_table(), file.data());
        let versions = sections.versions(LittleEndian, data).ok().flatten();
        for (place, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            match (r_type, relocation.target()) {
                (R_X86_64_RELATIVE, _) => {
                    let target = relocation.addend() as u64;
                    self.starts.push(target);
                    if self.part(target).is_some() {
                        self.candidates.push(target);
                    }
                }
                (R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT, RelocationTarget::Symbol(index)) => {
                    let symbol = names.as_ref().and_then(|names| names.symbol_by_index(index).ok());
                    let version = versions.as_ref().and_then(|versions| {
                        versions.version(versions.version_index(LittleEndian, index)).ok().flatten()
                    });
                    let name = symbol.and_then(|symbol| symbol.name().ok()).unwrap_or_default();
                    let is_known = version.is_some_and(|version| {
                        KNOWN_LIBRARIES.iter().any(|library| version.name().starts_with(library))
                    });
                    if noreturn::is_one(name) {
                        self.never_by_word.insert(place);
                    } else if is_known && !noreturn::is_sometimes(name) {
                        self.returning_by_word.insert(place);
                    }
                }
                _ => {}
            }
        }
    }

    /// Stubs that jump to functions that never return, or that return.
    fn stubs(&mut self, linkage: &[Part<'_>]) {
        for part in linkage {
            for (at, jump) in part.bytes.windows(6).enumerate().filter(|(_, jump)| jump.starts_with(&[0xff, 0x25])) {
                let distance = jump.get(2..).and_then(|rest| rest.first_chunk()).map_or(0, |n| i32::from_le_bytes(*n));
                let ip = part.start.wrapping_add(at as u64);
                let word = ip.wrapping_add(6).wrapping_add_signed(i64::from(distance));
                // After `endbr64`, or a prefix, perhaps.
                let starts = [ip, ip.wrapping_sub(1), ip.wrapping_sub(4), ip.wrapping_sub(5)];
                if self.never_by_word.contains(&word) {
                    self.never.extend(starts);
                } else if self.returning_by_word.contains(&word) {
                    self.returning.extend(starts);
                }
            }
        }
    }

    /// Functions whose addresses are loaded where the program starts: `main` is called by the C library.
    fn started(&mut self) {
        let Some(start) = self.start else { return };
        let Some(bytes) = self.part(start).and_then(|part| part.from(start)) else { return };
        let decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let before = |instruction: &Instruction| instruction.flow_control() == FlowControl::Next;
        for instruction in decoder.into_iter().take(START_INSTRUCTIONS).take_while(before) {
            let target = match instruction.mnemonic() {
                Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
                Mnemonic::Mov => instruction.try_immediate(1).unwrap_or(0),
                _ => continue,
            };
            if self.part(target).is_some() {
                self.candidates.push(target);
            }
        }
    }

    /// What may be called from code that is described: the bytes of calls and jumps are looked for, not decoded.
    fn called(&mut self) {
        let mut found = Vec::new();
        for part in &self.text {
            for (at, bytes) in part.bytes.windows(5).enumerate() {
                let [0xe8 | 0xe9, a, b, c, d] = *bytes else { continue };
                let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                let target = part.start.wrapping_add(at as u64 + 5).wrapping_add_signed(distance);
                let from = part.start.wrapping_add(at as u64);
                // Of most, which are no calls, the last question is not asked.
                if self.part(target).is_some() && !self.is_described(target) && self.is_described(from) {
                    found.push(target);
                }
            }
        }
        self.candidates.append(&mut found);
    }

    /// What `lea` takes the addresses of: the bytes of the instruction are looked for, not decoded.
    fn addresses(&mut self) {
        let mut found = Vec::new();
        for part in &self.text {
            for (at, bytes) in part.bytes.windows(7).enumerate() {
                let [0x48 | 0x4c, 0x8d, mode, a, b, c, d] = *bytes else { continue };
                if mode & 0xc7 == 5 {
                    let next = part.start.wrapping_add(at as u64 + 7);
                    found.push(next.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d]))));
                }
            }
        }
        self.starts.append(&mut found);
    }

    /// The bytes of a table of jumps whose size is not known: from its start, of which some instruction takes the
    /// address, up to the next thing of which one does.
    pub fn table(&self, start: u64) -> Option<&'a [u8]> {
        let index = self.starts.binary_search(&start).ok()?;
        let rest = self.constants.iter().find_map(|part| part.from(start))?;
        let end = self.starts.get(index + 1).map_or(u64::MAX, |next| *next);
        let len = usize::try_from(end - start).unwrap_or(usize::MAX).min(rest.len());
        rest.get(..len)
    }

    /// The function that a direct call names, if the instruction with this place and length is one. A call of the next
    /// instruction fetches an address.
    pub fn called_by(&self, address: u64, len: usize) -> Option<u64> {
        if len != 5 {
            return None;
        }
        let [0xe8, a, b, c, d, ..] = *self.part(address)?.from(address)? else { return None };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        (distance != 0).then(|| address.wrapping_add(5).wrapping_add_signed(distance))
    }

    /// The text that holds an address.
    pub fn part(&self, address: u64) -> Option<Part<'a>> {
        let index = self.text.partition_point(|part| part.start <= address).checked_sub(1)?;
        self.text.get(index).filter(|part| part.span().contains(address)).copied()
    }

    /// Whether another source describes an address.
    pub fn is_described(&self, address: u64) -> bool {
        let index = self.described.partition_point(|span| span.start <= address);
        // Functions do not overlap; where they do, those before the last one do not count.
        index.checked_sub(1).and_then(|index| self.described.get(index)).is_some_and(|span| span.contains(address))
    }

    /// Whether an address lies in a part of a function whose beginning is elsewhere.
    pub fn is_in_part(&self, address: u64) -> bool {
        let index = self.parts.partition_point(|span| span.start <= address);
        index.checked_sub(1).and_then(|index| self.parts.get(index)).is_some_and(|span| span.contains(address))
    }

    /// Whether a part of a function begins there whose beginning is elsewhere.
    pub fn begins_part(&self, address: u64) -> bool {
        self.parts.binary_search_by_key(&address, |span| span.start).is_ok()
    }

    /// The first address from a described one on that is not described by the same function.
    pub fn after_described(&self, address: u64) -> Option<u64> {
        let index = self.described.partition_point(|span| span.start <= address).checked_sub(1)?;
        self.described.get(index).filter(|span| span.contains(address)).map(|span| span.end)
    }

    /// Where the first function after an address begins that another source describes; else the largest address.
    pub fn next_described(&self, address: u64) -> u64 {
        let index = self.described.partition_point(|span| span.start <= address);
        self.described.get(index).map_or(u64::MAX, |span| span.start)
    }

    /// Bytes of the text that nothing describes and that fill no space between functions. Counted up to a little more
    /// than `most`.
    pub fn undescribed(&self, most: usize) -> usize {
        let (mut count, mut undescribed) = (0, 0);
        for part in &self.text {
            let mut at = part.start;
            while let Some(bytes) = part.from(at).filter(|_| count <= most) {
                if at >= undescribed {
                    if let Some(end) = self.after_described(at) {
                        at = end;
                        continue;
                    }
                    undescribed = self.next_described(at);
                }
                let filled = padding::len(bytes);
                count += usize::from(filled == 0);
                at += filled.max(1) as u64;
            }
        }
        count
    }

    /// Whether a function that another source describes begins at an address.
    pub fn is_described_start(&self, address: u64) -> bool {
        self.described.binary_search_by_key(&address, |span| span.start).is_ok()
    }

    /// Bytes that are never written.
    pub fn constant(&self, address: u64, len: usize) -> Option<&'a [u8]> {
        self.constants.iter().find_map(|part| part.from(address)?.get(..len))
    }
}
