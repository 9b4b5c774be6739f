//! Ranges of addresses that calls of [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html) and its relatives map and
//! unmap, and how they are counted.
//!
//! What is mapped counts as an allocation of its size, in whole pages, if the program may read, write or execute it; a
//! range without rights holds no memory. Which mapping lies where is not kept here: the process's log says what goes,
//! before the call, and what comes, after it, and the recorder follows it.

use core::ffi::{c_int, c_void};
use uunwind_preload::events::{self, Allocation, Caller, Span, Subject};

/// Bytes of a page: uu runs with pages of this size only.
const PAGE: u64 = 4096;
/// What mmap(2) and mremap(2) return if they fail.
pub const FAILED: *mut c_void = libc::MAP_FAILED;

/// The whole pages of a call; `None`: there are none, and the call fails.
pub fn pages(start: u64, bytes: u64) -> Option<Span> {
    let bytes = bytes.checked_next_multiple_of(PAGE).filter(|bytes| *bytes > 0)?;
    start.checked_add(bytes)?;
    start.is_multiple_of(PAGE).then_some(Span { start, bytes })
}

/// A call that is about to unmap something.
#[derive(Clone, Copy)]
pub struct Leaving(Option<u64>);

impl Leaving {
    /// Reports it, if there is something to report.
    pub fn of(span: Option<Span>) -> Leaving {
        Leaving(span.map(events::leaves))
    }

    /// The number of the call; 0: there is nothing to report.
    pub fn number(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// The call with this number.
    #[cfg(feature = "no-entry-points")]
    pub fn numbered(number: u64) -> Leaving {
        Leaving((number != 0).then_some(number))
    }

    /// The call has failed.
    pub fn stays(self) {
        if let Leaving(Some(call)) = self {
            events::stays(call);
        }
    }
}

/// Counts what was mapped, or moved by the call with this number. `caller`: as in [`events::count`].
pub fn comes(span: Option<Span>, moved_by: u64, caller: Option<&Caller>) {
    let Some(span) = span else { return };
    let mut id = 0;
    let is_sampled = events::count(span.bytes, caller, || {
        id = events::next_id();
        if let Some(countdown) = events::countdown() {
            countdown.remember(id);
        }
        Subject::Mapping(Allocation { id, size: span.bytes })
    });
    events::comes(if is_sampled { id } else { 0 }, span, moved_by);
}

/// What a call of mmap(2) is about to replace.
pub fn replaced(at: u64, bytes: u64, flags: c_int) -> Leaving {
    Leaving::of((flags & libc::MAP_FIXED != 0).then(|| pages(at, bytes)).flatten())
}

/// Counts what a call of mmap(2) has mapped.
pub fn mapped(at: *mut c_void, bytes: usize, how: (c_int, c_int), leaving: Leaving, caller: Option<&Caller>) {
    let (protection, flags) = how;
    if at == FAILED {
        leaving.stays();
    } else if flags & libc::MAP_ANONYMOUS != 0 && protection != libc::PROT_NONE {
        comes(pages(at as u64, bytes as u64), 0, caller);
    }
}

/// Counts what a call of mremap(2) has done, which has returned `at`.
pub fn remapped(
    remap: &Remap,
    at: *mut c_void,
    new_bytes: usize,
    (leaving, replacing): (Leaving, Leaving),
    caller: Option<&Caller>,
) {
    if at == FAILED {
        leaving.stays();
        replacing.stays();
    } else if remap.comes && leaving.number() != 0 {
        comes(pages(at as u64, new_bytes as u64), leaving.number(), caller);
    }
}

/// What a call of mremap(2) does.
#[derive(Debug, PartialEq, Eq)]
pub struct Remap {
    /// What is unmapped, or goes to another place or size.
    pub leaves: Option<Span>,
    /// Of another mapping at the new place.
    pub replaces: Option<Span>,
    /// All of it comes again, with its new size.
    pub comes: bool,
}

impl Remap {
    /// The call with these arguments. A mapping that shrinks where it is loses a part; otherwise it counts as unmapped,
    /// and as mapped anew. A second mapping of the same memory, and one that leaves an empty one behind, bring nothing.
    pub fn of(old: u64, bytes: u64, new_bytes: u64, flags: c_int, new: u64) -> Remap {
        let (is_fixed, is_second) = (flags & libc::MREMAP_FIXED != 0, flags & libc::MREMAP_DONTUNMAP != 0);
        let replaces = if is_fixed { pages(new, new_bytes) } else { None };
        let (whole, wanted) = (pages(old, bytes), pages(old, new_bytes));
        let (Some(whole), Some(wanted), false) = (whole, wanted, is_second) else {
            return Remap { leaves: None, replaces, comes: false };
        };
        match (is_fixed, wanted.bytes.cmp(&whole.bytes)) {
            (true, _) | (false, core::cmp::Ordering::Greater) => Remap { leaves: Some(whole), replaces, comes: true },
            (false, core::cmp::Ordering::Equal) => Remap { leaves: None, replaces, comes: false },
            (false, core::cmp::Ordering::Less) => {
                let (start, bytes) = (whole.start + wanted.bytes, whole.bytes - wanted.bytes);
                Remap { leaves: Some(Span { start, bytes }), replaces, comes: false }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole() {
        assert_eq!(pages(8192, 1), Some(Span { start: 8192, bytes: 4096 }));
        assert_eq!(pages(8192, 8192), Some(Span { start: 8192, bytes: 8192 }));
        for (start, bytes) in [(8193, 1), (8192, 0), (8192, u64::MAX), (u64::MAX - 4095, 4097)] {
            assert_eq!(pages(start, bytes), None);
        }
    }

    #[test]
    fn what_mremap_does_to_a_mapping() {
        const MAY_MOVE: c_int = libc::MREMAP_MAYMOVE;
        const FIXED: c_int = MAY_MOVE | libc::MREMAP_FIXED;
        let span = |first: u64, pages: u64| Some(Span { start: first * PAGE, bytes: pages * PAGE });
        let call = |bytes: u64, new_bytes: u64, flags| {
            let Remap { leaves, replaces, comes } = Remap::of(10 * PAGE, bytes, new_bytes, flags, 50 * PAGE);
            (leaves, replaces, comes)
        };
        assert_eq!(call(2 * PAGE, 3 * PAGE, MAY_MOVE), (span(10, 2), None, true));
        assert_eq!(call(3 * PAGE, PAGE + 1, 0), (span(12, 1), None, false));
        assert_eq!(call(2 * PAGE, PAGE + 1, MAY_MOVE), (None, None, false));
        assert_eq!(call(3 * PAGE, PAGE, FIXED), (span(10, 3), span(50, 1), true));
        assert_eq!(call(0, PAGE, MAY_MOVE), (None, None, false));
        assert_eq!(call(PAGE, PAGE, FIXED | libc::MREMAP_DONTUNMAP), (None, span(50, 1), false));
    }
}
