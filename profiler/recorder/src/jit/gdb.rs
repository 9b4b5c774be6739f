//! GDB's JIT interface: a list of ELF objects in the program's memory, which the JIT changes and then calls an empty
//! function for a debugger's breakpoint (GDB manual, "JIT Compilation Interface"). No breakpoint here: the list's head is
//! looked at from outside, while the program runs, and may change at any moment.

use super::table::{name, Code, Table, When};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::read::StringTable;
use object::{elf, Endianness, ReadRef};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use uunwind_report::recording::JitSource;

/// The list's head, a variable of the JIT's.
pub const SYMBOL: &[u8] = b"__jit_debug_descriptor";
/// Most objects that are followed.
const MOST: usize = 1 << 16;
/// Largest object that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// Largest object that is read again to see whether it is still the same one.
const SMALL: u64 = 1 << 20;
/// Most functions taken from one object.
const MOST_FUNCTIONS: usize = 1 << 18;

/// Reads another process's memory: so many bytes, or none.
pub trait Memory {
    /// `len` bytes at `address`.
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>>;
}

/// A live process.
pub struct Live(pub u32);

impl Memory for Live {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0u8; len];
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
        // SAFETY: `local` is our own buffer; the kernel checks the other process's address.
        let read = unsafe { libc::process_vm_readv(self.0 as libc::pid_t, &local, 1, &remote, 1, 0) };
        (usize::try_from(read) == Ok(len)).then_some(out)
    }
}

/// An object of the list, as last seen.
struct Known {
    address: u64,
    size: u64,
    hash: u64,
    codes: Vec<u32>,
    /// Number of the look that saw it last.
    seen: u64,
}

/// An entry of the list, and the image that it tells of.
struct Place {
    entry: u64,
    address: u64,
    size: u64,
}

/// One list head of a process.
pub struct Descriptor {
    at: u64,
    /// Entry -> its object.
    known: HashMap<u64, Known>,
    head: Option<Vec<u8>>,
    looks: u64,
    /// When the last look began that saw the whole list.
    seen_whole: u64,
}

impl Descriptor {
    /// The list whose head lies at `at`, of a process that began at `start`.
    pub fn new(at: u64, start: u64) -> Descriptor {
        Descriptor { at, known: HashMap::new(), head: None, looks: 0, seen_whole: start }
    }

    /// Whether this is the list whose head lies at `at`.
    pub fn is_at(&self, at: u64) -> bool {
        self.at == at
    }

    /// Looks at the list. `clock` gives CLOCK_MONOTONIC. A look at an unchanged head costs one system call, unless `whole`.
    pub fn look(&mut self, memory: &impl Memory, table: &mut Table, clock: impl Fn() -> u64, whole: bool) {
        let begun = clock();
        let Some(head) = memory.read(self.at, 24) else { return };
        if !whole && self.head.as_ref() == Some(&head) {
            return;
        }
        self.head = Some(head.clone());
        // Version 1: u32 version, u32 action, pointer to the entry concerned, pointer to the first entry.
        let (Some(1), Some(relevant), Some(first)) = (u32_at(&head, 0), u64_at(&head, 8), u64_at(&head, 16)) else {
            return;
        };
        self.looks += 1;
        let (mut entry, mut count, mut all) = (first, 0, true);
        let after = self.seen_whole;
        // The list changes while it is read: what cannot be read ends this look, and the next one begins anew.
        while entry != 0 {
            let Some(node) = memory.read(entry, 32) else { return };
            let (Some(next), Some(address), Some(size)) = (u64_at(&node, 0), u64_at(&node, 16), u64_at(&node, 24))
            else {
                return;
            };
            let place = Place { entry, address, size };
            all &= self.entry(place, entry == relevant, memory, table, || When { after, by: clock() });
            count += 1;
            if count > MOST || next == first {
                return;
            }
            entry = next;
        }
        let looks = self.looks;
        self.known.retain(|_, known| {
            if known.seen != looks {
                known.codes.iter().for_each(|code| table.go(*code, When { after, by: clock() }));
            }
            known.seen == looks
        });
        if all {
            self.seen_whole = begun;
        }
    }

