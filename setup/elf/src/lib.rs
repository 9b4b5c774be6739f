//! ELF files, read in parts: 64-bit little-endian, of the CPU that this runs on.
//!
//! The layouts of headers, symbols and notes are the `object` crate's; this crate decides which bytes are read, since a
//! hostile file may claim any size. Nothing is mapped: a file that shrinks while it is read gives an error, no signal.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod compressed;
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
mod dynamic;
mod error;
mod file_id;
pub mod files;
mod frames;
mod hash;
mod image;
pub mod mapped;
pub mod maps;
mod notes;
pub mod private_folder;
pub mod process;
mod relocations;
mod symtab;
mod view;

pub use cpu::{MACHINE, MACHINE_NAME, MULTIARCH, PLATFORM};
pub use dynamic::Dynamic;
pub use error::AnalyseError;
pub use file_id::FileId;
pub use image::{Image, Segment};
pub use notes::Section;
pub use relocations::Relocations;
use uunwind_core::object_key;
pub use uunwind_core::span::Span;
pub use view::{Elf, Function, Loaded, Symbol};

/// The key of an object among facts and tables, and its GNU build-id, if it has one.
pub fn key_of(image: &Image) -> (u64, Option<Vec<u8>>) {
    let build_id = image.build_id();
    let key = match &build_id {
        Some(id) => object_key::of_build_id(id, image.unwind_key()),
        None => object_key::key(&image.identity()),
    };
    (key, build_id)
}
