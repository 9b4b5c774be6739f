//! Code objects: which one a frame runs, what names it, and where in it the frame stands.

use crate::facts::Facts;
use crate::frame::{PyFrame, OWNER_GENERATOR};
use crate::text;
use crate::walk::Walk;
use uunwind_core::plugin::{Description, TABLE_PYTHON_311};

/// `PyObject.ob_type` and `PyVarObject.ob_size` (in code units, for a code object).
const TYPE: u32 = 8;
const SIZE: u32 = 16;
/// Bytes of one code unit.
const UNIT: u64 = 2;

/// What became of a frame.
pub enum Emitted {
    /// It was emitted, or is one of those that CPython hides itself.
    Done,
    /// It is not a frame that runs a code object: the chain is torn.
    Invalid,
    /// The stack is full.
    Full,
}

/// A frame's code object and its place in it.
struct Activation {
    code: u64,
    fingerprint: u64,
    filename: u64,
    qualname: u64,
    line_table: u64,
    first_line: u32,
    /// Byte offset from the first code unit, equal to `frame.f_lasti`.
    position: u64,
    /// The frame has not begun, or is the interpreter's own helper (3.13's `__init__` cleanup): CPython hides it.
    incomplete: bool,
}

/// Emits one frame, describing its code object first if it was never seen.
pub fn emit(walk: &Walk<'_>, facts: &Facts, frame: &PyFrame) -> Emitted {
    let Some(activation) = read(walk, facts, frame) else {
        return Emitted::Invalid;
    };
    if activation.incomplete {
        return Emitted::Done;
    }
    let mut name = walk.find_name(activation.code, activation.fingerprint);
    if name == 0 {
        name = walk.describe(&activation.description(walk, facts));
    }
    if walk.emit(name, activation.position) {
        Emitted::Done
    } else {
        Emitted::Full
    }
}

// Not inlined: what it needs is off the stack before anything is told.
#[inline(never)]
fn read(walk: &Walk<'_>, facts: &Facts, frame: &PyFrame) -> Option<Activation> {
    let code = frame.code;
    if code == 0 || !code.is_multiple_of(8) {
        return None;
    }
    let offsets = [
        TYPE,
        SIZE,
        facts.code_first_traceable,
        facts.code_first_line,
        facts.code_filename,
        facts.code_qualname,
        facts.code_line_table,
    ];
    let mut words = [0; 7];
    walk.words(code, offsets, &mut words)?;
    let [kind, size, traceable, first_line, filename, qualname, line_table] = words;
    if kind != walk.view().bias.wrapping_add(facts.code_type) {
        return None;
    }
    let first = code.wrapping_add(u64::from(facts.code_instructions));
    let length = size.checked_mul(UNIT)?;
    // 3.11 and 3.12 point at the unit before the next, thus one before the first in a frame that has not begun.
    let ahead = frame.instruction.wrapping_add(UNIT).wrapping_sub(first);
    if !ahead.is_multiple_of(UNIT) || ahead > length {
        return None;
    }
    // Both fields are ints, half a word.
    let begins = u64::from(traceable as u32).wrapping_mul(UNIT);
    let unbegun = frame.owner != OWNER_GENERATOR && ahead < begins.wrapping_add(UNIT);
    let first_line = first_line as u32;
    Some(Activation {
        code,
        fingerprint: fingerprint([u64::from(first_line), filename, qualname, line_table]),
        filename,
        qualname,
        line_table,
        first_line,
        position: ahead.wrapping_sub(UNIT),
        incomplete: unbegun || ahead == 0,
    })
}

impl Activation {
    fn description(&self, walk: &Walk<'_>, facts: &Facts) -> Description {
        Description {
            code: self.code,
            fingerprint: self.fingerprint,
            name: text::of_str(walk, facts, self.qualname),
            file: text::of_str(walk, facts, self.filename),
            table: text::of_bytes(walk, self.line_table),
            first_line: self.first_line,
            table_kind: TABLE_PYTHON_311,
        }
    }
}

/// Mixes the words that name a code object. A code object that died and whose address was used again differs in them,
/// but for the improbable case that all four were allocated at the same addresses again.
fn fingerprint(words: [u64; 4]) -> u64 {
    let mut h: u64 = 0x243f_6a88_85a3_08d3;
    for word in words {
        h = (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h
}
