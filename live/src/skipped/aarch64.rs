//! AArch64: a call leaves its return address in x30, which a leaf does not store.

use super::{Passed, Place, Surroundings, NEAR};
use uunwind_core::call_site::{any_target, Target};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::RA;

/// A function that has called has its own address in x30. Another one's there, after a call that may have led to the
/// interrupted pc, is that of a caller which the frame pointer skips, unless it is the one that it leads to.
pub(super) fn look(cursor: &Cursor, fp: Option<u64>, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Passed {
    let (Some(fp), Some(caller)) = (fp, cursor.regs.get(RA).filter(|_| cursor.exact)) else { return Passed::Nothing };
    let pc = cursor.regs.pc;
    let is_near = pc.wrapping_add(NEAR).wrapping_sub(caller) < 2 * NEAR;
    if is_near || reader.word(fp.wrapping_add(8)) == Some(caller) || places.place(caller, reader) == Place::Data {
        return Passed::Nothing;
    }
    let may_lead_here = any_target(caller, &cursor.regs, reader, |target, reader| match target {
        Target::At(start) => !matches!(places.place(start, reader), Place::Described | Place::Data),
        Target::In(_) | Target::Perhaps(_) => true,
    });
    if may_lead_here {
        Passed::Doubt
    } else {
        Passed::Nothing
    }
}
