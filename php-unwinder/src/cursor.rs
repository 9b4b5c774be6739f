//! What one walk keeps between the native frames that it shows to the plugin, in its scratch memory.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

/// [`Cursor::state`]: nothing has been read yet.
pub const FRESH: u32 = 0;
/// [`Cursor::state`]: the globals cannot be read.
pub const NONE: u32 = 1;
/// [`Cursor::state`]: [`Cursor::frame`] is the next frame; 0: there is none.
pub const READY: u32 = 2;

uunwind_core::plain! {
    /// The position of a walk in the chain of one interpreter. All-zero is a fresh cursor.
    pub struct Cursor {
        /// Process address of the facts that the cursor belongs to, its key; 0: the cursor is free.
        facts: u64,
        /// Process address of the next frame to be emitted; 0: there is none.
        pub frame: u64,
        /// The frame's register in the last native frame that changes it without a word in its unwind information; 0:
        /// none such has been met, or it has not changed it.
        pub register: u64,
        /// What that native frame restores into the register when it returns; 0: not known.
        pub saved: u64,
        /// [`FRESH`], [`NONE`] or [`READY`].
        pub state: u32,
        /// Number of activations that have been met.
        pub met: u32,
        /// A native frame of [`crate::facts::Facts::switching`] was met before the first activation.
        pub switched: u32,
        /// Zero.
        unused: u32,
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
