//! The position of one walk in the chain of CallInfos of each `lua_State` that it has met, in the walk's scratch
//! memory.
//!
//! The walk may meet a state again: a coroutine's body calls C code that uses the main state, whose outer activations
//! follow later. It then continues at the position where it left that state.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

uunwind_core::plain! {
    /// The position in one state's chain.
    pub struct Cursor {
        /// Process address of the `lua_State`; 0: the entry is free.
        pub state: u64,
        /// Process address of the next CallInfo to be emitted; 0: none is left.
        pub info: u64,
    }
}

/// Bytes of the walk's scratch memory that are used here; the other family has the rest.
pub const BYTES: usize = SCRATCH_BYTES / 2;
/// Limit of states in one walk.
const CURSORS: usize = BYTES / size_of::<Cursor>();

/// The positions of one walk. Entries in use come first.
pub struct Cursors<'s> {
    list: &'s mut [Cursor],
}

impl<'s> Cursors<'s> {
    /// The cursors in the first half of a walk's scratch memory. `None`: the walk has none, or it is not aligned.
    pub fn of(guest: &Guest<'s>) -> Option<Cursors<'s>> {
        let list: &mut [Cursor; CURSORS] = guest.scratch(0)?;
        Some(Cursors { list })
    }

    /// The cursor of a state, made at the CallInfo `first` when the walk meets the state for the first time. `None`:
    /// all entries are used.
    pub fn at(&mut self, state: u64, first: u64) -> Option<&mut Cursor> {
        let cursor = self.list.iter_mut().find(|cursor| cursor.state == state || cursor.state == 0)?;
        if cursor.state == 0 {
            *cursor = Cursor { state, info: first };
        }
        Some(cursor)
    }

    /// The position in a state's chain. `None`: the walk has not met the state.
    pub fn position(&self, state: u64) -> Option<u64> {
        self.list.iter().find(|cursor| state != 0 && cursor.state == state).map(|cursor| cursor.info)
    }

    /// Frees the entry of a state that the walk cannot meet again.
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
    fn each_state_has_its_own_cursor_until_it_is_forgotten() {
        let mut list = [Cursor { state: 0, info: 0 }; CURSORS];
        let mut cursors = Cursors { list: &mut list };
        for state in 1..=CURSORS as u64 {
            assert_eq!(cursors.at(state, state * 10).map(|c| c.info), Some(state * 10));
        }
        assert!(cursors.at(1000, 1).is_none(), "full");
        assert_eq!([0, 2, 1000].map(|state| cursors.position(state)), [None, Some(20), None]);
        assert_eq!(cursors.at(1, 99).map(|c| c.info), Some(10), "kept");
        cursors.forget(1);
        cursors.forget(4711);
        assert_eq!(cursors.at(1000, 1).map(|c| c.info), Some(1), "an entry is free again");
        let last = CURSORS as u64;
        assert_eq!(cursors.at(last, 99).map(|c| c.info), Some(last * 10), "moved, not lost");
    }
}
