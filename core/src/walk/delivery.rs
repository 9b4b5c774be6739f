//! Exceptions in delivery: the frame of the function that delivers one has two callers. It was called by the function
//! that throws; it will not return there, but go on in the frame that catches the exception, or cleans up.

use super::{Env, Walk};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::FP;
use crate::rule::BY_FRAME_POINTER;

/// Which caller of a function that delivers an exception is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The frame that called it. The values of callee-saved registers that it has overwritten are unknown.
    Thrower,
    /// The frame that it is about to go on in.
    Target,
}

/// Limit of the frames between the two that are looked at.
const MOST_BETWEEN: u32 = 64;

impl<E: Env> Walk<'_, '_, E> {
    /// Moves the cursor from a frame in which an exception is delivered to its caller: to the one that threw, if its
    /// rules lead to the frame that the exception goes to, without a register that is unknown; else to that frame.
    /// False: neither is known.
    #[cold]
    #[inline(never)]
    pub(super) fn go_on_in_delivery(&mut self, cursor: &mut Cursor) -> bool {
        let was = self.reader.pause(true);
        let mut target = *cursor;
        let found = self.env.deliver(Delivery::Target, &mut target, self.reader);
        if found {
            if let Some(log) = &mut self.log {
                // Of what this follows from, nothing is logged.
                log.is_not_kept();
            }
            let at = (target.regs.pc, target.regs.sp());
            let may_be_thrower = !target.exact && self.env.deliver(Delivery::Thrower, cursor, self.reader);
            if !(may_be_thrower && leads_to(self.env, *cursor, at, self.reader)) {
                *cursor = target;
            }
        }
        self.reader.pause(was);
        found
    }
}

/// Whether the frames from `cursor` on lead to the pc and stack pointer `target`, each by its own rule.
fn leads_to<E: Env>(env: &mut E, mut cursor: Cursor, target: (u64, u64), reader: &mut Reader<'_>) -> bool {
    for _ in 0..MOST_BETWEEN {
        if cursor.regs.sp() >= target.1 {
            return (cursor.regs.pc, cursor.regs.sp()) == target;
        }
        let rule = env.rule(&cursor, reader);
        let stepped = rule.cfa(&cursor, reader).and_then(|cfa| super::advance(rule, &mut cursor, cfa, reader));
        if stepped.is_err() || rule.flags() & BY_FRAME_POINTER != 0 {
            return false;
        }
    }
    // Too far to see. Seldom does a rule need another register than this.
    cursor.regs.get(FP).is_some()
}