    /// One object of the list. False: it could not be read now.
    fn entry(
        &mut self,
        Place { entry, address, size }: Place,
        relevant: bool,
        memory: &impl Memory,
        table: &mut Table,
        when: impl Fn() -> When,
    ) -> bool {
        let known = self.known.get_mut(&entry).filter(|k| (k.address, k.size) == (address, size));
        if let Some(known) = known {
            known.seen = self.looks;
            // One that went and came again at the same places is the last one that the JIT told of.
            if !relevant || size > SMALL {
                return true;
            }
        }
        let image = (size <= LARGEST).then(|| memory.read(address, size as usize)).flatten();
        let Some(image) = image else {
            table.left_out += u64::from(size > LARGEST && !self.known.contains_key(&entry));
            return size > LARGEST;
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&image);
        let hash = hasher.finish();
        if let Some(old) = self.known.remove(&entry) {
            if (old.address, old.size, old.hash) == (address, size, hash) {
                self.known.insert(entry, old);
                return true;
            }
            old.codes.iter().for_each(|code| table.go(*code, when()));
        }
        let codes = functions(&image).into_iter().filter_map(|code| table.come(code, when())).collect();
        self.known.insert(entry, Known { address, size, hash, codes, seen: self.looks });
        true
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The functions of an object in memory. Any bytes are safe to give.
pub fn functions(image: &[u8]) -> Vec<Code> {
    let mut codes = Vec::new();
    // Damage behind some functions does not take those.
    let _ = collect(image, &mut codes);
    codes
}

fn collect(image: &[u8], codes: &mut Vec<Code>) -> object::Result<()> {
    let header = elf::FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    // Names of sections are not wanted, and some JITs write none.
    let sections: SectionTable<'_, elf::FileHeader64<Endianness>> =
        SectionTable::new(header.section_headers(endian, image)?, StringTable::default());
    let symbols = sections.symbols(endian, image, elf::SHT_SYMTAB)?;
    for symbol in symbols.iter().take(MOST_FUNCTIONS) {
        if symbol.st_type() != elf::STT_FUNC || symbol.st_size(endian) == 0 {
            continue;
        }
        let index = symbol.st_shndx(endian);
        let Ok(section) = sections.section(object::SectionIndex(usize::from(index))) else { continue };
        if section.sh_flags(endian) & u64::from(elf::SHF_EXECINSTR) == 0 {
            continue;
        }
        // The JIT has put each section's address in memory into its header; symbols of a relocatable file count from there.
        let base = if header.e_type(endian) == elf::ET_REL { section.sh_addr(endian) } else { 0 };
        let start = base.wrapping_add(symbol.st_value(endian));
        let Some(end) = start.checked_add(symbol.st_size(endian)).filter(|_| start != 0) else { continue };
        let Ok(told) = symbol.name(endian, symbols.strings()) else { continue };
        codes.push(Code { source: JitSource::Gdb, start, end, name: name(told), lines: Rc::from([]) });
    }
    Ok(())
}

/// Where a file has the list's head, as in the file, if it has one. Any bytes are safe to give.
pub fn find<'data, R: ReadRef<'data>>(file: R) -> Option<u64> {
    let header = elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = SectionTable::<elf::FileHeader64<Endianness>, R>::new(
        header.section_headers(endian, file).ok()?,
        StringTable::default(),
    );
    [elf::SHT_DYNSYM, elf::SHT_SYMTAB].into_iter().find_map(|kind| {
        let symbols = sections.symbols(endian, file, kind).ok()?;
        // Names are compared last: they lie elsewhere in the file.
        let candidates =
            symbols.iter().filter(|s| s.st_type() == elf::STT_OBJECT && s.st_shndx(endian) != elf::SHN_UNDEF);
        let sized = candidates.filter(|s| s.st_size(endian) == 24 || s.st_size(endian) == 32);
        let mut named = sized.filter(|s| s.name(endian, symbols.strings()).is_ok_and(|name| name == SYMBOL));
        named.next().map(|s| s.st_value(endian))
    })
}

#[cfg(test)]
mod tests;
