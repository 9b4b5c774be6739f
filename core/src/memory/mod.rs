//! Fallible memory: the only way to read bytes of a stack, an object or a runtime.
//!
//! There are four modes, one of which is chosen for each walk:
//! * **guarded**: plain loads at listed instructions; the fault handler moves a fault there to a fix-up ([`guarded`]).
//!   Needs a SIGSEGV/SIGBUS handler that calls [`guarded::mend`], the signals unblocked, and stack space for the
//!   fault's frame;
//! * **probed**: one cheap system call for each new page (`probed`), then plain loads. Another thread may unmap the
//!   page in between, so this mode is for stacks and live objects only. Pages of an object's unwind data are probed once
//!   for each load of it, and the last page of its file once for each walk;
//! * **hosted**: by a function of the caller, for plugins that use the parts of this crate that need no walk;
//! * **recorded**: bytes saved elsewhere, for tests and fuzzing.

#[cfg_attr(target_arch = "aarch64", path = "bare/none.rs")]
mod bare;
pub mod block;
mod direct;
pub mod draft;
pub mod group;
pub mod guarded;
mod hashed;
pub mod near;
mod own_stack;
pub mod paged;
mod probed;
pub(crate) mod read_log;
mod sorted;

use crate::cache::read_memo::Name;
pub use crate::cache::read_memo::{Recalled, ANSWER, KEY};
use crate::span::Span;
pub use bare::{Bare, StackWords};
use core::ffi::c_void;
pub use direct::Direct;
use draft::Room;
pub use own_stack::OwnStack;
use probed::PAGE;
use read_log::Log;
pub use read_log::Read;
pub use sorted::ImageTable;

/// Saved bytes of a process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Process address of the first byte.
    pub address: u64,
    /// The bytes, from `address` on.
    pub bytes: &'a [u8],
}

/// A function that fills `out` with `len` bytes from `address`, or returns false; `Host::read` of a plugin.
pub type HostRead = unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool;

/// How a reader reads bytes. All modes fail where memory is not readable; none has side effects on it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum Mode<'a> {
    /// Loads at listed instructions, which the fault handler skips ([`guarded::mend`]).
    Guarded,
    /// Loads from pages that a system call has just reported as readable.
    Probed,
    /// By this function, with this first argument.
    Hosted(HostRead, *mut c_void),
    /// From saved bytes: for tests, fuzzers, and unwind data that was read from files.
    Recorded(&'a [Region<'a>]),
}

/// Reads foreign memory; every read can fail.
#[derive(Debug)]
#[repr(C)]
pub struct Reader<'a> {
    mode: Mode<'a>,
    pages: probed::Pages,
    log: Log,
    /// Structures and words that a borrower has read ([`near`]) since this was last asked.
    lent: u32,
    /// Where a borrower may write frames.
    room: Room,
}

/// End of the user addresses: 47 bits, on AArch64 48 unless a program asks for more. Reads that could pass it fail.
pub const USER_END: u64 = if cfg!(target_arch = "aarch64") { 1 << 48 } else { 1 << 47 };

/// From addresses up to here, no 32-bit offset leads beyond [`USER_END`].
const SURE: u64 = USER_END - 8 - u32::MAX as u64;

impl<'a> Reader<'a> {
    /// A reader for one walk.
    ///
    /// # Safety
    /// For [`Mode::Guarded`]: the thread's SIGSEGV and SIGBUS must be unblocked and reach a handler that applies
    /// [`guarded::mend`]. For [`Mode::Hosted`]: the function must take the argument, for as long as the reader is used.
    pub unsafe fn new(mode: Mode<'a>) -> Reader<'a> {
        Reader { mode, pages: probed::Pages::new(), log: Log::none(), lent: 0, room: Room::NONE }
    }

    /// A reader by [`Mode::Probed`] reads, which have no precondition.
    pub fn probed() -> Reader<'a> {
        Reader { mode: Mode::Probed, pages: probed::Pages::new(), log: Log::none(), lent: 0, room: Room::NONE }
    }

