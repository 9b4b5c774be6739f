//! Unwind data that JITs register by the compilers' own interface (`__register_frame` and related calls), as windows.
//!
//! The sampler's interposers hand over what was registered; here its FDEs become windows of kind EH_FRAME: one for each
//! run of functions that lie side by side, with a table from function to FDE. FDEs that do not say how to find the CFA
//! give windows where a walk stops. The unwind data stays where it is; it goes only after a grace period.

mod sort;
mod store;

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::ptr::null_mut;
use store::Store;
use uunwind_core::errno::{Errno, EBUSY};
use uunwind_core::memory::Reader;
use uunwind_core::registry::lock::Lock;
use uunwind_core::registry::window::{Function, Kind, Window, NO_DATA, NO_UNWIND};
use uunwind_core::span::Span;
use uunwind_eh_frame::scan::{Fde, Scan, Shape};
use uunwind_live::state::{REGISTRY, SLOTS};

/// Functions with less than this between them, which is padding, share a window. In bytes.
const PADDING: u64 = 64;
/// How long a registration that goes waits for walks, ns: far longer than a walk takes.
const GRACE: u64 = 200_000_000;
const BUCKETS: usize = 1024;

/// What one registration became. `room` functions follow, and `room` of [`Piece`].
#[repr(C, align(64))]
struct Record {
    begin: u64,
    next: *mut Record,
    bytes: usize,
    room: usize,
    windows: usize,
}

/// A function while windows are made; then, in its first word, the start of a window.
#[derive(Clone, Copy)]
#[repr(C)]
struct Piece {
    start: u64,
    len: u32,
    /// Distance of its FDE from the first byte of unwind data; [`NO_UNWIND`]: it describes nothing.
    unwind: u32,
}

impl Record {
    fn functions(this: *mut Record) -> *mut Function {
        // SAFETY: after the record, in the same piece of memory.
        unsafe { this.add(1).cast() }
    }

    fn pieces<'r>(this: *mut Record) -> &'r mut [Piece] {
        // SAFETY: after `room` functions, in the same piece of memory; zeroes are pieces, and only the maker and the
        // remover of a record look.
        unsafe { core::slice::from_raw_parts_mut(Record::functions(this).add((*this).room).cast(), (*this).room) }
    }
}

struct Book {
    store: Store,
    buckets: [*mut Record; BUCKETS],
}

struct Registered {
    lock: Lock,
    book: UnsafeCell<Book>,
}

// SAFETY: the book is touched with the lock held.
unsafe impl Sync for Registered {}

static REGISTERED: Registered = Registered {
    lock: Lock::new(),
    book: UnsafeCell::new(Book { store: Store::new(), buckets: [null_mut(); BUCKETS] }),
};

