//! PHP unwinder plugin, signal half: finds the PHP frames that run in one native frame of the interpreter.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader.
//!
//! PHP keeps a structure for each function that runs, linked to its caller's (`zend_execute_data`). One native
//! activation of `execute_ex` runs many functions of PHP code: from the one in its register up to the first with the
//! mark TOP. Three things must agree before frames are believed: the chain, the register, and the mark.
//!
//! ```text
//! facts       what the analyse half found in the ELF file: code ranges, the place of the globals, layout
//! frame       one frame of the chain, read with checks
//! cursor      where one walk stands in the chain (in its scratch memory)
//! activation  which frames belong to the current native frame
//! emission    these frames, emitted
//! generator   generators that wait for the one that they delegate to
//! function    names, files and lines
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of the memory of PHP, with the source file of each fact.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod activation;
mod cursor;
mod emission;
pub mod facts;
mod frame;
mod function;
mod generator;

use activation::NO_OVERLAY;
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION};
use uunwind_core::visit;

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"php\0\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: NO_FUNCTION | CHECKED_READS,
    scratch_bytes: cursor::BYTES as u32,
    overlay: visit!(activation::overlay, NO_OVERLAY),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
