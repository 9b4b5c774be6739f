//! Openings: objects that processes are about to load, so that the recorder has their rule tables ready when their code
//! runs. They lie in the first page of the session.
//!
//! ```text
//! OPENINGS_OFFSET   Opening[SLOTS]   opening n (from 0) in slot n % SLOTS
//! ```
//! A process takes the next number, writes the slot and then its ticket, the number plus one, with release order. An
//! opening is a hint and nothing else: one that is overwritten before it is read is lost, and the object comes with the
//! first sample that meets it, as any other does.

use crate::layout::{SessionHeader, OPENINGS_OFFSET};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Openings that can wait to be read at once.
pub const SLOTS: usize = 4;
/// Longest path, in bytes.
pub const PATH_BYTES: usize = 888;
/// Bytes of all slots.
pub const BYTES: usize = SLOTS * core::mem::size_of::<Opening>();

/// One slot.
#[repr(C)]
pub struct Opening {
    /// Number of the opening plus one; 0: it is being written.
    ticket: AtomicU32,
    /// Process id where the recorder lives.
    pid: AtomicU32,
    /// Bytes of the path.
    len: AtomicU64,
    /// Process address of the code that loads it: a return address, of which a name is searched for as the object that
    /// it lies in says. 0: not available.
    caller: AtomicU64,
    /// The path as the process has it.
    path: [AtomicU64; PATH_BYTES / 8],
}

/// A copy of an opening.
pub struct Announced {
    /// Process id where the recorder lives.
    pub pid: u32,
    /// Process address of the code that loads the object; 0: not available.
    pub caller: u64,
    /// The path as the process has it.
    pub path: Path,
}

/// A copy of an opening's path.
pub struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Path {
    /// The path, without a NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The openings of a mapped session.
pub struct Openings<'s> {
    count: &'s AtomicU32,
    slots: &'s [Opening; SLOTS],
}

impl Openings<'_> {
    /// Those of the session whose first page is mapped at `base`.
    ///
    /// # Safety
    /// A page at `base` must stay mapped for writing for as long as the value is used.
    pub unsafe fn at<'s>(base: *mut u8) -> Openings<'s> {
        // SAFETY: both lie in the first page (`layout` asserts that), aligned; all fields used here are atomics.
        unsafe {
            Openings { count: &(*base.cast::<SessionHeader>()).openings, slots: &*base.add(OPENINGS_OFFSET).cast() }
        }
    }

    /// Number of openings so far. It wraps.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    fn slot(&self, number: u32) -> Option<&Opening> {
        self.slots.get(number as usize % SLOTS)
    }

    /// Adds one. Longer paths than [`PATH_BYTES`] are left out. Async-signal-safe.
    pub fn put(&self, pid: u32, caller: u64, path: &[u8]) {
        if path.len() > PATH_BYTES {
            return;
        }
        let number = self.count.fetch_add(1, Ordering::AcqRel);
        let Some(slot) = self.slot(number) else { return };
        slot.ticket.store(0, Ordering::SeqCst);
        slot.pid.store(pid, Ordering::Relaxed);
        slot.len.store(path.len() as u64, Ordering::Relaxed);
        slot.caller.store(caller, Ordering::Relaxed);
        for (word, bytes) in slot.path.iter().zip(path.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        slot.ticket.store(number.wrapping_add(1), Ordering::Release);
    }

    /// The opening with this number. `None`: it is not written yet, or not there any more. Others may write to the slot
    /// at any time, so the path may be any bytes, and the numbers any.
    pub fn get(&self, number: u32) -> Option<Announced> {
        let slot = self.slot(number)?;
        let is_it = || slot.ticket.load(Ordering::Acquire) == number.wrapping_add(1);
        if !is_it() {
            return None;
        }
        let len = slot.len.load(Ordering::Relaxed).min(PATH_BYTES as u64) as usize;
        let mut path = Path { bytes: [0; PATH_BYTES], len };
        for (bytes, word) in path.bytes.chunks_exact_mut(8).zip(&slot.path) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let (pid, caller) = (slot.pid.load(Ordering::Relaxed), slot.caller.load(Ordering::Relaxed));
        core::sync::atomic::fence(Ordering::Acquire);
        is_it().then_some(Announced { pid, caller, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FIRST_PAGE;

    #[test]
    fn an_opening_is_read_by_its_number_until_it_is_overwritten() {
        let mut page = vec![0u64; FIRST_PAGE / 8];
        // SAFETY: a page of writable memory, which lives longer than the value.
        let openings = unsafe { Openings::at(page.as_mut_ptr().cast()) };
        assert!(openings.get(0).is_none());
        for n in 0..SLOTS as u32 {
            openings.put(100 + n, u64::from(n) << 40, format!("/lib/{n}").as_bytes());
        }
        openings.put(9, 9, &[b'x'; PATH_BYTES + 1]);
        assert_eq!(openings.count(), SLOTS as u32);
        for n in 0..SLOTS as u32 {
            let Announced { pid, caller, path } = openings.get(n).expect("it was put");
            let expected = (100 + n, u64::from(n) << 40);
            assert_eq!(((pid, caller), path.as_bytes()), (expected, format!("/lib/{n}").as_bytes()));
        }
        let longest = [b'y'; PATH_BYTES];
        openings.put(7, 8, &longest);
        assert!(openings.get(0).is_none());
        let Announced { pid, caller, path } = openings.get(SLOTS as u32).expect("it was put");
        assert_eq!((pid, caller, path.as_bytes()), (7, 8, &longest[..]));
    }

    #[test]
    fn any_length_and_number_can_be_read() {
        let mut page = vec![u64::MAX; FIRST_PAGE / 8];
        // SAFETY: as above.
        let openings = unsafe { Openings::at(page.as_mut_ptr().cast()) };
        let announced = openings.get(u32::MAX - 1).expect("the ticket is right");
        assert_eq!(announced.path.as_bytes().len(), PATH_BYTES);
    }
}
