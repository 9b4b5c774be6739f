//! From a recording to what people read: resolved names, merged stacks, output formats.
//!
//! * [`resolve`]: names of the frames of a sample, as recorded;
//! * [`stacks`]: from samples to merged stacks of lines, with the hide rules of [`hide`];
//! * [`selection`], [`view`]: which of them are shown, and how;
//! * [`formats`]: one file per output format; [`values`]: what profiles for other programs have
//!   of each stack;
//! * [`diff`]: two recordings compared;
//! * [`fleet`]: many recordings added up;
//! * [`stream`]: lines of JSON while the program runs;
//! * [`live`]: tables of a recording that still runs.
//!
//! The parsers of foreign bytes, which fuzz targets call, are in the two crates below:
//! `uunwind_recording::Recording::parse` and `uunwind_symbolize::Elf::parse`.
//!
//! This is a report room: it runs after the samples have left the process, and may allocate.
#![forbid(unsafe_code)]

pub mod charge;
pub mod diff;
pub mod fleet;
pub mod formats;
pub mod hide;
mod line;
pub mod live;
mod lock_frames;
mod paths;
pub mod resolve;
pub mod selection;
pub mod stacks;
pub mod stream;
mod unmatched;
pub mod values;
pub mod view;
