//! A frame of compiled code. It has a fixed size, and rbp may hold anything. Where the method is entered or left, the
//! instructions to come say where the return address is (`ahead`): in the whole of the code, where they can be
//! followed, and they have to agree with the size
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/cpu/x86/frame_x86.inline.hpp>,
//! `frame::sender_for_compiled_frame`).

use crate::ahead::{self, Ahead, Base, End};
use crate::code::{Blob, Java, Kind};
use crate::instruction::RBP;
use crate::step::{at, register, Outer};

/// Bytes after the entry for on-stack replacement in which a frame may be made.
const ENTRY: u64 = 48;
/// Limit of what is pushed for a moment, in bytes: registers that are kept across a call.
const PUSHED: i32 = 4096;

/// The caller of a frame, by its size. `raised`: bytes that the stack pointer is below the frame's.
pub fn by_size(java: &Java<'_, '_>, blob: &Blob, raised: u64) -> Option<Outer> {
    if blob.frame_words < 2 {
        return None;
    }
    let sp = java.guest.view().sp.checked_add(raised)?.checked_add(8 * blob.frame_words)?;
    let mut links = [0; 2];
    if !java.guest.run(sp.checked_sub(16)?, &mut links) {
        return None;
    }
    let [frame, pc] = links;
    Some(Outer { pc, sp, frame: Some(frame), restored: true })
}

/// Where the code of a blob ends, and its handlers begin.
fn stubs(java: &Java<'_, '_>, blob: &Blob) -> Option<u64> {
    match blob.kind {
        Kind::Method => java.place(blob.address, blob.code, java.facts.nmethod_stubs),
        _ => Some(blob.end),
    }
}

/// The caller of a compiled method's frame. `None`: it is not known. `lowered`: see [`lowered`].
pub fn outer(java: &Java<'_, '_>, blob: &Blob, lowered: u64) -> Option<Outer> {
    match java.guest.exact() {
        true => interrupted(java, blob),
        false => by_size(java, blob, lowered),
    }
}

/// The caller of a frame that is interrupted anywhere.
#[inline(never)]
fn interrupted(java: &Java<'_, '_>, blob: &Blob) -> Option<Outer> {
    let pc = java.guest.view().pc;
    let stubs = stubs(java, blob)?;
    // Handlers and the like, which are entered in many ways.
    if pc >= stubs {
        return None;
    }
    let code = ahead::Code { start: blob.code, end: stubs, until: 0, until_frame: false, over: false };
    let ahead = ahead::from(java.guest, &code, pc);
    let complete = blob.complete?;
    match proven(java, blob, &ahead) {
        Answer::Outer(outer) => return Some(outer),
        Answer::Wrong => return None,
        Answer::No => {}
    }
    if pc < complete {
        return entering(java, blob, &ahead::Code { until: complete, ..code });
    }
    if blob.kind == Kind::Method {
        let osr = java.place(blob.address, blob.code, java.facts.nmethod_osr).unwrap_or(0);
        let in_entry = osr != 0 && osr <= pc && pc < osr.wrapping_add(ENTRY);
        if in_entry && (ahead.saves_frame || ahead.enters) {
            return None;
        }
    }
    by_size(java, blob, raised(blob, &ahead)?)
}

enum Answer {
    /// The caller.
    Outer(Outer),
    /// The instructions and the frame's size disagree.
    Wrong,
    /// The instructions do not show it.
    No,
}

/// What the instructions to come show.
#[inline(never)]
fn proven(java: &Java<'_, '_>, blob: &Blob, ahead: &Ahead) -> Answer {
    let torn_down = ahead.frame.is_some() || ahead.leaves;
    let returns = match ahead.end {
        End::Return => true,
        // What a call that does not return is followed by may be other code's.
        End::JumpOut => torn_down || !ahead.calls,
        End::Jump | End::PopJump(_) => torn_down && !ahead.calls,
        End::Reached | End::Unknown => false,
    };
    if !returns {
        return Answer::No;
    }
    let guest = java.guest;
    let (sp, view_sp) = (at(guest, ahead.sp), guest.view().sp);
    let Some(above) = sp.and_then(|sp| i64::try_from(sp.checked_sub(view_sp)?).ok()) else {
        return if ahead.calls { Answer::No } else { Answer::Wrong };
    };
    // Bytes from the stack pointer of the whole frame to the return address.
    let whole = 8 * blob.frame_words as i64 - 8;
    let is_whole = above >= whole && above - whole <= PUSHED.into();
    let is_part = (0..=whole.saturating_add(PUSHED.into())).contains(&above);
    // A call may be one that does not return, and what follows it other code's.
    if ahead.calls && !is_whole {
        return Answer::No;
    }
    if !is_part {
        return Answer::Wrong;
    }
    outer_at(java, ahead, above).map_or(Answer::Wrong, Answer::Outer)
}

/// The caller, whose return address is at this distance from the stack pointer.
fn outer_at(java: &Java<'_, '_>, ahead: &Ahead, above: i64) -> Option<Outer> {
    let guest = java.guest;
    let address = guest.view().sp.checked_add_signed(above)?;
    let pc = guest.word(address)?;
    let popped = match ahead.frame {
        // It is pushed or stored first.
        Some((Base::Sp, from)) if from < 0 || ahead.stored_at == Some(from) => None,
        Some(from) => Some(guest.word(at(guest, from)?)?),
        None => None,
    };
    let frame = popped.or_else(|| register(guest, RBP));
    Some(Outer { pc, sp: address.checked_add(8)?, frame, restored: popped.is_some() })
}

