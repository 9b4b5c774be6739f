//! Code objects: which one a frame runs, what names it, and where in it the frame stands.
//!
//! Code objects die, and CPython's allocator reuses their memory, last freed first: a new code object often lies at the
//! address of a dead one, and its names and line table at the addresses of the dead one's. An address alone therefore
//! identifies nothing. A code object is identified by its address together with a fingerprint of every byte that its
//! description copies.
//!
//! The structure is `PyCodeObject` (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/code.h>).

use crate::facts::Facts;
use crate::frame::{PyFrame, Words, OWNER_GENERATOR};
use crate::text;
use uunwind_core::memory::group::{Links, MEMBER_WORDS};
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, View, TABLE_LIMIT, TABLE_NONE, TEXT_LIMIT};

/// Bytes of one code unit (`_Py_CODEUNIT`).
const UNIT: u64 = 2;

/// What came of emitting a frame.
pub enum Emitted {
    /// It was emitted.
    Done,
    /// It is a frame that CPython itself hides from tracebacks.
    Hidden,
    /// It is not a frame that runs a code object: the chain is torn.
    Invalid,
    /// The walk's buffer is full.
    Full,
}

/// What is needed of a code object to emit its frames.
struct Code {
    /// The id of its description; 0 if the host had no room for one.
    name: u32,
    /// `_co_firsttraceable`: number of the code unit at which a frame begins to run the function's own code.
    first_traceable: u32,
    /// `ob_size`: number of its code units; below 2^63.
    units: u64,
}

/// Emits one frame. Describes its code object to the host first if the host has no description of it. `mark`: 0, or
/// [`AWAITING`](uunwind_core::plugin::AWAITING).
pub fn emit(guest: &Guest<'_>, facts: &Facts, frame: &PyFrame, mark: u64) -> Emitted {
    if frame.code == 0 || !frame.code.is_multiple_of(8) {
        return Emitted::Invalid;
    }
    let Some(code) = find(guest, facts, frame.code) else {
        return Emitted::Invalid;
    };
    // 3.11 and 3.12 point at the unit before the next one, so in a frame that has not begun they point before the first
    // unit.
    let Some(first) = instructions(guest, facts, frame) else {
        return Emitted::Invalid;
    };
    let position = match code.position(frame.instruction, || frame.owner == OWNER_GENERATOR, first) {
        Place::At(position) => position,
        Place::Hidden => return Emitted::Hidden,
        Place::Outside => return Emitted::Invalid,
    };
    if mark != 0 {
        return done(guest.emit_all(&[[u64::from(code.name) | mark, position]]));
    }
    done(guest.emit(code.name, position))
}

/// The group of frames with these words, and how their code objects are found. No answer is cached for what can be no
/// code object.
#[inline(always)]
pub fn links(view: &View, words: &Words) -> Links {
    let rest = [view.facts as u64, view.bias, 0, 0];
    Links { offsets: words.offsets, key: Words::CODE, mask: words.code_bits, rest }
}

/// What to emit for a frame with these words that runs a code object which was found, if it is to be emitted. `None`:
/// [`emit`] decides.
#[inline(always)]
pub fn usual(
    found: [u64; ANSWER],
    frame: [u64; MEMBER_WORDS],
    facts: &Facts,
    words: &Words,
) -> Option<Option<(u32, u64)>> {
    let [_, marks, ..] = frame;
    let known = shown(found, frame, facts, words, || words.is_generator(marks));
    known.filter(|_| marks & words.copy == 0)
}

/// As `usual`, for a frame that runs the code object's own instructions. `is_generator`: whether it is a generator's;
/// asked only where it matters.
#[inline(always)]
pub fn shown(
    found: [u64; ANSWER],
    [_, _, code, instruction]: [u64; MEMBER_WORDS],
    facts: &Facts,
    words: &Words,
    is_generator: impl FnOnce() -> bool,
) -> Option<Option<(u32, u64)>> {
    let code_object = Code::of_answer(found);
    let first = (code & words.code_bits).wrapping_add(u64::from(facts.code_instructions));
    match code_object.position(instruction, is_generator, first) {
        Place::At(position) => Some(Some((code_object.name, position))),
        Place::Hidden => Some(None),
        Place::Outside => None,
    }
}

/// Where a frame stands in its code object.
enum Place {
    /// The byte offset from the first code unit, equal to `frame.f_lasti`.
    At(u64),
    /// The frame has not begun, or it is the interpreter's own helper (the `__init__` cleanup from 3.13 on): CPython
    /// hides both.
    Hidden,
    /// Not in these instructions.
    Outside,
}

impl Code {
    #[inline(always)]
    fn of_answer([halves, units]: [u64; ANSWER]) -> Code {
        Code { name: halves as u32, first_traceable: (halves >> 32) as u32, units }
    }

    /// `is_generator`: whether it is a generator's frame; asked only where it matters. `first`: address of the first
    /// code unit.
    #[inline(always)]
    fn position(&self, instruction: u64, is_generator: impl FnOnce() -> bool, first: u64) -> Place {
        const { assert!(UNIT == 2) };
        let ahead = instruction.wrapping_add(UNIT).wrapping_sub(first);
        // In units: what is no multiple becomes a number above all of `units`.
        let unit = ahead.rotate_right(1);
        if unit > self.units {
            return Place::Outside;
        }
        if unit <= u64::from(self.first_traceable) && (unit == 0 || !is_generator()) {
            return Place::Hidden;
        }
        Place::At(ahead.wrapping_sub(UNIT))
    }
}

