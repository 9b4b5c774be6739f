//! PUC Lua 5.1 to 5.5.
//!
//! One native activation of `luaV_execute` runs many Lua functions. The chain of CallInfos of a `lua_State` lists
//! those of all its activations; a mark (`CIST_FRESH` in 5.4) distinguishes an activation's outermost one. A coroutine
//! is a state of its own, which runs on the C stack of the thread that resumed it. See `CallInfo` in
//! <https://github.com/lua/lua/blob/v5.4.0/lstate.h> and `luaV_execute` in <https://github.com/lua/lua/blob/v5.4.0/lvm.c>;
//! `ASSUMPTIONS.md` has the sources of all versions.
//!
//! ```text
//! facts       what the analyse half found in the ELF file: code ranges, places of variables, layout
//! state       lua_State and CallInfo, read with checks
//! cursor      where one walk stands in the chain of each state (in its scratch memory)
//! places      variables of a native frame: the values in registers and slots
//! activation  which CallInfos belong to the current native frame
//! stretch     runs of CallInfos with cached answers, emitted in one loop
//! omit        CallInfos in the middle of a deep stack, which are left out
//! function    a running function: its Proto and the current instruction
//! lines       instructions to lines
//! name        a function's name, inferred from the calling instruction
//! text        Lua's strings
//! ```

mod activation;
mod cursor;
pub mod facts;
mod function;
mod lines;
mod name;
mod omit;
mod places;
mod state;
mod stretch;
mod text;

use crate::facts::Family;
use crate::overlay::NO_OVERLAY;
use cursor::Cursors;
use facts::{Extent, Facts};
use uunwind_core::plugin::guest::Guest;

/// The overlay of a native frame in an object that holds a PUC Lua: a sum of `OVERLAY_*`. `facts`: the object's, of
/// this family.
pub fn overlay(guest: &Guest<'_>, facts: &[u8]) -> u32 {
    let Some(facts) = Facts::of(facts) else { return NO_OVERLAY };
    let view = guest.view();
    let lookup = view.pc.wrapping_sub(u64::from(view.exact == 0)).wrapping_sub(view.bias);
    let within = |extents: &[Extent]| extents.iter().any(|e| e.contains(lookup));
    let (execute, resume) = (within(&facts.execute), within(&facts.resume));
    if !execute && !resume {
        return NO_OVERLAY;
    }
    let Some(cursors) = Cursors::of(guest) else { return NO_OVERLAY };
    let frame = activation::Frame { guest, facts, lookup };
    if execute {
        frame.execute(cursors)
    } else {
        frame.resume(cursors)
    }
}
