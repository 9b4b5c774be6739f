//! Probed pages: the kernel is asked whether a page is readable, once for each walk and page.

use crate::errno::EINVAL;
use crate::syscall::{call, nr};

const PAGE: u64 = 4096;

/// The last few pages that this walk found readable.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pages {
    pages: [u64; 4],
    next: u8,
}

impl Pages {
    pub(super) fn new() -> Pages {
        Pages { pages: [u64::MAX; 4], next: 0 }
    }

    /// Whether `[start, end)` is readable. Bounded: a range over more than 64 pages is refused.
    pub(super) fn readable(&mut self, start: u64, end: u64) -> bool {
        let (first, last) = (start / PAGE, end.saturating_sub(1) / PAGE);
        if last.wrapping_sub(first) > 64 {
            return false;
        }
        (first..=last).all(|page| {
            if self.pages.contains(&page) {
                return true;
            }
            let readable = probe(page * PAGE);
            if readable {
                if let Some(place) = self.pages.get_mut(usize::from(self.next & 3)) {
                    *place = page;
                }
                self.next = self.next.wrapping_add(1);
            }
            readable
        })
    }
}

/// rt_sigprocmask with an invalid `how` first copies the set in: -EFAULT means an unreadable page, -EINVAL a readable
/// one (<https://github.com/torvalds/linux/blob/v6.1/kernel/signal.c>, `SYSCALL_DEFINE4(rt_sigprocmask`). It changes
/// nothing.
fn probe(page: u64) -> bool {
    // SAFETY: `how` is invalid, so the call only reads 8 bytes at `page`, and fails.
    unsafe { call(nr::RT_SIGPROCMASK, [usize::MAX, page as usize, 0, 8, 0, 0]) == -EINVAL as isize }
}
