//! The objects that a process's loader has loaded, read in its memory: their dynamic sections, and the words in them
//! that the loader fills with functions' addresses.

use object::elf;
use std::collections::HashMap;
use uunwind_elf::maps::Mapping;
use uunwind_remote::memory::Memory;
use uunwind_ring::gate::{self, CANCEL, FUNCTIONS, HELPERS, RECORDER};

/// At most this number of objects, namespaces, and entries of a dynamic section.
const OBJECTS: usize = 64 * 1024;
const NAMESPACES: usize = 16;
const ENTRIES: usize = 512;
/// At most this number of bytes of a table.
const TABLE: u64 = 256 << 20;
/// Bytes of entries of tables (gABI).
const RELA: usize = 24;
const SYM: usize = 24;
const PHDR: usize = 56;
const PAGE: u64 = 4096;
/// At most this number of symbols of a hash bucket.
const BUCKET: u64 = 1 << 16;

/// An object, by its `struct link_map` (link.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// `l_addr`: process address minus file address.
    pub bias: u64,
    /// `l_ld`: process address of its dynamic section.
    pub dynamic: u64,
    /// It is of the program's own namespace, not of one that dlmopen(3) has made.
    pub is_of_program: bool,
}

/// A word that the loader fills with a function's address.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Process address of the word.
    pub place: u64,
    /// Index in [`FUNCTIONS`].
    pub function: usize,
    /// Process address of the object's own definition; 0: it has none.
    pub own: u64,
    /// For a function that the object does not define: the address that it has for the whole program all the same, in
    /// this object's procedure linkage table (psABI, "Procedure Linkage Table"); else 0.
    pub canonical: u64,
}

/// What is asked of an object.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its words for functions of the gate.
    pub slots: Vec<Slot>,
    /// Process addresses of the functions that it defines, by their index; 0: it does not.
    pub defined: [u64; FUNCTIONS.len()],
    /// Where it defines [`HELPERS`]; 0: it does not.
    pub helpers: [u64; HELPERS.len()],
    /// Whether it calls [`CANCEL`].
    pub cancels: bool,
    /// Where its word [`RECORDER`] lies; 0: it has none.
    pub recorder: u64,
    /// What is read-only once the loader has relocated it (PT_GNU_RELRO, in whole pages): its first page; 0: nothing.
    pub relro: u64,
}

impl Default for Table {
    /// Of an object that has none.
    fn default() -> Table {
        let (defined, helpers) = ([0; FUNCTIONS.len()], [0; HELPERS.len()]);
        Table { slots: Vec::new(), defined, helpers, cancels: false, recorder: 0, relro: 0 }
    }
}

impl Table {
    /// Whether it is an allocator, or a C library.
    pub fn allocates(&self) -> bool {
        self.defined[gate::MALLOC] != 0
    }

    /// Whether it is an allocator that is not the C library's.
    pub fn is_other_allocator(&self) -> bool {
        self.allocates() && self.helpers[gate::ITERATE] == 0
    }

    /// Its words that are redirected in a recording with these `FLAG_*`.
    pub fn wanted(&self, flags: u32) -> impl Iterator<Item = &Slot> {
        let locks = self.defined[gate::MUTEX_LOCK] != 0;
        let is_wanted = gate::wanted(flags, self.allocates(), self.helpers[gate::ITERATE] != 0, locks);
        self.slots.iter().filter(move |slot| is_wanted(slot.function))
    }
}

