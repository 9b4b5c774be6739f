//! Memory for what is remembered of registrations: powers of two from chunks of their own, large pieces by themselves.
//! Used with the lock of registrations held; never from a handler.

use core::ptr::null_mut;
use uunwind_core::syscall::call;
use uunwind_core::syscall::nr::{MMAP, MUNMAP};

const SMALLEST: usize = 7;
const LARGEST: usize = 16;
const CHUNK: usize = 1 << 18;

/// Pieces of memory for registered objects, in sizes of powers of two, cut from mappings that are kept.
pub struct Store {
    /// Free pieces of each size, linked through their first word.
    free: [*mut u8; LARGEST - SMALLEST + 1],
    chunk: *mut u8,
    left: usize,
}

fn map(bytes: usize) -> *mut u8 {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: a fresh private mapping.
    let at = unsafe { call(MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    if at > 0 {
        at as *mut u8
    } else {
        null_mut()
    }
}

/// Exponent of the size that `bytes` take.
fn class(bytes: usize) -> usize {
    (usize::BITS - bytes.saturating_sub(1).leading_zeros()).max(SMALLEST as u32) as usize
}

impl Store {
    /// A store without any chunk.
    pub const fn new() -> Store {
        Store { free: [null_mut(); LARGEST - SMALLEST + 1], chunk: null_mut(), left: 0 }
    }

    /// Room for `bytes`, aligned to 64; null when there is no memory. Its contents are uninitialized.
    pub fn take(&mut self, bytes: usize) -> *mut u8 {
        let class = class(bytes);
        let Some(free) = class.checked_sub(SMALLEST).and_then(|i| self.free.get_mut(i)) else { return map(bytes) };
        let piece = *free;
        if !piece.is_null() {
            // SAFETY: a free piece's first word links to the next one.
            *free = unsafe { piece.cast::<*mut u8>().read() };
            return piece;
        }
        let size = 1usize << class;
        if self.left < size {
            // What is left of the old chunk stays unused.
            let chunk = map(CHUNK);
            if chunk.is_null() {
                return null_mut();
            }
            (self.chunk, self.left) = (chunk, CHUNK);
        }
        let piece = self.chunk;
        // SAFETY: `left` bytes of the chunk follow.
        self.chunk = unsafe { piece.add(size) };
        self.left -= size;
        piece
    }

    /// Takes back what [`Store::take`] gave for `bytes`.
    ///
    /// # Safety
    /// No longer in use, and never again.
    pub unsafe fn give(&mut self, piece: *mut u8, bytes: usize) {
        match class(bytes).checked_sub(SMALLEST).and_then(|i| self.free.get_mut(i)) {
            Some(free) => {
                // SAFETY: the piece is ours again, and larger than a word.
                unsafe { piece.cast::<*mut u8>().write(*free) };
                *free = piece;
            }
            // SAFETY: it was mapped by itself, with this length.
            None => unsafe {
                call(MUNMAP, [piece as usize, bytes, 0, 0, 0, 0]);
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_come_back() {
        let mut store = Store::new();
        let sizes = [1, 64, 128, 129, 5000, 65536, 65537, 300_000, 128, 20];
        let pieces: Vec<(usize, usize)> = sizes.iter().map(|n| (store.take(*n) as usize, *n)).collect();
        for (i, (a, n)) in pieces.iter().enumerate() {
            assert!(a % 64 == 0 && *a != 0);
            assert!(pieces.iter().skip(i + 1).all(|(b, m)| a + n <= *b || b + m <= *a));
            // SAFETY: room for n bytes.
            unsafe { core::ptr::write_bytes(*a as *mut u8, 0xaa, *n) };
        }
        for (a, n) in &pieces {
            // SAFETY: nothing uses it.
            unsafe { store.give(*a as *mut u8, *n) };
        }
        let again = store.take(5000) as usize;
        assert!(pieces.iter().any(|(a, n)| *a == again && *n == 5000), "a piece of that size was free");
    }
}