    /// A reader of saved bytes; what lies in none of the regions is unreadable.
    pub fn recorded(regions: &'a [Region<'a>]) -> Reader<'a> {
        Reader {
            mode: Mode::Recorded(regions),
            pages: probed::Pages::new(),
            log: Log::none(),
            lent: 0,
            room: Room::NONE,
        }
    }

    /// Another reader of the same memory, which logs nothing.
    pub fn without_log(&self) -> Reader<'a> {
        Reader { mode: self.mode, pages: probed::Pages::new(), log: Log::none(), lent: 0, room: Room::NONE }
    }

    /// From now on reads are logged at `start`, as long as there is space.
    ///
    /// # Safety
    /// `[start, start + room)` must be valid for writes and have no other user until [`Reader::forget_log`] or the
    /// reader's end.
    pub unsafe fn write_down(&mut self, start: *mut Read, room: usize) {
        // SAFETY: passed on.
        self.log = unsafe { Log::over(start, room) };
    }

    /// From now on answers are cached in `recalled`.
    ///
    /// # Safety
    /// `recalled` must be valid and have no other user until [`Reader::forget_log`] or the reader's end.
    pub unsafe fn keep_answers(&mut self, recalled: *mut Recalled) {
        self.log.recalled = recalled;
    }

    /// The cached answer of a plugin for this key, if every word that was read for it is unchanged. After `None`, reads
    /// are attributed to the answer that [`Reader::remember`] will cache.
    #[inline]
    pub fn recall(&mut self, plugin: u8, key: &[u64; KEY]) -> Option<[u64; ANSWER]> {
        self.log.before = self.log.len();
        // SAFETY: valid by `keep_answers`'s contract; the reader itself has no reference to it.
        let recalled = unsafe { self.log.recalled.as_mut() }.filter(|_| self.log.is_open())?;
        let (answer, name) = recalled.find(plugin.into(), key, self)?;
        self.log.add_recalled(name);
        self.log.before = usize::MAX;
        Some(answer)
    }

    /// Caches the answer for the key of the preceding [`Reader::recall`], which returned `None`: it must follow from
    /// the key and from what was read since.
    pub fn remember(&mut self, plugin: u8, key: &[u64; KEY], answer: [u64; ANSWER]) {
        let before = core::mem::replace(&mut self.log.before, usize::MAX);
        // SAFETY: valid by `keep_answers`'s contract.
        let Some(recalled) = (unsafe { self.log.recalled.as_mut() }) else { return };
        if let Some(name) = recalled.keep(plugin.into(), key, answer, self.log.since(before)) {
            self.log.take_back(before);
            self.log.add_recalled(name);
        }
    }

    #[inline(never)]
    fn recalled_holds(&mut self, name: Name) -> bool {
        // SAFETY: valid by `keep_answers`'s contract.
        unsafe { self.log.recalled.as_mut() }.is_some_and(|recalled| recalled.still_holds(name, self))
    }

    /// Ends [`Reader::write_down`].
    pub fn forget_log(&mut self) {
        self.log = Log::none();
    }

    /// Number of reads logged so far.
    #[inline(always)]
    pub fn written(&self) -> usize {
        self.log.len()
    }

    /// Number of structures that borrowers have read ([`near::Near`]) since the last call of this.
    #[inline(always)]
    pub fn take_lent(&mut self) -> u32 {
        core::mem::take(&mut self.lent)
    }

    /// Whoever borrows the reader from now on may write frames in this room.
    ///
    /// # Safety
    /// It must be valid for writes, and have no other user, whenever the reader is borrowed, until it is replaced.
    #[inline(always)]
    pub unsafe fn lend_room(&mut self, room: Room) {
        self.room = room;
    }

    /// The room that was lent last.
    #[inline(always)]
    pub fn lent_room(&self) -> Room {
        self.room
    }

    /// Whether some reads found no space in the log.
    pub fn overflow(&self) -> bool {
        self.log.overflow()
    }

    /// Whether something was read that is neither logged nor was read again.
    pub fn owes(&self) -> bool {
        self.log.owed
    }

    /// Switches logging off or on, off for data that belongs to the program's text, such as its unwind tables.
    /// Returns the previous state.
    #[inline(always)]
    pub fn pause(&mut self, pause: bool) -> bool {
        self.log.pause(pause)
    }

    /// Says that the word at `address` (process address) was just read or written, so that its page need not be probed.
    ///
    /// # Safety
    /// It must have been, on this thread's own stack.
    #[inline(always)]
    pub unsafe fn has_touched(&mut self, address: u64) {
        self.pages.note(address / PAGE);
    }

    /// From now on, this part of the thread's own stack is read without probing it first.
    pub fn believe(&mut self, stack: OwnStack) {
        self.pages.own_stack = stack;
    }

    /// The part of the thread's own stack that this reader's walk may load without a question, if its reads are probed.
    #[inline(always)]
    pub fn own_stack(&self) -> Option<OwnStack> {
        Some(self.pages.own_stack).filter(|stack| stack.is_some() && self.is_probed())
    }

    /// From here on, unwind data of the object with this image is read. With [`Mode::Probed`], its pages are probed
    /// once for each load of it, which `generation` stands for; 0: at each walk. In each walk that believes so, the
    /// page at `last_page` (process address), with the last byte of the object's file, is probed first: a file that
    /// somebody makes shorter loses it with the others. 0: nothing is believed. To be ended with [`Reader::end_image`],
    /// before another object's data is read.
    pub fn begin_image(&mut self, image: Span, generation: u64, last_page: u64) {
        self.pages.set_image(probed::Image { span: image, generation, last_page });
    }

    /// See [`Reader::begin_image`].
    pub fn end_image(&mut self) {
        self.pages.set_image(probed::Image::NONE);
    }

    /// Whether reads are probed instead of guarded.
    pub fn is_probed(&self) -> bool {
        matches!(self.mode, Mode::Probed)
    }

    /// Whether a fault handler handles faults of the reads, and so those of other code in this walk.
    pub fn is_guarded(&self) -> bool {
        matches!(self.mode, Mode::Guarded)
    }

    /// One 64-bit word; any alignment.
    #[inline]
    pub fn word(&mut self, address: u64) -> Option<u64> {
        if let Mode::Guarded = self.mode {
            if address > USER_END - 8 {
                return None;
            }
            let word = guarded::load(address);
            self.log.add(address, 8, word);
            return word;
        }
        if let (Mode::Probed, Some(word)) = (self.mode, self.pages.own_stack.word(address)) {
            self.log.add(address, 8, Some(word));
            return Some(word);
        }
        if let Mode::Recorded(regions) = self.mode {
            let word = regions.iter().find_map(|region| {
                let offset = address.checked_sub(region.address)? as usize;
                region.bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
            });
            self.log.add(address, 8, word);
            return word;
        }
        if self.is_known(address, 7) {
            // SAFETY: an aligned word lies in one page, which was found readable, as for any probed read.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// Whether what lies at an address can be loaded at once, and need not be logged: probed memory on a page that this
    /// walk has just read, aligned to `mask` + 1.
    #[inline(always)]
    fn is_known(&self, address: u64, mask: u64) -> bool {
        self.is_probed() && address & mask == 0 && self.pages.is_known(address) && !self.log.is_open()
    }

    /// Reads the words at these byte offsets from `address`, fields of one structure, at less cost than `count` calls
    /// of [`Reader::word`]. False if any of them is unreadable; `out` may then be partly written.
    ///
    /// # Safety
    /// `offsets` must be valid for reads of `count` numbers, and `out` for writes of as many words.
    #[inline(always)]
    pub unsafe fn words_raw(&mut self, address: u64, offsets: *const u32, count: usize, out: *mut u64) -> bool {
        if let Mode::Guarded = self.mode {
            if address <= SURE {
                let room = self.log.room(count);
                // SAFETY: passed on; the log's space is for `count` reads, if there is any.
                if unsafe { guarded_words(address, offsets, count, out, room) } {
                    self.log.take(room, count);
                    return true;
                }
            }
        }
        // SAFETY: passed on.
        unsafe { self.words_one_by_one(address, offsets, count, out) }
    }

    /// # Safety
    /// As [`Reader::words_raw`].
    #[cold]
    #[inline(never)]
    unsafe fn words_one_by_one(&mut self, address: u64, offsets: *const u32, count: usize, out: *mut u64) -> bool {
        for index in 0..count {
            // SAFETY: index < count.
            let (at, place) = unsafe { (address.wrapping_add(u64::from(*offsets.add(index))), out.add(index)) };
            let Some(word) = self.word(at) else { return false };
            // SAFETY: index < count.
            unsafe { place.write(word) };
        }
        true
    }

    /// Fills `out` from `address`. False if any byte is unreadable; `out` may then be partly written.
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: `out` is writable for its length.
        unsafe { self.read_raw(address, out.as_mut_ptr(), out.len()) }
    }

    /// As [`Reader::read`], into raw memory.
    ///
    /// # Safety
    /// `out` must be valid for writes of `len` bytes.
    pub unsafe fn read_raw(&mut self, address: u64, out: *mut u8, len: usize) -> bool {
        if self.is_guarded() && (1..=8).contains(&len) && (address & 7) as usize + len <= 8 {
            // SAFETY: passed on.
            return unsafe { self.read_in_word(address, out, len) };
        }
        // SAFETY: passed on.
        let done = unsafe { self.read_plain(address, out, len) };
        if self.log.is_open() {
            // SAFETY: `len` bytes, filled if `done`.
            unsafe { self.log.add_many(address, out, len, done) };
        }
        done
    }

    /// Reads one to eight bytes of one aligned word, guarded: the word lies in a single page, so it is loaded as a
    /// whole.
    ///
    /// # Safety
    /// As [`Reader::read_raw`].
    #[inline]
    unsafe fn read_in_word(&mut self, address: u64, out: *mut u8, len: usize) -> bool {
        if address > USER_END - 8 {
            return false;
        }
        let unwanted = 64 - 8 * len as u32;
        let value = guarded::load(address & !7).map(|word| (word >> ((address & 7) * 8)) << unwanted >> unwanted);
        self.log.add(address, len as u64, value);
        let Some(value) = value else { return false };
        let mut left = value;
        for at in 0..len {
            // SAFETY: `out` is writable for `len` bytes.
            unsafe { out.add(at).write(left as u8) };
            left >>= 8;
        }
        true
    }

    /// # Safety
    /// As [`Reader::read_raw`].
    unsafe fn read_plain(&mut self, address: u64, out: *mut u8, len: usize) -> bool {
        let Some(end) = address.checked_add(len as u64) else { return false };
        match self.mode {
            _ if len == 0 => true,
            Mode::Recorded(regions) => recorded(regions, address, out, len),
            // SAFETY: the caller guarantees `out`, `new`'s caller the function.
            Mode::Hosted(read, walk) => unsafe { read(walk, address, out, len) },
            _ if end > USER_END => false,
            // SAFETY: the caller guarantees `out`, `new`'s caller the fault handler.
            Mode::Guarded => unsafe { guarded::copy(out, address, len) },
            Mode::Probed => {
                if !self.pages.readable(address, end) {
                    return false;
                }
                // SAFETY: the pages were readable when they were probed; the mode's documented limit is that another
                // thread may have unmapped them since.
                unsafe { core::ptr::copy_nonoverlapping(address as *const u8, out, len) };
                true
            }
        }
    }

    /// The byte at a process address; `None`: unreadable. Async-signal-safe.
    #[inline]
    pub fn u8(&mut self, address: u64) -> Option<u8> {
        if self.is_probed() && !self.log.is_open() && address < USER_END && self.pages.is_readable(address / PAGE) {
            // SAFETY: its page was found readable, as for any probed read.
            return Some(unsafe { (address as *const u8).read_volatile() });
        }
        let mut b = [0];
        self.read_small(address, &mut b).then_some(b[0])
    }

    /// Two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self, address: u64) -> Option<u16> {
        let mut b = [0; 2];
        self.read_small(address, &mut b).then(|| u16::from_le_bytes(b))
    }

    /// Four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self, address: u64) -> Option<u32> {
        if let Some(value) = self.aligned_u32(address) {
            return Some(value);
        }
        let mut b = [0; 4];
        self.read_small(address, &mut b).then(|| u32::from_le_bytes(b))
    }

    /// Four bytes at an aligned address, on a page that this walk has just read; `None` does not mean that they are
    /// unreadable.
    #[inline(always)]
    pub fn aligned_u32(&mut self, address: u64) -> Option<u32> {
        // SAFETY: four aligned bytes lie in one page, which was found readable, as for any probed read.
        self.is_known(address, 3).then(|| unsafe { (address as *const u32).read_volatile() })
    }

    /// Reads up to 8 bytes, by one word load if the word does not cross into the next page.
    #[inline]
    fn read_small(&mut self, address: u64, out: &mut [u8]) -> bool {
        if matches!(self.mode, Mode::Guarded) && address & 0xfff <= 0xff8 {
            let Some(word) = self.word(address) else { return false };
            for (o, b) in out.iter_mut().zip(word.to_le_bytes()) {
                *o = b;
            }
            return true;
        }
        self.read(address, out)
    }
}

