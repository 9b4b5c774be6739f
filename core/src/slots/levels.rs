//! The memory of the slots: a first level that is always there, and further ones, each twice as large as the previous
//! one, which are mapped when a thread finds no slot in the existing ones. A level is never unmapped.
//!
//! In each level a thread's slot is one of a few, its probes. A slot that ever had an owner keeps a sign of it, so
//! a search ends at the first slot without one: a thread only goes on when the slot before is in use.

use super::slot::Slot;
use crate::syscall::{call, nr};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Number of slots of the first level.
const FIRST: usize = 2048;
pub(super) const LEVELS: usize = 6;
/// Number of slots of all levels.
pub const SLOTS: usize = FIRST * ((1 << LEVELS) - 1);
const PROBES: usize = 64;

/// All levels. All-zero is a first level of free slots, and no others.
pub(super) struct Levels {
    first: [Slot; FIRST],
    first_used: [AtomicU64; FIRST / 64],
    /// Slots of the other levels, each followed by its words of `used`; null: not mapped.
    further: [AtomicPtr<Slot>; LEVELS - 1],
}

/// The slots of one level, and which of them are used.
#[derive(Clone, Copy)]
pub(super) struct Level<'l> {
    slots: &'l [Slot],
    /// A bit for each slot that was ever claimed, so that writers read few slots.
    used: &'l [AtomicU64],
}

/// Number of slots of a further level, and the size of its mapping in bytes.
fn size(further: usize) -> (usize, usize) {
    let slots = FIRST << (further + 1);
    (slots, slots * size_of::<Slot>() + slots / 8)
}

impl Levels {
    pub(super) const fn new() -> Levels {
        Levels {
            first: [const { Slot::new() }; FIRST],
            first_used: [const { AtomicU64::new(0) }; FIRST / 64],
            further: [const { AtomicPtr::new(core::ptr::null_mut()) }; LEVELS - 1],
        }
    }

    /// The first level.
    #[inline(always)]
    pub(super) fn first(&self) -> Level<'_> {
        Level { slots: &self.first, used: &self.first_used }
    }

    /// The other levels that are mapped: the smallest ones.
    #[inline]
    pub(super) fn further(&self) -> impl Iterator<Item = Level<'_>> {
        self.further.iter().enumerate().map_while(|(index, at)| {
            let at = at.load(Ordering::Acquire);
            // SAFETY: null, or a mapping made by `add`, which is never unmapped.
            (!at.is_null()).then(|| unsafe { level(at, index) })
        })
    }

    /// All levels that exist.
    pub(super) fn all(&self) -> impl Iterator<Item = Level<'_>> {
        core::iter::once(self.first()).chain(self.further())
    }

    /// The slot's number: those of the first level, then those of the others in their order.
    #[inline]
    pub(super) fn index_of(&self, slot: &Slot) -> Option<u64> {
        let mut before = 0;
        for level in self.all() {
            let distance = (core::ptr::from_ref(slot) as usize).wrapping_sub(level.slots.as_ptr() as usize);
            let index = distance / size_of::<Slot>();
            if index < level.slots.len() {
                return Some((before + index) as u64);
            }
            before += level.slots.len();
        }
        None
    }

    /// The slot with this number.
    pub(super) fn by_index(&self, index: u64) -> Option<&Slot> {
        let mut rest = usize::try_from(index).ok()?;
        for level in self.all() {
            match level.slots.get(rest) {
                Some(slot) => return Some(slot),
                None => rest = rest.saturating_sub(level.slots.len()),
            }
        }
        None
    }

    /// Ensures that there are more than `from` other levels. False: that is the limit, or there is no memory.
    /// Async-signal-safe.
    pub(super) fn grow(&self, from: usize) -> bool {
        const READ_AND_WRITE: usize = 3;
        const PRIVATE_ANONYMOUS: usize = 0x22;
        const NO_RESERVE: usize = 0x4000;
        let Some(place) = self.further.get(from) else { return false };
        if !place.load(Ordering::Relaxed).is_null() {
            return true;
        }
        let (_, bytes) = size(from);
        let flags = PRIVATE_ANONYMOUS | NO_RESERVE;
        // SAFETY: a fresh mapping, unmapped if another thread was faster.
        unsafe {
            let at = call(nr::MMAP, [0, bytes, READ_AND_WRITE, flags, usize::MAX, 0]);
            if at <= 0 {
                return false;
            }
            let new = at as *mut Slot;
            if place.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                call(nr::MUNMAP, [at as usize, bytes, 0, 0, 0, 0]);
            }
        }
        true
    }
}

/// # Safety
/// `at` must be the mapping of this level.
unsafe fn level<'l>(at: *mut Slot, index: usize) -> Level<'l> {
    let (slots, _) = size(index);
    // SAFETY: the mapping has these slots, of which all-zero is a free one, and then these words; a page's start is
    // aligned for both.
    unsafe {
        Level {
            slots: core::slice::from_raw_parts(at, slots),
            used: core::slice::from_raw_parts(at.add(slots).cast(), slots / 64),
        }
    }
}

impl<'l> Level<'l> {
    /// The slots that a thread with this thread pointer may have in this level, in the order of the search.
    #[inline(always)]
    pub(super) fn probes(self, thread_pointer: u64) -> impl Iterator<Item = &'l Slot> {
        let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
        // A level's size is a power of two.
        let mask = self.slots.len().wrapping_sub(1);
        (0..PROBES).filter_map(move |i| self.slots.get(first.wrapping_add(i) & mask))
    }

    /// To be called when a slot of this level is claimed, before its first mark, whose barrier orders the two stores
    /// for a writer.
    pub(super) fn note(self, slot: &Slot) {
        let index = (core::ptr::from_ref(slot) as usize).wrapping_sub(self.slots.as_ptr() as usize) / size_of::<Slot>();
        if let Some(bits) = self.used.get(index / 64) {
            bits.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }

    /// The slots that were ever claimed.
    pub(super) fn used(self) -> impl Iterator<Item = &'l Slot> {
        self.used.iter().zip(self.slots.chunks(64)).flat_map(|(bits, slots)| {
            let mut bits = bits.load(Ordering::Acquire);
            core::iter::from_fn(move || {
                let index = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                slots.get(index)
            })
        })
    }
}
