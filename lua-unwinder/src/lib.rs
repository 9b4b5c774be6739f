//! Lua unwinder plugin, signal half: finds the Lua frames that one native frame of an interpreter hosts.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. One plugin for two families of interpreters, told apart by the facts of the object in hand:
//!
//! ```text
//! facts       how the bytes of the analyse half begin: which family they speak of
//! walk        the host's functions, in safe form
//! overlay     the entry: hands the frame to its family
//! puc         PUC Lua 5.1 to 5.5
//! luajit      LuaJIT 2.1
//! registered  states that the program has told of
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

pub mod facts;
pub mod luajit;
mod overlay;
pub mod puc;
pub mod registered;
mod walk;

use uunwind_core::own_fixups;
use uunwind_core::plugin::{Plugin, ABI, NO_FUNCTION, PLUGIN_STRAYS, SCRATCH_BYTES};

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"lua\0\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: PLUGIN_STRAYS | NO_FUNCTION,
    scratch_bytes: (SCRATCH_BYTES - luajit::STATELESS_BYTES) as u32,
    overlay: Some(overlay::overlay),
    step: Some(overlay::step),
    call: Some(registered::call),
    fixups: own_fixups!(),
    ..Plugin::new(NAME)
};

/// The plugin's entry ([`uunwind_core::plugin::Entry`]): its table, or null for a host of another ABI. Exported by the shipped
/// object only: the recorder links several plugins, for their layouts.
#[cfg_attr(panic = "abort", no_mangle)]
pub extern "C" fn uu_plugin(host_abi: u32) -> *const Plugin {
    if host_abi >= ABI {
        &PLUGIN
    } else {
        core::ptr::null()
    }
}
