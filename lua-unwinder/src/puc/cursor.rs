//! Where one walk stands in the chain of CallInfos of each `lua_State` that it has met: in the walk's scratch memory.
//!
//! A state may come back: a coroutine's body calls C code that uses the main state, which the walk meets again further out. It
//! then goes on where it stood.

use core::mem::{align_of, size_of};
use uunwind_core::plugin::SCRATCH_BYTES;

/// One state.
#[repr(C)]
pub struct Cursor {
    /// Address of the `lua_State`; 0: free.
    pub state: u64,
    /// The next CallInfo to be told; 0: none is left.
    pub info: u64,
}

/// How much of the walk's scratch memory is used; the other family has the rest.
pub const BYTES: usize = SCRATCH_BYTES / 2;
/// States that a walk keeps apart.
const CURSORS: usize = BYTES / size_of::<Cursor>();

/// All of a walk.
pub struct Cursors<'s> {
    list: &'s mut [Cursor],
}

impl<'s> Cursors<'s> {
    /// The cursors in the first half of a walk's scratch memory. `None`: there is none.
    ///
    /// # Safety
    /// `scratch` must be null or point to [`BYTES`] bytes that only this plugin uses during the call, zeroed when the
    /// walk began.
    pub unsafe fn of(scratch: *mut u8) -> Option<Cursors<'s>> {
        if scratch.is_null() || !(scratch as usize).is_multiple_of(align_of::<Cursor>()) {
            return None;
        }
        // SAFETY: CURSORS cursors fit into the scratch memory, which is aligned (just checked), ours alone, and holds zeroes or
        // cursors, both valid integers.
        Some(Cursors { list: unsafe { core::slice::from_raw_parts_mut(scratch.cast::<Cursor>(), CURSORS) } })
    }

    /// The cursor of a state, made at `first` when the walk meets the state for the first time. `None`: there is no room.
    pub fn at(&mut self, state: u64, first: u64) -> Option<&mut Cursor> {
        let cursor = self.list.iter_mut().find(|cursor| cursor.state == state || cursor.state == 0)?;
        if cursor.state == 0 {
            *cursor = Cursor { state, info: first };
        }
        Some(cursor)
    }

    /// Forgets a state that cannot come back.
    pub fn forget(&mut self, state: u64) {
        let Some(at) = self.list.iter().position(|cursor| cursor.state == state) else { return };
        let end = self.list.iter().position(|cursor| cursor.state == 0).unwrap_or(self.list.len());
        let last = end.wrapping_sub(1);
        let Some(moved) = self.list.get_mut(last).map(|l| core::mem::replace(l, Cursor { state: 0, info: 0 })) else {
            return;
        };
        if at != last {
            if let Some(place) = self.list.get_mut(at) {
                *place = moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_apart_forgotten_and_bounded() {
        let mut scratch = [0u64; BYTES / 8];
        let at = scratch.as_mut_ptr().cast::<u8>();
        // SAFETY: BYTES zeroed bytes of this test.
        let mut cursors = unsafe { Cursors::of(at) }.expect("aligned");
        for state in 1..=CURSORS as u64 {
            assert_eq!(cursors.at(state, state * 10).map(|c| c.info), Some(state * 10));
        }
        assert!(cursors.at(1000, 1).is_none(), "full");
        assert_eq!(cursors.at(1, 99).map(|c| c.info), Some(10), "kept");
        cursors.forget(1);
        cursors.forget(4711);
        assert_eq!(cursors.at(1000, 1).map(|c| c.info), Some(1), "room again");
        let last = CURSORS as u64;
        assert_eq!(cursors.at(last, 99).map(|c| c.info), Some(last * 10), "moved, not lost");
        // SAFETY: null is refused.
        assert!(unsafe { Cursors::of(core::ptr::null_mut()) }.is_none());
    }
}
