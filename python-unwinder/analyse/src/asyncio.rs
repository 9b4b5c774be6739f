//! Where asyncio's tasks and suspended coroutines are. What a task looks like is in a file of its own (3.14's module
//! `_asyncio`) or in a section (3.15), so the version's layout has it; generators, frames and sets are in the file's
//! table of offsets (`debug_offsets`). Where the table has something else than the layout, frames are served as ever,
//! and nothing is said about what awaits them.

use crate::debug_offsets::Words;
use uunwind_elf::Elf;
use uunwind_python::awaiting::AsyncFacts;
use uunwind_python::facts::{Facts, OBJECT_HEADER};

/// Words of a group, counted from its first.
const STACK: usize = 6;
const FRAME: usize = 2;
const STATE: usize = 3;
const USED: usize = 1;
const TABLE: usize = 2;
const MASK: usize = 3;

/// Checks the layout against the file, and finds the types.
pub fn find(elf: &dyn Elf, words: &Words, facts: &mut Facts) {
    // The tasks of free-threaded builds have another layout, which no package has.
    if facts.object_header != OBJECT_HEADER || check(elf, words, facts).is_none() {
        facts.asyncio = AsyncFacts::NOT_DESCRIBED;
    }
}

fn check(elf: &dyn Elf, words: &Words, facts: &mut Facts) -> Option<()> {
    let (generator, set) = words.generators_and_sets?;
    let asyncio = facts.asyncio;
    for (index, expected) in [
        (words.frame + STACK, asyncio.stack),
        (generator + FRAME, asyncio.frame),
        (generator + STATE, asyncio.state),
        (set + USED, asyncio.set_used),
        (set + TABLE, asyncio.set_table),
        (set + MASK, asyncio.set_mask),
    ] {
        let mut bytes = [0; 8];
        let at = facts.runtime.checked_add(8 * index as u64)?;
        if !elf.read(at, &mut bytes) || u64::from_le_bytes(bytes) != u64::from(expected) {
            return None;
        }
    }
    let address = |name| elf.symbol(name).map(|symbol| symbol.address);
    facts.coroutine_type = address("PyCoro_Type")?;
    facts.generator_type = address("PyGen_Type")?;
    facts.async_generator_type = address("PyAsyncGen_Type")?;
    // Not a part of the interface: without it, chains end at an `async for`.
    facts.sending_type = address("_PyAsyncGenASend_Type").unwrap_or(0);
    Some(())
}
