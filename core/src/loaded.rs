//! The loaded objects as [dl_iterate_phdr(3)](https://man7.org/linux/man-pages/man3/dl_iterate_phdr.3.html) describes
//! them, and what their dynamic sections name: symbols, needs, sonames.
//!
//! dlsym(3) finds symbols, too. But for one that nobody defines, glibc makes a message, with the program's allocator,
//! and dlopen(3) allocates always: before `main`, a program's own allocator may not be ready for calls.
//!
//! Not for handlers, where [`crate::exports`] reads. What is read belongs to the loader and to objects that stay loaded
//! meanwhile.

use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem::offset_of;

/// `struct dl_phdr_info` (link.h), its first fields.
#[repr(C)]
pub struct PhdrInfo {
    /// Load bias.
    pub addr: u64,
    /// Path, NUL-terminated; empty for the program.
    pub name: *const u8,
    phdr: *const u8,
    phnum: u16,
    /// Number of objects that were ever loaded.
    pub adds: u64,
    /// Number of those that were unloaded.
    pub subs: u64,
}

/// What dl_iterate_phdr(3) calls for each object.
pub type Callback = unsafe extern "C" fn(*mut PhdrInfo, usize, *mut c_void) -> c_int;
/// dl_iterate_phdr(3).
pub type Iterate = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;

/// One PT_LOAD segment, in memory.
pub struct Segment {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// Whether its `p_flags` have PF_X.
    pub executable: bool,
}

/// One program header, its address as loaded.
struct Header {
    kind: u32,
    flags: u32,
    start: u64,
    size: u64,
}

impl PhdrInfo {
    /// The PT_LOAD segments.
    ///
    /// # Safety
    /// This must be the loader's, of an object that stays loaded.
    pub unsafe fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        const PT_LOAD: u32 = 1;
        const PF_X: u32 = 1;
        // SAFETY: passed on.
        unsafe { self.headers() }.filter(|h| h.kind == PT_LOAD).map(|h| Segment {
            start: h.start,
            end: h.start.wrapping_add(h.size),
            executable: h.flags & PF_X != 0,
        })
    }

    /// What the loader makes read-only when it has relocated the object (PT_GNU_RELRO, in whole pages as
    /// `_dl_protect_relro` of glibc takes them): first address and end.
    ///
    /// # Safety
    /// As [`PhdrInfo::segments`].
    pub unsafe fn relro(&self) -> Option<(u64, u64)> {
        const PT_GNU_RELRO: u32 = 0x6474_e552;
        const PAGE: u64 = 4096;
        // SAFETY: passed on.
        let found = unsafe { self.headers() }.find(|h| h.kind == PT_GNU_RELRO)?;
        let (start, end) = (found.start & !(PAGE - 1), found.start.wrapping_add(found.size) & !(PAGE - 1));
        (start < end).then_some((start, end))
    }

    /// The dynamic section, which may be missing: then it names nothing.
    ///
    /// # Safety
    /// As [`PhdrInfo::segments`]; and the object stays loaded while the result is used.
    pub unsafe fn dynamic(&self) -> Dynamic {
        const PT_DYNAMIC: u32 = 2;
        // SAFETY: passed on.
        let found = unsafe { self.headers() }.find(|h| h.kind == PT_DYNAMIC);
        let first = found.map_or(core::ptr::null(), |h| h.start as *const [u64; 2]);
        let dynamic = Dynamic { bias: self.addr, first, strings: core::ptr::null() };
        Dynamic { strings: dynamic.table(DT_STRTAB), ..dynamic }
    }

    /// Path, as the loader has it; empty for the program.
    ///
    /// # Safety
    /// As [`PhdrInfo::segments`].
    pub unsafe fn path(&self) -> &[u8] {
        // SAFETY: null, or the loader's string.
        unsafe { self.name.as_ref().map_or(&[], |name| CStr::from_ptr(core::ptr::from_ref(name).cast()).to_bytes()) }
    }

    /// Whether a segment covers this address.
    ///
    /// # Safety
    /// As [`PhdrInfo::segments`].
    pub unsafe fn covers(&self, address: u64) -> bool {
        // SAFETY: passed on.
        unsafe { self.segments() }.any(|segment| (segment.start..segment.end).contains(&address))
    }

    /// # Safety
    /// As [`PhdrInfo::segments`].
    unsafe fn headers(&self) -> impl Iterator<Item = Header> + '_ {
        const PHENT: usize = 56;
        (0..usize::from(self.phnum)).map(|i| {
            // SAFETY: `phdr` points to `phnum` program headers of 56 bytes: type, flags, offset, vaddr, paddr, filesz,
            // memsz.
            unsafe {
                let ph = self.phdr.add(i * PHENT);
                let word = |offset: usize| ph.add(offset).cast::<u64>().read_unaligned();
                Header {
                    kind: ph.cast::<u32>().read_unaligned(),
                    flags: ph.add(4).cast::<u32>().read_unaligned(),
                    start: self.addr.wrapping_add(word(16)),
                    size: word(40),
                }
            }
        })
    }
}

