//! Which contexts belong to the current native frame.
//!
//! The walk meets native frames from the leaf to the root, and the contexts lie in the same order. See
//! <https://github.com/Perl/perl5/blob/v5.36.0/run.c>, `pp_hot.c`, `pp_ctl.c` and `perl.c` there.
//!
//! * A run loop keeps the interpreter in one register. It hosts the contexts from the cursor to the one that its caller
//!   has made for it. Who called it is known from its return address, and with it what this context must look like.
//! * A run loop that only catches exceptions goes on with the contexts of the one around it, and hosts them all.
//! * `call_sv` makes one more context, if it catches exceptions: then it has a `JMPENV` in its native frame.
//! * `pp_entersub` keeps the sub in a register while it calls a function in C, which has no context.

use crate::context::{self, Context};
use crate::cursor::{
    Cursor, Scratch, CALLING, COMPARING, EVALUATING, INNERMOST, MATCHING, POPPING, PUSHING, SORTING, UNSURE,
};
use crate::emission::{self, Emitted};
use crate::facts::{self, Extent, Facts, Xsub};
use crate::function::{self, Name};
use crate::innermost;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE, UNTOUCHED};

/// The answer about a frame that hosts nothing: no frames, and the scratch memory is unchanged.
pub const NO_OVERLAY: u32 = OVERLAY_NONE | UNTOUCHED;
/// The answer where Perl frames must be, but were not found.
const DOUBT: u32 = OVERLAY_INTERPRETER | OVERLAY_DESYNC;
/// DWARF numbers of the registers of a function's result and of its first argument.
const RESULT: u8 = 0;
const FIRST_ARGUMENT: u8 = 5;
/// Limit of the native frame of `call_sv`, in bytes.
const CALLER_BYTES: u64 = 2048;
/// Limit of the `JMPENV`s of one walk: each lies in a native frame.
const ENVIRONMENTS: u32 = uunwind_core::walk::DEEPEST;

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
pub fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return NO_OVERLAY;
    }
    let Some(facts) = Facts::read(guest.facts()) else { return NO_OVERLAY };
    let lookup = guest.lookup_pc().wrapping_sub(view.bias);
    let pc = view.pc.wrapping_sub(view.bias);
    if facts.runops.contains(lookup) {
        let Some(scratch) = Scratch::of(guest) else { return DOUBT };
        return run_loop(guest, facts, scratch, pc);
    }
    let xsub = facts.xsubs.iter().find(|place| place.after == pc && pc != 0 && !guest.exact());
    if let Some(place) = xsub {
        let Some(scratch) = Scratch::of(guest) else { return DOUBT };
        return answer(call_in_c(guest, facts, scratch, place));
    }
    let marks = marks(guest, facts, lookup);
    if marks == 0 {
        return NO_OVERLAY;
    }
    let Some(scratch) = Scratch::of(guest) else { return DOUBT };
    if scratch.cursors == 0 {
        scratch.marks |= marks;
        if marks & RETURNING != 0 {
            scratch.op = guest.register(RESULT).unwrap_or(0);
            scratch.has_op = 1;
        }
        if marks & (CALLING | EVALUATING) != 0 {
            scratch.entered_marks |= core::mem::take(&mut scratch.marks);
            scratch.entered = [if scratch.entered[1] == 0 { view.sp } else { scratch.entered[0] }, view.cfa];
        }
        return OVERLAY_NONE;
    }
    let [cursor, another] = &mut scratch.list;
    if another.interpreter != 0 {
        // It is not known whose frame this is.
        return NO_OVERLAY;
    }
    if marks & CALLING != 0 {
        return catching(guest, facts, cursor);
    }
    NO_OVERLAY
}

/// A mark that is not kept: the next op is in the register of the result.
const RETURNING: u32 = 1 << 31;

/// What a frame means for the innermost context, if no run loop was met before it.
fn marks(guest: &Guest<'_>, facts: &Facts, lookup: u64) -> u32 {
    let is_among = |list: &[Extent]| list.iter().any(|range| range.contains(lookup));
    let mut marks = 0;
    let all = [
        (is_among(&facts.pushing), PUSHING),
        (is_among(&facts.popping), POPPING),
        (is_among(&facts.unsure), UNSURE),
        (facts.sort.contains(lookup), SORTING),
        (is_among(&facts.comparing), COMPARING),
        (facts.regex.contains(lookup), MATCHING),
        (facts.call_sv.contains(lookup), CALLING),
        (facts.eval_sv.contains(lookup), EVALUATING),
        (guest.exact() && is_among(&facts.returning), RETURNING),
    ];
    for (is, mark) in all {
        marks |= if is { mark } else { 0 };
    }
    marks
}

fn answer(is_right: bool) -> u32 {
    if is_right {
        OVERLAY_INTERPRETER
    } else {
        DOUBT
    }
}

