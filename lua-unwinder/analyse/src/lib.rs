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
use uunwind_language::Finding;
/// The half that runs in handlers.
pub use uunwind_lua as signal;
pub use uunwind_lua::facts::Plain;
pub use uunwind_lua::NAME;

/// The Luas that are served, for messages.
pub const SERVED: &str = "PUC Lua 5.1 to 5.5 and LuaJIT 2.1 (64-bit references)";

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    let found = match detect::detect(elf) {
        None => return Finding::Unclaimed,
        Some(Found::Puc(version)) => puc::analyse(elf, version),
        Some(Found::LuaJit) => luajit::analyse(elf),
        Some(Found::Fork(name)) => Err(format!("this is {name}")),
    };
    match found {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::Unclaimed,
        Err(found) => Finding::Refused(format!("no Lua frames: {found}; served are {SERVED}")),
    }
}

/// Facts with the layout of a PUC Lua's structures, and no addresses and places: for tests that make such structures.
pub fn puc_layout(version: detect::Version) -> Option<uunwind_lua::puc::facts::Facts> {
    puc::layout::of(version)
}
