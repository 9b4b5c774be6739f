//! Lua unwinder plugin, signal half: finds the Lua frames that a native frame of an interpreter hosts.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. One plugin serves two families of interpreters, distinguished by the facts of the current frame's
//! object:
//!
//! ```text
//! facts       the head of the analyse half's facts: version and family
//! points      where the rest of a call may be taken from a cached walk
//! hash        the checksum of what names a code object
//! overlay     the entry: passes the current frame to its family
//! puc         PUC Lua 5.1 to 5.5
//! luajit      LuaJIT 2.1
//! source      the text that names a chunk's source
//! registered  states that the program has registered
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of the memory of both families, with the source file of each fact.
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

pub mod facts;
mod hash;
pub mod luajit;
mod overlay;
mod points;
pub mod puc;
pub mod registered;
mod source;

use overlay::{NO_OVERLAY, NO_STEP};
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION, PLUGIN_UNOWNED, SCRATCH_BYTES};
use uunwind_core::{own_fixups, visit};

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"lua\0\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: PLUGIN_UNOWNED | NO_FUNCTION | CHECKED_READS,
    scratch_bytes: (SCRATCH_BYTES - luajit::STATELESS_BYTES) as u32,
    overlay: visit!(overlay::overlay, NO_OVERLAY),
    step: visit!(overlay::step, NO_STEP),
    call: Some(registered::call),
    fixups: own_fixups!(),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
