//! Whole stacks in any program: what the sampler has from its recorder, the library has here for itself.
//!
//! ```text
//! request   what a caller wants of a walk
//! walk      a whole walk of the calling thread; memory: what it needs; client: what it asks; cfas: of its frames
//! traced    a walk that is watched frame by frame
//! facts     which plugin each object belongs to, as set-up found it
//! names     the names of semantic frames and of windows' functions
//! describe  a frame in words; decimal: numbers in it
//! symbol    a function of a frame, as the set-up object finds it
//! ids       a number for a stack
//! interned  the table of both: equal records have one id; arena: its memory
//! ```
//! A signal room: everything may be used in a handler, unless it says otherwise. What is remembered is never freed, and
//! bounded; what finds no room is counted.
#![cfg_attr(not(test), no_std)]

pub mod arena;
pub mod cfas;
mod client;
pub mod decimal;
pub mod describe;
pub mod facts;
pub mod ids;
pub mod interned;
pub mod memory;
pub mod names;
pub mod request;
pub mod symbol;
pub mod traced;
pub mod walk;
