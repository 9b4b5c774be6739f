//! Calls on another stack, whose unwind data finds the CFA there: gcc's split stacks (`__morestack`), assembly that
//! runs a function on a stack of its own. Within one stack a CFA lies above the stack pointer; of two stacks, either
//! may lie above the other.
//!
//! A CFA below the stack pointer is also what a wrong rule gives, or a register that was overwritten. So the step is
//! taken only where the code itself proves a switch: the function has loaded the stack pointer from elsewhere, and the
//! word that is to be the return address follows a call that leads to it.

use super::{Env, Setting, Walk};
use crate::call_site;
use crate::cursor::Cursor;
use crate::regs::SP;
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER};
use crate::span::Span;
use crate::stop_reason::StopReason;

/// Limit of such switches in one walk.
const MOST_SWITCHES: u32 = 16384;
/// Limit of the code before the pc that is looked through for a switch, in bytes.
const LOOKED_THROUGH: u64 = 1024;

/// The switches of a walk, among whose places none may come twice: that of one number of them is kept, which is doubled
/// each time that it is reached (Brent's algorithm), so that no cycle goes unseen for long.
#[derive(Clone, Copy, Default)]
pub(super) struct Switches {
    count: u32,
    kept: (u64, u64),
}

impl Switches {
    /// Counts a switch that leads to this pc and stack pointer, unless it has led there before, or there are too many.
    fn count(&mut self, place: (u64, u64)) -> Result<(), StopReason> {
        if self.count > 0 && self.kept == place {
            return Err(StopReason::BadCfa);
        }
        self.count += 1;
        if self.count > MOST_SWITCHES {
            return Err(StopReason::TooManyFrames);
        }
        if self.count.is_power_of_two() {
            self.kept = place;
        }
        Ok(())
    }
}

/// How a call leads to a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Called {
    /// The call names it, or what has jumped or called on to it at once.
    ByName,
    /// The call's target is in a register, or in memory.
    ByPointer,
    /// It names another function, or there is no call.
    No,
}

impl<E: Env> Walk<'_, '_, E> {
    /// Moves the cursor to the caller on a stack that lies below the current one, if the frame's code proves that it
    /// has switched stacks. After an error the cursor is as it was.
    #[cold]
    #[inline(never)]
    pub(super) fn go_to_lower_stack(
        &mut self,
        rule: Packed,
        cursor: &mut Cursor,
        cfa: u64,
        setting: &Setting,
    ) -> Result<(), StopReason> {
        let counts_from_another = match rule.kind() {
            RuleKind::Offset => rule.cfa_parts().0 != SP,
            RuleKind::Deref => true,
            _ => false,
        };
        let by_data = rule.flags() & (BY_FRAME_POINTER | RA_IN_REGISTER) == 0 && !rule.leads_to_another_stack();
        if !(counts_from_another && by_data) || cfa >= cursor.regs.sp() || cfa & 7 != 0 {
            return Err(StopReason::BadCfa);
        }
        let lookup = cursor.lookup_pc();
        let was = self.reader.pause(true);
        let function = self.env.function_at(lookup, self.reader).filter(|function| function.contains(lookup));
        let code = function.map(|it| Span::new(it.start.max(lookup.saturating_sub(LOOKED_THROUGH)), lookup));
        let switches = code.is_some_and(|code| call_site::loads_stack_pointer(code, self.reader));
        self.reader.pause(was);
        let Some(function) = function.filter(|_| switches) else { return Err(StopReason::BadCfa) };
        let mut caller = *cursor;
        rule.advance(&mut caller, cfa, self.reader)?;
        if caller.regs.pc == 0 {
            return Err(StopReason::NullReturnAddress);
        }
        let is_called = match self.how_called(function, caller.regs.pc, cfa) {
            Called::ByName => true,
            // Within one stack, nothing but a call by name proves a switch. And the function's own calls through
            // pointers lead to what it runs, not to itself.
            Called::ByPointer => {
                let mut is_own = |sp| self.env.is_on_own_stack(sp, setting.thread_pointer, self.reader);
                let is_itself = function.contains(caller.regs.pc.wrapping_sub(1));
                !(is_itself || is_own(cursor.regs.sp()) && is_own(cfa))
            }
            Called::No => false,
        };
        if !is_called {
            return Err(StopReason::BadCfa);
        }
        let counted = self.switches.count((caller.regs.pc, cfa));
        if let (Err(_), Some(log)) = (counted, &mut self.log) {
            // It depends on the frames before.
            log.is_not_kept();
        }
        counted?;
        *cursor = caller;
        Ok(())
    }

    /// How the call before `return_address`, which a frame of `function` with this CFA returns to, leads to it.
    fn how_called(&mut self, function: Span, return_address: u64, cfa: u64) -> Called {
        if !call_site::precedes(return_address, self.reader) {
            return Called::No;
        }
        let Some(target) = call_site::fixed_target(return_address, self.reader) else { return Called::ByPointer };
        if function.contains(target) {
            return Called::ByName;
        }
        // A split stack's function calls `__morestack` before all else, which takes it for its own caller: that call's
        // return address lies just below.
        let from = self.reader.word(cfa.wrapping_sub(16));
        let was = self.reader.pause(true);
        let named = self.env.function_at(target, self.reader);
        let by_name = named.is_some_and(|named| {
            let calls = from.filter(|from| named.contains(from.wrapping_sub(1)));
            let target = calls.and_then(|from| call_site::fixed_target(from, self.reader));
            target.is_some_and(|target| function.contains(target))
                || call_site::jumps(Span::sized(named.start, named.len().min(LOOKED_THROUGH)), function, self.reader)
        });
        self.reader.pause(was);
        if by_name {
            Called::ByName
        } else {
            Called::No
        }
    }
}
