//! A window: code that no loaded object covers, with the way in which its frames are stepped.

use super::life::Life;
use crate::plugin::installed::FAILURE_LIMIT;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

crate::numbered! {
    /// The way in which a window's frames are stepped.
    pub enum Kind: u32 {
        /// Every function in it keeps a frame pointer.
        FramePointer = 1;
        /// Its frames cannot be stepped: the walk ends here, with a stop reason.
        Opaque = 2;
        /// `unwind` is a list of CIEs and FDEs, as in `.eh_frame`.
        EhFrame = 3;
        /// `unwind` is an SFrame section.
        SFrame = 4;
        /// `callback` returns the rule of a pc; it must be a pure function.
        Rule = 5;
        /// `callback` moves the cursor itself.
        Stepper = 6;
        /// No unwind data: rules are made from its machine code, by a recorder or from outside.
        Code = 7;
    }
}

/// [`Window::flags`]: functions are still being added, so what is not found now may be found later.
pub const GROWING: u32 = 1;
/// [`Window::flags`]: the table of functions descends: each new function lies below the earlier ones.
pub const DESCENDING: u32 = 2;
/// [`Window::flags`]: its registrar gave no unwind data, but other sources may have some. Set by the library only.
pub const NO_DATA: u32 = 1 << 31;

/// One window. What it points to belongs to the registrar, who must not change it until the window is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Window {
    /// First text address (process address): the key.
    pub start: u64,
    /// End of the text, exclusive.
    pub end: u64,
    /// Distinguishes it from every other window that was or will be at the same place. Assigned by the registry; never
    /// 0.
    pub generation: u64,
    /// The way in which its frames are stepped.
    pub kind: Kind,
    /// A sum of [`GROWING`], [`DESCENDING`] and [`NO_DATA`].
    pub flags: u32,
    /// Address of its unwind data; 0 if the kind needs none.
    pub unwind: u64,
    /// Length of the unwind data in bytes.
    pub unwind_len: u64,
    /// The registrar's own pointer, the first argument of the callbacks.
    pub user: u64,
    /// Address of the rule or step function; 0 if the kind needs none.
    pub callback: u64,
    /// Address of the sorted table of functions ([`Function`]); 0: there is none.
    pub functions: u64,
    /// Capacity of the table, in functions.
    pub capacity: u64,
    /// Address of the counter of valid functions; 0: all are valid.
    pub published: u64,
    /// Address of the function that returns the name for a pc; 0: there is none.
    pub name: u64,
}

impl Window {
    /// A window without tables or callbacks.
    pub const fn new(start: u64, end: u64, kind: Kind) -> Window {
        Window {
            start,
            end,
            generation: 0,
            kind,
            flags: 0,
            unwind: 0,
            unwind_len: 0,
            user: 0,
            callback: 0,
            functions: 0,
            capacity: 0,
            published: 0,
            name: 0,
        }
    }
}

/// One function of a window: `struct uu_function`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Function {
    /// Distance of its first byte from the window's start, in bytes.
    pub start: u32,
    /// Size of its code in bytes; 0: a tombstone, the function was removed.
    pub len: u32,
    /// Distance in bytes of its FDE from the start of the window's unwind data; [`NO_UNWIND`]: it has no FDE of its
    /// own.
    pub unwind: u32,
    /// Length of its name in bytes.
    pub name_len: u32,
    /// Address of its name, in UTF-8; 0: it has none.
    pub name: u64,
}

/// [`Function::unwind`] of a function without an FDE of its own.
pub const NO_UNWIND: u32 = u32::MAX;

/// A registered window, as the registry keeps it.
#[repr(C, align(64))]
pub struct Held {
    /// In one cache line with the first fields of the window.
    pub(super) life: Life,
    pub(super) window: Window,
    /// 1: no more functions are added to it.
    pub(super) sealed: AtomicU32,
    /// 1: it is in the tree of pinned windows.
    pub(super) pinned: AtomicU32,
    /// Number of failed calls of its functions.
    pub(super) failures: AtomicU32,
    /// Epoch in which it was unlinked, and the next unlinked window: used by writers only.
    pub(super) retired: AtomicU64,
    pub(super) link: AtomicU64,
}

impl Held {
    /// The registered window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Counts a failed call of one of its functions. True: after this one they are not called any more.
    /// Async-signal-safe.
    pub fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) == FAILURE_LIMIT - 1
    }

    /// Whether its functions may be called. Async-signal-safe.
    pub fn may_be_called(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURE_LIMIT
    }

    /// Whether what is not found in it now may be found later.
    pub fn may_grow(&self) -> bool {
        self.window.flags & GROWING != 0 && self.sealed.load(Ordering::Acquire) == 0
    }
}