/// Address of the first code unit that the frame runs. In free-threaded builds from 3.14 on, each thread but the first
/// has a copy of its own (`_PyFrame_GetBytecode` in
/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe.h>): `_PyCodeArray` is a number,
/// then as many addresses.
fn instructions(guest: &Guest<'_>, facts: &Facts, frame: &PyFrame) -> Option<u64> {
    if frame.copy == 0 || facts.code_copies == 0 {
        return Some(frame.code.wrapping_add(u64::from(facts.code_instructions)));
    }
    let copies = guest.word(frame.code.wrapping_add(u64::from(facts.code_copies)))?;
    let (count, index) = (guest.word(copies)?, u64::from(frame.copy));
    if index >= count {
        return None;
    }
    guest.word(copies.wrapping_add(8).wrapping_add(index.wrapping_mul(8)))
}

/// Emits a frame that runs the code object at `address`, and stands at a byte position of its instructions (up to
/// 3.10).
pub fn emit_at(guest: &Guest<'_>, facts: &Facts, address: u64, position: u64) -> Emitted {
    if address == 0 || !address.is_multiple_of(8) {
        return Emitted::Invalid;
    }
    match find(guest, facts, address) {
        Some(code) if position / UNIT < code.units => done(guest.emit(code.name, position)),
        _ => Emitted::Invalid,
    }
}

fn done(emitted: bool) -> Emitted {
    if emitted {
        Emitted::Done
    } else {
        Emitted::Full
    }
}

fn find(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<Code> {
    let key = [address, guest.view().facts as u64, guest.view().bias, 0, 0];
    recall(guest, &key).or_else(|| look_up(guest, facts, &key))
}

/// The code object as found earlier, if every word that was read to find it is unchanged.
#[inline(never)]
fn recall(guest: &Guest<'_>, key: &[u64; KEY]) -> Option<Code> {
    guest.recall(key).map(Code::of_answer)
}

/// Reads the code object from the process's memory. `None`: `address` holds no code object.
#[cold]
#[inline(never)]
fn look_up(guest: &Guest<'_>, facts: &Facts, key: &[u64; KEY]) -> Option<Code> {
    let [address, ..] = *key;
    let Parts { units, first_traceable, description } = &read(guest, facts, address)?;
    let units = *units & (u64::MAX >> 1);
    let mut name = guest.find_name(address, description.fingerprint);
    if name == 0 {
        name = guest.describe(description);
    }
    if name != 0 {
        let answer: [u64; ANSWER] = [u64::from(name) | u64::from(*first_traceable) << 32, units];
        guest.remember(key, &answer);
    }
    Some(Code { name, first_traceable: *first_traceable, units })
}

/// The parts of a code object.
struct Parts {
    /// Number of code units, as in [`Code`].
    units: u64,
    /// First traceable code unit, as in [`Code`].
    first_traceable: u32,
    /// What the host copies.
    description: Description,
}

// Not inlined, so that its stack frame is gone before the host is called to describe anything.
#[inline(never)]
fn read(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<Parts> {
    let in_bytes = facts.code_bytes != 0;
    let offsets = [
        facts.object_type(),
        // `ob_size`, which counts code units in a code object.
        if in_bytes { facts.code_bytes } else { facts.object_header },
        facts.code_first_traceable,
        facts.code_first_line,
        facts.code_filename,
        facts.code_qualname,
        facts.code_line_table,
    ];
    let mut words = [0; 7];
    guest.words(address, offsets, &mut words)?;
    let [kind, units, first_traceable, first_line, filename, qualname, line_table] = words;
    if kind != guest.view().bias.wrapping_add(facts.code_type) {
        return None;
    }
    // Up to 3.10 the instructions are a `bytes` object.
    let units = if in_bytes { guest.word(units.wrapping_add(u64::from(facts.object_header)))? / UNIT } else { units };
    // Both fields are ints, half a word.
    let (first_traceable, first_line) = (first_traceable as u32, first_line as u32);
    let mut fingerprint = Fingerprint(u64::from(first_line));
    let name = fingerprint.with(guest, text::of_str(guest, facts, qualname), TEXT_LIMIT);
    let file = fingerprint.with(guest, text::of_str(guest, facts, filename), TEXT_LIMIT);
    let table = fingerprint.with_table(guest, text::of_bytes(guest, facts, line_table));
    // An empty table means something else than none (up to 3.9).
    let has_table = table.address != 0 && table.len <= TABLE_LIMIT;
    let description = Description {
        code: address,
        name,
        file,
        table,
        first_line,
        table_kind: if has_table { facts.table_kind } else { TABLE_NONE },
        fingerprint: fingerprint.0,
    };
    Some(Parts { units, first_traceable, description })
}

/// Hash of everything that a description copies.
struct Fingerprint(u64);

impl Fingerprint {
    /// Adds a text, of which the host copies at most `limit` bytes. A text that cannot be read is replaced by
    /// [`text::EMPTY`].
    fn with(&mut self, guest: &Guest<'_>, text: Text, limit: u32) -> Text {
        let Some(hash) = guest.hash(text.address, text.len.min(limit) as usize) else { return text::EMPTY };
        self.add(u64::from(text.len) | u64::from(text.width) << 32);
        self.add(hash);
        text
    }

    /// Adds a line table, which is copied whole or not at all.
    fn with_table(&mut self, guest: &Guest<'_>, table: Text) -> Text {
        let limit = if table.len > TABLE_LIMIT { 0 } else { table.len };
        self.with(guest, table, limit)
    }

    fn add(&mut self, word: u64) {
        let product = (self.0 ^ word ^ 0x243f_6a88_85a3_08d3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 29;
    }
}