/// What `look` finds first, of the loaded objects in the loader's order: the program comes first.
///
/// # Safety
/// In normal context. `iterate` must be dl_iterate_phdr(3).
pub unsafe fn find<T, F: FnMut(&PhdrInfo) -> Option<T>>(iterate: Iterate, look: F) -> Option<T> {
    struct Search<T, F> {
        look: F,
        found: Option<T>,
    }
    unsafe extern "C" fn each<T, F: FnMut(&PhdrInfo) -> Option<T>>(
        info: *mut PhdrInfo,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes its structure; `find` its search.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<T, F>>()) };
        search.found = (search.look)(info);
        search.found.is_some().into()
    }
    let mut search = Search { look, found: None };
    // SAFETY: as the caller says; the callback gets the search.
    unsafe { iterate(each::<T, F>, (&raw mut search).cast()) };
    search.found
}

/// The symbol of this name in the first object that defines it, in the loader's order.
///
/// # Safety
/// As [`find`].
pub unsafe fn symbol(iterate: Iterate, name: &CStr) -> Option<Symbol> {
    // SAFETY: passed on; each object stays loaded while the loader's lock is held.
    unsafe { find(iterate, |object| object.dynamic().symbol(name)) }
}

/// The symbol of this name in the first object that defines it after the one that covers `own`, in the loader's order:
/// what dlsym(3) finds for RTLD_NEXT. That function may be missing itself: before glibc 2.34 it is in libdl, which a
/// program may not have.
///
/// # Safety
/// As [`find`].
pub unsafe fn next(iterate: Iterate, own: u64, name: &CStr) -> Option<Symbol> {
    let mut passed = false;
    let look = |object: &PhdrInfo| {
        if passed {
            // SAFETY: each object stays loaded while the loader's lock is held.
            return unsafe { object.dynamic() }.symbol(name);
        }
        // SAFETY: as above.
        passed = unsafe { object.covers(own) };
        None
    };
    // SAFETY: passed on.
    unsafe { find(iterate, look) }
}

/// The path of the object that covers an address, as the loader has it: NUL-terminated, empty for the program. It lives
/// as long as the object. `None`: no object covers it.
///
/// # Safety
/// As [`find`].
pub unsafe fn path_of<'a>(iterate: Iterate, address: u64) -> Option<&'a CStr> {
    // SAFETY: each object stays loaded while the loader's lock is held; null, or the loader's string.
    let look = |object: &PhdrInfo| unsafe {
        let name = || object.name.as_ref().map_or(c"", |name| CStr::from_ptr(core::ptr::from_ref(name).cast()));
        object.covers(address).then(name)
    };
    // SAFETY: passed on.
    unsafe { find(iterate, look) }
}

