//! A window: code that no loaded object covers, and how its frames are stepped.

use super::life::Life;
use crate::plugin::installed::FAILURE_LIMIT;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How a window's frames are stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Every function in it keeps a frame pointer.
    FramePointer = 1,
    /// Nobody can tell: the walk stops here, with a reason.
    Opaque = 2,
    /// `unwind` is a list of CIEs and FDEs, as in `.eh_frame`.
    EhFrame = 3,
    /// `unwind` is an SFrame section.
    SFrame = 4,
    /// `callback` gives the rule of a pc, a pure function of it.
    Rule = 5,
    /// `callback` moves the cursor by itself.
    Stepper = 6,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u32) -> Option<Kind> {
        Some(match number {
            1 => Kind::FramePointer,
            2 => Kind::Opaque,
            3 => Kind::EhFrame,
            4 => Kind::SFrame,
            5 => Kind::Rule,
            6 => Kind::Stepper,
            _ => return None,
        })
    }
}

/// [`Window::flags`]: functions are still added: what is not found now may be found later.
pub const GROWING: u32 = 1;
/// [`Window::flags`]: the table of functions descends: each new function lies below those before.
pub const DESCENDING: u32 = 2;
/// [`Window::flags`]: its registrar told no unwind data, which says nothing of what others know. Not for callers from outside.
pub const UNTOLD: u32 = 1 << 31;

/// One window. What it points to belongs to the registrar, and stays as it is until the window is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Window {
    /// First text address: the key.
    pub start: u64,
    /// End of the text, exclusive.
    pub end: u64,
    /// Tells it from every other window that was or will be at the same place. Given by the registry; never 0.
    pub generation: u64,
    /// How its frames are stepped.
    pub kind: Kind,
    /// [`GROWING`], [`DESCENDING`].
    pub flags: u32,
    /// Unwind data; 0 when the kind needs none.
    pub unwind: u64,
    /// Its length in bytes.
    pub unwind_len: u64,
    /// The registrar's own pointer: first argument of the callbacks.
    pub user: u64,
    /// Address of the rule or step function; 0 when the kind needs none.
    pub callback: u64,
    /// Table of functions ([`Function`]), sorted; 0: none.
    pub functions: u64,
    /// Room in the table, in functions.
    pub capacity: u64,
    /// Address of the counter of functions that are valid; 0: all are.
    pub published: u64,
    /// Address of the function that names a pc; 0: none.
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
    /// Distance of its first byte from the window's start.
    pub start: u32,
    /// Bytes of code; 0: a tombstone, the function is gone.
    pub len: u32,
    /// Distance of its FDE from the start of the window's unwind data; `u32::MAX`: none of its own.
    pub unwind: u32,
    /// Bytes of its name.
    pub name_len: u32,
    /// Address of its name, UTF-8; 0: none.
    pub name: u64,
}

/// [`Function::unwind`] of a function without an FDE of its own.
pub const NO_UNWIND: u32 = u32::MAX;

/// A registered window.
#[repr(C, align(64))]
pub struct Held {
    /// In one line with the first fields of the window.
    pub(super) life: Life,
    pub(super) window: Window,
    /// 1: no more functions are added.
    pub(super) sealed: AtomicU32,
    /// 1: in the tree of pinned windows.
    pub(super) pinned: AtomicU32,
    /// Calls of its functions that failed.
    pub(super) failures: AtomicU32,
    /// Epoch in which it was unlinked, and the next window unlinked: writers' business.
    pub(super) retired: AtomicU64,
    pub(super) link: AtomicU64,
}

impl Held {
    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Counts a call of one of its functions that failed. True: with this one they are off. Async-signal-safe.
    pub fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) == FAILURE_LIMIT - 1
    }

    /// Whether its functions may be called. Async-signal-safe.
    pub fn may_be_called(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURE_LIMIT
    }

    /// Whether what is not found now may be found later.
    pub fn may_grow(&self) -> bool {
        self.window.flags & GROWING != 0 && self.sealed.load(Ordering::Acquire) == 0
    }
}
