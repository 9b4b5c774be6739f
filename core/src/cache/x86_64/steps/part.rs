//! What unwinding by short rules hands on to the walk, where it comes to a frame that it cannot step.

use super::{At, Step, WalkSteps};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::RSP;
use crate::stop_reason::StopReason;
use crate::walk::Saved;

/// The result of [`super::StepCache::unwind`].
pub enum Unwound<'c> {
    /// The stack up to its end or that of the buffer: the number of words, and the reason why they end.
    Whole(usize, StopReason),
    /// Its inner frames, where a frame comes that no short rule describes, or whose return address needs a judgement.
    Part(Part<'c>),
    /// No frame: the contents of the buffer are undefined.
    Nothing,
}

/// The inner frames of a stack, up to the first one that is not plain, which is the current frame. Their words are in
/// the buffer.
pub struct Part<'c> {
    /// The number of words, and of frames.
    pub count: usize,
    /// The log of the steps, for the walk to continue and for the capture to finish ([`WalkSteps::finish`]).
    pub steps: WalkSteps<'c>,
    /// The step from the frame with an exact pc, which precedes the log.
    pub(super) exact: Option<Step>,
    /// Where registers are, and the current frame, if it lies beyond the log's room.
    pub(super) beyond: Option<(Saved, At)>,
}

impl Part<'_> {
    /// Whether the log leads to the current frame, so that the walk can continue it.
    pub(crate) fn is_logged(&self) -> bool {
        self.beyond.is_none()
    }

    /// Moves a cursor from the stack's first frame to the current one.
    pub(crate) fn go(&self, cursor: &mut Cursor, reader: &mut Reader<'_>) {
        let mut saved = Saved::new();
        if let Some(step) = &self.exact {
            saved.pass(core::slice::from_ref(step), step.rule.word());
            saved.load(&mut cursor.regs, reader);
            saved = Saved::new();
        }
        cursor.exact = false;
        let at = match &self.beyond {
            Some((beyond, at)) => {
                beyond.load(&mut cursor.regs, reader);
                Some(*at)
            }
            None => {
                saved.pass(self.steps.run(), u64::MAX);
                saved.load(&mut cursor.regs, reader);
                self.steps.here()
            }
        };
        if let Some(At { pc, sp }) = at {
            cursor.regs.pc = pc;
            cursor.regs.set(RSP, sp);
        }
        cursor.regs.keep_callee_saved();
    }
}
