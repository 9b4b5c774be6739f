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
use crate::cursor::{Cursor, Scratch, CALLING, COMPARING, INNERMOST, MATCHING, PUSHING, SORTING};
use crate::facts::{self, Facts};
use uunwind_core::plugin::guest::Guest;

/// Limit of ops between one and the root of its sub.
const OPS: u32 = 1 << 12;
/// `op_moresib`, a bit of the 16 with `op_type`.
const MORE_SIBLINGS: u64 = 1 << 14;

/// The cursor of an interpreter, at its innermost context if no cursor was there before. `None`: there are too many
/// interpreters, or the interpreter's memory is not what it should be.
pub fn cursor<'s>(
    guest: &Guest<'_>,
    facts: &Facts,
    scratch: &'s mut Scratch,
    interpreter: u64,
) -> Option<&'s mut Cursor> {
    let (marks, op) = match scratch.cursors {
        0 if has_entered(guest, facts, scratch, interpreter) => {
            (scratch.marks | scratch.entered_marks | INNERMOST, (scratch.has_op != 0).then_some(scratch.op))
        }
        0 => (scratch.marks | INNERMOST, None),
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

/// Do the frames of [`Scratch::entered`] belong to this interpreter? While they have contexts, its op lies in them, or
/// a run loop has ended. They are another one's where this interpreter has called a function in C that calls that.
fn has_entered(guest: &Guest<'_>, facts: &Facts, scratch: &Scratch, interpreter: u64) -> bool {
    let [lowest, end] = scratch.entered;
    let op = guest.word(interpreter.wrapping_add(facts.interpreter_op.into()));
    end == 0 || op.is_some_and(|op| op == 0 || (lowest..end).contains(&op))
}

/// Reads where the interpreter stands. Without an array, all its run loops are in doubt.
fn begin(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, op: Option<u64>) {
    let mut words = [0; 4];
    let offsets = [facts.interpreter_op, facts.interpreter_cop, facts.interpreter_stack, facts.interpreter_env];
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
    if marks & (SORTING | MATCHING | CALLING) == 0 {
        return;
    }
    let Some(idle) = Context::next(guest, facts, cursor) else { return };
    if marks & CALLING != 0 && idle.is_catching() {
        return leave_out(cursor, &idle);
    }
    let ends = idle.ends();
    let is_idle = match ends {
        facts::SORT if marks & SORTING != 0 => {
            // A comparator ends with no op.
            let has_compared = marks & COMPARING != 0 || cursor.op == 0;
            if has_compared {
                Some(true)
            } else {
                compares_later(guest, facts, cursor, &idle)
            }
        }
        facts::REGEX => Some(marks & MATCHING != 0),
        _ => Some(false),
    };
    match is_idle {
        Some(true) => leave_out(cursor, &idle),
        Some(false) => {}
        None => cursor.stack = 0,
    }
}

/// `sort` runs, and not as the last thing a comparator has ended: was the context made for it, or for another `sort`
/// whose comparator sorts? `None`: that cannot be found out.
fn compares_later(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, idle: &Context) -> Option<bool> {
    match idle.kind {
        // The op is the comparator's, or that of its caller.
        Kind::Sub if idle.cv != 0 => runs_in(guest, facts, cursor.op, idle.cv).map(|runs| !runs),
        // The block is inside of the op that sorts by it.
        Kind::Null => {
            let block = guest.word(cursor.interpreter.wrapping_add(facts.interpreter_comparator.into()))?;
            around(guest, facts, block, cursor.op)
        }
        _ => None,
    }
}

/// Is an op one of this sub's?
fn runs_in(guest: &Guest<'_>, facts: &Facts, op: u64, cv: u64) -> Option<bool> {
    let root = guest.word(guest.word(cv)?.wrapping_add(facts.cv_root.into()))?;
    around(guest, facts, op, root)
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
    if idle.ends() == facts::REGEX {
        return false;
    }
    let runs = match idle.cv {
        // It is being made or removed: the line may be that of either moment.
        0 => (idle.cop == cursor.cop).then_some(false),
        _ if cursor.op == 0 => Some(false),
        cv => runs_in(guest, facts, cursor.op, cv),
    };
    if runs == Some(false) {
        leave_out(cursor, &idle);
    }
    runs.is_some()
}

/// Is `outer` one of the ops around `op`, or `op` itself? `None`: it was not found, nor the outermost one.
fn around(guest: &Guest<'_>, facts: &Facts, op: u64, outer: u64) -> Option<bool> {
    let mut at = op;
    for _ in 0..OPS {
        if at == outer {
            return Some(true);
        }
        let mut words = [0; 2];
        guest.words(at, [facts.op_type, facts.op_parent], &mut words)?;
        let [bits, next] = words;
        if next == 0 {
            return (bits & MORE_SIBLINGS == 0).then_some(false);
        }
        at = next;
    }
    None
}

/// Where the innermost sub is whose first op runs, or is about to run: there, instead of where its caller is.
pub fn at_first_op(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, context: &Context) -> Option<u64> {
    if context.kind != Kind::Sub || cursor.op == 0 || context.cv == 0 || !context.cv.is_multiple_of(8) {
        return None;
    }
    let start = guest.word(guest.word(context.cv)?.wrapping_add(facts.cv_start.into()))?;
    let kind = guest.word(start.wrapping_add(facts.op_type.into())).filter(|_| start == cursor.op)? & 0x1ff;
    (kind == u64::from(facts.nextstate) || kind == u64::from(facts.nextstate) + 1).then_some(start)
}
