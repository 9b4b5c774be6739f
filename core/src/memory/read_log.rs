//! The log of a walk's reads, word by word, by which the next walk can check whether it would read the same.

use super::hashed::LONGEST;
use super::{group, guarded, OwnStack};
use crate::cache::read_memo::{Name, Recalled};

/// One read: its address and its result.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Bits 0..47: the address. Bits 48..51: number of bytes after which the value is zero (0 = all 8). Bits 52..61:
    /// number of bytes from the address on of which the value is the hash (0: it is no hash). Bit 62: instead of an
    /// address, the index of an entry of [`Recalled`], which stands for its reads and which the value identifies. Bit
    /// 63: the read failed. Both: the header of a group ([`super::group`]), whose entries follow it.
    pub(super) place: u64,
    pub(super) value: u64,
}

const FAILED: u64 = 1 << 63;
const RECALLED: u64 = 1 << 62;
const GROUP: u64 = FAILED | RECALLED;
const SIZE: u32 = 48;
const RANGE: u32 = 52;
const ADDRESS: u64 = (1 << 48) - 1;

impl Read {
    /// An unused entry of a log.
    pub const NONE: Read = Read { place: 0, value: 0 };

    /// A read of `size` bytes, 1 to 8, at a process address. `value`: zero-extended; `None`: the read failed.
    #[inline(always)]
    pub(crate) fn new(address: u64, size: u64, value: Option<u64>) -> Read {
        let failed = if value.is_none() { FAILED } else { 0 };
        Read { place: (address & ADDRESS) | (size & 7) << SIZE | failed, value: value.unwrap_or(0) }
    }

    /// A successful read of a whole word at a user address.
    #[inline(always)]
    pub(crate) fn of_word(address: u64, value: u64) -> Read {
        Read { place: address, value }
    }

    /// A range of bytes with this hash.
    #[inline(always)]
    fn of_range(address: u64, len: usize, hash: u64) -> Read {
        Read { place: (address & ADDRESS) | ((len & LONGEST) as u64) << RANGE, value: hash }
    }

    /// Number of bytes of a range; 0: this is no range.
    fn range(&self) -> usize {
        (self.place >> RANGE) as usize & LONGEST
    }

    /// Stands for all reads of a cached answer.
    #[inline(always)]
    pub(crate) fn of_recalled(name: Name) -> Read {
        Read { place: name.index as u64 | RECALLED, value: name.at }
    }

    /// The header of a group of this number of structures, at most 65535, with words at these offsets, which have 16
    /// bits each.
    #[inline(always)]
    pub(super) fn of_group(offsets: [u32; 4], count: usize) -> Read {
        let value = offsets.iter().rev().fold(0, |all, offset| all << 16 | u64::from(*offset));
        Read { place: GROUP | count as u64, value }
    }

    /// The offsets, and the number of structures, of a group's header.
    #[inline(always)]
    pub(super) fn group(&self) -> ([u64; 4], usize) {
        let offset = |at: u32| self.value >> (16 * at) & 0xffff;
        ([offset(0), offset(1), offset(2), offset(3)], (self.place & 0xffff) as usize)
    }

    /// Whether it stands for those of a cached answer, or for a group.
    pub(crate) fn is_recalled(&self) -> bool {
        self.place & RECALLED != 0
    }

    #[cfg(test)]
    pub(crate) fn failed(&self) -> bool {
        self.place & FAILED != 0
    }

    /// The first of these reads whose result is different now. Repeating the reads is not logged.
    pub(crate) fn refuted(reads: &[Read], reader: &mut super::Reader<'_>) -> Option<usize> {
        let was = reader.pause(true);
        let refuted = Read::first_refuted(reads, reader);
        reader.pause(was);
        refuted
    }

