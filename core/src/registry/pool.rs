//! Memory of the registry: cells of two sizes in chunks of its own from mmap(2), so that writers need no allocator
//! and a free cell is never unmapped. Used only with the writers' lock held.

use super::tree::Node;
use super::window::Held;
use crate::syscall::call;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// A type of which the pool gives out cells.
pub trait Kept: Sized {
    /// The free list it belongs to: 0 or 1.
    const CLASS: usize;
}

impl Kept for Node {
    const CLASS: usize = 0;
}

impl Kept for Held {
    const CLASS: usize = 1;
}

/// A free cell begins with the address of the next one.
struct Free(AtomicPtr<Free>);

const FIRST_CHUNK: usize = 64 * 1024;
const LAST_CHUNK: usize = 4 * 1024 * 1024;

/// The memory of all nodes and windows, in cells of two sizes.
pub struct Pool {
    free: [AtomicPtr<Free>; 2],
    counts: [AtomicUsize; 2],
    /// The unused rest of the newest chunk: its first and last address.
    fresh: (AtomicUsize, AtomicUsize),
    chunk: AtomicUsize,
}

impl Pool {
    /// A pool without memory.
    pub const fn new() -> Pool {
        Pool {
            free: [const { AtomicPtr::new(core::ptr::null_mut()) }; 2],
            counts: [const { AtomicUsize::new(0) }; 2],
            fresh: (AtomicUsize::new(0), AtomicUsize::new(0)),
            chunk: AtomicUsize::new(FIRST_CHUNK),
        }
    }

    /// Ensures that this many cells can be taken. False: the kernel gives no memory.
    pub fn reserve(&self, nodes: usize, windows: usize) -> bool {
        let missing =
            |class: usize, wanted: usize| wanted.saturating_sub(self.counts.get(class).map_or(0, |c| c.load(Relaxed)));
        let bytes = missing(0, nodes)
            .saturating_mul(size_of::<Node>())
            .saturating_add(missing(1, windows).saturating_mul(size_of::<Held>()));
        if bytes <= self.fresh.1.load(Relaxed).wrapping_sub(self.fresh.0.load(Relaxed)) {
            return true;
        }
        let size = self.chunk.load(Relaxed).max(bytes.wrapping_add(4095) & !4095);
        let Some(at) = map(size) else { return false };
        self.chunk.store(self.chunk.load(Relaxed).wrapping_mul(2).min(LAST_CHUNK), Relaxed);
        self.fresh.0.store(at, Relaxed);
        self.fresh.1.store(at.wrapping_add(size), Relaxed);
        true
    }

    /// A cell with arbitrary contents. `None` only without [`Pool::reserve`].
    pub fn take<T: Kept>(&self) -> Option<*mut T> {
        let (list, count) = (self.free.get(T::CLASS)?, self.counts.get(T::CLASS)?);
        let first = list.load(Relaxed);
        if !first.is_null() {
            // SAFETY: a free cell holds the address of the next one.
            list.store(unsafe { (*first).0.load(Relaxed) }, Relaxed);
            count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
            return Some(first.cast());
        }
        let at = self.fresh.0.load(Relaxed);
        let next = at.checked_add(size_of::<T>()).filter(|next| at != 0 && *next <= self.fresh.1.load(Relaxed))?;
        self.fresh.0.store(next, Relaxed);
        Some(at as *mut T)
    }

    /// Frees a cell.
    ///
    /// # Safety
    /// It must come from [`Pool::take`], and be read by no walk any more.
    pub unsafe fn give<T: Kept>(&self, cell: *mut T) {
        let (Some(list), Some(count)) = (self.free.get(T::CLASS), self.counts.get(T::CLASS)) else { return };
        let cell = cell.cast::<Free>();
        // SAFETY: the caller gives up the cell; both kinds are larger than a pointer. Walks may still follow hints to
        // it.
        unsafe { (*cell).0.store(list.load(Relaxed), Relaxed) };
        list.store(cell, Relaxed);
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Drops all free memory: the child of a fork may have copied it in the middle of a change. What is lost is a leak.
    pub fn abandon(&self) {
        for (list, count) in self.free.iter().zip(&self.counts) {
            list.store(core::ptr::null_mut(), Relaxed);
            count.store(0, Relaxed);
        }
        self.fresh.0.store(0, Relaxed);
        self.fresh.1.store(0, Relaxed);
    }
}

/// Maps fresh memory. Large chunks begin at a multiple of a huge page and request huge pages: lookups among very many
/// windows would otherwise spend more time on address translation than on the memory itself.
pub fn map(size: usize) -> Option<usize> {
    use crate::syscall::nr::{MADVISE, MMAP};
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    const MADV_HUGEPAGE: usize = 14;
    const HUGE: usize = 2 * 1024 * 1024;
    let room = if size >= HUGE { size.checked_add(HUGE)? } else { size };
    // SAFETY: a fresh private mapping; the parts before and after the aligned part are never used.
    unsafe {
        let at = call(MMAP, [0, room, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]);
        if at <= 0 {
            return None;
        }
        if size < HUGE {
            return Some(at as usize);
        }
        let aligned = (at as usize).wrapping_add(HUGE - 1) & !(HUGE - 1);
        // Refused by kernels without huge pages; then small ones are used.
        call(MADVISE, [aligned, size, MADV_HUGEPAGE, 0, 0, 0]);
        Some(aligned)
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}
