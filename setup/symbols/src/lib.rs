//! Names, inlined functions and source lines for addresses of an ELF file. The file is checked to be the one that was
//! mapped: by build-id, or, if it has none, by its headers. A file that is not the same gives no names.
//!
//! ```text
//! table      symbol tables
//! plt, go    stubs of the procedure linkage table; Go's own table of functions
//! functions  where functions without a name begin: the index of .eh_frame
//! elf        what identifies a file
//! mini_debug symbols that a file has in compressed form
//! debug_file separate files with debug information and symbols
//! debug_info lines and inlined functions
//! demangle   C++ and Rust names
//! compiled   functions of other languages that were compiled through C
//! ```
#![forbid(unsafe_code)]

mod compiled;
mod debug_file;
pub mod debug_info;
pub mod demangle;
mod elf;
pub mod functions;
pub mod go;
pub mod mini_debug;
mod plt;
pub mod table;

pub use self::demangle::demangle;
pub use elf::Elf;

use debug_info::companions::Main;
use debug_info::{Found, Source};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use uunwind_language::Half;

/// An object that was mapped, and where its file may be found.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// Its build-id; empty if it has none.
    pub build_id: &'a [u8],
    /// `uunwind_core::object_key::key` of its ELF header and program headers; of use where it has no build-id.
    pub headers_key: u64,
    /// Where its file may be found, best first.
    pub files: &'a [PathBuf],
    /// Folders with separate debug information, besides the system's.
    pub folders: &'a [PathBuf],
}

/// What was found about an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// File address that was looked up.
    pub address: u64,
    /// Demangled name of the function; empty when the file has none for this address.
    pub name: String,
    /// File address of the function, also for one without a name if its unwind table has it; 0 if not available.
    pub start: u64,
    /// Source file; empty if not available.
    pub file: String,
    /// Line; 0 if not available.
    pub line: u32,
    /// Functions inlined here, innermost first. `name` is the function that contains them all.
    pub inlined: Vec<Inlined>,
}

/// A function that was inlined at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined {
    /// Demangled name.
    pub name: String,
    /// Source file; empty if not available.
    pub file: String,
    /// Line; 0 if not available.
    pub line: u32,
}

/// The answer about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// One for each address, in their order.
    pub symbols: Vec<Symbol>,
    /// The file that they come from.
    pub path: PathBuf,
    /// For people: what of the file could not be used.
    pub remark: Option<String>,
}

/// Looks up file addresses of an object. The error says, for people, why none of its files can be used.
///
/// `halves`: the languages from which functions may have been compiled.
pub fn look_up(object: &Mapped<'_>, addresses: &[u64], halves: &[&dyn Half]) -> Result<Answer, String> {
    let path = find_file(object)?;
    let (mut symbols, separate, remark) = read(object, &path, addresses)?;
    let why = find_starts(&path, &mut symbols);
    let paths: Vec<&Path> = [Some(&*path), separate.as_deref()].into_iter().flatten().collect();
    let name = real_path(object, &path).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    // A panic over a damaged file costs the names in the language; those of the file are still there.
    let translated = catch_unwind(AssertUnwindSafe(|| {
        let mut symbols = symbols.clone();
        compiled::translate(halves, &name, &paths, &mut symbols);
        symbols
    }));
    let symbols = translated.unwrap_or(symbols);
    Ok(Answer { symbols, path, remark: why.or(remark) })
}