/// A frame of the run loop.
fn run_loop(guest: &Guest<'_>, facts: &Facts, scratch: &mut Scratch, pc: u64) -> u32 {
    let view = guest.view();
    let mut number = facts.interpreter_register as u8;
    let mut has_ended = false;
    if guest.exact() {
        let is_framed = view.cfa.wrapping_sub(view.sp) > 8;
        if pc < facts.runops_entered {
            number = FIRST_ARGUMENT;
        } else if !is_framed {
            return OVERLAY_INTERPRETER;
        }
        if pc == facts.runops_called {
            scratch.op = guest.register(RESULT).unwrap_or(0);
            scratch.has_op = 1;
            has_ended = scratch.op == 0;
        }
    } else {
        has_ended = pc != facts.runops_called;
    }
    let Some(interpreter) = guest.register(number) else { return DOUBT };
    if guest.exact() && pc != facts.runops_called {
        match guest.word(interpreter.wrapping_add(facts.interpreter_op.into())) {
            Some(op) => has_ended = op == 0,
            None => return DOUBT,
        }
    }
    if has_ended {
        return OVERLAY_INTERPRETER;
    }
    let is_first = scratch.cursors == 0;
    let Some(cursor) = innermost::cursor(guest, facts, scratch, interpreter) else { return DOUBT };
    let is_unsure = is_first && cursor.marks & UNSURE != 0;
    let Some(class) = class(guest, facts) else {
        cursor.stack = 0;
        return DOUBT;
    };
    let is_right = host(guest, facts, cursor, class) && !is_unsure;
    cursor.last = class;
    cursor.since = cursor.since.saturating_add(1);
    answer(is_right)
}

/// Who has called the current frame of a run loop. `None`: code of this object that is not known to.
fn class(guest: &Guest<'_>, facts: &Facts) -> Option<u32> {
    let caller = guest.word(guest.view().cfa.wrapping_sub(8))?;
    let after = caller.wrapping_sub(guest.view().bias);
    match facts.sites.iter().find(|site| site.after == after && site.class != 0) {
        Some(site) => Some(site.class),
        None if guest.is_claimed(caller) => None,
        None => Some(facts::FOREIGN),
    }
}

/// Emits what a run loop hosts. False: some of it is missing or doubtful.
fn host(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, class: u32) -> bool {
    if cursor.stack == 0 {
        return false;
    }
    // `call_sv` runs the ops that find a method, too: they lie in its own native frame, and no sub runs yet.
    let cfa = guest.view().cfa;
    if class == facts::SUB && cursor.last == 0 && cursor.op.wrapping_sub(cfa) < CALLER_BYTES {
        return true;
    }
    if class == facts::NESTED {
        if cursor.nested == 0 {
            match emission::emit(guest, facts, cursor, 0) {
                Emitted::Done(ends) => cursor.nested = ends,
                Emitted::Invalid => return false,
                Emitted::Full => {}
            }
        }
        return true;
    }
    let nested = core::mem::replace(&mut cursor.nested, 0);
    let fits = |ends: u32| ends == class;
    if nested != 0 && fits(nested) {
        return true;
    }
    // Code of these has no end of its own, so the subs that it calls last have no op to return to, either.
    let has_end = !matches!(class, facts::SORT | facts::REGEX | facts::DEFER);
    if nested != 0 && has_end {
        return false;
    }
    match emission::emit(guest, facts, cursor, if has_end { 0 } else { class }) {
        Emitted::Done(ends) if !fits(ends) && may_be_idle(cursor, ends) => {
            // What ran inside was called between two calls of that sub. `caller` has its frame, too.
            matches!(emission::emit(guest, facts, cursor, 0), Emitted::Done(ends) if fits(ends))
        }
        Emitted::Done(ends) => fits(ends),
        Emitted::Invalid => {
            cursor.stack = 0;
            false
        }
        Emitted::Full => true,
    }
}

/// May a context have been made for calls none of which runs now? Not the innermost one, which was left out.
fn may_be_idle(cursor: &Cursor, ends: u32) -> bool {
    cursor.last != 0 && matches!(ends, facts::FOREIGN | facts::SORT | facts::REGEX)
}

/// A frame that calls a function in C for Perl code.
fn call_in_c(guest: &Guest<'_>, facts: &Facts, scratch: &mut Scratch, place: &Xsub) -> bool {
    let (cv, interpreter) = (guest.register(place.cv as u8), guest.register(place.interpreter as u8));
    let (Some(cv), Some(interpreter)) = (cv, interpreter) else { return false };
    let is_first = scratch.cursors == 0;
    let Some(cursor) = innermost::cursor(guest, facts, scratch, interpreter) else { return false };
    let is_unsure = is_first && cursor.marks & UNSURE != 0;
    if cursor.stack == 0 {
        return false;
    }
    let is_right = cursor.since > 0 || innermost::leave_out_multicall(guest, facts, cursor);
    cursor.since = 0;
    match function::emit(guest, facts, cursor, Name::InC(cv)) {
        Some(_) => is_right && !is_unsure,
        None => false,
    }
}

/// A frame of `call_sv`: the eval that it has made to catch exceptions, if it has.
fn catching(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> u32 {
    let cfa = guest.view().cfa;
    let mut is_inside = false;
    for _ in 0..ENVIRONMENTS {
        if cursor.env == 0 || cursor.env >= cfa {
            break;
        }
        is_inside |= guest.inside(cursor.env);
        cursor.env = guest.word(cursor.env).filter(|outer| *outer > cursor.env).unwrap_or(0);
    }
    if !is_inside || cursor.stack == 0 || !context::settle(guest, facts, cursor) {
        return OVERLAY_NONE;
    }
    let Some(context) = Context::next(guest, facts, cursor).filter(Context::is_catching) else { return OVERLAY_NONE };
    cursor.left = cursor.left.saturating_sub(1);
    let emitted = function::emit(guest, facts, cursor, Name::Eval);
    (cursor.cop, cursor.op) = (context.cop, 0);
    cursor.marks &= !INNERMOST;
    answer(emitted.is_some())
}
