//! What a walk reads, written down word by word, so that the next one may ask whether it would read the same.

use super::guarded;
use super::recalled::{Name, Recalled};

/// One read: where, and what came of it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Bits 0..47 the address; bits 48..51 the bytes beyond which the value is zero (0 = all 8); bit 62: no address, but the number of
    /// an entry of [`Recalled`], which stands for its reads, and the value tells which it was; bit 63: it failed.
    place: u64,
    value: u64,
}

const FAILED: u64 = 1 << 63;
const RECALLED: u64 = 1 << 62;
const SIZE: u32 = 48;
const ADDRESS: u64 = (1 << 48) - 1;

impl Read {
    /// No read.
    pub(crate) const NONE: Read = Read { place: 0, value: 0 };

    /// A read of 1 to 8 bytes.
    #[inline(always)]
    pub(super) fn new(address: u64, size: u64, value: Option<u64>) -> Read {
        let failed = if value.is_none() { FAILED } else { 0 };
        Read { place: (address & ADDRESS) | (size & 7) << SIZE | failed, value: value.unwrap_or(0) }
    }

    /// A read of a whole word at a user's address that succeeded.
    #[inline(always)]
    pub(super) fn of_word(address: u64, value: u64) -> Read {
        Read { place: address, value }
    }

    /// All reads of an answer.
    #[inline(always)]
    pub(super) fn of_recalled(name: Name) -> Read {
        Read { place: name.index as u64 | RECALLED, value: name.at }
    }

    /// Does it stand for those of an answer?
    pub(super) fn is_recalled(&self) -> bool {
        self.place & RECALLED != 0
    }

    #[cfg(test)]
    pub(super) fn failed(&self) -> bool {
        self.place & FAILED != 0
    }

    /// The first of these reads that does not give the same now. They are not written down.
    pub(crate) fn refuted(reads: &[Read], reader: &mut super::Reader<'_>) -> Option<usize> {
        let was = reader.pause(true);
        let refuted = if reader.is_guarded() {
            // By far the most are of whole words.
            reads.iter().position(|read| {
                let mut failed = 0;
                match read.place >> SIZE {
                    0 => guarded::load_noting(read.place, &mut failed) != read.value || failed != 0,
                    _ => !read.holds(reader),
                }
            })
        } else {
            reads.iter().position(|read| !read.holds(reader))
        };
        reader.pause(was);
        refuted
    }

    /// Whether the same read gives the same now.
    #[inline(never)]
    fn holds(&self, reader: &mut super::Reader<'_>) -> bool {
        if self.is_recalled() {
            return reader.recalled_holds((self.place & ADDRESS) as usize, self.value);
        }
        if self.place >> SIZE == 0 {
            return reader.word(self.place) == Some(self.value);
        }
        let (address, size) = (self.place & ADDRESS, (self.place >> SIZE & 7) as usize);
        let mut bytes = [0; 8];
        let wanted = if size == 0 { 8 } else { size };
        let read = bytes.get_mut(..wanted).is_some_and(|bytes| reader.read(address, bytes));
        match self.place & FAILED {
            0 => read && u64::from_le_bytes(bytes) == self.value,
            _ => !read,
        }
    }
}

/// Where reads are written down. Nowhere, unless [`super::Reader::write_down`] was called.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Log {
    start: *mut Read,
    pub(super) next: *mut Read,
    pub(super) end: *mut Read,
    paused: bool,
    pub(super) overflow: bool,
    /// Where answers are kept; null: nowhere.
    pub(super) recalled: *mut Recalled,
    /// Reads before the answer that is being worked out; none is: `usize::MAX`.
    pub(super) before: usize,
}

impl Log {
    pub(super) const fn none() -> Log {
        let null = core::ptr::null_mut();
        Log {
            start: null,
            next: null,
            end: null,
            paused: true,
            overflow: false,
            recalled: core::ptr::null_mut(),
            before: usize::MAX,
        }
    }

    /// # Safety
    /// `[start, start + room)` must stay valid for writes, and nobody else's, as long as the log is.
    pub(super) unsafe fn over(start: *mut Read, room: usize) -> Log {
        Log { start, next: start, end: start.wrapping_add(room), paused: false, ..Log::none() }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, address: u64, size: u64, value: Option<u64>) {
        if self.paused {
            return;
        }
        if self.next == self.end || address > ADDRESS {
            self.overflow = true;
            return;
        }
        // SAFETY: below the end of what `over`'s caller gave.
        unsafe { self.next.write(Read::new(address, size, value)) };
        self.next = self.next.wrapping_add(1);
    }

    /// Where to write `count` reads of whole words, which [`Log::take`] then takes over; null: nowhere.
    #[inline(always)]
    pub(super) fn room(&mut self, count: usize) -> *mut Read {
        let room = (self.end as usize).wrapping_sub(self.next as usize) / core::mem::size_of::<Read>();
        if self.paused || room < count {
            self.overflow |= !self.paused;
            return core::ptr::null_mut();
        }
        self.next
    }

    /// Takes over what was written to a [`Log::room`].
    #[inline(always)]
    pub(super) fn take(&mut self, room: *mut Read, count: usize) {
        if !room.is_null() {
            self.next = room.wrapping_add(count);
        }
    }

    /// A read of any length.
    ///
    /// # Safety
    /// If `done`, `out` must hold the `len` bytes that were read.
    #[cold]
    pub(super) unsafe fn add_many(&mut self, address: u64, out: *const u8, len: usize, done: bool) {
        if !done {
            // Which of several words could not be read is not known.
            self.overflow |= len > 8;
            return self.add(address, len.min(8) as u64, None);
        }
        for at in (0..len).step_by(8) {
            let size = (len - at).min(8);
            let mut bytes = [0; 8];
            // SAFETY: `size` bytes at `at` lie inside the `len` that were read.
            unsafe { core::ptr::copy_nonoverlapping(out.wrapping_add(at), bytes.as_mut_ptr(), size) };
            self.add(address.wrapping_add(at as u64), size as u64, Some(u64::from_le_bytes(bytes)));
        }
    }

    /// All reads of an answer.
    #[inline(always)]
    pub(super) fn add_recalled(&mut self, name: Name) {
        let room = self.room(1);
        if !room.is_null() {
            // SAFETY: room for one.
            unsafe { room.write(Read::of_recalled(name)) };
            self.take(room, 1);
        }
    }

    /// The reads from this one on, if all were written down.
    pub(super) fn since(&self, first: usize) -> &[Read] {
        let count = self.len().saturating_sub(first);
        if self.paused || self.overflow || count == 0 {
            return &[];
        }
        // SAFETY: `first + count` reads were written.
        unsafe { core::slice::from_raw_parts(self.start.wrapping_add(first), count) }
    }

    /// Takes the reads from this one on back.
    pub(super) fn take_back(&mut self, first: usize) {
        if first <= self.len() {
            self.next = self.start.wrapping_add(first);
        }
    }

    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        !self.paused
    }

    pub(super) fn len(&self) -> usize {
        (self.next as usize).wrapping_sub(self.start as usize) / core::mem::size_of::<Read>()
    }

    pub(super) fn overflow(&self) -> bool {
        self.overflow
    }

    pub(super) fn pause(&mut self, pause: bool) -> bool {
        core::mem::replace(&mut self.paused, pause)
    }
}
