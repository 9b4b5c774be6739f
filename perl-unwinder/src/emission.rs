//! Emits the frames of one run loop.

use crate::context::{self, Context, Kind};
use crate::cursor::{Cursor, INNERMOST, POPPING};
use crate::facts::{self, Facts};
use crate::function::{self, Name};
use crate::innermost;
use uunwind_core::plugin::guest::Guest;

/// Number of frames after which the host is asked again whether to leave some out.
const ASK: u32 = 256;
/// Limit of frames that are counted then.
const COUNTED: u32 = 1 << 17;
/// Limit of contexts that one call looks at: more than a walk keeps or leaves out.
const LIMIT: u32 = 1 << 20;

/// What came of it.
pub enum Emitted {
    /// The frames were emitted. What their run loop ends with, as the numbers in [`crate::facts`] say.
    Done(u32),
    /// There was something else than a context.
    Invalid,
    /// The walk's buffer is full.
    Full,
}

/// Emits the frames from the cursor to the first context that ends a run loop: one of the class `only`, unless that is
/// 0.
pub fn emit(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, only: u32) -> Emitted {
    if !context::settle(guest, facts, cursor) {
        return outermost(guest, facts, cursor);
    }
    let (mut shown, mut counted) = (0u32, None);
    for _ in 0..LIMIT {
        if cursor.left == 0 {
            return outermost(guest, facts, cursor);
        }
        let Some(context) = Context::next(guest, facts, cursor) else { return Emitted::Invalid };
        let ends = context.ends();
        if let Some(name) = name(facts, &context) {
            let is_innermost = cursor.marks & INNERMOST != 0;
            if is_innermost {
                cursor.cop = innermost::at_first_op(guest, facts, cursor, &context).unwrap_or(cursor.cop);
            }
            let is_left = context.kind == Kind::Sub && context.cv == 0;
            // Between its statement and its first own one, an eval is not at any place of its own.
            let is_between = is_innermost && context.kind == Kind::Eval && context.cop == cursor.cop;
            if is_left && is_innermost && cursor.marks & POPPING == 0 && context.cop != cursor.cop {
                return Emitted::Invalid;
            }
            if !is_left && !is_between {
                if shown % ASK == ASK - 1 {
                    let all = counted
                        .get_or_insert_with(|| context::pass(guest, facts, cursor, COUNTED).0.saturating_add(shown));
                    let omitted = guest.omit(all.saturating_sub(shown));
                    let left = if omitted == 0 { 0 } else { context::pass(guest, facts, cursor, omitted).1 };
                    if omitted > 0 && left < cursor.left {
                        shown = shown.saturating_add(omitted);
                        // The last one that is left out says where its caller is.
                        cursor.left = left.wrapping_add(1);
                        let Some(last) = Context::next(guest, facts, cursor) else { return Emitted::Invalid };
                        (cursor.left, cursor.cop) = (left, last.cop);
                        continue;
                    }
                }
                shown = shown.wrapping_add(1);
                match function::emit(guest, facts, cursor, name) {
                    Some(true) => {}
                    Some(false) => return Emitted::Full,
                    None => return Emitted::Invalid,
                }
                cursor.marks &= !INNERMOST;
            }
            cursor.cop = context.cop;
        } else if ends == facts::REGEX {
            cursor.cop = if cursor.marks & INNERMOST != 0 { cursor.cop } else { context.cop };
        }
        cursor.left = cursor.left.saturating_sub(1);
        if ends != 0 && (only == 0 || ends == only) {
            return Emitted::Done(ends);
        }
    }
    Emitted::Invalid
}

/// What a context's frame is called. `None`: it has no frame.
fn name(facts: &Facts, context: &Context) -> Option<Name> {
    match context.kind {
        Kind::Sub => Some(Name::Sub(context.cv)),
        Kind::Format => Some(Name::Format),
        Kind::Eval => Some(Name::of_eval(facts, context.op_type)),
        Kind::Other | Kind::Null | Kind::Pretended | Kind::Try | Kind::Defer => None,
    }
}

/// The cursor is at the end of an array: the program itself, if that is the outermost one.
fn outermost(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> Emitted {
    let is_outermost =
        cursor.stack != 0 && guest.word(cursor.stack.wrapping_add(facts.stack_previous.into())) == Some(0);
    if !is_outermost {
        return Emitted::Invalid;
    }
    let emitted = function::emit(guest, facts, cursor, Name::Main);
    cursor.stack = 0;
    match emitted {
        Some(true) => Emitted::Done(facts::MAIN),
        Some(false) => Emitted::Full,
        None => Emitted::Invalid,
    }
}
