//! What the targets of overlays share: a process all of whose native frames are the interpreter's, and the walks over
//! it, without damage and with the input's.

use super::language::{self, Memory, Names, Walked, BASE, INDEX};
use crate::input::Input;
use std::sync::Mutex;
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{Description, Plugin, ABI, TEXT_LIMIT};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::walk::{Claim, Claimed, Env, Look, Replay};

/// Address of the interpreter's code, all of which is one function, and the size of its native frames in bytes.
pub const TEXT: u64 = 0x40_0000;
pub const FRAME: i32 = 160;
const TEXT_BYTES: u64 = 0x2000;

/// Where facts of these bytes lie: at one address for all inputs, aligned as in the memfd.
pub struct Place<const BYTES: usize>(Mutex<Aligned<BYTES>>);

#[repr(align(16))]
struct Aligned<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Place<BYTES> {
    pub const fn new() -> Place<BYTES> {
        Place(Mutex::new(Aligned([0; BYTES])))
    }
}

/// The thread that is walked.
pub struct Thread {
    /// Number of its native frames.
    pub frames: u8,
    /// The innermost one's registers; the pc is the walk's.
    pub registers: [u64; 16],
    pub thread_pointer: u64,
}

/// Walks a thread over memory that is damaged by the rest of the input, whose first byte says with bit 0 whether the
/// innermost frame was interrupted. Before and after it, the same thread is walked over `whole` memory, as one does
/// that keeps its last walk. Returns the walk over the damaged memory.
///
/// # Safety
/// `entry` returns a static table.
pub unsafe fn walk_damaged<const BYTES: usize>(
    entry: extern "C" fn(u32) -> *const Plugin,
    (input, kind): (&mut Input<'_>, u8),
    (place, facts): (&Place<BYTES>, &[u8]),
    whole: &Memory,
    thread: &Thread,
) -> Walked {
    // A panic of an earlier input leaves only bytes in it.
    let mut place = place.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    place.0.copy_from_slice(facts);
    let mut damaged = Memory(whole.0.clone());
    language::damage(input, &mut damaged, &mut place.0);
    // SAFETY: the caller's promise.
    let plugin = unsafe { entry(ABI).as_ref() }.expect("a table for this ABI");
    let claim =
        Claim { overlay: plugin.overlay, index: INDEX, facts: place.0.as_ptr(), facts_len: BYTES, ..Claim::NOTHING };
    let mut names = Vec::new();
    let walked = walk(&damaged, claim, thread, (kind, 0x100), &mut names, std::ptr::null_mut());
    let walks = [(whole, kind & !1, 0x200), (&damaged, kind, 0x100), (whole, kind, 0x180)];
    language::compared(walks, &mut names, |(memory, kind, pc), names, last| {
        walk(memory, claim, thread, (*kind, *pc), names, last)
    });
    walked
}

/// One walk from this offset in the interpreter's code.
fn walk(
    memory: &Memory,
    claim: Claim,
    thread: &Thread,
    (kind, offset): (u8, u64),
    names: &mut Names,
    last_walk: *mut LastWalk,
) -> Walked {
    let regions = [Region { address: BASE, bytes: &memory.0 }];
    let mut reader = Reader::recorded(&regions);
    let mut process = Process { claim, frames: thread.frames, names: std::mem::take(names) };
    let cursor = Cursor { regs: Regs::full(TEXT + offset, thread.registers), exact: kind & 1 != 0 };
    let walked = language::walk_once(cursor, &mut process, &mut reader, thread.thread_pointer, last_walk, 512);
    *names = process.names;
    walked
}

struct Process {
    claim: Claim,
    /// Native frames that are left.
    frames: u8,
    names: Names,
}

impl Env for Process {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        match self.frames.checked_sub(1) {
            Some(left) => {
                self.frames = left;
                Rule::simple(RSP, FRAME).pack()
            }
            None => Rule::end().pack(),
        }
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        Look { claim: Claimed::By(self.claim), ..Look::at(self.rule(cursor, reader)) }
    }

    fn function(&mut self, _: &Claim, _: &Cursor, _: &mut Reader<'_>) -> Span {
        Span::sized(TEXT, TEXT_BYTES)
    }
}

impl uunwind_core::walk::Names for Process {
    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        language::find_name(&self.names, code, fingerprint)
    }

    fn describe(&mut self, _: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        for text in [&description.name, &description.file].into_iter().filter(|text| !text.is_own()) {
            reader.read(text.address, &mut vec![0; text.len.min(TEXT_LIMIT) as usize]);
        }
        language::add_name(&mut self.names, description.code, description.fingerprint)
    }
}

impl Replay for Process {}
