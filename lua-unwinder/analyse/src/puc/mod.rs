//! PUC Lua 5.1 to 5.5: the interpreter's loop and the places of its variables are found in the machine code; the
//! structures' layout follows from the version.
//!
//! - [`layout`], [`opcodes`]: the structures and the instruction set, per version;
//! - [`execute`]: finds `luaV_execute` among all functions of the file;
//! - [`places`]: the places that hold a function's arguments;
//! - [`references`]: the functions that refer to a string.

mod execute;
pub mod layout;
mod opcodes;
mod places;
mod references;

use crate::detect::Version;
use uunwind_elf::{Elf, Function, Span};
use uunwind_language::machine_code::is_callee_saved;
use uunwind_lua::facts::Plain;
use uunwind_lua::puc::facts::{Extent, Facts, Location, Places};

/// The error of `lua_resume` about a coroutine that cannot be resumed, in all versions
/// (<https://github.com/lua/lua/blob/v5.4.0/ldo.c>).
const RESUME_ERROR: &[u8] = b"cannot resume non-suspended coroutine\0";

/// Facts of an object that holds a PUC Lua. `Ok(None)`: it only contains the name of one. Errors: the reason why it is
/// not served.
pub fn analyse(elf: &dyn Elf, version: Version) -> Result<Option<Vec<u8>>, String> {
    let functions = elf.functions();
    let resume = resume(elf, &functions);
    if resume.is_empty() {
        return Ok(None);
    }
    let mut facts = layout::of(version).ok_or_else(|| format!("this is Lua {version}"))?;
    let saved_pc = if facts.state.saved_pc != 0 { facts.state.saved_pc } else { facts.info.saved_pc };
    let found = execute::find(elf, &functions, version, saved_pc)?;
    let places = places::of(elf, &found.main, &facts);
    for (extent, part) in facts.execute.iter_mut().zip(&found.parts) {
        *extent = Extent { start: part.start, end: part.end };
    }
    facts.execute_state = places.state;
    if facts.minor >= 2 {
        // A register that is not callee-saved holds it only between two calls.
        let stays = found.info.as_register().is_some_and(is_callee_saved);
        facts.execute_info = if stays { first(found.info, places.info) } else { places.info };
    }
    facts.execute_pc = if facts.pc_is_local() { found.pc } else { Location::NONE };
    facts.execute_frame = places.frame;
    facts.execute_prologue = places.entry(facts.execute_state[0], facts.execute_info[0]);
    copies(elf, &mut facts);
    if facts.minor == 3 {
        facts.execute_marked = execute::marked(elf, &found.main, facts.info.status);
    }
    if facts.minor == 1 {
        facts.execute_loop = execute::to_loop(elf, &found.main);
    }
    if facts.minor == 2 {
        facts.marking = execute::marking(elf, &found.parts, &facts);
    }
    for (extent, function) in facts.resume.iter_mut().zip(&resume) {
        *extent = Extent { start: function.span.start, end: function.span.end };
    }
    if let Some(first) = resume.first() {
        facts.resume_state = places::of(elf, first, &facts).state;
    }
    Ok(Some(facts.as_bytes().to_vec()))
}

/// Finds `lua_resume`. In 5.2 and 5.3 the text of the error is in a function that `lua_resume` calls (`resume_error`),
/// and that may leave by a jump.
fn resume(elf: &dyn Elf, functions: &[Function]) -> Vec<Function> {
    let found = references::to_text(elf, functions, RESUME_ERROR);
    let starts: Vec<u64> = found.iter().map(|function| function.span.start).collect();
    let callers = references::to_addresses(elf, functions, &starts);
    if callers.is_empty() {
        found
    } else {
        callers
    }
}

/// Adds places to which the loop copies `L` while it uses the register for another value.
fn copies(elf: &dyn Elf, facts: &mut Facts) {
    let Some(register) = facts.execute_state.iter().find_map(|place| place.as_register()) else { return };
    let mut copies = Vec::new();
    for part in facts.execute.iter().filter(|part| part.end != 0) {
        let range = Span { start: part.start, end: part.end };
        copies.extend(places::copies(elf, range, register, facts.execute_frame));
    }
    copies.retain(|place| !facts.execute_state.contains(place));
    copies.sort_by_key(|place| place.0);
    copies.dedup();
    let free = facts.execute_state.iter_mut().filter(|place| **place == Location::NONE);
    for (place, copy) in free.zip(copies) {
        *place = copy;
    }
}

/// `places` with `place` as the first one.
fn first(place: Location, places: Places) -> Places {
    let mut list = vec![place];
    list.extend(places.iter().filter(|other| **other != place));
    let mut filled = Places::default();
    for (to, from) in filled.iter_mut().zip(list) {
        *to = from;
    }
    filled
}
