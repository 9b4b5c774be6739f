//! [GDB's JIT interface](https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html): a list of ELF
//! objects in the program's memory. After each change the JIT calls an empty function, in which a debugger has a
//! breakpoint. Here there is no breakpoint: the list is read from another process while the program runs, and may
//! change at any moment.

use super::table::{name, Code, Table, When};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::read::StringTable;
use object::{elf, Endianness};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use uunwind_core::span::Span;
use uunwind_elf::Image;
use uunwind_recording::JitSource;
use uunwind_ring::code_rules::MOST_PIECES;

/// Symbol of the list's head, a variable of the JIT.
pub const SYMBOL: &str = "__jit_debug_descriptor";
/// At most this number of objects of a list are read.
pub const MOST: usize = 1 << 16;
/// Largest object that is read, in bytes.
pub const LARGEST: u64 = 64 << 20;
/// Largest object that is read again to see whether it is still the same one.
const SMALL: u64 = 1 << 20;
/// At most this number of bytes of objects are copied in one look. The rest is read in the next one.
const A_LOOK: u64 = 64 << 20;
/// At most this number of bytes of objects are copied from one list in total.
pub const A_LIST: u64 = 1 << 30;
/// The time between two looks is at least this multiple of the time that a look takes.
const PART_OF_TIME: u64 = 5;
/// At most this number of an object's sections with constants are looked at, and none that has more bytes.
const MOST_CONSTANTS: usize = MOST_PIECES - 1;
pub(super) const LARGEST_CONSTANT: u64 = 16 << 10;
/// At most this number of symbols of one object are read.
const MOST_FUNCTIONS: usize = 1 << 18;

/// Reads another process's memory.
pub trait Memory {
    /// The `len` bytes at `address`; `None` when not all of them can be read.
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>>;
}

/// The memory of the live process with this pid
/// ([process_vm_readv(2)](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html)).
pub struct Live(pub u32);

impl Memory for Live {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0u8; len];
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
        let read = uunwind_elf::process::with_memory(self.0, |id| {
            // SAFETY: `local` is our own buffer; the kernel checks the other process's address.
            let read = unsafe { libc::process_vm_readv(id as libc::pid_t, &local, 1, &remote, 1, 0) };
            usize::try_from(read).map_err(|_| std::io::Error::last_os_error())
        });
        read.is_ok_and(|read| read == len).then_some(out)
    }
}

/// An object of the list, as it was last read.
struct Known {
    address: u64,
    size: u64,
    hash: u64,
    codes: Vec<u32>,
    /// Number of the last look that found it in the list.
    seen: u64,
}

/// Address of an entry of the list, and address and size of the ELF image that it points to.
struct ListEntry {
    entry: u64,
    address: u64,
    size: u64,
}

/// One list head of a process.
pub struct Descriptor {
    at: u64,
    /// Address of an entry -> its object.
    known: HashMap<u64, Known>,
    head: Option<Vec<u8>>,
    looks: u64,
    /// Time at which the last look began that read the whole list (CLOCK_MONOTONIC, ns).
    seen_whole: u64,
    /// The next look begins no earlier than this time, so that a long list does not keep the recorder from draining
    /// rings.
    not_before: u64,
    /// Bytes that may still be copied: in this look, and in total.
    look_left: u64,
    list_left: u64,
    /// Number of objects that were left out because a limit was reached.
    spent: u64,
}

impl Descriptor {
    /// The list whose head is at the process address `at`, of a process that began at `start` (CLOCK_MONOTONIC, ns).
    pub fn new(at: u64, start: u64) -> Descriptor {
        Descriptor {
            at,
            known: HashMap::new(),
            head: None,
            looks: 0,
            seen_whole: start,
            not_before: 0,
            look_left: 0,
            list_left: A_LIST,
            spent: 0,
        }
    }

    /// Whether the list's head is at this process address.
    pub fn is_at(&self, at: u64) -> bool {
        self.at == at
    }

    /// Number of objects that were left out because the list has too many or too large ones.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Reads the list, unless the last look took so long that the next one must wait. `clock` returns CLOCK_MONOTONIC
    /// in ns. If the head is unchanged, a look costs one system call; with `whole` it reads the list nevertheless.
    pub fn look(&mut self, memory: &impl Memory, table: &mut Table, clock: impl Fn() -> u64, whole: bool) {
        let begun = clock();
        if begun < self.not_before {
            return;
        }
        self.look_left = A_LOOK;
        self.look_now(memory, table, &clock, whole, begun);
        let ended = clock();
        self.not_before = ended.saturating_add(ended.saturating_sub(begun).saturating_mul(PART_OF_TIME - 1));
    }

