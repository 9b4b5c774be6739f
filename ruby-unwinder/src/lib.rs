//! CRuby unwinder plugin, signal half: finds the Ruby frames that run in one native frame of the interpreter.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader.
//!
//! Ruby keeps a control frame for each method, block and C function that runs, in an array that grows downwards. One
//! native activation of `vm_exec` runs many of them: from the innermost one that is left up to the first with the mark
//! FINISH. Three things must agree before frames are believed: the mark, the tag that each activation links from its
//! own C frame into a chain, and the register in which the interpreter's loop keeps the control frame that it executes.
//!
//! ```text
//! facts          what the analyse half found in the ELF file: code ranges, the place of the context, layout
//! context        the execution context of the walked thread
//! cursor         where one walk stands among the control frames (in its scratch memory)
//! control_frame  one control frame, read with checks
//! activation     which control frames belong to the current native frame
//! emission       these frames, emitted
//! method         the method entry that a frame runs for, and its class
//! iseq           a frame's compiled code: label, file and line
//! object         strings, arrays and ids
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of the memory of CRuby, with the source file of each fact.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod activation;
mod context;
mod control_frame;
mod cursor;
mod emission;
pub mod facts;
mod iseq;
mod method;
mod object;

use activation::NO_OVERLAY;
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION};
use uunwind_core::visit;

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"ruby\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: NO_FUNCTION | CHECKED_READS,
    scratch_bytes: cursor::BYTES as u32,
    overlay: visit!(activation::overlay, NO_OVERLAY),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
