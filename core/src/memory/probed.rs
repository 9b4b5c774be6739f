//! Probed pages: the kernel is asked whether a page is readable, once for each walk and page; for pages of an object's
//! image, once for each of its loads. What the loader has mapped stays until the object is unloaded, unless its file
//! becomes shorter, as by `cp` onto it: then loads from pages after the new end raise SIGBUS. The last page goes with
//! the others, so each walk probes that one before it believes what earlier walks have noted.

use super::{OwnStack, USER_END};
use crate::errno::EINVAL;
use crate::span::Span;
use crate::syscall::{call, nr};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) const PAGE: u64 = 4096;

/// Pages of objects that were found readable, each with the generation of the object's load, which no other load has.
/// 0: none.
static IMAGE_PAGES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// Number of bits of a page's number in an entry; the generation has the others.
const PAGE_BITS: u32 = (USER_END / PAGE).trailing_zeros();

/// The image of an object that is loaded: process addresses, and the generation of its load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Image {
    pub(super) span: Span,
    pub(super) generation: u64,
    /// The page with the last byte of its file (process address).
    pub(super) last_page: u64,
}

impl Image {
    pub(super) const NONE: Image = Image { span: Span { start: 0, end: 0 }, generation: 0, last_page: 0 };

    /// What the entries of its pages have besides the page; [`NONE`]: it has no entries, since the generation is none,
    /// or too large for an entry.
    #[inline(always)]
    fn entries(&self) -> u64 {
        let fits = self.generation != 0 && self.generation >> (u64::BITS - PAGE_BITS) == 0;
        if fits {
            self.generation << PAGE_BITS
        } else {
            NONE
        }
    }

    /// Where it is noted that a page of the image is readable, and the entry for it. `None`: it is no page of the
    /// image, or the image has no entries.
    fn entry(&self, page: u64) -> Option<(&'static AtomicU64, u64)> {
        let is_inside = (self.span.start..self.span.end).contains(&(page * PAGE));
        if !is_inside || self.entries() == NONE {
            return None;
        }
        let place = IMAGE_PAGES.get(page as usize % IMAGE_PAGES.len())?;
        Some((place, self.entries() | page))
    }
}

/// The last few pages that this walk found readable.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pages {
    pages: [u64; 4],
    next: u8,
    /// The part of the thread's own stack that is believed to be readable.
    pub(super) own_stack: OwnStack,
    /// The object whose unwind data is being read.
    image: Image,
    /// What its pages' entries in [`IMAGE_PAGES`] have besides the page, if this walk believes them; else [`NONE`].
    believed: u64,
    /// The generation of the image that was believed last.
    believed_of: u64,
    /// Whether the last pages of some images, those of these generations, were readable in this walk.
    whole: [(u64, bool); 4],
    next_whole: u8,
}

/// Whether this page of user addresses was found readable, by what an entry of its image has besides the page.
#[inline(always)]
pub(super) fn is_noted(believed: u64, page: u64) -> bool {
    let noted = IMAGE_PAGES.get(page as usize % IMAGE_PAGES.len());
    noted.is_some_and(|noted| noted.load(Relaxed) == believed | page)
}

/// No page, and nothing that is believed.
const NONE: u64 = u64::MAX;

impl Pages {
    pub(super) fn new() -> Pages {
        Pages {
            pages: [NONE; 4],
            next: 0,
            own_stack: OwnStack::NONE,
            image: Image::NONE,
            believed: NONE,
            believed_of: 0,
            whole: [(0, false); 4],
            next_whole: 0,
        }
    }

    /// See [`super::Reader::begin_image`].
    pub(super) fn set_image(&mut self, image: Image) {
        self.believed = if image.generation == self.believed_of { image.entries() } else { NONE };
        self.image = image;
    }

    /// Whether the page of this address was found readable just now.
    #[inline(always)]
    pub(super) fn is_known(&self, address: u64) -> bool {
        let page = address / PAGE;
        self.own_stack.holds(page * PAGE) || self.is_of_image(page) || self.pages.contains(&page)
    }

    /// Whether the page of this number is one of the image's that were found readable, and is believed to be still.
    #[inline(always)]
    fn is_of_image(&self, page: u64) -> bool {
        page < USER_END / PAGE && is_noted(self.believed, page)
    }

    /// What [`is_noted`] is to be asked with.
    #[inline(always)]
    pub(super) fn believed(&self) -> u64 {
        self.believed
    }

    /// Whether the image's file has not become shorter, as far as its last page says. Asks once a walk. Then what was
    /// noted of the image's pages is believed.
    fn is_whole(&mut self) -> bool {
        let Image { generation, last_page, .. } = self.image;
        let known = self.whole.iter().find(|(of, _)| *of == generation).map(|(_, whole)| *whole);
        let whole = known.unwrap_or_else(|| last_page != 0 && probe(last_page));
        if known.is_none() {
            if let Some(place) = self.whole.get_mut(usize::from(self.next_whole & 3)) {
                *place = (generation, whole);
            }
            self.next_whole = self.next_whole.wrapping_add(1);
        }
        if whole {
            (self.believed, self.believed_of) = (self.image.entries(), generation);
        }
        whole
    }

