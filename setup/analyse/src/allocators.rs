//! Allocators that a program has in itself: nothing that is loaded beside it stands between the two.

use std::path::Path;
use uunwind_elf::Image;

/// Allocators, by functions that only they have, with the prefixes under which programs link them.
const KNOWN: [(&str, &[&str]); 5] = [
    ("jemalloc", &["je_malloc", "je_mallocx", "_rjem_malloc", "_rjem_mallocx"]),
    ("mimalloc", &["mi_malloc", "mi_malloc_aligned"]),
    ("tcmalloc", &["tc_malloc", "TCMallocInternalMalloc"]),
    ("rpmalloc", &["rpmalloc"]),
    ("Go's allocator", &["runtime.mallocgc"]),
];
/// `operator new(unsigned long)`, and what the C++ runtime alone defines beside it.
const NEW: &str = "_Znwm";
const THROW: &str = "__cxa_throw";

/// What a program has of allocators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocators {
    /// Their names.
    pub names: Vec<&'static str>,
    /// It defines operators new of its own.
    pub operators: bool,
}

/// What an ELF file has in itself, as far as its symbols say: those of a stripped file that others do not look for are
/// gone.
pub fn allocators(file: &Path) -> Allocators {
    let Ok(image) = Image::open(file) else { return Allocators::default() };
    let wanted: Vec<&str> = KNOWN.iter().flat_map(|(_, names)| *names).copied().chain([NEW, THROW]).collect();
    let found = image.defined_of(&wanted);
    let has = |name: &&str| found.contains(name);
    let names = KNOWN.iter().filter(|(_, names)| names.iter().any(&has));
    Allocators { names: names.map(|(name, _)| *name).collect(), operators: has(&NEW) && !has(&THROW) }
}
