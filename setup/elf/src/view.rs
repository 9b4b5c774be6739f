//! An ELF file as the analyse halves of plugins see it, so that their tests can make files up.

use super::image::Image;
use object::elf::{PF_W, PF_X, PT_LOAD};
use uunwind_core::span::Span;

/// A symbol that the file defines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Symbol {
    /// File address.
    pub address: u64,
    /// Size in bytes; 0 if the file does not say.
    pub size: u64,
}

/// The part of a loadable segment that the file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Its file addresses.
    pub span: Span,
    /// It can be executed.
    pub executable: bool,
    /// It can be written.
    pub writable: bool,
}

/// A function's unwind range: the function, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its file addresses.
    pub span: Span,
    /// CFA minus stack pointer at its first instruction, in bytes: 8 for a function, more for a part that the compiler
    /// split off. 0: not available.
    pub cfa_offset: u64,
}

/// An ELF file: [`Image`] is one on the disk.
pub trait Elf {
    /// A symbol that the file defines in its dynamic symbol table.
    fn symbol(&self, name: &str) -> Option<Symbol>;
    /// Fills `out` with the file's bytes from a file address on. False: the file does not hold all of them.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// The loadable segments, as far as the file holds them.
    fn loaded(&self) -> Vec<Loaded>;
    /// The ranges of `.eh_frame`'s entries, sorted by address; empty if there are none.
    fn functions(&self) -> Vec<Function>;
}

impl Elf for Image {
    fn symbol(&self, name: &str) -> Option<Symbol> {
        Image::symbol(self, name)
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.read_address(address, out)
    }

    fn loaded(&self) -> Vec<Loaded> {
        let loaded = self.segments().iter().filter(|segment| segment.kind == PT_LOAD).map(|segment| Loaded {
            span: Span::sized(segment.address, segment.file_size),
            executable: segment.flags & PF_X != 0,
            writable: segment.flags & PF_W != 0,
        });
        loaded.collect()
    }

    fn functions(&self) -> Vec<Function> {
        Image::functions(self)
    }
}
