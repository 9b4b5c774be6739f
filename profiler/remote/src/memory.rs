//! The memory of another process, or what was saved of it, read page by page and kept until the process runs again.

use crate::pages::Pages;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use uunwind_core::memory::paged::{self, PAGE};
use uunwind_core::memory::{Mode, Reader};
use uunwind_elf::process;

/// At most this number of pages is read for one look at the process (64 MiB): a walk through hostile memory ends.
const PAGES: usize = 16 * 1024;
/// At most this number of bytes is read ahead by one system call.
pub const AHEAD: usize = 64 * PAGE;
/// Number of pages that the walk of a thread reads, more or less: of its stack, and of what an interpreter has for it.
const THREAD: usize = 6;
/// At most this number of bytes is kept of what was read.
const KEPT: usize = 256 * 1024;

/// Memory that something has saved, such as a core file.
pub trait Saved {
    /// Fills `out` with what lies at a process address, and returns the number of bytes that are available there.
    fn copy(&self, address: u64, out: &mut [u8]) -> usize;
}

enum Source {
    /// A process that stands still. `pid`: `None` if its main thread has ended: then its id leads to no memory, and
    /// that of another thread may become another process's. `file`: `/proc/PID/mem`, which also reads what is mapped
    /// without the right to read; `None`: it may not be opened.
    Process { pid: Option<libc::pid_t>, file: Option<File> },
    /// What was saved of a process.
    Saved(Box<dyn Saved>),
}

/// What was read, where, in order; `None`: more than is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads(Option<Kept>);

/// Addresses and lengths of reads, and all that they gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    places: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

/// The memory of a process that stands still.
pub struct Memory {
    source: Source,
    pages: RefCell<Pages>,
    /// Room for what is read ahead.
    ahead: RefCell<Vec<u8>>,
    /// Number of pages that were read in this look, also of those that are not kept any more.
    pages_read: Cell<usize>,
    /// Number of reads by readers so far.
    reads_made: Cell<u64>,
    /// What is read from now on, if that is kept.
    reads: RefCell<Reads>,
    /// `None`: the process stands still. Once it runs on, copied pages are read from their copies; these are the pages
    /// that were read since then, because there was no copy.
    missed: RefCell<Option<BTreeSet<u64>>>,
}

impl Memory {
    /// The memory of the process with this id.
    pub fn of(pid: u32) -> Memory {
        let file = File::open(process::file(pid, "mem")).ok();
        let pid = process::stand_in(pid).is_none().then_some(pid as libc::pid_t);
        Memory {
            source: Source::Process { pid, file },
            pages: RefCell::default(),
            ahead: RefCell::default(),
            pages_read: Cell::default(),
            reads_made: Cell::default(),
            reads: RefCell::default(),
            missed: RefCell::default(),
        }
    }

    /// The memory that was saved of a process.
    pub fn of_saved(saved: Box<dyn Saved>) -> Memory {
        Memory {
            source: Source::Saved(saved),
            pages: RefCell::default(),
            ahead: RefCell::default(),
            pages_read: Cell::default(),
            reads_made: Cell::default(),
            reads: RefCell::default(),
            missed: RefCell::default(),
        }
    }

