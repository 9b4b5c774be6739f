//! The GIL's place, from 3.13 on by the file's table of offsets (`debug_offsets`). Where the table has something else
//! than the signal half can use, frames are served as ever, and nothing is said about the GIL.

use crate::debug_offsets::Words;
use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::{Facts, OBJECT_HEADER_FREE_THREADED};
use uunwind_python::lock::{LOCK_NOT_DESCRIBED, LOCK_OPTIONAL};

/// First word of the group `interpreter_state`; the word `ceval_gil` of 3.13, and from 3.14 on (`threads_main` came
/// before it).
const INTERPRETER: usize = 6;
const GIL_3_13: usize = 14;
const GIL_3_14: usize = 15;
/// Words of the group `thread_state`, counted from its first: `interp`; in 3.15 `holds_gil` and `gil_requested`.
const INTERP: usize = 3;
const HOLDS_3_15: usize = 12;
const REQUESTED_3_15: usize = 13;

/// In free-threaded builds `enabled` precedes all else in `_gil_runtime_state`
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_gil.h>).
const ENABLED: u32 = 8;

/// Takes what the table has about the GIL.
pub fn check(elf: &dyn Elf, version: Version, words: &Words, facts: &mut Facts) {
    if take(elf, version, words, facts).is_none() {
        facts.lock.kind = LOCK_NOT_DESCRIBED;
        return;
    }
    if facts.object_header == OBJECT_HEADER_FREE_THREADED {
        facts.lock.kind = LOCK_OPTIONAL;
        for offset in [&mut facts.lock.wait_start, &mut facts.lock.wait_switch, &mut facts.lock.wait_end] {
            *offset += ENABLED;
        }
    }
}

fn take(elf: &dyn Elf, version: Version, words: &Words, facts: &mut Facts) -> Option<()> {
    let runtime = facts.runtime;
    let word = |index: usize| {
        let mut bytes = [0; 8];
        let at = runtime.checked_add(8 * index as u64)?;
        elf.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let offset = |group: usize, index: usize| {
        let offset = word(index)?;
        (offset < word(group)?).then(|| u32::try_from(offset).ok())?
    };
    let gil = if version.minor() == (3, 13) { GIL_3_13 } else { GIL_3_14 };
    facts.lock.gil = offset(INTERPRETER, gil)?;
    facts.lock.interpreter = offset(words.thread, words.thread + INTERP)?;
    if facts.lock.waits != 0 {
        facts.lock.holds = offset(words.thread, words.thread + HOLDS_3_15)?;
        facts.lock.waits = offset(words.thread, words.thread + REQUESTED_3_15)?;
    }
    Some(())
}
