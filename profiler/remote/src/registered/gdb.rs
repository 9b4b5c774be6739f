//! Unwind data in the ELF objects of [GDB's JIT
//! interface](https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html). A JIT describes sections by
//! the places that it has put them at; where it has not placed the unwind data, that is read in the object itself.

use super::frames::Frames;
use object::elf;
use uunwind_core::memory::Reader;
use uunwind_eh_frame::scan::Shape;

/// At most this number of sections of an object is looked at.
const SECTIONS: u64 = 512;
/// Longest unwind data of an object, in bytes.
const LONGEST: u64 = 64 << 20;
const HEADER: usize = 64;
/// The name of the section with unwind data, with its end.
const NAME: &[u8; 10] = b".eh_frame\0";

/// Reads the list whose head lies at a process address: version, action, the relevant entry, the first entry.
pub fn read(head: u64, reader: &mut Reader<'_>, frames: &mut Frames) {
    let mut steps = 0;
    each(head, reader, &mut |address, size, reader| {
        let goes_on = frames.goes_on(steps);
        steps += 1;
        if goes_on {
            object(address, size, reader, frames);
        }
        goes_on
    });
}

/// Passes address and size of each object of the list whose head lies at a process address to `take`, until that
/// returns false.
pub fn each(head: u64, reader: &mut Reader<'_>, take: &mut dyn FnMut(u64, u64, &mut Reader<'_>) -> bool) {
    let Some(first) = reader.word(head.wrapping_add(16)).filter(|_| reader.u32(head) == Some(1)) else { return };
    let mut entry = first;
    while entry != 0 {
        // Next, previous, the object's address, its size.
        let words: [Option<u64>; 4] = std::array::from_fn(|i| reader.word(entry.wrapping_add(8 * i as u64)));
        let [Some(next), _, Some(address), Some(size)] = words else { return };
        if !take(address, size, reader) || next == first {
            return;
        }
        entry = next;
    }
}

/// A section header's fields: name, type, flags, address, offset, size.
#[derive(Clone, Copy)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
}

fn section(at: u64, reader: &mut Reader<'_>) -> Option<Section> {
    Some(Section {
        name: reader.u32(at)?,
        kind: reader.u32(at.wrapping_add(4))?,
        flags: reader.word(at.wrapping_add(8))?,
        address: reader.word(at.wrapping_add(16))?,
        offset: reader.word(at.wrapping_add(24))?,
        size: reader.word(at.wrapping_add(32))?,
    })
}

/// The unwind data of the ELF object at a process address.
fn object(address: u64, size: u64, reader: &mut Reader<'_>, frames: &mut Frames) -> Option<()> {
    let mut header = [0; HEADER];
    if size < HEADER as u64 || !reader.read(address, &mut header) || !header.starts_with(&elf::ELFMAG) {
        return None;
    }
    let short = |at: usize| header.get(at..)?.first_chunk().map(|half| u64::from(u16::from_le_bytes(*half)));
    let table = header.get(40..)?.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    let (entry, count, names) = (short(58)?, short(60)?.min(SECTIONS), short(62)?);
    if entry != 64 || table.checked_add(count * entry)? > size {
        return None;
    }
    let header_at = |index: u64| address.wrapping_add(table).wrapping_add(index * entry);
    let inside = |section: &Section| section.offset.checked_add(section.size).is_some_and(|end| end <= size);
    let names = section(header_at(names), reader).filter(|section| names < count && inside(section));
    for index in 0..count {
        let section = section(header_at(index), reader)?;
        let is_named = |names: Section| {
            let mut name = [0; NAME.len()];
            let at = address.wrapping_add(names.offset).wrapping_add(u64::from(section.name));
            let end = u64::from(section.name) + NAME.len() as u64;
            end <= names.size && reader.read(at, &mut name) && &name == NAME
        };
        let is_unwind = section.kind == elf::SHT_X86_64_UNWIND || names.is_some_and(is_named);
        if !is_unwind || section.size == 0 || section.size > LONGEST {
            continue;
        }
        let is_placed = section.flags & u64::from(elf::SHF_ALLOC) != 0 && section.address != 0;
        let is_here = section.kind != elf::SHT_NOBITS && inside(&section);
        let begin = match (is_placed, is_here) {
            (true, _) => section.address,
            (false, true) => address.wrapping_add(section.offset),
            (false, false) => continue,
        };
        if let Some(end) = begin.checked_add(section.size) {
            frames.add(begin, Shape::List, Some(end), reader);
        }
    }
    Some(())
}
