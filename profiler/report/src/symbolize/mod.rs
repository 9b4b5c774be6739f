//! Names for addresses, from the files on disk, each checked to be the one that was mapped: by build-id, or, where it has
//! none, by its headers. A file that is not the same gives no names: `object+0xoffset` is shown instead of a wrong name.

pub mod demangle;
mod elf;
pub mod functions;
pub mod go;
mod plt;

pub use elf::Elf;

pub use self::demangle::demangle;
use crate::objects::{file_address, lookup_address, ObjectMap};
use crate::recording::{Inlined, Object, Recording, Symbol, Symbols};
use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use uunwind_core::frame::{frames, Frame};

/// Where the file of an object may be found, best first. The recorder adds files that it kept open.
pub type Files<'a> = dyn Fn(&Object) -> Vec<PathBuf> + 'a;

/// The path that the process itself used.
pub fn own_path(object: &Object) -> Vec<PathBuf> {
    vec![PathBuf::from(OsStr::from_bytes(&object.path))]
}

/// Looks up every address of every stack.
pub fn symbolize(recording: &Recording, map: &mut ObjectMap, files: &Files<'_>) -> Symbols {
    let mut symbols = Symbols::default();
    for (index, addresses) in wanted(recording, map) {
        let Some(object) = recording.objects.get(index as usize) else { continue };
        let addresses: Vec<u64> = addresses.into_iter().collect();
        match find_file(object, &files(object)) {
            Ok((path, elf)) => match look_up(index, &path, &elf, &addresses) {
                Ok(mut entries) => {
                    let why = find_starts(&path, &mut entries);
                    symbols.unusable.extend(why.map(|why| (index, why)));
                    symbols.entries.extend(entries);
                }
                Err(why) => symbols.unusable.push((index, why)),
            },
            Err(why) => symbols.unusable.push((index, why)),
        }
    }
    symbols
}

/// By canonical object: the addresses to look up, as in the file.
fn wanted(recording: &Recording, map: &mut ObjectMap) -> BTreeMap<u32, BTreeSet<u64>> {
    let mut wanted: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut visited = HashSet::new();
    for sample in &recording.samples {
        let Some(thread) = recording.threads.get(sample.thread as usize) else { continue };
        let mut node = sample.stack;
        while node != 0 && visited.insert((thread.process, node)) {
            let Some(entry) = recording.nodes.get(node as usize - 1) else { break };
            node = entry.parent;
            let Some(Frame::Native { address, exact, .. }) = frames(&[entry.word, entry.position]).next() else {
                continue;
            };
            let lookup = lookup_address(address, exact);
            for object in map.covering(recording, thread.process, lookup).to_vec() {
                if let Some(o) = recording.objects.get(object as usize) {
                    wanted.entry(map.canonical(object)).or_default().insert(file_address(o, lookup));
                }
            }
        }
    }
    wanted
}

