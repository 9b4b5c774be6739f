//! The other thread states of a thread: it has one for each interpreter that it has entered.
//!
//! Code of one interpreter may run code of another on the same C stack (`_interpreters.exec`, `Py_NewInterpreter`).
//! Each interpreter then has a thread state for this thread, with its own chain of frames, and no chain links to
//! another. Where the current chain has no boundary in an activation, the other states are searched for in the
//! runtime's lists. Other threads may be changing these lists: a thread state that is found there counts only if it
//! belongs to this thread and its chain has a boundary in this very activation, at the usual place.
//!
//! The lists: `_PyRuntimeState.interpreters.head`
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>), `PyInterpreterState.next` and
//! `.threads.head` (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_interp.h>),
//! `PyThreadState.next` (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/pystate.h>).

use crate::chain::Debt;
use crate::cpu::thread_id;
use crate::cursor::Cursor;
use crate::overlay::Here;

/// Limit of interpreter and thread states that one walk reads. A thread whose states come later in the lists loses
/// frames, and the loss is shown.
const LIMIT: u16 = 1024;

/// Continues in another state of this thread, one whose chain has a boundary in this activation. False if there is
/// none: the cursor is unchanged.
#[cold]
#[inline(never)]
pub fn follow(here: &Here<'_>, cursor: &mut Cursor, lead: fn(&Here<'_>, &mut Cursor)) -> bool {
    let mut states = States { here, interpreter: 0, tstate: 0, looked: cursor.looked };
    let head = here.guest.view().bias.wrapping_add(here.facts.runtime);
    states.interpreter = states.link(head, here.facts.runtime_interpreters);
    states.enter();
    while let Some(tstate) = states.next() {
        cursor.looked = states.looked;
        if tstate == cursor.tstate {
            continue;
        }
        let mut other = cursor.for_state(tstate);
        lead(here, &mut other);
        cursor.steps = other.steps;
        let leads_here = other.has_boundary() && here.guest.inside(other.boundary);
        let dropped = if leads_here && here.usual_boundary().is_none_or(|usual| usual == other.boundary) {
            core::mem::replace(cursor, other)
        } else {
            other
        };
        if dropped.owes != 0 {
            Debt::miss(here.guest);
        }
        if cursor.tstate == tstate {
            return true;
        }
    }
    cursor.looked = states.looked;
    false
}

/// Iterates over this thread's states, in the order of the runtime's lists.
struct States<'h, 'v> {
    here: &'h Here<'v>,
    interpreter: u64,
    tstate: u64,
    looked: u16,
}

impl States<'_, '_> {
    /// The list entry that a link field points to; 0: none.
    fn link(&self, structure: u64, field: u32) -> u64 {
        let next = self.here.guest.word(structure.wrapping_add(u64::from(field))).unwrap_or(0);
        if next.is_multiple_of(8) {
            next
        } else {
            0
        }
    }

    /// Moves to the first thread state of the current interpreter.
    fn enter(&mut self) {
        self.looked = self.looked.saturating_add(1);
        self.tstate = match self.interpreter {
            0 => 0,
            interpreter => self.link(interpreter, self.here.facts.interpreter_threads),
        };
    }

    fn next(&mut self) -> Option<u64> {
        let (guest, facts) = (&self.here.guest, &self.here.facts);
        while self.interpreter != 0 && self.looked < LIMIT {
            let mut words = [0; 2];
            let offsets = [facts.tstate_next, facts.tstate_thread_id];
            if self.tstate == 0 || guest.words(self.tstate, offsets, &mut words).is_none() {
                self.interpreter = self.link(self.interpreter, facts.interpreter_next);
                self.enter();
                continue;
            }
            let [next, thread] = words;
            let found = self.tstate;
            self.tstate = if next.is_multiple_of(8) { next } else { 0 };
            self.looked += 1;
            if thread == thread_id(guest.view()) {
                return Some(found);
            }
        }
        None
    }
}
