//! One immutable, sorted array of windows, in memory of its own (mmap, so that writers need no allocator).

use super::{Errno, EEXIST, ENOENT, ENOMEM};
use crate::syscall::call;

/// How a window's frames are stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Every function in it keeps a frame pointer.
    FramePointer = 1,
    /// Nobody can tell: the walk stops here, with a reason.
    Opaque = 2,
}

/// One window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Window {
    /// First text address: the key.
    pub start: u64,
    /// End of the text, exclusive.
    pub end: u64,
    /// How its frames are stepped.
    pub kind: Kind,
    /// Epoch in which it was registered: tells it from earlier windows at the same place.
    pub generation: u64,
    /// The registrar's own pointer.
    pub user: u64,
}

/// The array. `len` windows follow the header.
#[repr(C)]
pub struct Snapshot {
    bytes: usize,
    len: usize,
}

const WINDOW: usize = core::mem::size_of::<Window>();
const HEADER: usize = core::mem::size_of::<Snapshot>();

impl Snapshot {
    /// All windows, in order of their addresses.
    pub fn windows(&self) -> &[Window] {
        // SAFETY: `allocate` made room for `len` windows behind the header, and its callers filled them.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).add(1).cast::<Window>(), self.len) }
    }

    /// The window that covers `pc`. Async-signal-safe; logarithmic.
    pub fn find(&self, pc: u64) -> Option<&Window> {
        let windows = self.windows();
        let after = windows.partition_point(|w| w.start <= pc);
        windows.get(after.checked_sub(1)?).filter(|w| pc < w.end)
    }

    /// A copy of `old` with one window more.
    pub(super) fn with(old: Option<&Snapshot>, window: &Window) -> Result<*mut Snapshot, Errno> {
        let windows = old.map_or(&[][..], Snapshot::windows);
        let at = windows.partition_point(|w| w.start < window.start);
        let overlaps = windows.get(at).is_some_and(|next| next.start < window.end)
            || at.checked_sub(1).and_then(|i| windows.get(i)).is_some_and(|before| before.end > window.start);
        if overlaps {
            return Err(EEXIST);
        }
        let (head, tail) = windows.split_at_checked(at).ok_or(ENOMEM)?;
        build(&[head, core::slice::from_ref(window), tail])
    }

    /// A copy of `old` without the window of this key.
    pub(super) fn without(old: Option<&Snapshot>, start: u64) -> Result<*mut Snapshot, Errno> {
        let windows = old.map_or(&[][..], Snapshot::windows);
        let at = windows.partition_point(|w| w.start < start);
        let (head, tail) = windows.split_at_checked(at).ok_or(ENOENT)?;
        match tail.split_first() {
            Some((window, tail)) if window.start == start => build(&[head, tail]),
            _ => Err(ENOENT),
        }
    }

    /// # Safety
    /// Nobody may read it any more.
    pub(super) unsafe fn free(snapshot: *mut Snapshot) {
        const MUNMAP: usize = 11;
        if !snapshot.is_null() {
            // SAFETY: the mapping was made by `build`, with this length.
            unsafe { call(MUNMAP, [snapshot as usize, (*snapshot).bytes, 0, 0, 0, 0]) };
        }
    }
}

/// A new snapshot of these windows, in this order.
fn build(parts: &[&[Window]]) -> Result<*mut Snapshot, Errno> {
    const MMAP: usize = 9;
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let bytes = HEADER + len * WINDOW;
    // SAFETY: a fresh private mapping.
    let at = unsafe { call(MMAP, [0, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    if at <= 0 {
        return Err(ENOMEM);
    }
    let snapshot = at as *mut Snapshot;
    // SAFETY: the mapping has room for the header and `len` windows.
    unsafe {
        snapshot.write(Snapshot { bytes, len });
        let mut to = snapshot.add(1).cast::<Window>();
        for part in parts {
            core::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            to = to.add(part.len());
        }
    }
    Ok(snapshot)
}
