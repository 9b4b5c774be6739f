//! V8 unwinder plugin, signal half: the JavaScript functions of Node.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. V8's code keeps frame pointers and has no unwind tables, and most of it lies in memory that no object
//! covers. So each frame in it is stepped here, and what a frame is follows from its pc alone: a builtin (whose rows
//! the analyse half has made of its instructions), or code that V8 has compiled.
//!
//! ```text
//! facts      what the analyse half found in the ELF file: builtins, their rows, layout
//! ranges     where the thread's isolate keeps code
//! step       one frame: its caller, and the function that it runs
//! compiled   compiled code that is being entered or left: its frame is not there yet, or no more
//! heap       objects, recognised by the instance types of their maps
//! function   a function: its names, its place in the source
//! text       strings
//! position   where in the source a frame is
//! safepoint  calls in optimised code
//! translation  functions at such a call, by what deoptimisation would leave there
//! inlined    functions that are part of another's code, by positions in the source
//! baseline   which bytecode an instruction of baseline code belongs to
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of V8, with the source file of each fact.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod baseline;
mod bytes;
mod compiled;
pub mod facts;
mod function;
mod heap;
mod inlined;
mod position;
mod ranges;
mod safepoint;
mod step;
mod text;
mod translation;

pub use function::{Lines, TABLE_LATIN1, TABLE_UTF16};
use step::NOTHING;
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION, PLUGIN_UNOWNED, UNOWNED_FACTS};
use uunwind_core::visit;

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"v8\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: PLUGIN_UNOWNED | UNOWNED_FACTS | NO_FUNCTION | CHECKED_READS,
    scratch_bytes: step::SCRATCH as u32,
    step: visit!(step::step, NOTHING),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