/// The first candidate that is the mapped file; else why none is.
fn find_file(object: &Object, candidates: &[PathBuf]) -> Result<(PathBuf, Elf), String> {
    let mut why = "its path is not known".to_owned();
    for path in candidates.iter().filter(|p| !p.as_os_str().is_empty()) {
        match Elf::read(path) {
            Ok(elf) => match is_same(object, &elf) {
                Ok(()) => return Ok((path.clone(), elf)),
                Err(different) => why = different,
            },
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// Whether a file is the one that was mapped.
fn is_same(object: &Object, elf: &Elf) -> Result<(), String> {
    if !object.build_id.is_empty() {
        return if elf.build_id == object.build_id {
            Ok(())
        } else {
            Err(format!(
                "the file changed: build-id {} was mapped, the file has {}",
                hex(&object.build_id),
                if elf.build_id.is_empty() { "none".to_owned() } else { hex(&elf.build_id) }
            ))
        };
    }
    if elf.build_id.is_empty() && uunwind_ring::facts::key(&elf.headers) == object.facts_key {
        Ok(())
    } else {
        Err("it has no build-id, and the file's headers are not those that were mapped".to_owned())
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn look_up(object: u32, path: &Path, elf: &Elf, addresses: &[u64]) -> Result<Vec<Symbol>, String> {
    // The symbolizer reads foreign files; a panic in it must cost no more than this object's names.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build();
        let source = |debug_syms| {
            let mut source = source::Elf::new(path);
            source.debug_syms = debug_syms;
            Source::from(source)
        };
        let from_table = symbolizer.symbolize(&source(false), Input::VirtOffset(addresses));
        let from_table = from_table.map_err(|e| e.to_string())?;
        // Damaged debug information costs lines and inlined functions; the symbol table is still good.
        let from_debug = symbolizer.symbolize(&source(true), Input::VirtOffset(addresses)).unwrap_or_default();
        let mut from_debug = from_debug.into_iter();
        let entries = addresses.iter().zip(from_table).map(|(address, table)| {
            let empty = Symbol { object, address: *address, ..Symbol::default() };
            entry(empty, table.into_sym(), from_debug.next().and_then(Symbolized::into_sym), elf)
        });
        Ok(entries.collect())
    }));
    result.unwrap_or_else(|_| Err("its symbols could not be read".to_owned()))
}

/// Fills in the names of PLT stubs and of Go's functions, and where functions without names begin. What is wrong with Go's, if
/// something is.
fn find_starts(path: &Path, entries: &mut [Symbol]) -> Option<String> {
    // As above: a panic over a damaged file costs its names only.
    let stubs = |addresses: &[u64]| catch_unwind(|| plt::names(path, addresses)).unwrap_or_default();
    name(entries, stubs);
    let mut why = None;
    name(entries, |addresses| {
        let names = catch_unwind(|| go::names(path, addresses));
        names.unwrap_or_else(|_| Err("Go's names cannot be read".to_owned())).unwrap_or_else(|wrong| {
            why = Some(wrong);
            Vec::new()
        })
    });
    let (mut unnamed, addresses) = unnamed(entries);
    let ranges = if addresses.is_empty() { None } else { functions::covering(path, &addresses) };
    for (symbol, range) in unnamed.iter_mut().zip(ranges.unwrap_or_default()) {
        symbol.start = range.map_or(0, |r| r.start);
    }
    why
}

/// Beginnings and names of functions, for addresses that have none so far.
fn name(entries: &mut [Symbol], find: impl FnOnce(&[u64]) -> Vec<Option<(u64, String)>>) {
    let (mut unnamed, addresses) = unnamed(entries);
    for (symbol, function) in unnamed.iter_mut().zip(find(&addresses)) {
        if let Some((start, name)) = function {
            (symbol.start, symbol.name) = (start, name);
        }
    }
}

/// Those without a name, and their addresses.
fn unnamed(entries: &mut [Symbol]) -> (Vec<&mut Symbol>, Vec<u64>) {
    let unnamed: Vec<&mut Symbol> = entries.iter_mut().filter(|symbol| symbol.name.is_empty()).collect();
    let addresses = unnamed.iter().map(|symbol| symbol.address).collect();
    (unnamed, addresses)
}

/// Names from the symbol table go first: debug information leaves some out, such as that of a function in two parts.
fn entry(mut symbol: Symbol, table: Option<Sym<'_>>, debug: Option<Sym<'_>>, elf: &Elf) -> Symbol {
    let address = symbol.address;
    // A symbol without a size reaches to the next one. It must not name code of another section (the PLT, mostly).
    let covers = |sym: &&Sym<'_>| !sym.name.is_empty() && (sym.size.is_some() || elf.same_section(sym.addr, address));
    let Some(named) = table.as_ref().filter(covers).or(debug.as_ref().filter(covers)) else { return symbol };
    symbol.name = demangle(&named.name);
    symbol.start = named.addr;
    if let Some(debug) = &debug {
        (symbol.file, symbol.line) = place(debug.code_info.as_deref());
        let inlined = debug.inlined.iter().rev().map(|i| {
            let (file, line) = place(i.code_info.as_ref());
            Inlined { name: demangle(&i.name), file, line }
        });
        symbol.inlined = inlined.collect();
    }
    symbol
}

fn place(info: Option<&CodeInfo<'_>>) -> (String, u32) {
    info.map_or((String::new(), 0), |i| (i.to_path().to_string_lossy().into_owned(), i.line.unwrap_or(0)))
}
