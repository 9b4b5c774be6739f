//! The windows that were found last, by address: a shortcut past the tree for registries with very many windows. Its
//! entries are hints only; see [`super::life`].

use super::pool::map;
use super::window::Held;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Address bits that share an entry: about one function.
const GRANULE: u32 = 8;
/// Bits of the number of adjacent entries in one cache line, which adjacent addresses use.
const BESIDE: u32 = 3;
/// Bits of the number of a line.
const LINES: u32 = 15;

/// The table, of the size of one huge page. An entry is null or a cell of the pool, and cells are never unmapped.
pub struct Recent([AtomicPtr<Held>; 1 << (LINES + BESIDE)]);

impl Recent {
    /// An empty table, never unmapped; null if there is no memory. Not async-signal-safe.
    pub fn new() -> *mut Recent {
        map(size_of::<Recent>()).map_or(core::ptr::null_mut(), |at| at as *mut Recent)
    }

    #[inline(always)]
    fn place(&self, pc: u64) -> Option<&AtomicPtr<Held>> {
        let granule = pc >> GRANULE;
        let line = (granule >> BESIDE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINES);
        self.0.get((line << BESIDE | granule & ((1 << BESIDE) - 1)) as usize)
    }

    /// The window that was found last for addresses near this one. Async-signal-safe; wait-free.
    #[inline(always)]
    pub fn get(&self, pc: u64) -> Option<&Held> {
        // SAFETY: null, or a cell; everything that is read of it before it is found to be in the tree is atomic.
        unsafe { self.place(pc)?.load(Relaxed).as_ref() }
    }

    /// Stores a window that was found. Async-signal-safe; wait-free.
    #[inline]
    pub fn put(&self, pc: u64, held: &Held) {
        if let Some(place) = self.place(pc) {
            place.store(core::ptr::from_ref(held).cast_mut(), Relaxed);
        }
    }
}
