//! AArch64.

use object::elf::{R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE};

/// The machine whose files are read (`e_machine`).
pub const MACHINE: u16 = object::elf::EM_AARCH64;
/// Its name, for people.
pub const MACHINE_NAME: &str = "AArch64";
/// The folder of its libraries in Debian's systems, below `lib` and `usr/lib`.
pub const MULTIARCH: &str = "aarch64-linux-gnu";
/// What the dynamic loader takes `$PLATFORM` for (`AT_PLATFORM`).
pub const PLATFORM: &str = "aarch64";
/// The type of relocations that hold an address in the object itself, and the types of those that hold a symbol's.
pub const RELATIVE: u32 = R_AARCH64_RELATIVE;
pub const SYMBOLIC: [u32; 3] = [R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT];
