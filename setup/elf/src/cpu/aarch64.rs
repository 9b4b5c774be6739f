//! AArch64.

/// The machine whose files are read (`e_machine`).
pub const MACHINE: u16 = object::elf::EM_AARCH64;
/// Its name, for people.
pub const MACHINE_NAME: &str = "AArch64";
/// The folder of its libraries in Debian's systems, below `lib` and `usr/lib`.
pub const MULTIARCH: &str = "aarch64-linux-gnu";
/// What the dynamic loader takes `$PLATFORM` for (`AT_PLATFORM`).
pub const PLATFORM: &str = "aarch64";
