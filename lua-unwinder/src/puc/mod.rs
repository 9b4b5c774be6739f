//! PUC Lua 5.1 to 5.5.
//!
//! One native activation of `luaV_execute` runs many Lua functions. The chain of CallInfos of a `lua_State` has them all, of
//! all its activations; a mark tells where an activation begins. Coroutines are states of their own, run further up the
//! same C stack.
//!
//! ```text
//! facts       what the analyse half found in the ELF file: code ranges, places of variables, layout
//! state       lua_State and CallInfo, read with checks
//! cursor      where one walk stands in the chain of each state (in its scratch memory)
//! places      where a native frame keeps its variables
//! activation  which CallInfos belong to the native frame in hand
//! stretch     CallInfos in which all is as usual
//! function    a running function: its Proto and where in it execution stands
//! lines       instructions to lines
//! name        what the calling instruction calls a function
//! text        Lua's strings
//! ```

mod activation;
mod cursor;
pub mod facts;
mod function;
mod lines;
mod name;
mod places;
mod state;
mod stretch;
mod text;

use crate::facts::Plain;
use crate::overlay::NO_OVERLAY;
use crate::walk::Walk;
use cursor::Cursors;
use facts::{Extent, Facts};

/// One native frame of an object that holds a PUC Lua.
pub fn overlay(walk: &Walk<'_>, facts: &[u8]) -> u32 {
    let Some(facts) = Facts::view(facts) else { return NO_OVERLAY };
    let view = walk.view();
    let lookup = view.pc.wrapping_sub(u64::from(view.exact == 0)).wrapping_sub(view.bias);
    let within = |extents: &[Extent]| extents.iter().any(|e| e.contains(lookup));
    let (execute, resume) = (within(&facts.execute), within(&facts.resume));
    if !execute && !resume {
        return NO_OVERLAY;
    }
    // SAFETY: the host's scratch memory is this plugin's alone, and zeroed when the walk begins.
    let Some(cursors) = (unsafe { Cursors::of(view.scratch) }) else { return NO_OVERLAY };
    let frame = activation::Frame { walk, facts, lookup };
    if execute {
        frame.execute(cursors)
    } else {
        frame.resume(cursors)
    }
}