    /// Whether `[start, end)` is readable. Bounded: a range over more than 64 pages is refused.
    pub(super) fn readable(&mut self, start: u64, end: u64) -> bool {
        let (first, last) = (start / PAGE, end.saturating_sub(1) / PAGE);
        if last.wrapping_sub(first) > 64 {
            return false;
        }
        (first..=last).all(|page| self.is_readable(page))
    }

    /// Whether the page of this number is readable.
    #[inline(always)]
    pub(super) fn is_readable(&mut self, page: u64) -> bool {
        self.is_known(page * PAGE) || self.is_readable_after_all(page)
    }

    /// As [`Pages::is_readable`], for a page that this walk has not found readable just now.
    #[inline(never)]
    fn is_readable_after_all(&mut self, page: u64) -> bool {
        let entry = self.image.entry(page);
        let is_noted = entry.is_some_and(|(place, entry)| place.load(Relaxed) == entry) && self.is_whole();
        let readable = is_noted || probe(page * PAGE);
        if readable {
            match entry {
                Some((noted, entry)) if !is_noted => noted.store(entry, Relaxed),
                _ => {}
            }
            if !self.is_of_image(page) {
                self.note(page);
            }
        }
        readable
    }

    /// Notes for this walk that the page of this number is readable.
    #[inline(always)]
    pub(super) fn note(&mut self, page: u64) {
        if let Some(place) = self.pages.get_mut(usize::from(self.next & 3)) {
            *place = page;
        }
        self.next = self.next.wrapping_add(1);
    }
}

/// rt_sigprocmask with an invalid `how` first copies the set in: -EFAULT means an unreadable page, -EINVAL a readable
/// one (<https://github.com/torvalds/linux/blob/v6.1/kernel/signal.c>, `SYSCALL_DEFINE4(rt_sigprocmask`). It changes
/// nothing.
fn probe(page: u64) -> bool {
    // SAFETY: `how` is invalid, so the call only reads 8 bytes at `page`, and fails.
    unsafe { call(nr::RT_SIGPROCMASK, [usize::MAX, page as usize, 0, 8, 0, 0]) == -EINVAL as isize }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" {
        fn memfd_create(name: *const u8, flags: u32) -> i32;
        fn ftruncate(fd: i32, len: i64) -> i32;
        fn close(fd: i32) -> i32;
        fn mmap(at: u64, len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> u64;
        fn munmap(at: u64, len: usize) -> i32;
    }

    #[test]
    fn what_is_noted_of_a_load_is_not_believed_of_the_next_one() {
        // SAFETY: a new private mapping of one readable page.
        let page = unsafe { mmap(0, PAGE as usize, 1, 0x22, -1, 0) };
        let image = |generation| Image { span: Span { start: page, end: page + PAGE }, generation, last_page: page };
        let readable = |image: Image| {
            let mut pages = Pages::new();
            pages.set_image(image);
            pages.readable(page + 8, page + 16)
        };
        let is_noted = |image: Image| {
            let (place, entry) = image.entry(page / PAGE).expect("a page of it");
            place.load(Relaxed) == entry
        };
        let (first, second) = (image(5 << 12 | 1), image(6 << 12 | 1));
        assert!(!is_noted(first) && readable(first) && is_noted(first) && !is_noted(second));
        // SAFETY: the mapping from above.
        assert_eq!(unsafe { munmap(page, PAGE as usize) }, 0);
        assert!(!readable(second) && !readable(Image::NONE) && !is_noted(second));
        // Not of this object, no generation, or one that does not fit.
        assert!(Image { span: Span { start: page, end: page }, ..first }.entry(page / PAGE).is_none());
        assert!(image(0).entry(page / PAGE).is_none() && image(1 << (64 - PAGE_BITS)).entry(page / PAGE).is_none());
    }
    #[test]
    fn what_is_noted_is_not_believed_once_the_file_is_shorter() {
        const PAGES: u64 = 3;
        // SAFETY: a file of its own, mapped readable and private, as the loader maps one.
        let (fd, start) = unsafe {
            let fd = memfd_create(c"image".as_ptr().cast(), 0);
            assert!(fd >= 0 && ftruncate(fd, (PAGES * PAGE) as i64) == 0);
            (fd, mmap(0, (PAGES * PAGE) as usize, 3, 2, fd, 0))
        };
        let span = Span { start, end: start + PAGES * PAGE };
        let image = Image { span, generation: 7 << 12 | 2, last_page: start + 2 * PAGE };
        let readable = |page: u64| {
            let mut pages = Pages::new();
            pages.set_image(image);
            pages.readable(start + page * PAGE, start + page * PAGE + 8)
        };
        // SAFETY: the mapping from above; the page becomes the process's own copy.
        unsafe { (image.last_page as *mut u8).write_volatile(1) };
        assert!((0..PAGES).all(readable));
        // SAFETY: the file from above.
        unsafe { assert_eq!(ftruncate(fd, PAGE as i64), 0) };
        assert_eq!([0, 1, 2].map(readable), [true, false, false]);
        // SAFETY: the file and the mapping from above.
        unsafe { assert_eq!((munmap(start, (PAGES * PAGE) as usize), close(fd)), (0, 0)) };
    }
}
