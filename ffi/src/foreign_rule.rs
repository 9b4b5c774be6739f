//! Rules by functions that are not ours: a plugin's `rule`, asked once for a pc.

use core::ffi::c_void;
use uunwind_core::cursor::Cursor;
use uunwind_core::plugin::{CRule, GiveRule, View};
use uunwind_core::recovery::Protector;
use uunwind_core::rule::Rule;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Claim;

struct Question {
    give: GiveRule,
    view: View,
    rule: CRule,
    answer: u32,
}

unsafe extern "C" fn put(question: *mut c_void) {
    // SAFETY: `ask` passes its question.
    unsafe {
        let question = question.cast::<Question>();
        (*question).answer = ((*question).give)(&raw mut (*question).view, &raw mut (*question).rule);
    }
}

/// The function's rule for the frame in hand; `None`: it has none. `Err`: the call failed, or the answer is nonsense. The view
/// has no host functions and no registers: an answer may depend on the pc, the facts and the user pointer only.
#[inline(never)]
pub fn ask(give: GiveRule, claim: &Claim, cursor: &Cursor, protector: Protector) -> Result<Option<Rule>, StopReason> {
    let view = View {
        exact: u32::from(cursor.exact),
        pc: cursor.regs.pc,
        sp: cursor.regs.sp(),
        plugin: u32::from(claim.index),
        facts: claim.facts,
        facts_len: claim.facts_len,
        bias: claim.bias,
        range_start: claim.range.0,
        range_end: claim.range.1,
        generation: claim.generation,
        user: claim.user,
        ..View::new()
    };
    let mut question = Question { give, view, rule: CRule::simple(0, 0), answer: 0 };
    // SAFETY: the function was negotiated or registered; it may be left at any instruction, since it can have changed nothing
    // but the question.
    unsafe { protector.call(put, (&raw mut question).cast()) }?;
    match question.answer {
        0 => Ok(None),
        1 => question.rule.to_rule().map(Some).ok_or(StopReason::PluginNonsense),
        _ => Err(StopReason::PluginNonsense),
    }
}
