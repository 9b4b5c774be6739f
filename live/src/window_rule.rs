//! Rules of frames in windows, from each kind of unwind data.

use crate::at_return;
use crate::env::rule_by_guaranteed_frame_pointer;
use crate::skipped::Surroundings;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::CRule;
use uunwind_core::recovery::{Call, Protector};
use uunwind_core::registry::functions;
use uunwind_core::registry::window::{Kind, Window, NO_UNWIND};
use uunwind_core::rule::{Rule, BY_FRAME_POINTER};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_sframe::Section;

/// Why there is no rule.
pub enum Missing {
    /// The window's data has no rule for this pc, for this reason.
    NoRule(StopReason),
    /// A call of a function of the window failed, for this reason.
    Failed(StopReason),
}

impl From<StopReason> for Missing {
    fn from(reason: StopReason) -> Missing {
        Missing::NoRule(reason)
    }
}

/// The rule of the current frame by its window's data. `protector`: how the window's functions are called; `None`: they
/// must not be.
///
/// The rule is a pure function of the pc, with two exceptions: functions may be added to a growing window later, and
/// for [`Kind::FramePointer`] the registers and the stack decide, too.
pub fn find(
    window: &Window,
    cursor: &Cursor,
    places: &mut dyn Surroundings,
    reader: &mut Reader<'_>,
    protector: Option<Protector>,
) -> Result<Rule, Missing> {
    match window.kind {
        Kind::Opaque => Err(StopReason::OpaqueWindow.into()),
        // The registrar guarantees frame pointers, so the caller is not marked as found by a guess.
        Kind::FramePointer => {
            let rule = rule_by_guaranteed_frame_pointer(cursor, places, reader)?;
            Ok(Rule { flags: rule.flags & !BY_FRAME_POINTER, ..rule })
        }
        Kind::EhFrame => by_eh_frame(window, cursor, reader),
        Kind::Rule => match protector {
            Some(protector) => {
                ask(window, cursor.lookup_pc(), protector).map_err(Missing::Failed)?.ok_or(StopReason::NoRule.into())
            }
            None => Err(StopReason::NoRule.into()),
        },
        Kind::SFrame => {
            let section = Span::sized(window.unwind, window.unwind_len);
            let section = Section::new(section, Span::new(window.start, window.end));
            Ok(uunwind_sframe::find(&section, cursor.lookup_pc(), reader)?.rule?)
        }
        // A frame that the stepper leaves to the core is stepped by its frame pointer, if it has one.
        Kind::Stepper => Err(StopReason::NoRule.into()),
        // The rules made from its code are not the window's.
        Kind::Code => Err(StopReason::NoRule.into()),
    }
}

fn by_eh_frame(window: &Window, cursor: &Cursor, reader: &mut Reader<'_>) -> Result<Rule, Missing> {
    if let Some(rule) = at_return::rule(cursor, reader) {
        return Ok(rule);
    }
    let lookup = cursor.lookup_pc();
    let bounds = Span::new(window.unwind, window.unwind.wrapping_add(window.unwind_len));
    let answer = if window.functions == 0 {
        uunwind_eh_frame::find_in_list(bounds, lookup, cursor.regs.pc, reader)
    } else {
        let function = functions::find(window, lookup, reader).ok_or(StopReason::NoRule)?;
        if function.unwind == NO_UNWIND {
            return Err(StopReason::NoRule.into());
        }
        let fde = window.unwind.wrapping_add(u64::from(function.unwind));
        uunwind_eh_frame::find_at(fde, bounds, lookup, cursor.regs.pc, reader)
    };
    Ok(answer?.rule?)
}

/// The rule that the window's callback gives for a pc. `None`: it has none.
#[inline(never)]
fn ask(window: &Window, pc: u64, protector: Protector) -> Result<Option<Rule>, StopReason> {
    if window.callback == 0 {
        return Ok(None);
    }
    let mut rule = CRule::simple(0, 0);
    let call = Call::new(window.callback as usize, [window.user, pc, (&raw mut rule) as u64]);
    // SAFETY: `uu_register_window` stored a `GiveRule`. It may be abandoned at any instruction: it changes nothing but
    // `rule`.
    match unsafe { protector.call(&call) }? as u32 {
        0 => Ok(None),
        1 => rule.to_rule().map(Some).ok_or(StopReason::PluginNonsense),
        _ => Err(StopReason::PluginNonsense),
    }
}