/// The first candidate that is the mapped file. The error says why none is.
fn find_file(object: &Mapped<'_>) -> Result<PathBuf, String> {
    let mut why = "its path is not known".to_owned();
    for path in object.files.iter().filter(|p| !p.as_os_str().is_empty()) {
        match Elf::read(path) {
            Ok(elf) => match is_same(object, &elf) {
                Ok(()) => return Ok(path.clone()),
                Err(different) => why = different,
            },
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// Whether a file is the one that was mapped.
fn is_same(object: &Mapped<'_>, elf: &Elf) -> Result<(), String> {
    if !object.build_id.is_empty() {
        return if elf.build_id == object.build_id {
            Ok(())
        } else {
            Err(format!(
                "the file changed: build-id {} was mapped, the file has {}",
                hex(object.build_id),
                if elf.build_id.is_empty() { "none".to_owned() } else { hex(&elf.build_id) }
            ))
        };
    }
    if elf.build_id.is_empty() && uunwind_core::object_key::key(&elf.headers) == object.headers_key {
        Ok(())
    } else {
        Err("it has no build-id, and the file's headers are not those that were mapped".to_owned())
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Symbols of file addresses, the separate debug file, if there is one, and a remark for people on what could not be
/// used.
type Read = (Vec<Symbol>, Option<PathBuf>, Option<String>);

/// What the file lacks comes from its separate debug file.
fn read(object: &Mapped<'_>, path: &Path, addresses: &[u64]) -> Result<Read, String> {
    // All readers take foreign files; a panic in one must cost no more than this object's names.
    let named = catch_unwind(|| table::names(path, addresses));
    let mut named = named.unwrap_or_else(|_| Err("its symbols could not be read".to_owned()))?;
    let mini = catch_unwind(|| if lacks(&named) { mini_debug::names(path, addresses) } else { Ok(None) });
    let mini = mini.unwrap_or_else(|_| Err("its compressed symbols could not be read".to_owned()));
    let unusable = mini.map(|found| complete(&mut named, found.unwrap_or_default())).err();
    let separate = catch_unwind(|| separate(object, path, lacks(&named))).ok().flatten();
    if let Some(separate) = &separate {
        let found = catch_unwind(|| table::names(separate, addresses)).unwrap_or(Ok(Vec::new())).unwrap_or_default();
        complete(&mut named, found);
    }
    let (debug, remark) = lines(object, path, separate.as_deref(), addresses);
    let entries = addresses.iter().zip(named).zip(debug).map(|((address, named), debug)| {
        let empty = Symbol { address: *address, ..Symbol::default() };
        entry(empty, named, debug)
    });
    let entries = entries.collect();
    Ok((entries, separate, remark.or(unusable)))
}

/// What debug information says of each address, and a remark. Damaged debug information costs lines and inlined
/// functions; the symbol table is still good.
fn lines(
    object: &Mapped<'_>,
    path: &Path,
    separate: Option<&Path>,
    addresses: &[u64],
) -> (Vec<Option<Symbol>>, Option<String>) {
    let main = separate.unwrap_or(path);
    let files = object.files.iter().map(PathBuf::as_path).chain(separate);
    let canonical: Vec<PathBuf> = files.clone().filter_map(|file| std::fs::canonicalize(file).ok()).collect();
    let mut paths: Vec<&Path> = files.chain(canonical.iter().map(PathBuf::as_path)).collect();
    // A descriptor says nothing of the folder in which a file lies.
    paths.retain(|path| !path.starts_with("/proc/self") && !path.as_os_str().is_empty());
    let places = Main { paths: &paths, folders: object.folders };
    let found = catch_unwind(AssertUnwindSafe(|| {
        debug_info::find(&Source::Path(main.to_owned()), &|wanted| places.candidates(wanted), addresses)
    }));
    let found = found.unwrap_or_else(|_| Err("its debug information cannot be read".to_owned()));
    let Found { symbols, remark } = found.unwrap_or_else(|why| Found {
        symbols: vec![None; addresses.len()],
        remark: Some(format!("{why}: its functions are named without lines")),
    });
    (symbols, remark)
}

/// Whether some address has no name.
fn lacks(named: &[table::Named]) -> bool {
    named.iter().any(Option::is_none)
}

/// Fills in names that are missing.
fn complete(named: &mut [table::Named], found: Vec<table::Named>) {
    for (name, found) in named.iter_mut().zip(found).filter(|(name, _)| name.is_none()) {
        *name = found;
    }
}

/// Where the object lies, rather than a descriptor of it.
fn real_path<'a>(object: &Mapped<'a>, path: &'a Path) -> &'a Path {
    object.files.iter().find(|file| !file.starts_with("/proc")).map_or(path, PathBuf::as_path)
}

/// The debug file of a file that has no debug information. A server is asked only where a function has no name.
fn separate(object: &Mapped<'_>, path: &Path, some_lack_names: bool) -> Option<PathBuf> {
    if elf::has_debug_information(path) {
        return None;
    }
    // A descriptor says nothing of the folder in which a debug file may lie.
    let real = real_path(object, path);
    let real = std::fs::canonicalize(real).unwrap_or(real.to_owned());
    let ask = || some_lack_names.then(|| debug_file::ask_server(object.build_id)).flatten();
    debug_file::find(path, &real, object.build_id, object.folders).or_else(ask)
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    /// A program with a function that only a symbol names.
    pub const SOURCE: &str = "static __attribute__((noinline)) int hidden(int x) { return x * 7 % 5; }\n\
                          int main(int c, char **v) { return hidden(c); }\n";

    /// Runs a line of the shell in a folder.
    pub fn run(folder: &Path, line: &str) {
        let done = Command::new("sh").args(["-ec", line]).current_dir(folder).status();
        assert!(done.is_ok_and(|status| status.success()), "{line}");
    }
}