    fn look_now(&mut self, memory: &impl Memory, table: &mut Table, clock: &impl Fn() -> u64, whole: bool, begun: u64) {
        let Some(head) = memory.read(self.at, 24) else { return };
        if !whole && self.head.as_ref() == Some(&head) {
            return;
        }
        self.head = Some(head.clone());
        // struct jit_descriptor, version 1: u32 version, u32 action, pointer to the relevant entry, pointer to the
        // first entry.
        let (Some(1), Some(relevant), Some(first)) = (u32_at(&head, 0), u64_at(&head, 8), u64_at(&head, 16)) else {
            return;
        };
        self.looks += 1;
        let (mut entry, mut count, mut all) = (first, 0, true);
        let after = self.seen_whole;
        // The list changes while it is read. An entry that cannot be read ends this look, and the next one starts at
        // the head.
        while entry != 0 {
            let Some(node) = memory.read(entry, 32) else { return };
            let (Some(next), Some(address), Some(size)) = (u64_at(&node, 0), u64_at(&node, 16), u64_at(&node, 24))
            else {
                return;
            };
            let place = ListEntry { entry, address, size };
            all &= self.entry(place, entry == relevant, memory, table, || When { after, by: clock() });
            count += 1;
            if count > MOST {
                self.spent = self.spent.max(1);
                return;
            }
            if next == first {
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
        } else {
            // The next look must read the objects that this one left, even if the head is unchanged.
            self.head = None;
        }
    }

    /// Processes one entry of the list. False: its object could not be read in this look.
    fn entry(
        &mut self,
        ListEntry { entry, address, size }: ListEntry,
        relevant: bool,
        memory: &impl Memory,
        table: &mut Table,
        when: impl Fn() -> When,
    ) -> bool {
        let known = self.known.get_mut(&entry).filter(|k| (k.address, k.size) == (address, size));
        let again = known.is_some();
        if let Some(known) = known {
            known.seen = self.looks;
            // An object that was replaced at the same addresses is the one that the JIT changed last, so only that one
            // is read again.
            if !relevant || size > SMALL {
                return true;
            }
        }
        if !again && (size > LARGEST || size > self.list_left || table.room.is_spent()) {
            self.spent += 1;
            let left_out = Known { address, size, hash: 0, codes: Vec::new(), seen: self.looks };
            if let Some(old) = self.known.insert(entry, left_out) {
                old.codes.iter().for_each(|code| table.go(*code, when()));
            }
            return true;
        }
        if size > self.look_left {
            // The object read before stays, since this look did not check it.
            if let Some(known) = self.known.get_mut(&entry) {
                known.seen = self.looks;
            }
            return false;
        }
        self.look_left -= size;
        self.list_left -= if again { 0 } else { size };
        let Some(image) = memory.read(address, size as usize) else { return false };
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
        let mut codes = Vec::new();
        functions(&image, |code| {
            codes.extend(table.come(code, when()));
            !table.room.is_spent()
        });
        let constants: Arc<[Span]> = constants(&image).into();
        table.constants.extend(codes.iter().map(|code| (*code, constants.clone())));
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

/// Passes the functions of an object in memory to `take`, until that returns false. `image` may be any bytes.
pub fn functions(image: &[u8], mut take: impl FnMut(Code) -> bool) {
    // Functions before a damaged part are kept.
    let _ = collect(image, &mut take);
}

fn collect(image: &[u8], take: &mut impl FnMut(Code) -> bool) -> object::Result<()> {
    let header = elf::FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    // Section names are not needed, and some JITs write none.
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
        // The JIT has stored each section's address in its header; symbols of a relocatable file are relative to it.
        let base = if header.e_type(endian) == elf::ET_REL { section.sh_addr(endian) } else { 0 };
        let start = base.wrapping_add(symbol.st_value(endian));
        let Some(end) = start.checked_add(symbol.st_size(endian)).filter(|_| start != 0) else { continue };
        let Ok(bytes) = symbol.name(endian, symbols.strings()) else { continue };
        if !take(Code { source: JitSource::Gdb, start, end, name: name(bytes), lines: Rc::from([]) }) {
            break;
        }
    }
    Ok(())
}

/// Where the object's code may have tables of jumps: process addresses of sections that are neither written nor run.
pub fn constants(image: &[u8]) -> Vec<Span> {
    let sections = || {
        let header = elf::FileHeader64::<Endianness>::parse(image).ok()?;
        let endian = header.endian().ok()?;
        Some((endian, header.section_headers(endian, image).ok()?))
    };
    let Some((endian, sections)) = sections() else { return Vec::new() };
    let flags = u64::from(elf::SHF_ALLOC | elf::SHF_WRITE | elf::SHF_EXECINSTR);
    let is_constant = |section: &&elf::SectionHeader64<Endianness>| {
        section.sh_flags(endian) & flags == u64::from(elf::SHF_ALLOC) && section.sh_addr(endian) != 0
    };
    let spans = sections.iter().filter(is_constant).map(|s| Span::sized(s.sh_addr(endian), s.sh_size(endian)));
    spans.filter(|span| !span.is_empty() && span.len() <= LARGEST_CONSTANT).take(MOST_CONSTANTS).collect()
}

/// File address of the list's head, if the object has one.
pub fn find(image: &Image) -> Option<u64> {
    // The size of struct jit_descriptor: two 32-bit numbers and two pointers, and 8 bytes more where it is padded.
    image.any_symbol(SYMBOL).filter(|symbol| matches!(symbol.size, 24 | 32)).map(|symbol| symbol.address)
}

#[cfg(test)]
mod tests;
