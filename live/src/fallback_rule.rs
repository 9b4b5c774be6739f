//! The rule of a frame whose address no unwind data describes: it lies in unowned memory, in a part of an object that
//! is not executable, or in a function without unwind data.

use crate::env::{by_frame_pointer, by_proof};
use crate::skipped::{Place, Surroundings, NEAR};
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::SP;
use uunwind_core::rule::{Packed, Rule, BY_FRAME_POINTER};
use uunwind_core::stop_reason::StopReason;

/// The rule of a frame in unowned memory: unregistered code, data, or nothing mapped.
///
/// A return address there must follow a call. For an interrupted pc, the word at the stack pointer is the return
/// address if it follows a call whose target is the pc. If the pc is unreadable, any call will do, since no instruction
/// can have moved the stack pointer after the call. All others are stepped by the frame pointer.
#[cold]
#[inline(never)]
pub fn unowned(cursor: &Cursor, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Packed {
    if !cursor.exact {
        if !call_site::precedes(cursor.regs.pc, reader) {
            return Packed::failed(StopReason::NotCode);
        }
        return by_frame_pointer(cursor, StopReason::NoOwner, places, reader);
    }
    let was = reader.pause(true);
    let readable = reader.u8(cursor.regs.pc).is_some();
    reader.pause(was);
    let called =
        if readable { called_from(cursor, reader, Proof::Target) } else { called_from(cursor, reader, Proof::Call) };
    called.unwrap_or_else(|| by_frame_pointer(cursor, StopReason::NoOwner, places, reader))
}

/// The rule of a frame whose pc lies in a part of an object that is not executable.
#[cold]
#[inline(never)]
pub fn in_data(cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
    let called = if cursor.exact { called_from(cursor, reader, Proof::Call) } else { None };
    called.unwrap_or(Packed::failed(StopReason::NotCode))
}

/// The rule of a frame in a function of an object that has no unwind data. The word at the stack pointer is the return
/// address of an interrupted pc if it follows a call whose target is the pc; or, in a function that has pushed nothing,
/// if it lies in a function that is described, after a call to less than `NEAR` bytes before the pc. (In code that is
/// not described, it may be left of an earlier call.) All others are stepped by the frame pointer.
#[cold]
#[inline(never)]
pub fn undescribed(cursor: &Cursor, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Packed {
    let called = called_nearby(cursor, places, reader);
    called.unwrap_or_else(|| by_frame_pointer(cursor, StopReason::NoRule, places, reader))
}

/// The rule of a frame in a function that unwind data describes by what no rule can hold, for this reason. Only a
/// caller that is proved counts: the frame pointer of such a function may be any value.
#[cold]
#[inline(never)]
pub fn described(cursor: &Cursor, reason: Packed, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Packed {
    let called = called_nearby(cursor, places, reader);
    called.or_else(|| by_proof(cursor, places, reader)).unwrap_or(reason)
}

fn called_nearby(cursor: &Cursor, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Option<Packed> {
    let mut is_near = |caller: u64, reader: &mut Reader<'_>| {
        call_site::leads_near(caller, &cursor.regs, NEAR, reader)
            && places.place(caller.wrapping_sub(1), reader) == Place::Described
    };
    if cursor.exact {
        called_from(cursor, reader, Proof::TargetOr(&mut is_near))
    } else {
        None
    }
}

/// The condition under which a word counts as the return address of the call that led to the pc.
enum Proof<'p> {
    /// It follows a call.
    Call,
    /// It follows a call whose target is the pc.
    Target,
    /// The same, or this is true of it.
    TargetOr(&'p mut dyn FnMut(u64, &mut Reader<'_>) -> bool),
}

/// The rule of an address that was called, and at which nothing was executed: the return address is the word at the
/// stack pointer; the frame pointer is the caller's, unless that one has pointed it to a frame for its callee. The
/// caller is marked like one that a frame pointer led to.
#[cfg(target_arch = "x86_64")]
fn called_from(cursor: &Cursor, reader: &mut Reader<'_>, proof: Proof<'_>) -> Option<Packed> {
    let caller = reader.word(cursor.regs.sp())?;
    let proved = match proof {
        Proof::Call => call_site::precedes(caller, reader),
        Proof::Target => call_site::leads_to(caller, &cursor.regs, reader),
        Proof::TargetOr(is_near) => call_site::leads_to(caller, &cursor.regs, reader) || is_near(caller, reader),
    };
    let rule = proved.then(|| crate::built_by_caller::rule(cursor, reader).unwrap_or(Rule::simple(SP, 8)))?;
    Some(Rule { flags: BY_FRAME_POINTER, ..rule }.pack())
}

/// The rule of an address that was called, and at which nothing was executed: the return address is in x30. The caller
/// is marked like one that a frame pointer led to.
#[cfg(target_arch = "aarch64")]
fn called_from(cursor: &Cursor, reader: &mut Reader<'_>, proof: Proof<'_>) -> Option<Packed> {
    use uunwind_core::regs::RA;
    use uunwind_core::rule::{RA_IN_REGISTER, RA_SLOT};
    let caller = cursor.regs.get(RA)?;
    let proved = match proof {
        Proof::Call => call_site::precedes(caller, reader),
        Proof::Target => call_site::leads_to(caller, &cursor.regs, reader),
        Proof::TargetOr(is_near) => call_site::leads_to(caller, &cursor.regs, reader) || is_near(caller, reader),
    };
    let mut rule = Rule { flags: BY_FRAME_POINTER | RA_IN_REGISTER, ..Rule::simple(SP, 0) };
    rule.slots[RA_SLOT] = i16::from(RA);
    proved.then(|| rule.pack())
}
