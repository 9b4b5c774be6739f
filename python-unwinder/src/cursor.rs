//! What one walk remembers between the native frames it shows to the plugin: one cursor for each interpreter (each
//! libpython) in the process, in the walk's scratch memory.

use core::mem::{align_of, size_of};
use uunwind_core::plugin::SCRATCH_BYTES;

/// How many frames, shims included, one walk looks at before it gives up: an activation of some ten thousand Python frames
/// must still be seen to end before its innermost frames can be told.
pub const STEPS: u32 = 1 << 16;

/// Nothing is known yet: the walk just began.
pub const FRESH: u32 = 0;
/// The thread has no thread state, or the chain is at its end: no activation has frames any more.
pub const ENDED: u32 = 1;
/// The boundary is known.
pub const TRACKING: u32 = 2;
/// The boundary is a hint that may be wrong: it was read from an activation that was just being set up.
pub const TENTATIVE: u32 = 3;
/// The chain is longer than [`STEPS`], its boundary is out of reach.
pub const FAR: u32 = 4;
/// The chain is torn.
pub const LOST: u32 = 5;

/// Where a walk stands in one interpreter's chain. All-zero is a fresh cursor.
#[repr(C)]
pub struct Cursor {
    /// Address of the facts that the cursor belongs to; 0: free.
    facts: u64,
    /// The thread state.
    pub tstate: u64,
    /// 3.13: innermost frame not yet emitted.
    pub frame: u64,
    /// Address of the next boundary on the C stack.
    pub boundary: u64,
    /// 3.13: the frame that follows the boundary.
    pub next: u64,
    /// 3.13: number of frames before the boundary.
    pub frames: u32,
    /// One of the states above.
    pub state: u32,
    /// Frames looked at so far.
    pub steps: u32,
    reserved: u32,
}

/// Cursors of a walk; one through more interpreters than that shows the others' frames as native only.
const CURSORS: usize = 2;
/// Bytes of scratch memory that are used.
pub const USED: usize = CURSORS * size_of::<Cursor>();
const _: () = assert!(USED <= SCRATCH_BYTES);

impl Cursor {
    /// The cursor for the interpreter with these facts. `None`: the scratch memory is missing or full.
    ///
    /// # Safety
    /// `scratch` must be null or point to [`SCRATCH_BYTES`] bytes that only this plugin uses during the call, zeroed
    /// when the walk began.
    pub unsafe fn of<'s>(scratch: *mut u8, facts: *const u8) -> Option<&'s mut Cursor> {
        if scratch.is_null() || !(scratch as usize).is_multiple_of(align_of::<Cursor>()) {
            return None;
        }
        let key = facts as u64;
        // SAFETY: CURSORS cursors fit into the scratch memory, which is aligned (just checked), ours alone, and holds
        // zeroes or cursors, both valid integers.
        let cursors = unsafe { core::slice::from_raw_parts_mut(scratch.cast::<Cursor>(), CURSORS) };
        let cursor = cursors.iter_mut().find(|c| c.facts == key || c.facts == 0)?;
        cursor.facts = key;
        Some(cursor)
    }

    /// How many more frames this walk may look at.
    pub fn steps_left(&self) -> u32 {
        STEPS.saturating_sub(self.steps)
    }
}