/// Whether the program itself defines functions of malloc(3), which libc and the loader then call.
///
/// # Safety
/// As [`find`].
pub unsafe fn program_allocates(iterate: Iterate) -> bool {
    let names = [c"malloc", c"free", c"calloc", c"realloc"];
    let defines = |program: &PhdrInfo| {
        // SAFETY: the program is never unloaded.
        let dynamic = unsafe { program.dynamic() };
        Some(names.iter().any(|name| dynamic.symbol(name).is_some()))
    };
    // SAFETY: passed on.
    unsafe { find(iterate, defines) == Some(true) }
}

/// A defined symbol, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Process address.
    pub address: u64,
    /// `st_size`, in bytes.
    pub size: u64,
}

/// A word that the loader fills with the address of a function, or of its lazy binding (psABI, "Global Offset Table").
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Process address of the word.
    pub place: u64,
    /// The function.
    pub name: &'static CStr,
    /// Process address of the object's own definition of it; 0: it has none.
    pub own: u64,
}

/// `Elf64_Sym` (gABI, "Symbol Table").
#[repr(C)]
#[derive(Clone, Copy)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The dynamic section of a loaded object (gABI, "Dynamic Section").
#[derive(Clone, Copy)]
pub struct Dynamic {
    bias: u64,
    /// Null: it has none.
    first: *const [u64; 2],
    strings: *const c_char,
}

pub(crate) const DT_NULL: u64 = 0;
/// `d_tag` of a need.
pub const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
/// `d_tag` of the object's own name.
pub const DT_SONAME: u64 = 14;
pub(crate) const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// At most this number of entries are looked at.
const ENTRIES: usize = 512;
/// At most this number of symbols of one bucket.
const BUCKET: u32 = 1 << 16;

/// The process address in an entry of the dynamic section of an object with this load bias. glibc's loader has added
/// the bias already, but in sections that cannot be written (the vDSO's); musl's adds it nowhere. Async-signal-safe.
pub(crate) fn loaded_address(value: u64, bias: u64) -> u64 {
    // A bias in the upper half is a negative one, of an object that is linked for a higher address: no address there
    // lies below it, but for that of a vDSO which is linked for the upper half.
    let is_relative = value < bias && (bias >> 63 == 0 || value >> 63 == 1);
    if is_relative {
        value.wrapping_add(bias)
    } else {
        value
    }
}

impl Dynamic {
    /// Process address of the section; 0: there is none.
    pub fn address(&self) -> u64 {
        self.first as u64
    }

    fn entries(&self) -> impl Iterator<Item = [u64; 2]> {
        let first = self.first;
        (0..ENTRIES)
            .take_while(move |_| !first.is_null())
            // SAFETY: a dynamic section ends with DT_NULL, which ends this iteration; the object is loaded.
            .map(move |i| unsafe { first.add(i).read() })
            .take_while(|[tag, _]| *tag != DT_NULL)
    }

    /// The address in the entry with this tag; null: there is none.
    fn table<T>(&self, tag: u64) -> *const T {
        let value = self.entries().find(|[is, _]| *is == tag).map(|[_, value]| value);
        value.filter(|value| *value != 0).map_or(0, |value| loaded_address(value, self.bias)) as *const T
    }

