//! Memory of the registry: cells of two sizes, out of chunks of its own from mmap(2), so that writers need no allocator
//! and a free cell is never unmapped. Touched with the writers' lock held, and by nobody else.

use super::tree::Node;
use super::window::Held;
use crate::syscall::call;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// What lies in a cell.
pub trait Kept: Sized {
    /// Which list it belongs to: 0 or 1.
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

/// The cells.
pub struct Pool {
    free: [AtomicPtr<Free>; 2],
    counts: [AtomicUsize; 2],
    /// The rest of the newest chunk, never used so far.
    fresh: (AtomicUsize, AtomicUsize),
    chunk: AtomicUsize,
}

impl Pool {
    /// Without memory.
    pub const fn new() -> Pool {
        Pool {
            free: [const { AtomicPtr::new(core::ptr::null_mut()) }; 2],
            counts: [const { AtomicUsize::new(0) }; 2],
            fresh: (AtomicUsize::new(0), AtomicUsize::new(0)),
            chunk: AtomicUsize::new(FIRST_CHUNK),
        }
    }

    /// Makes sure that so many cells can be taken. False: the kernel gives no memory.
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

    /// A cell, with whatever was in it. `None` only without [`Pool::reserve`].
    pub fn take<T: Kept>(&self) -> Option<*mut T> {
        let (list, count) = (self.free.get(T::CLASS)?, self.counts.get(T::CLASS)?);
        let first = list.load(Relaxed);
        if !first.is_null() {
            // SAFETY: a free cell holds its successor.
            list.store(unsafe { (*first).0.load(Relaxed) }, Relaxed);
            count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
            return Some(first.cast());
        }
        let at = self.fresh.0.load(Relaxed);
        let next = at.checked_add(size_of::<T>()).filter(|next| at != 0 && *next <= self.fresh.1.load(Relaxed))?;
        self.fresh.0.store(next, Relaxed);
        Some(at as *mut T)
    }

    /// Gives a cell back.
    ///
    /// # Safety
    /// It came from [`Pool::take`], and nobody reads it any more.
    pub unsafe fn give<T: Kept>(&self, cell: *mut T) {
        let (Some(list), Some(count)) = (self.free.get(T::CLASS), self.counts.get(T::CLASS)) else { return };
        let cell = cell.cast::<Free>();
        // SAFETY: the caller gives the cell up; both kinds are larger than a pointer. Hints may still lead walks here.
        unsafe { (*cell).0.store(list.load(Relaxed), Relaxed) };
        list.store(cell, Relaxed);
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Forgets all free memory: it may be half way between two lists. What is lost is a leak.
    pub fn abandon(&self) {
        for (list, count) in self.free.iter().zip(&self.counts) {
            list.store(core::ptr::null_mut(), Relaxed);
            count.store(0, Relaxed);
        }
        self.fresh.0.store(0, Relaxed);
        self.fresh.1.store(0, Relaxed);
    }
}

/// Fresh memory. Large chunks begin at a multiple of a huge page and ask for such: lookups among very many windows would
/// otherwise wait for address translations more than for the memory itself.
pub fn map(size: usize) -> Option<usize> {
    use crate::syscall::nr::{MADVISE, MMAP};
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    const MADV_HUGEPAGE: usize = 14;
    const HUGE: usize = 2 * 1024 * 1024;
    let room = if size >= HUGE { size.checked_add(HUGE)? } else { size };
    // SAFETY: a fresh private mapping; what lies before and behind the aligned part is never touched.
    unsafe {
        let at = call(MMAP, [0, room, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]);
        if at <= 0 {
            return None;
        }
        if size < HUGE {
            return Some(at as usize);
        }
        let aligned = (at as usize).wrapping_add(HUGE - 1) & !(HUGE - 1);
        // Refused by kernels without huge pages: then small ones serve.
        call(MADVISE, [aligned, size, MADV_HUGEPAGE, 0, 0, 0]);
        Some(aligned)
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}
