//! x86-64.

/// The machine whose files are read (`e_machine`).
pub const MACHINE: u16 = object::elf::EM_X86_64;
/// Its name, for people.
pub const MACHINE_NAME: &str = "x86-64";
/// The folder of its libraries in Debian's systems, below `lib` and `usr/lib`.
pub const MULTIARCH: &str = "x86_64-linux-gnu";
/// What the dynamic loader takes `$PLATFORM` for (`AT_PLATFORM`).
pub const PLATFORM: &str = "x86_64";
