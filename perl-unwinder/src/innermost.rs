//! The innermost contexts: what the interrupted instruction says of them.
//!
//! While an op makes or removes a context, the array, its contents and the line change one after the other
//! (<https://github.com/Perl/perl5/blob/v5.36.0/inline.h>, `cx_pushblock` to `cx_popblock`). Where the code is says which
//! of them are valid:
//!
//! * a context that is being made, and that of a sub before its first op, is left out: the line is its caller's still;
//! * a sub's context that is being removed has no sub any more, and holds the line of the caller;
//! * contexts that were made for calls that do not run now, by `sort`, by a regular expression or by a function in C,
//!   are left out.

use crate::context::{self, Context, Kind};
use crate::cursor::{Cursor, Scratch, COMPARING, INNERMOST, MATCHING, PUSHING, SORTING};
use crate::facts::{self, Facts};
use uunwind_core::plugin::guest::Guest;

/// Limit of ops between one and the root of its sub.
const OPS: u32 = 1 << 12;
/// `op_moresib`, a bit of the 16 with `op_type`.
const MORE_SIBLINGS: u64 = 1 << 14;

/// The cursor of an interpreter, at its innermost context if no cursor was there before. `None`: there are too many
/// interpreters, or the interpreter's memory is not what it should be.
pub fn cursor<'s>(guest: &Guest<'_>, facts: &Facts, scratch: &'s mut Scratch, interpreter: u64) -> Option<&'s mut Cursor> {
    let (marks, op) = match scratch.cursors {
        0 => (scratch.marks | INNERMOST, (scratch.has_op != 0).then_some(scratch.op)),
        _ => (0, None),
    };
    let cursor = scratch.list.iter_mut().find(|c| c.interpreter == interpreter || c.interpreter == 0)?;
    if cursor.interpreter == 0 && interpreter != 0 {
        scratch.cursors = scratch.cursors.saturating_add(1);
        cursor.interpreter = interpreter;
        cursor.marks = marks;
        begin(guest, facts, cursor, op);
    }
    (cursor.interpreter != 0).then_some(cursor)
}

/// Reads where the interpreter stands. Without an array, all its run loops are in doubt.
fn begin(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, op: Option<u64>) {
    let mut words = [0; 4];
    let offsets =
        [facts.interpreter_op, facts.interpreter_cop, facts.interpreter_stack, facts.interpreter_env];
    if !cursor.interpreter.is_multiple_of(8) || guest.words(cursor.interpreter, offsets, &mut words).is_none() {
        return;
    }
    let [stored, cop, stack, env] = words;
    let Some(count) = context::count(guest, facts, stack) else { return };
    (cursor.op, cursor.cop, cursor.stack, cursor.env) = (op.unwrap_or(stored), cop, stack, env);
    cursor.left = count.saturating_sub(u64::from(cursor.marks & PUSHING != 0));
    leave_out_idle(guest, facts, cursor);
}

/// Leaves out the context of a comparator, or of code in a regular expression, that does not run now.
fn leave_out_idle(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) {
    let marks = cursor.marks;
    // A comparator ends with no op; so `sort` is done with one, and not about to begin inside another one.
    let is_sorting = marks & SORTING != 0 && (marks & COMPARING != 0 || cursor.op == 0);
    if !is_sorting && marks & MATCHING == 0 {
        return;
    }
    let Some(idle) = Context::next(guest, facts, cursor) else { return };
    let ends = idle.ends();
    if is_sorting && ends == facts::SORT || marks & MATCHING != 0 && ends == facts::REGEX {
        leave_out(cursor, &idle);
    }
}

fn leave_out(cursor: &mut Cursor, idle: &Context) {
    cursor.left = cursor.left.saturating_sub(1);
    cursor.cop = idle.cop;
    cursor.op = 0;
    cursor.marks &= !INNERMOST;
}

/// At a function in C that Perl code has called: leaves out the context that it has made to call a sub many times, if
/// that sub does not run now. False: it may run, or not.
pub fn leave_out_multicall(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> bool {
    if cursor.last != 0 || cursor.marks & INNERMOST == 0 {
        return true;
    }
    let Some(idle) = Context::next(guest, facts, cursor).filter(Context::is_multicall) else { return true };
    if idle.cv == 0 || idle.ends() == facts::REGEX {
        // It is being made or removed.
        return false;
    }
    if cursor.op != 0 {
        let Some(root) = root(guest, facts, cursor.op) else { return false };
        let Some(body) = guest.word(idle.cv) else { return false };
        match guest.word(body.wrapping_add(facts.cv_root.into())) {
            Some(own) if own == root => return true,
            Some(_) => {}
            None => return false,
        }
    }
    leave_out(cursor, &idle);
    true
}

/// The outermost op around one.
fn root(guest: &Guest<'_>, facts: &Facts, op: u64) -> Option<u64> {
    let mut at = op;
    for _ in 0..OPS {
        let mut words = [0; 2];
        guest.words(at, [facts.op_type, facts.op_parent], &mut words)?;
        let [bits, next] = words;
        if next == 0 {
            return (bits & MORE_SIBLINGS == 0).then_some(at);
        }
        at = next;
    }
    None
}

/// Where the innermost sub is whose first op runs, or is about to run: there, instead of where its caller is.
pub fn at_first_op(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, context: &Context) -> Option<u64> {
    if context.kind != Kind::Sub || cursor.op == 0 || !context.cv.is_multiple_of(8) {
        return None;
    }
    let start = guest.word(guest.word(context.cv)?.wrapping_add(facts.cv_start.into()))?;
    let kind = guest.word(start.wrapping_add(facts.op_type.into())).filter(|_| start == cursor.op)? & 0x1ff;
    (kind == u64::from(facts.nextstate) || kind == u64::from(facts.nextstate) + 1).then_some(start)
}