fn word(memory: &Memory, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_now(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

fn half(memory: &Memory, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    memory.read_now(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

fn bytes(memory: &Memory, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= TABLE)?];
    memory.read_now(at, &mut bytes).then_some(bytes)
}

fn in_bytes(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// All objects, in the loader's order, by the `r_debug` at this address. `None`: the list is just being changed, or it
/// cannot be read.
pub fn objects(memory: &Memory, debug: u64) -> Option<Vec<Object>> {
    let (mut objects, mut space, mut is_of_program) = (Vec::new(), debug, true);
    for _ in 0..NAMESPACES {
        let mut map = word(memory, space.checked_add(8)?)?;
        // RT_CONSISTENT is 0.
        if half(memory, space + 24)? != 0 {
            return None;
        }
        while map != 0 && objects.len() < OBJECTS {
            let head = bytes(memory, map, 40)?;
            let [bias, _, dynamic, next] = [0, 8, 16, 24].map(|at| in_bytes(&head, at));
            objects.push(Object { bias, dynamic, is_of_program });
            map = next;
        }
        // `r_next` of `struct r_debug_extended`, since version 2 (glibc 2.35).
        space = if half(memory, space)? >= 2 { word(memory, space + 40)? } else { 0 };
        is_of_program = false;
        if space == 0 {
            break;
        }
    }
    Some(objects)
}

/// Reads what is asked of an object. `None`: it has no such tables, or they cannot be read.
pub fn table(memory: &Memory, object: &Object, mappings: &[Mapping]) -> Option<Table> {
    let mut tags = HashMap::new();
    for index in 0..ENTRIES as u64 {
        let entry = bytes(memory, object.dynamic.checked_add(16 * index)?, 16)?;
        let (tag, value) = (in_bytes(&entry, 0), in_bytes(&entry, 8));
        if tag == elf::DT_NULL as u64 {
            break;
        }
        tags.entry(tag).or_insert(value);
    }
    // glibc's loader has added the bias already, but in sections that cannot be written.
    let address = |tag: i64| {
        let value = tags.get(&(tag as u64)).copied().filter(|value| *value != 0)?;
        let is_relative = value < object.bias && (object.bias >> 63 == 0 || value >> 63 == 1);
        Some(if is_relative { value.wrapping_add(object.bias) } else { value })
    };
    let size = |tag: i64| tags.get(&(tag as u64)).copied().unwrap_or(0);
    let (symbols, strings) = (address(elf::DT_SYMTAB)?, address(elf::DT_STRTAB)?);
    let names = bytes(memory, strings, size(elf::DT_STRSZ))?;
    let mut entries = Vec::new();
    for (table, len) in [(elf::DT_JMPREL, elf::DT_PLTRELSZ), (elf::DT_RELA, elf::DT_RELASZ)] {
        if let Some(at) = address(table) {
            let rela = bytes(memory, at, size(len))?;
            let of = |entry: &[u8]| (in_bytes(entry, 0), in_bytes(entry, 8));
            entries.extend(rela.chunks_exact(RELA).map(of).filter(|(_, info)| is_function(*info as u32)));
        }
    }
    let count = entries.iter().map(|(_, info)| (info >> 32) + 1).max().unwrap_or(0);
    let known = bytes(memory, symbols, count * SYM as u64)?;
    let named = |info: u64| {
        let symbol = known.get((info >> 32) as usize * SYM..)?.get(..SYM)?;
        let name = names.get(in_bytes(symbol, 0) as u32 as usize..)?;
        Some((symbol, name.split(|byte| *byte == 0).next()?))
    };
    let slot = |(offset, info): &(u64, u64)| {
        let (symbol, name) = named(*info)?;
        let function = gate::index_of(name)?;
        let (is_defined, value) = (in_bytes(symbol, 0) >> 48 != 0, in_bytes(symbol, 8));
        let at = if value == 0 { 0 } else { object.bias.wrapping_add(value) };
        let (own, canonical) = if is_defined { (at, 0) } else { (0, at) };
        Some(Slot { place: object.bias.wrapping_add(*offset), function, own, canonical })
    };
    let (hash, versions) = (address(elf::DT_GNU_HASH), address(elf::DT_VERSYM));
    let definition = |name: &[u8]| {
        let found = hash.and_then(|hash| defined(memory, (hash, symbols, versions), &names, name));
        found.map_or(0, |value| object.bias.wrapping_add(value))
    };
    Some(Table {
        slots: entries.iter().filter_map(slot).filter(|slot| slot.place.is_multiple_of(8)).collect(),
        defined: FUNCTIONS.map(|name| definition(name.to_bytes())),
        helpers: HELPERS.map(|name| definition(name.to_bytes())),
        recorder: definition(RECORDER.to_bytes()) & !7,
        cancels: entries.iter().any(|(_, info)| named(*info).is_some_and(|(_, name)| name == CANCEL.to_bytes())),
        relro: relro(memory, object, mappings).unwrap_or(0),
    })
}

fn is_function(kind: u32) -> bool {
    kind == elf::R_X86_64_GLOB_DAT || kind == elf::R_X86_64_JUMP_SLOT
}

/// The value of the symbol of this name that an object defines for those that ask for no version of it, by its
/// DT_GNU_HASH.
fn defined(
    memory: &Memory,
    (hash, symbols, versions): (u64, u64, Option<u64>),
    names: &[u8],
    name: &[u8],
) -> Option<u64> {
    /// Of a version that is no default (gABI's extension for versions, `versym`): another one of the name is.
    const HIDDEN: u32 = 0x8000;
    let head = bytes(memory, hash, 16)?;
    let number = |at: usize| in_bytes(&head, at) as u32;
    let [buckets, first, words] = [number(0), number(4), number(8)];
    let wanted = name.iter().fold(5381u32, |h, byte| h.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let table = hash + 16 + 8 * u64::from(words);
    let start = half(memory, table + 4 * u64::from(wanted.checked_rem(buckets)?))?;
    let from = u64::from(start.checked_sub(first).filter(|_| start != 0)?);
    let chains = table + 4 * u64::from(buckets);
    for index in from..from + BUCKET {
        let chain = half(memory, chains + 4 * index)?;
        if chain | 1 == wanted | 1 {
            let symbol = bytes(memory, symbols + (u64::from(first) + index) * SYM as u64, SYM as u64)?;
            let text = names.get(in_bytes(&symbol, 0) as u32 as usize..)?;
            let is_defined = in_bytes(&symbol, 0) >> 48 != 0;
            let version = match versions {
                Some(versions) => half(memory, versions + 2 * (u64::from(first) + index))? & HIDDEN,
                None => 0,
            };
            if is_defined && version == 0 && text.split(|byte| *byte == 0).next() == Some(name) {
                return Some(in_bytes(&symbol, 8));
            }
        }
        if chain & 1 != 0 {
            break;
        }
    }
    None
}

/// The first page that the loader protects when it has relocated the object.
fn relro(memory: &Memory, object: &Object, mappings: &[Mapping]) -> Option<u64> {
    let own = mapping_at(mappings, object.dynamic)?;
    let is_first = |m: &&Mapping| m.is_of_file(own) && m.offset == 0 && m.start <= own.start;
    let first = mappings.iter().rev().find(is_first)?;
    let head = bytes(memory, first.start, 64)?;
    let count = in_bytes(&head, 56) & 0xffff;
    let headers = bytes(memory, first.start.checked_add(in_bytes(&head, 32))?, count * PHDR as u64)?;
    let mut headers = headers.chunks_exact(PHDR);
    let relro = headers.find(|header| in_bytes(header, 0) as u32 == elf::PT_GNU_RELRO)?;
    let start = object.bias.wrapping_add(in_bytes(relro, 16));
    let end = start.wrapping_add(in_bytes(relro, 40)) & !(PAGE - 1);
    let start = start & !(PAGE - 1);
    (start < end).then_some(start)
}

/// The mapping that has an address.
pub fn mapping_at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings.get(after.checked_sub(1)?).filter(|mapping| address < mapping.end)
}
