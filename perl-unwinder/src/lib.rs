//! Perl unwinder plugin, signal half: finds the Perl frames that run in one native frame of the interpreter.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader.
//!
//! Perl keeps a context for each sub, eval, loop and block that runs, in arrays that are linked (`PERL_SI`). One native
//! activation of a run loop (`Perl_runops_standard`) runs many of them. Which context is the outermost one of a run
//! loop follows from who has called the run loop: there are some ten places, and each leaves another mark. Where the
//! mark is not the one of the place, the sample is in doubt.
//!
//! ```text
//! facts       what the analyse half found in the ELF file: code ranges, places, layout
//! cursor      where one walk stands among the contexts (in its scratch memory)
//! activation  which native frame this is, and what it hosts
//! innermost   what the interrupted instruction says of the innermost context
//! context     one context, read with checks
//! emission    the frames of one run loop, emitted
//! function    names, files and lines
//! cv          the texts that name a sub
//! ```
//!
//! `ASSUMPTIONS.md` lists what is assumed of the memory of Perl, with the source file of each fact.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod activation;
mod context;
mod cursor;
mod cv;
mod emission;
pub mod facts;
mod function;
mod innermost;

use activation::NO_OVERLAY;
use uunwind_core::plugin::{Plugin, CHECKED_READS, NO_FUNCTION};
use uunwind_core::visit;

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"perl\0\0\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    flags: NO_FUNCTION | CHECKED_READS,
    scratch_bytes: cursor::BYTES as u32,
    overlay: visit!(activation::overlay, NO_OVERLAY),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
