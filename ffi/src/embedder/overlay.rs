//! The overlay of marked code: emits the frames that the native frame in hand hosts. Signal code.
//!
//! Each frame record names an address inside the native frame of the loop that runs it, its *activation*. So frames are not
//! counted: those whose activation lies in `[sp, CFA)` belong to the native frame in hand.

use super::names::NAMES;
use crate::state::SLOTS;
use core::mem::size_of;
use uunwind_core::plugin::{
    Description, FrameRecord, Text, View, Visit, NO_REGISTERS, OVERLAY_DESYNC, OVERLAY_INTERPRETER, TABLE_NONE,
};
use uunwind_core::walk::{Claim, EMBEDDER};

/// Most frames that one native frame hosts.
const MOST: u32 = 4096;
/// So far is looked for the frame in hand behind records that no native frame has had.
const LOOK_AHEAD: u32 = 64;

/// What a walk remembers from one marked frame to the next, in scratch memory; zero at its begin.
#[repr(C)]
struct State {
    begun: u64,
    /// The innermost record that no native frame has had.
    next: u64,
}

/// The claim of a marked frame.
pub fn claim(range: (u64, u64), generation: u64) -> Claim {
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
    // SAFETY: the walk's view, whose scratch memory is larger than a state and aligned, and nobody else's.
    let (view, state) = unsafe { (&*view, &mut *(*view).scratch.cast::<State>()) };
    if state.begun == 0 {
        state.begun = 1;
        state.next = innermost(view).unwrap_or(0);
    }
    let mut answer = OVERLAY_INTERPRETER;
    for emitted in 0..=MOST {
        if state.next == 0 {
            return answer;
        }
        let Some(mut record) = read(view, state.next) else { break };
        if record.activation < view.sp {
            // Nearer the leaf than this frame, and never shown; or on another stack, whose turn comes later.
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
        // SAFETY: the host's function, on this very walk.
        if !unsafe { ((*view.host).emit)(view.walk, name(view, record.name), u64::from(record.line)) } {
            return answer;
        }
        state.next = record.outer;
    }
    // The chain is broken, or never ends: what is further out cannot be told.
    state.next = 0;
    answer | OVERLAY_DESYNC
}

/// The thread's innermost record. Both words are read through the walk, so that reuse of a walk knows them.
fn innermost(view: &View) -> Option<u64> {
    let slot = SLOTS.find(view.thread_pointer)?;
    let head = word(view, slot.published_at()).filter(|head| *head != 0)?;
    word(view, head)
}

/// The first record behind this one whose activation is the frame in hand.
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

fn word(view: &View, address: u64) -> Option<u64> {
    let mut word = 0;
    // SAFETY: the host's function, on this very walk, with a place for a word.
    unsafe { ((*view.host).read_word)(view.walk, address, &raw mut word) }.then_some(word)
}

fn read(view: &View, address: u64) -> Option<FrameRecord> {
    let last = word(view, address.wrapping_add(16))?;
    Some(FrameRecord {
        outer: word(view, address)?,
        activation: word(view, address.wrapping_add(8))?,
        name: last as u32,
        line: (last >> 32) as u32,
    })
}

/// The walk's id of an interned name; 0 when it has none.
fn name(view: &View, id: u32) -> u32 {
    let Some(name) = NAMES.get(id) else { return 0 };
    let code = core::ptr::from_ref(name) as u64;
    let text = |(address, len): (u64, u32)| Text { address, len, width: 1, utf8: 1 };
    // SAFETY: the host's functions, on this very walk.
    unsafe {
        let known = ((*view.host).find_name)(view.walk, code, u64::from(id));
        if known != 0 {
            return known;
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
