//! Functions of other languages that were compiled to native code through C, with their names and lines in that
//! language. What these are, the analyse halves of plugins know; what they need of a file is read here: its symbols,
//! which function a call leads to, and the generated source, if it is still where the debug information says.

use crate::{plt, table, Inlined, Symbol};
use object::{Object, ObjectSymbol};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use uunwind_elf::blocks::Blocks;
use uunwind_elf::{files, Image};
use uunwind_language::{Compiled, Half, Origin};

/// Largest generated source file that is read, in bytes, and the limit for all of one object.
const SOURCE_LIMIT: u64 = 32 << 20;
const SOURCES_LIMIT: u64 = 128 << 20;
/// `call rel32`: the opcode, and the bytes from it to the last one.
const CALL: u8 = 0xe8;
const CALL_LAST: u64 = 4;

/// Gives functions that were compiled from another language their names and lines there.
///
/// `object`: the file name of the object. `paths`: its file, then a separate debug file, if there is one.
pub fn translate(halves: &[&dyn Half], object: &str, paths: &[&Path], symbols: &mut [Symbol]) {
    let names = Names { halves, object, paths, all: OnceCell::new() };
    let mut sources = Sources { halves, known: HashMap::new(), left: SOURCES_LIMIT };
    let outer: Vec<Option<Compiled>> = symbols.iter().map(|symbol| names.compiled(&symbol.name)).collect();
    let wrappers = symbols.iter().zip(&outer).filter(|(_, compiled)| compiled.as_ref().is_some_and(|c| c.rank > 0));
    let called = names.called(wrappers.map(|(symbol, _)| symbol.address));
    for (symbol, outer) in symbols.iter_mut().zip(outer) {
        // Innermost first, as the inlined functions are, with what contains them all as the last one.
        let mut chain: Vec<(Inlined, Option<Compiled>)> = Vec::new();
        for inlined in std::mem::take(&mut symbol.inlined) {
            let compiled = names.compiled(&inlined.name);
            chain.push((inlined, compiled));
        }
        let (name, file) = (std::mem::take(&mut symbol.name), std::mem::take(&mut symbol.file));
        chain.push((Inlined { name, file, line: symbol.line }, outer));
        let is_compiled = chain.iter().any(|(_, compiled)| compiled.is_some());
        let passes_on = |compiled: &Compiled| {
            called
                .get(&symbol.address)
                .is_some_and(|callee| callee.name == compiled.name && callee.rank < compiled.rank)
        };
        // A wrapper that contains what it wraps is no function of its own.
        let mut places: Vec<Inlined> = Vec::new();
        let mut inner: Option<Compiled> = None;
        let count = chain.len();
        for (at, (mut place, compiled)) in chain.into_iter().enumerate() {
            let contained = inner.take().is_some_and(|inner| {
                compiled.as_ref().is_some_and(|outer| outer.name == inner.name && outer.rank > inner.rank)
            });
            inner.clone_from(&compiled);
            if contained {
                continue;
            }
            if is_compiled {
                sources.find(&mut place);
            }
            // One that passes the call on keeps its own name, by which reports know and hide it.
            if let Some(compiled) = compiled.filter(|compiled| at + 1 < count || !passes_on(compiled)) {
                place.name = compiled.name;
            }
            places.push(place);
        }
        if let Some(outer) = places.pop() {
            (symbol.name, symbol.file, symbol.line) = (outer.name, outer.file, outer.line);
        }
        symbol.inlined = places;
    }
}

/// The functions of an object.
struct Names<'a> {
    halves: &'a [&'a dyn Half],
    object: &'a str,
    paths: &'a [&'a Path],
    /// All symbols; read when they are first asked for.
    all: OnceCell<HashSet<String>>,
}

impl Names<'_> {
    fn compiled(&self, symbol: &str) -> Option<Compiled> {
        let has = |name: &str| {
            self.all.get_or_init(|| self.paths.iter().flat_map(|path| symbols(path)).collect()).contains(name)
        };
        self.halves.iter().find_map(|half| half.compiled(self.object, symbol, &has))
    }

    /// By the address of a call's last byte: the compiled function that is called, for direct calls.
    fn called(&self, addresses: impl Iterator<Item = u64>) -> HashMap<u64, Compiled> {
        let Some(path) = self.paths.first() else { return HashMap::new() };
        let Ok(image) = Image::open(path) else { return HashMap::new() };
        let target = |address: u64| {
            let mut call = [0; 1 + CALL_LAST as usize];
            let read = image.read_address(address.checked_sub(CALL_LAST)?, &mut call);
            let [CALL, distance @ ..] = call else { return None };
            read.then(|| address.wrapping_add(1).wrapping_add_signed(i64::from(i32::from_le_bytes(distance))))
        };
        let calls: Vec<(u64, u64)> = addresses.filter_map(|address| Some((address, target(address)?))).collect();
        let mut called = HashMap::new();
        if calls.is_empty() {
            return called;
        }
        let targets: Vec<u64> = calls.iter().map(|(_, target)| *target).collect();
        let found =
            self.paths.iter().filter_map(|path| table::names(path, &targets).ok()).chain([plt::names(path, &targets)]);
        for names in found {
            for ((address, target), name) in calls.iter().zip(names) {
                let Some((start, name)) = name.filter(|(start, _)| start == target) else { continue };
                let name = name.strip_suffix("@plt").unwrap_or(&name);
                if let Some(compiled) = self.compiled(name).filter(|_| start == *target) {
                    called.entry(*address).or_insert(compiled);
                }
            }
        }
        called
    }
}

/// All names in a file's symbol table.
fn symbols(path: &Path) -> Vec<String> {
    let Ok(file) = files::open(path) else { return Vec::new() };
    let cache = Blocks::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return Vec::new() };
    // Parts and copies of a function are there under its name as well.
    let base = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let all = elf.symbols().filter_map(|symbol| symbol.name().ok().map(base)).collect();
    all
}

/// Generated source files.
struct Sources<'a> {
    halves: &'a [&'a dyn Half],
    /// By path; empty for one that was not generated, or cannot be read.
    known: HashMap<String, Vec<Origin>>,
    /// Bytes that may still be read.
    left: u64,
}

impl Sources<'_> {
    /// Moves a place in a generated file to what that was made of.
    fn find(&mut self, place: &mut Inlined) {
        if !Path::new(&place.file).is_absolute() || place.line == 0 {
            return;
        }
        if !self.known.contains_key(&place.file) {
            let origins = self.read(&place.file);
            self.known.insert(place.file.clone(), origins);
        }
        let Some(origins) = self.known.get(&place.file) else { return };
        let at = origins.partition_point(|origin| origin.generated.1 < place.line);
        if let Some(origin) = origins.get(at).filter(|origin| origin.generated.0 <= place.line) {
            (place.file, place.line) = (origin.file.clone(), origin.line);
        }
    }

    fn read(&mut self, path: &str) -> Vec<Origin> {
        let Ok(bytes) = files::read(Path::new(path), SOURCE_LIMIT.min(self.left)) else { return Vec::new() };
        self.left -= bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes);
        self.halves.iter().map(|half| half.origins(&text)).find(|origins| !origins.is_empty()).unwrap_or_default()
    }
}
