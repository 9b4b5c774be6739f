//! AArch64 has no short rules so far, so every frame is the general loop's.

use super::{Env, Walk, SAME_AS_LAST};
use crate::cursor::Cursor;
use crate::regs::FP;
use crate::stop_reason::StopReason;

impl<E: Env> Walk<'_, '_, E> {
    /// Walks as long as frames are plain: not at all. An error: the walk is over.
    pub(super) fn run_plain(&mut self, cursor: &mut Cursor) -> Result<(), StopReason> {
        cursor.regs.keep_callee_saved();
        let fp = cursor.regs.get(FP);
        if self.is_known(cursor.regs.pc, cursor.regs.sp(), false, false) && self.same_from_here(|_| fp) {
            return Err(SAME_AS_LAST);
        }
        Ok(())
    }
}
