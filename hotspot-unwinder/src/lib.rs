//! HotSpot unwinder plugin, signal half: the methods of Java.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. HotSpot's code lies in its code cache, which no object covers, has no unwind tables, and no frame
//! pointers where it is compiled. So each frame in it is stepped here; what a frame is follows from the code that its
//! pc lies in.
//!
//! ```text
//! facts        what the analyse half found in the ELF file: layout, and where HotSpot's variables are
//! code         the code that an address lies in
//! step         one frame: its caller, and the methods that it runs
//! interpreted  a frame of the interpreter
//! compiled     a frame of a compiled method
//! ahead        where the return address is, by the instructions to come
//! instruction  one instruction
//! method       a method: what names it
//! scopes       methods that are inlined in others
//! numbers      compressed numbers
//! lines        a method's line table
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of HotSpot, with the source file of each fact.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod ahead;
mod code;
mod compiled;
pub mod facts;
pub mod instruction;
mod interpreted;
pub mod lines;
mod method;
mod numbers;
mod scopes;
mod step;

use step::NOTHING;
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION, PLUGIN_UNOWNED, STEP_UNOWNED_ONLY, UNOWNED_FACTS};
use uunwind_core::visit;

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"hotspot\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: PLUGIN_UNOWNED | UNOWNED_FACTS | STEP_UNOWNED_ONLY | NO_FUNCTION | CHECKED_READS,
    scratch_bytes: step::SCRATCH as u32,
    step: visit!(step::step, NOTHING),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