/// Guarded loads of `count` words, each written to `out` and, unless `log` is null, logged there. Failure is checked
/// once, after the last load: then nothing that was written is of use.
///
/// # Safety
/// As [`Reader::words_raw`]; all addresses must be at most `USER_END - 8`, and `log` null or valid for writes of
/// `count` reads.
#[inline(always)]
unsafe fn guarded_words(address: u64, offsets: *const u32, count: usize, out: *mut u64, log: *mut Read) -> bool {
    let mut failed = 0;
    // Two loops, so that neither checks for the log at each word.
    if log.is_null() {
        for index in 0..count {
            // SAFETY: index < count.
            unsafe {
                out.add(index).write(guarded::load_noting(address + u64::from(*offsets.add(index)), &mut failed))
            };
        }
    } else {
        for index in 0..count {
            // SAFETY: index < count.
            unsafe {
                let at = address + u64::from(*offsets.add(index));
                let word = guarded::load_noting(at, &mut failed);
                out.add(index).write(word);
                log.add(index).write(Read::of_word(at, word));
            }
        }
    }
    failed == 0
}

fn recorded(regions: &[Region<'_>], address: u64, out: *mut u8, len: usize) -> bool {
    for region in regions {
        let Some(offset) = address.checked_sub(region.address) else { continue };
        let Some(source) = region.bytes.get(offset as usize..).and_then(|rest| rest.get(..len)) else { continue };
        // SAFETY: `out` is valid for `len` bytes by read_raw's contract.
        unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), out, len) };
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_reads_stay_inside_their_regions() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let regions = [Region { address: 0x1000, bytes: &bytes }];
        let mut r = Reader::recorded(&regions);
        assert_eq!(r.word(0x1000), Some(u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8])));
        assert_eq!(r.word(0x1002), None);
        assert_eq!(r.u8(0x1008), Some(9));
        assert_eq!(r.u8(0x1009), None);
        assert_eq!(r.u16(0xfff), None);
        assert_eq!(r.u32(u64::MAX - 1), None);
    }

    #[test]
    fn probed_reads_distinguish_readable_from_unmapped() {
        let mut r = Reader::probed();
        let x = 0x1122_3344_5566_7788u64;
        assert_eq!(r.word(core::ptr::from_ref(&x) as u64), Some(x));
        assert_eq!(r.word(0), None);
        assert_eq!(r.word(0x10), None);
        assert_eq!(r.word(u64::MAX - 3), None);
        assert_eq!(r.word(USER_END), None);
    }
}
