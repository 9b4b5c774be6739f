//! uu's own plugins, by the one list of them.

use uunwind_built_in::HALVES;

/// Their names, in the order of their indices.
pub fn names() -> impl Iterator<Item = String> {
    HALVES.iter().map(|half| half.language().plugin)
}

/// Their objects, as paths in an installed tree.
pub fn objects() -> impl Iterator<Item = String> {
    names().map(|name| format!("lib/uu/plugins/libuunwind-{name}.so"))
}
