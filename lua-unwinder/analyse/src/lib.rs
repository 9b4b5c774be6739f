//! Lua unwinder plugin, analyse half: decides whether an ELF file holds a Lua interpreter that the signal half can
//! read, and finds the facts that it needs. Works on stripped files and on programs that contain Lua.
//!
//! - [`detect`]: which Lua it is, by the strings in its read-only data;
//! - `puc`: PUC Lua 5.1 to 5.5;
//! - `luajit`: LuaJIT 2.1;
//! - `half`: what reports must know of Lua.

pub mod detect;
mod half;
mod luajit;
mod puc;

use detect::Lua as Found;
pub use half::Lua;
pub use uunwind_lua::facts::Plain;
pub use uunwind_lua::NAME;

/// File addresses `[start, end)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First file address.
    pub start: u64,
    /// File address after the last byte.
    pub end: u64,
}

impl Range {
    /// Does the file address lie inside?
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The part of a loadable segment that the file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its file addresses.
    pub range: Range,
    /// It can be executed.
    pub executable: bool,
    /// It can be written.
    pub writable: bool,
}

/// An unwind entry's range: a function, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its file addresses.
    pub range: Range,
    /// CFA minus stack pointer at its first instruction, in bytes: 8 for a function, more for a part that the compiler
    /// split off. 0: not available.
    pub cfa_offset: u64,
}

/// An ELF file, as this crate reads it.
pub trait Elf {
    /// File address of a symbol that the file defines in its dynamic symbol table.
    fn symbol(&self, name: &str) -> Option<u64>;
    /// The loadable segments.
    fn segments(&self) -> Vec<Segment>;
    /// Fills `out` with the file's bytes from a file address on. False: the file does not hold all of them.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// The ranges of `.eh_frame`'s entries, sorted by address; empty if there are none.
    fn functions(&self) -> Vec<Function>;
}

/// The result of an analysis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The file holds no Lua.
    NotLua,
    /// The file holds a Lua that is served: its facts.
    Facts(Vec<u8>),
    /// The file holds a Lua that is not served. The text says what was found and what is served, without the file's
    /// name.
    Refused(String),
}

/// The Luas that are served, for messages.
pub const SERVED: &str = "PUC Lua 5.1 to 5.5 and LuaJIT 2.1 (64-bit references)";

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    let found = match detect::detect(elf) {
        None => return Finding::NotLua,
        Some(Found::Puc(version)) => puc::analyse(elf, version),
        Some(Found::LuaJit) => luajit::analyse(elf),
        Some(Found::Fork(name)) => Err(format!("this is {name}")),
    };
    match found {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::NotLua,
        Err(found) => Finding::Refused(format!("no Lua frames: {found}; served are {SERVED}")),
    }
}

/// Facts with the layout of a PUC Lua's structures, and no addresses and places: for tests that make such structures.
pub fn puc_layout(version: detect::Version) -> Option<uunwind_lua::puc::facts::Facts> {
    puc::layout::of(version)
}
