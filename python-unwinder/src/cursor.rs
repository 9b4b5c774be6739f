//! What one walk keeps between the native frames that it shows to the plugin: one cursor for each interpreter (each
//! libpython) of the process, in the walk's scratch memory.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

/// Number of frames, shims included, at which one walk gives up. An activation's end must be found before its innermost
/// frames can be emitted, so activations with very many Python frames need a high limit. It equals the limit of frames
/// of a walk (`uunwind_core::walk::DEEPEST`).
pub const STEPS: u32 = uunwind_core::walk::DEEPEST;

/// Nothing has been read yet: the walk just began.
pub const FRESH: u32 = 0;
/// The thread has no thread state, or the end of the chain was reached: no further activation has frames.
pub const ENDED: u32 = 1;
/// [`Cursor::boundary`] is the next boundary.
pub const TRACKING: u32 = 2;
/// [`Cursor::boundary`] may be wrong: it was read from an activation that was still being set up.
pub const TENTATIVE: u32 = 3;
/// The chain is longer than [`STEPS`], so its next boundary cannot be found.
pub const FAR: u32 = 4;
/// The chain is torn: it leads to memory that holds no live frame.
pub const LOST: u32 = 5;

/// From 3.13 on: [`Cursor::next`] is the innermost frame of the next activation, whose boundary has not been sought.
pub const DUE: u32 = 6;

uunwind_core::plain! {
    /// The position of a walk in one interpreter's chain. All-zero is a fresh cursor.
    pub struct Cursor {
        /// Process address of the facts that the cursor belongs to, its key; 0: the cursor is free.
        facts: u64,
        /// Address of the `PyThreadState`.
        pub tstate: u64,
        /// From 3.13 on: innermost frame of the activation before the boundary.
        pub frame: u64,
        /// Address of the next boundary, on the C stack.
        pub boundary: u64,
        /// From 3.13 on: the frame with which the chain goes on after the boundary; with [`DUE`], from here.
        pub next: u64,
        /// From 3.13 on: number of frames before the boundary.
        pub frames: u32,
        /// One of the states above, such as [`TRACKING`].
        pub state: u32,
        /// Frames read so far, counted against [`STEPS`].
        pub steps: u32,
        /// Interpreter and thread states read so far in the search for the thread's other states.
        pub looked: u16,
        /// From 3.13 on, 1: the frames before the boundary were read without being logged ([`crate::chain::Debt`]). It
        /// stands here because a kept walk may take this one's place from a state with the same debt on.
        pub owes: u16,
    }
}

/// Cursors of a walk. Frames of any further interpreter are left out, with doubt.
const CURSORS: usize = 8;
/// Bytes of scratch memory that are used.
pub const USED: usize = CURSORS * size_of::<Cursor>();
const _: () = assert!(USED <= SCRATCH_BYTES);

impl Cursor {
    /// The cursor for the interpreter with these facts. `None`: the scratch memory is missing or full.
    pub fn of<'v>(guest: &Guest<'v>, facts: *const u8) -> Option<&'v mut Cursor> {
        let key = facts as u64;
        let cursors: &mut [Cursor; CURSORS] = guest.scratch(0)?;
        let cursor = cursors.iter_mut().find(|c| c.facts == key || c.facts == 0)?;
        cursor.facts = key;
        Some(cursor)
    }

    /// A cursor of the same interpreter and walk for another thread state, whose chain has not been read.
    pub fn for_state(&self, tstate: u64) -> Cursor {
        Cursor { tstate, frame: 0, boundary: 0, next: 0, frames: 0, state: ENDED, owes: 0, ..*self }
    }

    /// Does [`Cursor::boundary`] hold an address?
    pub fn has_boundary(&self) -> bool {
        matches!(self.state, TRACKING | TENTATIVE)
    }

    /// How many more frames this walk may look at.
    pub fn steps_left(&self) -> u32 {
        STEPS.saturating_sub(self.steps)
    }
}
