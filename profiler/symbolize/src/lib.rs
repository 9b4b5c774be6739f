//! Names for addresses, from the files on disk. Each file is checked to be the one that was mapped: by build-id, or, if
//! it has none, by its headers. A file that is not the same gives no names: `object+0xoffset` is shown instead of a
//! wrong name.
#![forbid(unsafe_code)]

pub mod calls;
pub mod demangle;
mod elf;
pub mod functions;
pub mod go;
mod plt;
pub mod question;
pub mod table;

pub use elf::Elf;

pub use self::demangle::demangle;
pub use self::question::{questions, Question};
use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use uunwind_core::frame::{frames, Frame};
use uunwind_recording::objects::{file_address, lookup_address, ObjectMap};
use uunwind_recording::{Inlined, Object, Recording, Symbol, Symbols};

/// Lists the places where an object's file may be found, best first. The recorder adds files that it kept open.
pub type Files<'a> = dyn Fn(&Object) -> Vec<PathBuf> + 'a;

/// The path under which the process itself mapped the file.
pub fn own_path(object: &Object) -> Vec<PathBuf> {
    vec![PathBuf::from(OsStr::from_bytes(&object.path))]
}

/// Looks up every address of every stack, within this process.
pub fn symbolize(recording: &Recording, map: &mut ObjectMap, files: &Files<'_>) -> Symbols {
    let mut symbols = Symbols::default();
    for question in questions(recording, map, files) {
        symbols.add(answer(&question));
    }
    calls::keep_those_in_stacks(recording, map, &mut symbols);
    symbols
}

/// Looks up the addresses of one object.
pub fn answer(question: &Question) -> Symbols {
    let mut symbols = Symbols::default();
    let object = question.object;
    match find_file(question).and_then(|path| Ok((look_up(object, &path, &question.addresses)?, path))) {
        Ok(((mut entries, remark), path)) => {
            let why = find_starts(&path, &mut entries);
            symbols.unusable.extend(why.or(remark).map(|why| (object, why)));
            symbols.entries = entries;
            // A panic over a damaged file costs no more than the notes on tail calls.
            let calls = catch_unwind(|| calls::find(&path, object, &question.addresses));
            symbols.calls = calls.ok().flatten().unwrap_or_default();
        }
        Err(why) => symbols.unusable.push((object, why)),
    }
    symbols
}

/// By canonical object: the file addresses to look up.
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

/// The first candidate that is the mapped file. The error says why none is.
fn find_file(question: &Question) -> Result<PathBuf, String> {
    let mut why = "its path is not known".to_owned();
    for path in question.files.iter().filter(|p| !p.as_os_str().is_empty()) {
        match Elf::read(path) {
            Ok(elf) => match is_same(question, &elf) {
                Ok(()) => return Ok(path.clone()),
                Err(different) => why = different,
            },
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// Whether a file is the one that was mapped.
fn is_same(object: &Question, elf: &Elf) -> Result<(), String> {
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
    if elf.build_id.is_empty() && uunwind_core::object_key::key(&elf.headers) == object.facts_key {
        Ok(())
    } else {
        Err("it has no build-id, and the file's headers are not those that were mapped".to_owned())
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Symbols of file addresses, and a remark for people on what could not be used.
fn look_up(object: u32, path: &Path, addresses: &[u64]) -> Result<(Vec<Symbol>, Option<String>), String> {
    // Both readers take foreign files; a panic in one must cost no more than this object's names.
    let named = catch_unwind(|| table::names(path, addresses));
    let named = named.unwrap_or_else(|_| Err("its symbols could not be read".to_owned()))?;
    let remark = elf::debug_information(path).err();
    // Damaged debug information costs lines and inlined functions; the symbol table is still good.
    let debug = catch_unwind(AssertUnwindSafe(|| {
        if remark.is_some() {
            return Vec::new();
        }
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build();
        let source = Source::from(source::Elf::new(path));
        let symbols = symbolizer.symbolize(&source, Input::VirtOffset(addresses)).unwrap_or_default();
        let lines = symbols.into_iter().map(|symbol| symbol.into_sym().map(described)).collect::<Vec<_>>();
        lines
    }));
    let mut debug = debug.unwrap_or_default().into_iter();
    let entries = addresses.iter().zip(named).map(|(address, named)| {
        let empty = Symbol { object, address: *address, ..Symbol::default() };
        entry(empty, named, debug.next().flatten())
    });
    Ok((entries.collect(), remark))
}

/// Fills in the names of PLT stubs and of Go's functions, and the beginnings of functions without names. Returns what
/// is wrong with Go's table, if anything is.
fn find_starts(path: &Path, entries: &mut [Symbol]) -> Option<String> {
    // A panic over a damaged file costs only the names that it would have given.
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

/// Fills in beginnings and names from `find`, for the entries that have no name.
fn name(entries: &mut [Symbol], find: impl FnOnce(&[u64]) -> Vec<Option<(u64, String)>>) {
    let (mut unnamed, addresses) = unnamed(entries);
    for (symbol, function) in unnamed.iter_mut().zip(find(&addresses)) {
        if let Some((start, name)) = function {
            (symbol.start, symbol.name) = (start, name);
        }
    }
}

/// The entries without a name, and their file addresses.
fn unnamed(entries: &mut [Symbol]) -> (Vec<&mut Symbol>, Vec<u64>) {
    let unnamed: Vec<&mut Symbol> = entries.iter_mut().filter(|symbol| symbol.name.is_empty()).collect();
    let addresses = unnamed.iter().map(|symbol| symbol.address).collect();
    (unnamed, addresses)
}

/// What debug information says about an address, as a symbol without an object.
fn described(symbol: Sym<'_>) -> Symbol {
    let (file, line) = place(symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().rev().map(|i| {
        let (file, line) = place(i.code_info.as_ref());
        Inlined { name: demangle(&i.name), file, line }
    });
    // Debug information gives functions a size; without one, the name is that of whichever symbol precedes the address.
    let name = if symbol.size.is_some() { demangle(&symbol.name) } else { String::new() };
    Symbol { name, start: symbol.addr, file, line, inlined: inlined.collect(), ..Symbol::default() }
}

/// Merges both sources. The symbol table's name is preferred: debug information lacks some, such as that of a function
/// in two parts.
fn entry(symbol: Symbol, table: table::Named, debug: Option<Symbol>) -> Symbol {
    let debug = debug.unwrap_or_default();
    let (start, name) = match table {
        Some((start, name)) => (start, demangle(&name)),
        None if !debug.name.is_empty() => (debug.start, debug.name),
        None => return symbol,
    };
    Symbol { start, name, file: debug.file, line: debug.line, inlined: debug.inlined, ..symbol }
}

fn place(info: Option<&CodeInfo<'_>>) -> (String, u32) {
    info.map_or((String::new(), 0), |i| (i.to_path().to_string_lossy().into_owned(), i.line.unwrap_or(0)))
}
