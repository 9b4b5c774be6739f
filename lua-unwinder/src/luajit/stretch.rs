//! A stretch of frames of the usual kind: Lua functions that were called by instructions of Lua functions, and whose
//! answers are cached.
//!
//! Most of a deep stack is of this kind. This loop only reads words, checks them and looks answers up. It ends before a
//! frame of another kind, which [`super::frames`] handles.

use super::frames::{base_below, Frame, LUA};
use super::name::Called;
use super::proto::CodePosition;
use super::state::{function, Thread};
use super::Vm;
use crate::points::STRIDE;
use uunwind_core::memory::near::Near;

/// What a stretch has emitted.
pub struct Passed {
    /// Number of functions.
    pub emitted: u64,
    /// The walk's stack is full.
    pub full: bool,
}

/// The two words below a frame's base.
struct Links {
    /// Address of the function object.
    object: u64,
    link: u64,
}

/// Emits functions from `frame` on, at most `most`. `frame` is then the first that was not emitted.
#[inline(never)]
pub fn emit(vm: &Vm<'_>, thread: &Thread, frame: &mut Frame, most: usize) -> Passed {
    let mut frames = [[0; 2]; STRIDE as usize];
    // SAFETY: only the stretch uses the guest until it has dropped the reader.
    let emitted = match unsafe { vm.guest.near() } {
        Some(near) => cached(near, vm, thread, frame, frames.get_mut(..most).unwrap_or_default()),
        None => 0,
    };
    let full = emitted > 0 && !vm.guest.emit_all(frames.get(..emitted).unwrap_or_default());
    Passed { emitted: emitted as u64, full }
}

/// Fills `frames` with the cached answers of functions from `frame` on, and returns their number. `frame` is then the
/// first function that follows.
#[inline(always)]
fn cached(mut near: Near<'_>, vm: &Vm<'_>, thread: &Thread, frame: &mut Frame, frames: &mut [[u64; 2]]) -> usize {
    let mut emitted = 0;
    let Some(mut links) = links(&mut near, thread, frame.base) else { return emitted };
    for room in frames {
        let Some(caller) = caller(&mut near, thread, frame.base, links.link) else { break };
        let Some(below) = self::links(&mut near, thread, caller.base) else { break };
        let called = Called { object: links.object, caller: below.object };
        let Some(key) = called.key(vm, frame.place, caller.place) else { break };
        let Some(answer) = near.recall(key) else { break };
        *room = answer;
        emitted += 1;
        (*frame, links) = (caller, below);
    }
    emitted
}

/// The caller's frame of the function with this base and link, if an instruction called it.
#[inline(always)]
fn caller(near: &mut Near<'_>, thread: &Thread, base: u64, link: u64) -> Option<Frame> {
    if link & 3 != LUA {
        return None;
    }
    let call = link.wrapping_sub(4);
    let [word] = near.words(call & !7, [0])?;
    let below = base_below(base, (word >> ((call & 7) * 8)) as u32);
    let holds = below < base && thread.holds(below);
    holds.then_some(Frame { base: below, place: CodePosition::After(link) })
}

/// The function and the link of the frame with this base. `None`: there is no function.
#[inline(always)]
fn links(near: &mut Near<'_>, thread: &Thread, base: u64) -> Option<Links> {
    // The lowest frame holds the thread itself, not a function.
    if base <= thread.stack.wrapping_add(16) {
        return None;
    }
    let [value, link] = near.words(base.wrapping_sub(16), [0, 8])?;
    Some(Links { object: function(value)?, link })
}