/// The caller while the frame is being made.
#[inline(never)]
fn entering(java: &Java<'_, '_>, blob: &Blob, code: &ahead::Code) -> Option<Outer> {
    let guest = java.guest;
    let ahead = ahead::from(guest, code, guest.view().pc);
    let (Base::Sp, lowered) = ahead.sp else { return None };
    if ahead.end != End::Reached || lowered > 0 {
        return None;
    }
    let above = i64::from(lowered).checked_add(8 * i64::try_from(blob.frame_words).ok()?)?.checked_sub(8)?;
    let address = guest.view().sp.checked_add_signed(above).filter(|_| above >= 0)?;
    let pc = guest.word(address)?;
    let is_saved = !ahead.saves_frame && ahead.stored_at.is_none() && above >= 8;
    let frame = match is_saved {
        true => Some(guest.word(address.checked_sub(8)?)?),
        false => register(guest, RBP),
    };
    Some(Outer { pc, sp: address.checked_add(8)?, frame, restored: is_saved })
}

/// Bytes that the stack pointer is below the frame's, by what gives them back. `None`: that cannot be said.
fn raised(blob: &Blob, ahead: &Ahead) -> Option<u64> {
    let whole = 8 * i32::try_from(blob.frame_words).ok()? - 8;
    let before_call = if ahead.calls { ahead.highest } else { -1 };
    let bytes = match (ahead.end, ahead.sp) {
        (End::Return, (Base::Sp, above)) => match above.saturating_sub(whole) {
            bytes @ 0..=PUSHED => bytes,
            // What follows a call that does not return may be other code's.
            _ => before_call,
        },
        (End::Return, _) => 0,
        _ if ahead.frame.is_some() => before_call,
        // This may be the frame itself, and not what was pushed.
        _ if ahead.peak > 0 && ahead.peak >= whole - 8 => return None,
        _ => ahead.peak,
    };
    u64::try_from(bytes).ok().filter(|_| bytes <= PUSHED)
}

/// Likewise, at a return address; 0 where none is. It follows from the code alone, and is kept.
#[inline(never)]
pub fn lowered(java: &Java<'_, '_>, blob: &Blob) -> Option<u64> {
    let view = java.guest.view();
    if java.guest.exact() {
        return Some(0);
    }
    let key = [view.pc, 2, blob.address, view.facts as u64, view.bias];
    if let Some([bytes, _]) = java.guest.recall(&key) {
        return Some(bytes);
    }
    let stubs = stubs(java, blob)?;
    // Calls from handlers go on in other code.
    if view.pc >= stubs {
        return Some(0);
    }
    let code = ahead::Code { start: blob.code, end: stubs, until: 0, until_frame: false, over: false };
    let ahead = ahead::from(java.guest, &code, view.pc);
    // Where the return is not come to, nothing has to agree with what was given back.
    let proven = if ahead.end == End::Return { raised(blob, &ahead) } else { None };
    let bytes = proven.unwrap_or_else(|| pops_after(java, view.pc));
    java.guest.remember(&key, &[bytes, 0]);
    Some(bytes)
}

/// Bytes that the first instructions at a return address pop.
fn pops_after(java: &Java<'_, '_>, pc: u64) -> u64 {
    let mut bytes = [0; 4];
    if !java.guest.bytes(pc, &mut bytes) {
        return 0;
    }
    let (mut rest, mut popped) = (&bytes[..], 0u64);
    while popped < 32 {
        rest = match rest {
            [0x41, 0x58..=0x5f, more @ ..] => more,
            // Not rbp, which ends a frame.
            [0x58..=0x5c | 0x5e | 0x5f, more @ ..] => more,
            _ => break,
        };
        popped = popped.wrapping_add(8);
    }
    popped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::NOTHING;

    /// Where the code is not followed to its return, what gives back as much as the frame has may be its end.
    #[test]
    fn the_end_of_a_frame_is_not_taken_for_what_was_pushed() {
        let blob = Blob { address: 0, kind: Kind::Method, code: 0, end: 0, frame_words: 10, complete: Some(0) };
        let bytes = |end, sp, peak, frame| raised(&blob, &Ahead { end, sp: (Base::Sp, sp), peak, frame, ..NOTHING });
        for end in [End::Unknown, End::JumpOut, End::Jump] {
            assert_eq!(bytes(end, 64, 64, None), None, "{end:?}: add $64,%rsp, and no pop of rbp yet");
            assert_eq!(bytes(end, 72, 72, Some((Base::Sp, 64))), None, "{end:?}: rbp is popped");
            assert_eq!(bytes(end, 0, 0, None), Some(0));
            assert_eq!(bytes(end, 0, 16, None), Some(16), "{end:?}: two registers that were pushed");
        }
        assert_eq!(bytes(End::Return, 72, 72, Some((Base::Sp, 64))), Some(0));
        assert_eq!(bytes(End::Return, 88, 88, Some((Base::Sp, 80))), Some(16));
    }
}
