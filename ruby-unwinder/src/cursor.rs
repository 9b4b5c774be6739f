//! What one walk keeps between the native frames that it shows to the plugin, in its scratch memory.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

/// [`Cursor::state`]: nothing has been read yet.
pub const FRESH: u32 = 0;
/// [`Cursor::state`]: the thread has no context that can be read.
pub const NONE: u32 = 1;
/// [`Cursor::state`]: [`Cursor::frame`] is the next control frame.
pub const READY: u32 = 2;

/// [`Cursor::loop_state`]: the last native frame was not the interpreter's loop.
pub const NO_LOOP: u32 = 0;
/// [`Cursor::loop_state`]: it was, and [`Cursor::anchor`] is its control frame.
pub const ANCHORED: u32 = 1;
/// [`Cursor::loop_state`]: as above, and it is the interrupted function.
pub const ANCHORED_EXACTLY: u32 = 2;
/// [`Cursor::loop_state`]: it was being entered.
pub const ENTERING: u32 = 3;
/// [`Cursor::loop_state`]: it was being left.
pub const LEAVING: u32 = 4;
/// [`Cursor::loop_state`]: its register was not available.
pub const UNKNOWN: u32 = 5;

uunwind_core::plain! {
    /// The position of a walk among the control frames of one interpreter. All-zero is a fresh cursor.
    pub struct Cursor {
        /// Process address of the facts that the cursor belongs to, its key; 0: the cursor is free.
        facts: u64,
        /// Process address of the next control frame to be emitted.
        pub frame: u64,
        /// The end of the control frames.
        pub end: u64,
        /// The next tag on the native stack; 0: there is none.
        pub tag: u64,
        /// See [`ANCHORED`].
        pub anchor: u64,
        /// What the last native frame was: [`NO_LOOP`] and the like.
        pub loop_state: u32,
        /// [`FRESH`], [`NONE`] or [`READY`].
        pub state: u32,
        /// Number of activations that have been met.
        pub met: u32,
        /// Tags that may still be read in this walk, counted up to their limit.
        pub tags: u32,
    }
}

/// Cursors of a walk. Frames of any further interpreter are left out, with doubt.
const CURSORS: usize = 2;
/// Bytes of scratch memory that are used.
pub const BYTES: usize = CURSORS * size_of::<Cursor>();
const _: () = assert!(BYTES <= SCRATCH_BYTES);

impl Cursor {
    /// The cursor for the interpreter with these facts. `None`: the scratch memory is missing or full.
    pub fn of<'v>(guest: &Guest<'v>) -> Option<&'v mut Cursor> {
        let key = guest.view().facts as u64;
        let cursors: &mut [Cursor; CURSORS] = guest.scratch(0)?;
        let cursor = cursors.iter_mut().find(|cursor| cursor.facts == key || cursor.facts == 0)?;
        cursor.facts = key;
        Some(cursor)
    }
}