    /// A reader over it.
    pub fn reader(&self) -> Reader<'_> {
        let context = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: `read` takes a memory, which lives as long as the reader.
        unsafe { Reader::new(Mode::Hosted(read, context)) }
    }

    /// A reader whose reads are not kept.
    pub fn quiet_reader(&self) -> Reader<'_> {
        let context = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: as for `reader`.
        unsafe { Reader::new(Mode::Hosted(read_quietly, context)) }
    }

    /// From now on, keeps what is read.
    pub fn keep_reads(&self) {
        *self.reads.borrow_mut() = Reads(Some(Kept::default()));
    }

    /// What was read since then; keeps no more.
    pub fn take_reads(&self) -> Reads {
        self.reads.take()
    }

    /// Whether all that was read is still what it was.
    pub fn is_unchanged(&self, reads: &Reads) -> bool {
        let Reads(Some(Kept { places, bytes })) = reads else { return false };
        let (mut rest, mut now) = (&bytes[..], Vec::new());
        places.iter().all(|(address, len)| {
            let Some((before, after)) = rest.split_at_checked(*len) else { return false };
            rest = after;
            now.resize(*len, 0);
            self.read(*address, &mut now) && now == before
        })
    }

    /// Forgets what was read: the process has run since then.
    pub fn forget(&self) {
        *self.missed.borrow_mut() = None;
        self.read_anew();
        self.pages_read.set(0);
    }

    /// Gets the memory that walks of this number of threads usually need, which takes time.
    pub fn make_room(&self, threads: usize) {
        self.pages.borrow_mut().make_room(threads.saturating_mul(THREAD));
    }

    /// Reads everything anew from now on. What was read so far still counts for the limit of this look. Copies stay.
    pub fn read_anew(&self) {
        if self.missed.borrow().is_none() {
            self.pages.borrow_mut().clear();
        }
    }

    /// Copies these pages. That a page cannot be read is kept, too: it cannot be read later, either. Pages that
    /// follow each other take one system call.
    pub fn copy_pages(&self, pages: &BTreeSet<u64>) {
        let mut rest = pages.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut end = first.saturating_add(PAGE as u64);
            while let Some(next) = rest.next_if(|next| *next == end) {
                end = next.saturating_add(PAGE as u64);
            }
            self.read_ahead(first, end);
        }
        self.pages.borrow_mut().no_others(pages.iter().copied());
    }

    /// The process runs on: from now on, what was copied is read from the copies.
    pub fn run_on(&self) {
        *self.missed.borrow_mut() = Some(BTreeSet::new());
    }

    /// The pages that were read since the process runs on, because there was no copy. What was found there is of
    /// another time than the copies, so a walk that has read it is worth nothing.
    pub fn missed(&self) -> BTreeSet<u64> {
        self.missed.borrow().clone().unwrap_or_default()
    }

    /// Number of reads by readers so far.
    pub fn reads_made(&self) -> u64 {
        self.reads_made.get()
    }

    /// Number of pages that were read in this look.
    #[cfg(test)]
    pub fn pages_read(&self) -> usize {
        self.pages_read.get()
    }

    /// Counts one more page; false: there have been too many.
    fn may_read_page(&self) -> bool {
        let read = self.pages_read.get();
        self.pages_read.set(read.saturating_add(1).min(PAGES));
        read < PAGES
    }

    /// Reads a range ahead with one system call, so that its pages need none of their own.
    pub fn read_ahead(&self, from: u64, to: u64) {
        let first = from & !(PAGE as u64 - 1);
        let Some(len) = to.checked_sub(first).map(|len| (len as usize).min(AHEAD) & !(PAGE - 1)) else { return };
        if self.missed.borrow().is_some() {
            return;
        }
        let mut bytes = self.ahead.borrow_mut();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        let read = self.copy(first, bytes.get_mut(..len).unwrap_or_default());
        let mut pages = self.pages.borrow_mut();
        for (page, at) in
            bytes.get(..read).unwrap_or_default().as_chunks::<PAGE>().0.iter().zip((first..).step_by(PAGE))
        {
            if pages.has(at) || self.may_read_page() {
                pages.put(at, |copy| {
                    *copy = *page;
                    true
                });
            }
        }
    }

    /// As [`Memory::read`], at this very time, and without keeping what was read.
    pub fn read_now(&self, address: u64, out: &mut [u8]) -> bool {
        self.copy(address, out) == out.len()
    }

    /// As [`Memory::read`], but of a process as it is at this very time, although it runs.
    pub fn read_running(&self, address: u64, out: &mut [u8]) -> bool {
        match &self.source {
            Source::Process { .. } => self.read_now(address, out),
            Source::Saved(_) => self.read(address, out),
        }
    }

    /// Fills `out` with what lies at a process address. False: not all of it can be read.
    pub fn read(&self, address: u64, out: &mut [u8]) -> bool {
        paged::read(address, out, |page, offset, part| self.read_page(page, offset, part))
    }

    fn keep(&self, address: u64, read: &[u8]) {
        let Reads(kept) = &mut *self.reads.borrow_mut();
        if kept.as_ref().is_some_and(|kept| kept.bytes.len() + read.len() > KEPT) {
            *kept = None;
        }
        if let Some(Kept { places, bytes }) = kept {
            places.push((address, read.len()));
            bytes.extend_from_slice(read);
        }
    }

    fn read_page(&self, page: u64, offset: usize, out: &mut [u8]) -> bool {
        let pages = &mut *self.pages.borrow_mut();
        if let Some(copy) = pages.get(page) {
            return fill(copy, offset, out);
        }
        if !pages.has(page) {
            if !self.may_read_page() {
                return false;
            }
            if let Some(missed) = &mut *self.missed.borrow_mut() {
                missed.insert(page);
            }
            pages.put(page, |copy| self.copy(page, copy) == PAGE);
        }
        pages.get(page).is_some_and(|copy| fill(copy, offset, out))
    }

    /// Copies what lies at a process address, and returns the number of bytes that could be read.
    fn copy(&self, address: u64, out: &mut [u8]) -> usize {
        match &self.source {
            Source::Process { pid, file } => copy_from_process(*pid, file.as_ref(), address, out),
            Source::Saved(saved) => saved.copy(address, out),
        }
    }
}

/// Fills `out` with what lies at an offset of a page, if the page has that many bytes there.
fn fill(page: &[u8; PAGE], offset: usize, out: &mut [u8]) -> bool {
    let bytes = page.get(offset..).and_then(|rest| rest.get(..out.len()));
    bytes.is_some_and(|bytes| {
        out.copy_from_slice(bytes);
        true
    })
}