    /// The words that the loader fills with functions' addresses: those of DT_JMPREL and DT_RELA with the relocations
    /// JUMP_SLOT and GLOB_DAT.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        const DT_PLTRELSZ: u64 = 2;
        const DT_RELA: u64 = 7;
        const DT_RELASZ: u64 = 8;
        const DT_JMPREL: u64 = 23;
        /// Bytes of an entry.
        const RELA: usize = 24;
        const KINDS: [u32; 2] = if cfg!(target_arch = "aarch64") { [1025, 1026] } else { [6, 7] };
        let symbols: *const Sym = self.table(DT_SYMTAB);
        let (strings, bias) = (self.strings, self.bias);
        let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
        let entries = tables.into_iter().flat_map(move |(table, size)| {
            let first: *const [u64; 3] = self.table(table);
            let bytes = self.entries().find(|[is, _]| *is == size).map_or(0, |[_, value]| value as usize);
            let count = if first.is_null() { 0 } else { bytes / RELA };
            // SAFETY: a table of an object that is loaded, which has this number of entries.
            (0..count).map(move |index| unsafe { first.add(index).read() })
        });
        let is_usable = !symbols.is_null() && !strings.is_null();
        entries.filter(move |[_, info, _]| is_usable && KINDS.contains(&(*info as u32))).map(move |[offset, info, _]| {
            // SAFETY: an index into the object's symbols, and a name in its strings; the object stays loaded.
            let (symbol, name) = unsafe {
                let symbol = symbols.add((info >> 32) as usize).read();
                (symbol, CStr::from_ptr(strings.add(symbol.name as usize)))
            };
            let own = if symbol.section == 0 { 0 } else { bias.wrapping_add(symbol.value) };
            Slot { place: bias.wrapping_add(offset), name, own }
        })
    }

    /// The first `struct link_map` of the process, as the program's dynamic section leads debuggers to it
    /// (`r_debug`, link.h); `None`: it does not.
    ///
    /// # Safety
    /// The section must be the program's, and the loader's work done.
    pub unsafe fn first_object(&self) -> Option<u64> {
        const DT_DEBUG: u64 = 21;
        let debug: *const [u64; 2] = self.table(DT_DEBUG);
        // SAFETY: `int r_version; struct link_map *r_map`, which the loader has put there.
        let first = unsafe { debug.as_ref() }?[1];
        (first != 0).then_some(first)
    }

    /// The strings of all entries with this tag.
    pub fn strings(&self, tag: u64) -> impl Iterator<Item = &'static CStr> {
        let table = self.strings;
        self.entries()
            .filter(move |[is, _]| *is == tag && !table.is_null())
            // SAFETY: an offset into the object's string table; the object stays loaded.
            .map(move |[_, offset]| unsafe { CStr::from_ptr(table.wrapping_add(offset as usize)) })
    }

    /// A symbol that the object defines, for those that ask for no version of it. Thread-local ones, and those whose
    /// address a function of the object would have to choose (STT_GNU_IFUNC), are left out.
    pub fn symbol(&self, name: &CStr) -> Option<Symbol> {
        // SAFETY: an entry of a table of an object that is loaded.
        let symbol = unsafe { self.entry(name)?.read() };
        Some(Symbol { address: self.bias.wrapping_add(symbol.value), size: symbol.size })
    }

    /// Where the value and the section (`st_value`, `st_shndx`) of a symbol lie that the object defines: process
    /// addresses. A symbol without either is found by nobody.
    pub fn definition(&self, name: &CStr) -> Option<(u64, u64)> {
        let entry = self.entry(name)? as u64;
        Some((entry + offset_of!(Sym, value) as u64, entry + offset_of!(Sym, section) as u64))
    }

    /// The entry of a symbol as [`Dynamic::symbol`] finds it.
    fn entry(&self, name: &CStr) -> Option<*const Sym> {
        const STT_TLS: u8 = 6;
        const STT_GNU_IFUNC: u8 = 10;
        /// Of a version that is no default; the rest is the version's index, and index 0 is local.
        const HIDDEN: u16 = 0x8000;
        let (symbols, strings): (*const Sym, _) = (self.table(DT_SYMTAB), self.strings);
        let versions: *const u16 = self.table(DT_VERSYM);
        if symbols.is_null() || strings.is_null() {
            return None;
        }
        let is_it = |index: u32| {
            // SAFETY: an index from the object's hash table, so of a symbol and its version; names lie in its strings.
            let (entry, symbol, version, named) = unsafe {
                let entry = symbols.add(index as usize);
                let symbol = entry.read();
                let version = if versions.is_null() { 1 } else { versions.add(index as usize).read() };
                (entry, symbol, version, CStr::from_ptr(strings.add(symbol.name as usize)) == name)
            };
            let kind = symbol.info & 0xf;
            let is_defined = symbol.section != 0 && kind != STT_TLS && kind != STT_GNU_IFUNC;
            (named && is_defined && version != 0 && version & HIDDEN == 0).then_some(entry)
        };
        let (gnu, old): (*const u32, *const u32) = (self.table(DT_GNU_HASH), self.table(DT_HASH));
        // SAFETY: tables of an object that is loaded.
        unsafe {
            match (gnu.is_null(), old.is_null()) {
                (false, _) => in_gnu_table(gnu, name, is_it),
                (true, false) => in_old_table(old, name, is_it),
                (true, true) => None,
            }
        }
    }
}