fn bucket(begin: u64) -> usize {
    (begin.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % BUCKETS
}

/// Runs `f` on the book. `None`: called in a handler that interrupted another such call of the same thread.
fn with_book<T>(f: impl FnOnce(&mut Book) -> T) -> Option<T> {
    // SAFETY: the lock is held.
    REGISTERED.lock.with(|| f(unsafe { &mut *REGISTERED.book.get() }))
}

/// What is registered at `begin`, of this shape (a [`Shape`] number), becomes windows. How many functions got none:
/// damaged, overlapping, no memory.
///
/// # Safety
/// Not from a handler. What is registered must stay as it is until [`remove`].
pub unsafe extern "C" fn add(begin: u64, shape: u32) -> u32 {
    let Some(shape) = Shape::from_number(shape) else { return 1 };
    let mut reader = Reader::probed();
    let mut scan = Scan::new(begin, shape);
    let (mut count, mut lost) = (0usize, 0u32);
    let span = loop {
        match scan.step(&mut reader) {
            Ok(Some(_)) => count += 1,
            Ok(None) => break scan.span,
            // What stood before it is good.
            Err(_) => {
                lost = 1;
                break scan.span;
            }
        }
    };
    if count == 0 {
        return lost;
    }
    let bytes = size_of::<Record>() + count * (size_of::<Function>() + size_of::<Piece>());
    let record = with_book(|book| book.store.take(bytes)).unwrap_or(null_mut()).cast::<Record>();
    if record.is_null() {
        return u32::try_from(count).unwrap_or(u32::MAX);
    }
    // SAFETY: room for `bytes`, which no other thread has yet.
    unsafe {
        core::ptr::write_bytes(record.cast::<u8>(), 0, bytes);
        record.write(Record { begin, next: null_mut(), bytes, room: count, windows: 0 });
    }
    let filled = fill(Record::pieces(record), Scan::new(begin, shape), span.start, &mut reader);
    lost = lost.saturating_add(make_windows(record, filled, span));
    let kept = with_book(|book| {
        if let Some(head) = book.buckets.get_mut(bucket(begin)) {
            // SAFETY: still ours alone.
            unsafe { (*record).next = *head };
            *head = record;
        }
    });
    lost.saturating_add(u32::from(kept.is_none()))
}

/// Takes the FDEs once more, now that there is room. How many there were.
fn fill(pieces: &mut [Piece], mut scan: Scan, low: u64, reader: &mut Reader<'_>) -> usize {
    let mut filled = 0;
    for piece in pieces.iter_mut() {
        let Ok(Some(Fde { fde, start, end, defines_cfa })) = scan.step(reader) else { break };
        let unwind = fde.checked_sub(low).and_then(|n| u32::try_from(n).ok()).filter(|_| defines_cfa);
        let len = u32::try_from(end.wrapping_sub(start)).unwrap_or(u32::MAX);
        *piece = Piece { start, len, unwind: unwind.unwrap_or(NO_UNWIND) };
        filled += 1;
    }
    filled
}

/// One window for each run of functions. How many functions got none.
fn make_windows(record: *mut Record, filled: usize, span: Span) -> u32 {
    let pieces = Record::pieces(record);
    if let Some(filled) = pieces.get_mut(..filled) {
        sort::sort(filled, |piece| piece.start);
    }
    let (mut from, mut windows, mut lost) = (0usize, 0usize, 0u32);
    while let Some(first) = pieces.get(from).copied().filter(|_| from < filled) {
        let end_of = |piece: Piece| piece.start.saturating_add(u64::from(piece.len));
        let (mut end, mut to) = (end_of(first), from);
        while let Some(piece) = pieces.get(to).copied().filter(|_| to < filled) {
            let joins = piece.start < end.saturating_add(PADDING)
                && (piece.unwind == NO_UNWIND) == (first.unwind == NO_UNWIND)
                && piece.start.wrapping_sub(first.start) < u64::from(u32::MAX);
            if !joins {
                break;
            }
            // SAFETY: `to` is below `room`.
            unsafe {
                Record::functions(record).add(to).write(Function {
                    start: piece.start.wrapping_sub(first.start) as u32,
                    len: piece.len,
                    unwind: piece.unwind,
                    name_len: 0,
                    name: 0,
                });
            }
            end = end.max(end_of(piece));
            to += 1;
        }
        // SAFETY: as above.
        let functions = unsafe { Record::functions(record).add(from) };
        let kind = if first.unwind == NO_UNWIND { Kind::Opaque } else { Kind::EhFrame };
        let mut window = Window::new(first.start, end, kind);
        if kind == Kind::Opaque {
            window.flags = NO_DATA;
        } else {
            window.unwind = span.start;
            window.unwind_len = span.len();
            window.functions = functions as u64;
            window.capacity = to.wrapping_sub(from) as u64;
        }
        if register(window).is_ok() {
            // Its place was read already: windows are no more than pieces.
            if let Some(place) = pieces.get_mut(windows) {
                place.start = first.start;
            }
            windows += 1;
        } else {
            lost = lost.saturating_add(to.wrapping_sub(from) as u32);
        }
        from = to.max(from + 1);
    }
    // SAFETY: ours alone.
    unsafe { (*record).windows = windows };
    lost
}

/// Registers a window; where one that has just gone is still being read, waits for that.
fn register(window: Window) -> Result<(), Errno> {
    crate::windows::takes_a_place(&window);
    match REGISTRY.register(window, &SLOTS) {
        Err(EBUSY) => {
            REGISTRY.synchronize(REGISTRY.ticket(), GRACE, &SLOTS)?;
            REGISTRY.register(window, &SLOTS).map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

/// The latest registration at `begin` goes. Returns when no walk reads what was registered, or after [`GRACE`].
///
/// # Safety
/// Not from a handler.
pub unsafe extern "C" fn remove(begin: u64) {
    let found = with_book(|book| {
        let mut link: *mut *mut Record = book.buckets.get_mut(bucket(begin))?;
        // SAFETY: records of the book stay until they are taken out here, with the lock held.
        unsafe {
            while !(*link).is_null() {
                let record = *link;
                if (*record).begin == begin {
                    *link = (*record).next;
                    return Some(record);
                }
                link = &raw mut (*record).next;
            }
        }
        None
    });
    let Some(Some(record)) = found else { return };
    // SAFETY: taken out: ours alone.
    let windows = unsafe { (*record).windows };
    let mut ticket = 0;
    for piece in Record::pieces(record).iter().take(windows) {
        ticket = REGISTRY.unlink(piece.start, &SLOTS).unwrap_or(ticket);
    }
    // A walk that does not end keeps the tables; they are lost to us, and the registry keeps their place taken.
    if ticket == 0 || REGISTRY.synchronize(ticket, GRACE, &SLOTS).is_ok() {
        // SAFETY: no walk can read it any more.
        with_book(|book| unsafe { book.store.give(record.cast(), (*record).bytes) });
    }
}

/// In the child of a fork: whoever held the lock is not here.
pub fn after_fork() {
    REGISTERED.lock.was_lost();
}

#[cfg(test)]
mod tests;