/// ([process_vm_readv](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html), then `/proc/PID/mem`, which also
/// reads mappings without the right to read).
fn copy_from_process(pid: Option<libc::pid_t>, file: Option<&File>, address: u64, out: &mut [u8]) -> usize {
    let to = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: out.len() };
    // SAFETY: `to` is the slice; the kernel checks the other process's addresses.
    let by = |pid| unsafe { libc::process_vm_readv(pid, &raw const to, 1, &raw const from, 1, 0) };
    match pid.map(by).map(usize::try_from) {
        Some(Ok(read)) if read > 0 => read,
        _ => file.and_then(|file| file.read_at(out, address).ok()).unwrap_or(0),
    }
}

/// [`uunwind_core::memory::HostRead`] over a [`Memory`].
unsafe extern "C" fn read(memory: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `Memory::reader` passes a memory, of which only the pages in their cell are changed; the
    // caller passes room for `len` bytes.
    let (memory, out) = unsafe { (&*memory.cast::<Memory>(), std::slice::from_raw_parts_mut(out, len)) };
    memory.reads_made.set(memory.reads_made.get().wrapping_add(1));
    let is_read = memory.read(address, out);
    if is_read {
        memory.keep(address, out);
    }
    is_read
}

/// As [`read`], but what is read is not kept.
unsafe extern "C" fn read_quietly(memory: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: as for `read`.
    let (memory, out) = unsafe { (&*memory.cast::<Memory>(), std::slice::from_raw_parts_mut(out, len)) };
    memory.reads_made.set(memory.reads_made.get().wrapping_add(1));
    memory.read(address, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_what_is_not_mapped_is_not() {
        let memory = Memory::of(std::process::id());
        let bytes: Vec<u8> = (0..3 * PAGE).map(|i| (i / 7) as u8).collect();
        let (at, mut out) = (bytes.as_ptr() as u64 + 5, vec![0; 2 * PAGE]);
        assert!(memory.read(at, &mut out));
        assert_eq!(out, bytes[5..5 + 2 * PAGE]);
        assert_eq!(memory.reader().word(at), Some(u64::from_le_bytes(bytes[5..13].try_into().expect("8 bytes"))));
        assert!(!memory.read(8, &mut out[..8]) && !memory.read(u64::MAX - 3, &mut out[..8]));
        memory.read_ahead(at, at + 100);
        // What a reader has read is compared, and nothing else.
        let words = [1u64, 2, 3].map(std::sync::atomic::AtomicU64::new);
        let at = |index: usize| words[index].as_ptr() as u64;
        memory.keep_reads();
        assert!(memory.reader().word(at(0)).is_some() && memory.reader().word(at(2)).is_some());
        let reads = memory.take_reads();
        for (index, is_unchanged) in [(1, true), (2, false)] {
            words[index].store(7, std::sync::atomic::Ordering::Relaxed);
            memory.forget();
            assert_eq!(memory.is_unchanged(&reads), is_unchanged);
        }
        assert!(!memory.is_unchanged(&Reads::default()), "nothing was kept");
        memory.read_ahead(u64::MAX, 0);
    }

    /// What was copied is read as it was, and what was not is named.
    #[test]
    fn copies_stay_when_the_process_runs_on() {
        #[repr(align(4096))]
        struct Pages([[std::sync::atomic::AtomicU64; PAGE / 8]; 3]);
        let zero = || std::array::from_fn(|_| std::sync::atomic::AtomicU64::new(1));
        let words = Box::new(Pages(std::array::from_fn(|_| zero())));
        let at = |page: usize| words.0[page].as_ptr() as u64;
        let memory = Memory::of(std::process::id());
        memory.copy_pages(&BTreeSet::from([at(0), at(1), 8 << 12]));
        memory.run_on();
        words.0.iter().for_each(|page| page[0].store(2, std::sync::atomic::Ordering::Relaxed));
        memory.read_anew();
        memory.read_ahead(at(0), at(2));
        let read = |address: u64| memory.reader().word(address);
        assert_eq!((read(at(0)), read(at(1)), read(8 << 12)), (Some(1), Some(1), None));
        assert_eq!(memory.missed(), BTreeSet::new());
        assert_eq!((read(at(2)), memory.missed()), (Some(2), BTreeSet::from([at(2)])));
        memory.forget();
        assert_eq!((read(at(0)), memory.missed()), (Some(2), BTreeSet::new()));
    }

    /// Whoever has all read anew, again and again, comes to an end, too.
    #[test]
    fn pages_that_are_read_anew_count_for_the_limit() {
        let (memory, word) = (Memory::of(std::process::id()), 7u64);
        let read = || {
            memory.read_anew();
            memory.reader().word((&raw const word) as u64)
        };
        for _ in 0..PAGES {
            assert_eq!(read(), Some(7));
        }
        assert_eq!(read(), None);
        memory.forget();
        assert_eq!(read(), Some(7));
    }
}
