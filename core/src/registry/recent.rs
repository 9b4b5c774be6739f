//! Where windows were found last, by address: a shortcut past the tree for registries with very many windows. What it says
//! is a hint only; see [`super::life`].

use super::pool::map;
use super::window::Held;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Addresses that share a place: about one function.
const GRANULE: u32 = 8;
/// Places beside each other, in one line, for addresses beside each other: as many bits.
const BESIDE: u32 = 3;
/// As many bits does the number of a line have.
const LINES: u32 = 15;

/// The table, of one huge page. A place holds null or a cell of the pool, of which none is ever unmapped.
pub struct Recent([AtomicPtr<Held>; 1 << (LINES + BESIDE)]);

impl Recent {
    /// An empty one, never unmapped; null without memory. Not async-signal-safe.
    pub fn new() -> *mut Recent {
        map(size_of::<Recent>()).map_or(core::ptr::null_mut(), |at| at as *mut Recent)
    }

    #[inline(always)]
    fn place(&self, pc: u64) -> Option<&AtomicPtr<Held>> {
        let granule = pc >> GRANULE;
        let line = (granule >> BESIDE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINES);
        self.0.get((line << BESIDE | granule & ((1 << BESIDE) - 1)) as usize)
    }

    /// What was found last for addresses near this one. Async-signal-safe; wait-free.
    #[inline(always)]
    pub fn get(&self, pc: u64) -> Option<&Held> {
        // SAFETY: null, or a cell; what may be read of it before it is known to be in the tree is atomic.
        unsafe { self.place(pc)?.load(Relaxed).as_ref() }
    }

    /// Remembers what was found. Async-signal-safe; wait-free.
    #[inline]
    pub fn put(&self, pc: u64, held: &Held) {
        if let Some(place) = self.place(pc) {
            place.store(core::ptr::from_ref(held).cast_mut(), Relaxed);
        }
    }
}
