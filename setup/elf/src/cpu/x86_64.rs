//! x86-64.

use object::elf::{R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE};

/// The machine whose files are read (`e_machine`).
pub const MACHINE: u16 = object::elf::EM_X86_64;
/// Its name, for people.
pub const MACHINE_NAME: &str = "x86-64";
/// The folder of its libraries in Debian's systems, below `lib` and `usr/lib`.
pub const MULTIARCH: &str = "x86_64-linux-gnu";
/// What the dynamic loader takes `$PLATFORM` for (`AT_PLATFORM`).
pub const PLATFORM: &str = "x86_64";
/// The type of relocations that hold an address in the object itself, and the types of those that hold a symbol's.
pub const RELATIVE: u32 = R_X86_64_RELATIVE;
pub const SYMBOLIC: [u32; 3] = [R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT];
