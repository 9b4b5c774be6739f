//! The overlay of marked code: emits the frames that the current native frame hosts. Signal code.
//!
//! Each frame record has the address of some place inside the native frame of the loop that runs it, its *activation*.
//! A record belongs to the native frame for which `sp <= activation < CFA`, so nothing has to be counted.

use super::names::NAMES;
use crate::state::SLOTS;
use core::mem::size_of;
use uunwind_core::plugin::{
    Description, FrameRecord, Text, View, Visit, NO_REGISTERS, OVERLAY_DESYNC, OVERLAY_INTERPRETER, TABLE_NONE,
};
use uunwind_core::span::Span;
use uunwind_core::walk::{Claim, EMBEDDER};

/// Limit of the number of frames that one native frame hosts.
const MOST: u32 = 4096;
/// Limit of the number of records that are skipped, because no native frame hosts them, to find one of the current
/// frame.
const LOOK_AHEAD: u32 = 64;

/// What a walk keeps from one marked frame to the next, in scratch memory. All-zero before the first.
#[repr(C)]
struct State {
    /// 1 once `next` is valid.
    begun: u64,
    /// Process address of the innermost record that was not emitted yet; 0: there is none.
    next: u64,
}

/// The claim of a marked frame.
pub fn claim(range: Span, generation: u64) -> Claim {
    Claim {
        overlay: Some(overlay as Visit),
        index: EMBEDDER,
        flags: NO_REGISTERS,
        scratch_bytes: size_of::<State>() as u32,
        range,
        generation,
        ..Claim::NOTHING
    }
}

unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: the walk's view, whose scratch memory is larger than a `State`, aligned, and this overlay's only.
    let (view, state) = unsafe { (&*view, &mut *(*view).scratch.cast::<State>()) };
    if state.begun == 0 {
        state.begun = 1;
        let Some(first) = innermost(view) else { return OVERLAY_INTERPRETER | OVERLAY_DESYNC };
        state.next = first;
    }
    let mut answer = OVERLAY_INTERPRETER;
    for emitted in 0..=MOST {
        if state.next == 0 {
            return answer;
        }
        let Some(mut record) = read(view, state.next) else { break };
        if record.activation < view.sp {
            // Either its frame lies nearer the leaf than this one and was not shown, or it lies on another stack, which
            // the walk may reach later.
            let Some((address, found)) = look_ahead(view, &record) else { return answer };
            answer |= OVERLAY_DESYNC;
            (state.next, record) = (address, found);
        }
        if record.activation >= view.cfa {
            return answer;
        }
        if emitted == MOST || record.outer == state.next {
            break;
        }
        // SAFETY: the host's function, called with the walk of this call.
        if !unsafe { ((*view.host).emit)(view.walk, name(view, record.name), u64::from(record.line)) } {
            return answer;
        }
        state.next = record.outer;
    }
    // The list is broken or endless: the outer frames cannot be determined.
    state.next = 0;
    answer | OVERLAY_DESYNC
}

/// Address of the thread's innermost record; 0: there is none. `None`: the place that was published is unreadable. Both
/// words are read through the walk, so that they are in its log, and a cached walk is invalid when they change.
fn innermost(view: &View) -> Option<u64> {
    let Some(slot) = SLOTS.find(view.thread_pointer) else { return Some(0) };
    match word(view, slot.published_at())? {
        0 => Some(0),
        head => word(view, head),
    }
}

/// The first record after `from` whose activation lies in the current frame, and its address.
fn look_ahead(view: &View, from: &FrameRecord) -> Option<(u64, FrameRecord)> {
    let mut address = from.outer;
    for _ in 0..LOOK_AHEAD {
        let record = read(view, address).filter(|_| address != 0)?;
        if (view.sp..view.cfa).contains(&record.activation) {
            return Some((address, record));
        }
        address = record.outer;
    }
    None
}

/// The word at a process address.
fn word(view: &View, address: u64) -> Option<u64> {
    let mut word = 0;
    // SAFETY: the host's function, called with the walk of this call and a place for a word.
    unsafe { ((*view.host).read_word)(view.walk, address, &raw mut word) }.then_some(word)
}

/// The record at a process address (`struct uu_frame_record` of `uu.h`).
fn read(view: &View, address: u64) -> Option<FrameRecord> {
    let last = word(view, address.wrapping_add(16))?;
    Some(FrameRecord {
        outer: word(view, address)?,
        activation: word(view, address.wrapping_add(8))?,
        name: last as u32,
        line: (last >> 32) as u32,
    })
}

/// The recording's name id of an interned name; 0: it has none.
fn name(view: &View, id: u32) -> u32 {
    let Some(name) = NAMES.get(id) else { return 0 };
    let code = core::ptr::from_ref(name) as u64;
    let text = |(address, len): (u64, u32)| Text { address, len, width: 1, utf8: 1 };
    // SAFETY: the host's functions, called with the walk of this call.
    unsafe {
        let found = ((*view.host).find_name)(view.walk, code, u64::from(id));
        if found != 0 {
            return found;
        }
        let description = Description {
            code,
            fingerprint: u64::from(id),
            name: text(name.function),
            file: text(name.file),
            table: Text { address: 0, len: 0, width: 1, utf8: 0 },
            first_line: name.first_line,
            table_kind: TABLE_NONE,
        };
        ((*view.host).describe)(view.walk, &raw const description)
    }
}