/// Looks a name up in a DT_GNU_HASH table
/// ([binutils](https://sourceware.org/git/?p=binutils-gdb.git;a=blob;f=bfd/elflink.c;hb=binutils-2_42),
/// `bfd_elf_size_dynsym_hash_dynstr`).
///
/// # Safety
/// `table` must be such a table.
unsafe fn in_gnu_table<T>(table: *const u32, name: &CStr, is_it: impl Fn(u32) -> Option<T>) -> Option<T> {
    const HEADER: usize = 4;
    let hash = name.to_bytes().iter().fold(5381u32, |h, byte| h.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    // SAFETY: buckets, first symbol, words of the filter, shift; then the filter, the buckets and the chains.
    unsafe {
        let [buckets, first, words, shift] = table.cast::<[u32; HEADER]>().read();
        let filter = table.add(HEADER).cast::<u64>();
        let word = filter.add((hash / 64).checked_rem(words)? as usize).read_unaligned();
        let bits = 1u64 << (hash % 64) | 1u64 << (hash.wrapping_shr(shift) % 64);
        if word & bits != bits {
            return None;
        }
        let bucket = filter.add(words as usize).cast::<u32>();
        let chains = bucket.add(buckets as usize);
        let start = bucket.add(hash.checked_rem(buckets)? as usize).read();
        // 0: the bucket is empty.
        let from = start.checked_sub(first).filter(|_| start != 0)?;
        for place in from..from.saturating_add(BUCKET) {
            let chain = chains.add(place as usize).read();
            let found = if chain | 1 == hash | 1 { is_it(first.wrapping_add(place)) } else { None };
            if found.is_some() || chain & 1 != 0 {
                return found;
            }
        }
    }
    None
}

/// Looks a name up in a DT_HASH table (gABI, "Hash Table").
///
/// # Safety
/// `table` must be such a table.
unsafe fn in_old_table<T>(table: *const u32, name: &CStr, is_it: impl Fn(u32) -> Option<T>) -> Option<T> {
    let hash = name.to_bytes().iter().fold(0u32, |h, byte| {
        let h = h.wrapping_shl(4).wrapping_add(u32::from(*byte));
        (h ^ (h & 0xf000_0000) >> 24) & 0x0fff_ffff
    });
    // SAFETY: buckets, chains; then both.
    unsafe {
        let [buckets, chains] = table.cast::<[u32; 2]>().read();
        let (bucket, chain) = (table.add(2), table.add(2 + buckets as usize));
        let mut index = bucket.add(hash.checked_rem(buckets)? as usize).read();
        for _ in 0..chains {
            if index == 0 || index >= chains {
                return None;
            }
            if let Some(found) = is_it(index) {
                return Some(found);
            }
            index = chain.add(index as usize).read();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    extern "C" {
        fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    fn found(name: &CStr) -> Option<Symbol> {
        // SAFETY: libc's function.
        unsafe { symbol(dl_iterate_phdr, name) }
    }

    /// The dynamic loader is the oracle.
    #[test]
    fn symbols_are_those_that_dlsym_finds() {
        for name in [c"_dl_find_object", c"_rtld_global", c"malloc", c"pthread_create", c"dlopen", c"environ"] {
            // SAFETY: RTLD_DEFAULT, a NUL-terminated name.
            let there = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
            assert_eq!(found(name).map(|symbol| symbol.address), Some(there as u64), "{name:?}");
        }
        assert!(found(c"_rtld_global").is_some_and(|symbol| symbol.size > 1000));
        for name in [c"no_such_function_of_ours", c"", c"caml_alloc_main_stack"] {
            assert_eq!(found(name), None, "{name:?}");
        }
        // Of an old version only: programs that are linked today do not find it.
        assert_eq!(found(c"__malloc_initialize_hook"), None);
    }

    /// dlsym of RTLD_NEXT, called here, is the oracle: the test's program comes first in the loader's order.
    #[test]
    fn the_next_symbol_is_what_dlsym_finds_after_the_caller() {
        const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
        let own = found as *const () as u64;
        for name in [c"malloc", c"pthread_create", c"dlopen", c"sigaction", c"no_such_function_of_ours"] {
            // SAFETY: a NUL-terminated name; libc's function.
            let (there, here) = unsafe { (dlsym(RTLD_NEXT, name.as_ptr()), next(dl_iterate_phdr, own, name)) };
            assert_eq!(here.map_or(0, |symbol| symbol.address), there as u64, "{name:?}");
        }
        // After libc only the loader is left, which defines no such function.
        // SAFETY: libc's function.
        let after = unsafe { next(dl_iterate_phdr, found(c"qsort").expect("libc has it").address, c"qsort") };
        assert_eq!(after, None);
    }

    #[test]
    fn an_object_is_named_by_an_address_in_it() {
        // SAFETY: libc's function; objects that stay.
        let path_of = |address| unsafe { path_of(dl_iterate_phdr, address) };
        assert_eq!(path_of(found as *const () as u64), Some(c""), "the program");
        let libc = path_of(found(c"qsort").expect("libc has it").address).expect("an object");
        assert!(libc.to_bytes().ends_with(b"/libc.so.6"), "{libc:?}");
        assert_eq!(path_of(8), None);
    }

    #[test]
    fn both_hash_tables_lead_to_the_same_symbols() {
        let mut vdso = 0;
        let mut both = |object: &PhdrInfo| {
            // SAFETY: the loader's structure, during its iteration.
            let dynamic = unsafe { object.dynamic() };
            let (gnu, old): (*const u32, *const u32) = (dynamic.table(DT_GNU_HASH), dynamic.table(DT_HASH));
            if gnu.is_null() || old.is_null() {
                return None::<()>;
            }
            let (symbols, strings): (*const Sym, _) = (dynamic.table(DT_SYMTAB), dynamic.strings);
            // SAFETY: tables of a loaded object; DT_HASH has the number of symbols as its second word.
            let symbols: Vec<_> = unsafe { (1..old.add(1).read()).map(|i| symbols.add(i as usize).read()).collect() };
            for symbol in symbols.iter().filter(|symbol| symbol.section != 0) {
                // SAFETY: as above.
                let name = unsafe { CStr::from_ptr(strings.add(symbol.name as usize)) };
                // SAFETY: as above.
                let one = unsafe { in_gnu_table(gnu, name, Some) };
                // SAFETY: as above.
                let other = unsafe { in_old_table(old, name, Some) };
                assert!(one.is_some() && other.is_some(), "{name:?}: {one:?} {other:?}");
                vdso += 1;
            }
            None
        };
        // SAFETY: libc's function.
        unsafe { find(dl_iterate_phdr, &mut both) };
        println!("{vdso} symbols in objects with both tables");
    }

    #[test]
    fn a_dynamic_section_names_what_is_needed() {
        let needs = |object: &PhdrInfo| {
            // SAFETY: the loader's structure, during its iteration.
            unsafe { object.dynamic() }.strings(DT_NEEDED).any(|name| name == c"libc.so.6").then_some(())
        };
        // SAFETY: libc's function.
        assert!(unsafe { find(dl_iterate_phdr, needs) }.is_some());
        let is_libc = |object: &PhdrInfo| {
            // SAFETY: as above.
            unsafe { object.dynamic() }.strings(DT_SONAME).any(|name| name == c"libc.so.6").then_some(())
        };
        // SAFETY: libc's function.
        assert!(unsafe { find(dl_iterate_phdr, is_libc) }.is_some());
        // SAFETY: as above: a test's program leaves malloc to libc.
        assert!(!unsafe { program_allocates(dl_iterate_phdr) });
    }
}