    fn first_refuted(reads: &[Read], reader: &mut super::Reader<'_>) -> Option<usize> {
        let (is_guarded, stack) = (reader.is_guarded(), reader.own_stack().unwrap_or(OwnStack::NONE));
        let mut at = 0;
        while let Some(read) = reads.get(at) {
            let holds = if read.place >> SIZE == 0 && is_guarded {
                // Nearly all reads outside of groups are of whole words.
                let mut failed = 0;
                guarded::load_noting(read.place, &mut failed) == read.value && failed == 0
            } else if read.place >> SIZE == 0 && stack.holds(read.place) {
                // In the order in which the walk reads them, and no further than they are the same.
                stack.word(read.place) == Some(read.value)
            } else if read.place & GROUP == GROUP {
                match group::refuted(reads.get(at..).unwrap_or_default(), reader) {
                    Err(entry) => return Some(at + entry),
                    Ok(entries) => at += entries,
                }
                true
            } else {
                read.holds(reader)
            };
            if !holds {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// Whether repeating the read gives the same result.
    #[inline(never)]
    fn holds(&self, reader: &mut super::Reader<'_>) -> bool {
        if self.is_recalled() {
            return reader.recalled_holds(Name { index: (self.place & ADDRESS) as usize, at: self.value });
        }
        if self.range() != 0 {
            return reader.rehash(self.place & ADDRESS, self.range()) == Some(self.value);
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

/// The log of a reader. It records nothing until [`super::Reader::write_down`] is called.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Log {
    pub(crate) start: *mut Read,
    pub(crate) next: *mut Read,
    pub(crate) end: *mut Read,
    paused: bool,
    pub(crate) overflow: bool,
    /// Something was read that is not logged, and is to be read again ([`super::near::Near::owe`]).
    pub(crate) owed: bool,
    /// Where answers are cached; null: nowhere.
    pub(crate) recalled: *mut Recalled,
    /// Number of reads before the answer that is being computed; `usize::MAX` if none is.
    pub(crate) before: usize,
}

impl Log {
    pub(crate) const fn none() -> Log {
        let null = core::ptr::null_mut();
        Log {
            start: null,
            next: null,
            end: null,
            paused: true,
            overflow: false,
            owed: false,
            recalled: core::ptr::null_mut(),
            before: usize::MAX,
        }
    }

    /// # Safety
    /// `[start, start + room)` must stay valid for writes and have no other user as long as the log exists.
    pub(crate) unsafe fn over(start: *mut Read, room: usize) -> Log {
        Log { start, next: start, end: start.wrapping_add(room), paused: false, ..Log::none() }
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, address: u64, size: u64, value: Option<u64>) {
        self.add_read(address, Read::new(address, size, value));
    }

    /// Logs a range of bytes with this hash.
    pub(crate) fn add_range(&mut self, address: u64, len: usize, hash: u64) {
        self.add_read(address, Read::of_range(address, len, hash));
    }

    #[inline(always)]
    fn add_read(&mut self, address: u64, read: Read) {
        if self.paused {
            return;
        }
        if self.next == self.end || address > ADDRESS {
            self.overflow = true;
            return;
        }
        // SAFETY: below the end that `over`'s caller gave.
        unsafe { self.next.write(read) };
        self.next = self.next.wrapping_add(1);
    }

    /// Space for `count` reads of whole words, to be added by [`Log::take`]; null if there is none.
    #[inline(always)]
    pub(crate) fn room(&mut self, count: usize) -> *mut Read {
        let room = (self.end as usize).wrapping_sub(self.next as usize) / core::mem::size_of::<Read>();
        if self.paused || room < count {
            self.overflow |= !self.paused;
            return core::ptr::null_mut();
        }
        self.next
    }

    /// Adds what was written to the space of [`Log::room`].
    #[inline(always)]
    pub(crate) fn take(&mut self, room: *mut Read, count: usize) {
        if !room.is_null() {
            self.next = room.wrapping_add(count);
        }
    }

    /// Logs a read of any length.
    ///
    /// # Safety
    /// If `done`, `out` must hold the `len` bytes that were read.
    #[cold]
    pub(crate) unsafe fn add_many(&mut self, address: u64, out: *const u8, len: usize, done: bool) {
        if !done {
            // It is not known which of several words was unreadable.
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

    /// Logs all reads of a cached answer as one entry.
    #[inline(always)]
    pub(crate) fn add_recalled(&mut self, name: Name) {
        let room = self.room(1);
        if !room.is_null() {
            // SAFETY: space for one read.
            unsafe { room.write(Read::of_recalled(name)) };
            self.take(room, 1);
        }
    }

    /// The reads from index `first` on, if all were logged.
    pub(crate) fn since(&self, first: usize) -> &[Read] {
        let count = self.len().saturating_sub(first);
        if self.paused || self.overflow || count == 0 {
            return &[];
        }
        // SAFETY: `first + count` reads were written.
        unsafe { core::slice::from_raw_parts(self.start.wrapping_add(first), count) }
    }

    /// Removes the reads from index `first` on.
    pub(crate) fn take_back(&mut self, first: usize) {
        if first <= self.len() {
            self.next = self.start.wrapping_add(first);
        }
    }

    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.paused
    }

    pub(crate) fn len(&self) -> usize {
        (self.next as usize).wrapping_sub(self.start as usize) / core::mem::size_of::<Read>()
    }

    pub(crate) fn overflow(&self) -> bool {
        self.overflow
    }

    pub(crate) fn pause(&mut self, pause: bool) -> bool {
        core::mem::replace(&mut self.paused, pause)
    }
}
