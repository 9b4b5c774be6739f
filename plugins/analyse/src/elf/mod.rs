//! ELF files, read in parts: 64-bit little-endian x86-64.

pub(crate) mod bytes;
mod dynamic;
mod frames;
mod hash;
mod image;
mod notes;
mod symtab;

pub use dynamic::Dynamic;
pub use frames::Function;
pub use image::{Image, Segment};
pub use notes::Section;
