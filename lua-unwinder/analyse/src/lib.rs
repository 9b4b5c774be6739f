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
use uunwind_elf::Elf;
pub use uunwind_lua::facts::Plain;
pub use uunwind_lua::NAME;

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
