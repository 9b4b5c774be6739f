//! Rules by a plugin's `rule` function, which is called once for each pc.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{CRule, GiveRule, View, READING_HOST};
use uunwind_core::recovery::{Call, Protector};
use uunwind_core::rule::Rule;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Claim;

/// The plugin's rule for the current frame; `None`: it has none.
///
/// The view has no registers, and its host's functions only read, because the rule is cached by pc: it may depend on
/// the pc, the facts, the user pointer, and memory that does not change while the object is loaded.
///
/// # Errors
/// The call failed, or its result is not a rule ([`StopReason::PluginNonsense`]).
#[inline(never)]
pub fn ask(
    give: GiveRule,
    claim: &Claim,
    cursor: &Cursor,
    reader: &mut Reader<'_>,
    protector: Protector,
) -> Result<Option<Rule>, StopReason> {
    let mut view = View::new();
    view.exact = u32::from(cursor.exact);
    view.pc = cursor.regs.pc;
    view.sp = cursor.regs.sp();
    view.plugin = u32::from(claim.index);
    view.facts = claim.facts;
    view.facts_len = claim.facts_len;
    view.bias = claim.bias;
    (view.range_start, view.range_end) = (claim.range.start, claim.range.end);
    view.generation = claim.generation;
    view.user = claim.user;
    view.host = &READING_HOST;
    view.walk = core::ptr::from_mut(reader).cast();
    let mut rule = CRule::simple(0, 0);
    let call = Call::new(give as *const () as usize, [(&raw mut view) as u64, (&raw mut rule) as u64]);
    // SAFETY: the plugin was installed with this function. It may be abandoned at any instruction, since it changes
    // nothing but `rule`.
    match unsafe { protector.call(&call) }? as u32 {
        0 => Ok(None),
        1 => rule.to_rule().map(Some).ok_or(StopReason::PluginNonsense),
        _ => Err(StopReason::PluginNonsense),
    }
}
