//! Memory that only grows: chunks that are mapped when they are first needed, and records in them that are never freed.
//!
//! A place is a 32-bit number, so that records can link to each other by it. Lock-free; for any context.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use uunwind_core::syscall::{self, nr};

/// Bytes of a chunk.
pub const CHUNK: usize = 1 << 20;
/// A place is a multiple of this number of bytes.
const UNIT: u64 = 16;

/// At most `CHUNKS` chunks.
pub struct Arena<const CHUNKS: usize> {
    chunks: [AtomicPtr<u8>; CHUNKS],
    /// Number of bytes that are taken, from the first chunk's start on. The first unit is never given away, so that no
    /// record has the place 0.
    taken: AtomicU64,
}

/// Memory that was taken and is not published yet.
#[derive(Debug)]
pub struct Taken {
    /// Distance from the first chunk's start, in units; never 0.
    pub place: u32,
    /// Its first byte, 16-aligned.
    pub start: *mut u8,
    /// What [`Arena::give_back`] needs: the bytes that were taken before it and with it.
    before: u64,
    after: u64,
}

impl<const CHUNKS: usize> Arena<CHUNKS> {
    /// Maps nothing.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Arena<CHUNKS> {
        Arena { chunks: [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS], taken: AtomicU64::new(UNIT) }
    }

    /// Takes `bytes` of zeroed memory. `None`: all chunks are full, the kernel has no memory, or it is more than a
    /// chunk has.
    pub fn take(&self, bytes: usize) -> Option<Taken> {
        if bytes > CHUNK - UNIT as usize {
            return None;
        }
        let need = (bytes as u64).next_multiple_of(UNIT);
        let mut before = self.taken.load(Ordering::Relaxed);
        // Each turn that fails has let another thread succeed.
        loop {
            let left = CHUNK as u64 - before % CHUNK as u64;
            let start = if need <= left { before } else { before + left };
            if (start / CHUNK as u64) as usize >= CHUNKS {
                return None;
            }
            // Before anything is taken: without memory, nothing of the arena is used up.
            let chunk = self.chunk((start / CHUNK as u64) as usize)?;
            let place = u32::try_from(start / UNIT).ok()?;
            match self.taken.compare_exchange_weak(before, start + need, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: `start % CHUNK + need` is at most CHUNK.
                    let start_at = unsafe { chunk.add((start % CHUNK as u64) as usize) };
                    return Some(Taken { place, start: start_at, before, after: start + need });
                }
                Err(now) => before = now,
            }
        }
    }

    /// Makes memory available again if it was the last that was taken; else it stays unused. `wrote`: its bytes were
    /// changed, at most this number of them.
    pub fn give_back(&self, taken: Taken, wrote: usize) {
        // SAFETY: this memory has no other user.
        unsafe { core::ptr::write_bytes(taken.start, 0, wrote) };
        let _ = self.taken.compare_exchange(taken.after, taken.before, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The first byte of what lies at a place, if its chunk is mapped.
    pub fn at(&self, place: u32) -> Option<*const u8> {
        let at = u64::from(place) * UNIT;
        let chunk = self.chunks.get((at / CHUNK as u64) as usize)?.load(Ordering::Acquire);
        // SAFETY: inside the chunk, which is never unmapped.
        (!chunk.is_null()).then(|| unsafe { chunk.add((at % CHUNK as u64) as usize) }.cast_const())
    }

    /// A chunk, which is mapped if it was not.
    fn chunk(&self, index: usize) -> Option<*mut u8> {
        let chunk = self.chunks.get(index)?;
        let mapped = chunk.load(Ordering::Acquire);
        if !mapped.is_null() {
            return Some(mapped);
        }
        let new = map(CHUNK)?;
        match chunk.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(new),
            Err(other) => {
                unmap(new, CHUNK);
                Some(other)
            }
        }
    }
}

/// Maps `bytes` of zeroed private memory
/// ([mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html); MAP_NORESERVE: what is not touched costs nothing).
pub fn map(bytes: usize) -> Option<*mut u8> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    let arguments = [0, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0];
    // SAFETY: a fresh mapping.
    let mapped = unsafe { syscall::call(nr::MMAP, arguments) };
    (mapped > 0).then_some(mapped as *mut u8)
}

/// Unmaps what [`map`] has just mapped, before it is published.
pub(crate) fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: a mapping that only the caller has.
    unsafe { syscall::call(nr::MUNMAP, [start as usize, bytes, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_do_not_cross_chunks_and_the_limit_holds() {
        static ARENA: Arena<2> = Arena::new();
        let first = ARENA.take(600_000).expect("room");
        assert_eq!((first.place, first.start as usize % 16), (1, 0));
        let second = ARENA.take(600_000).expect("room in the second chunk");
        assert_eq!(u64::from(second.place) * UNIT, CHUNK as u64);
        assert_eq!(ARENA.at(second.place), Some(second.start.cast_const()));
        assert!(ARENA.take(600_000).is_none(), "two chunks only");
        assert!(ARENA.take(CHUNK).is_none());
        let third = ARENA.take(100).expect("what is left of the second chunk");
        let place = third.place;
        // SAFETY: 100 bytes were taken.
        unsafe { third.start.write_bytes(7, 100) };
        ARENA.give_back(third, 100);
        let again = ARENA.take(200).expect("room");
        assert_eq!(again.place, place);
        // SAFETY: as above.
        assert_eq!(unsafe { again.start.read() }, 0, "memory comes zeroed");
        assert_eq!(ARENA.at(u32::MAX), None);
    }

    #[test]
    fn threads_get_disjoint_memory() {
        static ARENA: Arena<8> = Arena::new();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    (1..2000)
                        .filter_map(|n| ARENA.take(n % 700).map(|t| (t.start as usize, n % 700)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
        assert!(all.len() > 7900, "{}", all.len());
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }
}
