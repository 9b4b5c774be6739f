//! Lua unwinder plugin, analyse half: decides whether an ELF file holds a Lua interpreter that the signal half can read,
//! and says where its parts lie. Works on stripped files and on programs that contain Lua.
//!
//! - [`detect`]: which Lua it is, by the strings in its read-only data;
//! - [`puc`]: PUC Lua 5.1 to 5.5;
//! - [`luajit`]: LuaJIT 2.1.

pub mod detect;
mod luajit;
mod puc;

use detect::Lua;
pub use uunwind_lua::facts::Plain;
pub use uunwind_lua::NAME;

/// Addresses `[start, end)`, as in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
}

impl Range {
    /// Does `address` lie inside?
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// A loadable segment, as far as the file holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its addresses.
    pub range: Range,
    /// It can be executed.
    pub executable: bool,
    /// It can be written.
    pub writable: bool,
}

/// A function's unwind range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its addresses.
    pub range: Range,
    /// CFA minus stack pointer at its first instruction: 8 for a function, more for a part that was split off. 0: unknown.
    pub cfa_offset: u64,
}

/// What this crate needs to see of an ELF file.
pub trait Elf {
    /// Address of a symbol that the file defines in its dynamic symbol table.
    fn symbol(&self, name: &str) -> Option<u64>;
    /// The loadable segments.
    fn segments(&self) -> Vec<Segment>;
    /// Fills `out` with what the file holds at a file address. False when the file doesn't hold all of it.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// The unwind ranges of `.eh_frame`, by address. Empty when there are none.
    fn functions(&self) -> Vec<Function>;
}

/// What an ELF file is to this plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It holds no Lua.
    NotLua,
    /// It holds one that is served.
    Facts(Vec<u8>),
    /// It holds one that is not. The text tells what was found and what is served, without the file's name.
    Refused(String),
}

/// Which Luas are served, in words.
pub const SERVED: &str = "PUC Lua 5.1 to 5.5 and LuaJIT 2.1 (64-bit references)";

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    let found = match detect::detect(elf) {
        None => return Finding::NotLua,
        Some(Lua::Puc(version)) => puc::analyse(elf, version),
        Some(Lua::LuaJit) => luajit::analyse(elf),
        Some(Lua::Fork(name)) => Err(format!("this is {name}")),
    };
    match found {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::NotLua,
        Err(found) => Finding::Refused(format!("no Lua frames: {found}; served are {SERVED}")),
    }
}

/// The layout of a PUC Lua's structures, with addresses and places unused: for tests that make such structures.
pub fn puc_layout(version: detect::Version) -> Option<uunwind_lua::puc::facts::Facts> {
    puc::layout::of(version)
}
