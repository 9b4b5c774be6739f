//! The plugins of a process by index, with the failures of each.

use super::{negotiate, Entry, Plugin, Refusal};
use crate::span::Span;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of failures after which a plugin is switched off for good.
pub const FAILURE_LIMIT: u32 = 3;

const EMPTY: u32 = 0;
const FILLING: u32 = 1;
const READY: u32 = 2;

struct Installation {
    state: AtomicU32,
    table: UnsafeCell<Plugin>,
    failures: AtomicU32,
    text: [AtomicU64; 2],
}

/// Up to `N` plugins. An index is filled once and never changes.
pub struct Installed<const N: usize> {
    places: [Installation; N],
    /// The index after the largest that was ever filled: who looks for a plugin stops there.
    end: AtomicU32,
}

// SAFETY: a table is written once, by the thread that moved its place from EMPTY to FILLING, and read only when it is
// READY.
unsafe impl<const N: usize> Sync for Installed<N> {}

impl<const N: usize> Installed<N> {
    /// A list without plugins.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Installed<N> {
        Installed {
            places: [const {
                Installation {
                    state: AtomicU32::new(EMPTY),
                    table: UnsafeCell::new(Plugin::new([0; 16])),
                    failures: AtomicU32::new(0),
                    text: [const { AtomicU64::new(0) }; 2],
                }
            }; N],
            end: AtomicU32::new(0),
        }
    }

    /// Installs the plugin of this entry under an index; `text` is its code (process addresses), empty if not
    /// available. False: the index is invalid or taken. Not for handlers.
    ///
    /// # Safety
    /// As for [`negotiate`].
    pub unsafe fn add(&self, index: usize, entry: Entry, text: Span) -> Result<bool, Refusal> {
        // SAFETY: passed on.
        let table = unsafe { negotiate(entry) }?;
        let Some(place) = self.places.get(index) else { return Ok(false) };
        if place.state.compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Ok(false);
        }
        // SAFETY: this call alone moved the place to FILLING.
        unsafe { place.table.get().write(table) };
        place.text[0].store(text.start, Ordering::Relaxed);
        place.text[1].store(text.end, Ordering::Relaxed);
        // Before it is ready: its faults are mended by whoever finds it.
        self.end.fetch_max(index as u32 + 1, Ordering::Release);
        place.state.store(READY, Ordering::Release);
        Ok(true)
    }

    /// The indices from this one on under which there may be a plugin. Async-signal-safe.
    #[inline]
    pub fn from(&self, index: u8) -> core::ops::Range<u8> {
        index..self.end.load(Ordering::Acquire) as u8
    }

    fn place(&self, index: u8) -> Option<&Installation> {
        self.places.get(usize::from(index)).filter(|place| place.state.load(Ordering::Acquire) == READY)
    }

    /// The plugin with this index, unless it is off. Async-signal-safe.
    pub fn get(&self, index: u8) -> Option<&Plugin> {
        let place = self.place(index).filter(|place| place.failures.load(Ordering::Relaxed) < FAILURE_LIMIT)?;
        // SAFETY: READY, so it is never written again.
        Some(unsafe { &*place.table.get() })
    }

    /// The plugin with this index, off or not.
    pub fn get_any(&self, index: u8) -> Option<&Plugin> {
        // SAFETY: as above.
        self.place(index).map(|place| unsafe { &*place.table.get() })
    }

    /// The plugin's code (process addresses); empty if not available. Async-signal-safe.
    pub fn text(&self, index: u8) -> Span {
        self.place(index).map_or(Span::EMPTY, |place| {
            let [start, end] = &place.text;
            Span::new(start.load(Ordering::Relaxed), end.load(Ordering::Relaxed))
        })
    }

    /// Moves a context that faulted in a guarded load of a plugin to its fix-up. False if it faulted elsewhere.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// `ucontext` must be the context of the fault that the calling handler handles.
    pub unsafe fn mend(&self, ucontext: *mut u8) -> bool {
        let mut tables = self.from(0).filter_map(|index| self.get_any(index));
        // SAFETY: passed on.
        tables.any(|table| unsafe { table.fixups.mend(ucontext) })
    }

    /// Counts a failure. True: after this one the plugin is off. Async-signal-safe.
    pub fn failed(&self, index: u8) -> bool {
        let before = self.place(index).map(|place| place.failures.fetch_add(1, Ordering::Relaxed));
        before == Some(FAILURE_LIMIT - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn entry(_: u32) -> *const Plugin {
        static TABLE: Plugin = Plugin::new(*b"test\0\0\0\0\0\0\0\0\0\0\0\0");
        &TABLE
    }

    #[test]
    fn a_plugin_is_off_after_three_failures() {
        let installed = Installed::<3>::new();
        // SAFETY: a function of the right type, whose table lives for ever.
        unsafe {
            assert_eq!(installed.add(3, entry, Span::EMPTY), Ok(false), "no such place");
            assert_eq!(installed.add(1, entry, Span::new(16, 32)), Ok(true));
            assert_eq!(installed.add(1, entry, Span::new(16, 32)), Ok(false), "taken");
        }
        assert!(installed.get(0).is_none() && installed.get(1).is_some() && installed.get(2).is_none());
        assert_eq!((installed.from(0), installed.from(2).count()), (0..2, 0));
        assert_eq!((installed.text(1), installed.text(2)), (Span::new(16, 32), Span::EMPTY));
        assert_eq!([(); 4].map(|()| installed.failed(1)), [false, false, true, false]);
        assert!(installed.get(1).is_none() && installed.get_any(1).is_some());
        assert!(!installed.failed(2));
    }
}
