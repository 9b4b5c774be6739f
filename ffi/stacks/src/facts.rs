//! Facts of the process's objects, as set-up found them: which plugin an object belongs to, and what it has to know.
//!
//! Keys are those of objects (`uunwind_core::object_key`). An entry never changes and is never removed.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::errno::{EEXIST, EINVAL, ENOMEM};

/// Limit of the number of objects.
const ROOM: usize = 4096;

struct Entry {
    /// 0: free.
    key: AtomicU64,
    /// Index of the plugin, 0: no plugin claims it; -1: the entry is not complete.
    plugin: AtomicI32,
    bytes: AtomicPtr<u8>,
    len: AtomicUsize,
}

static ENTRIES: [Entry; ROOM] = [const {
    Entry {
        key: AtomicU64::new(0),
        plugin: AtomicI32::new(-1),
        bytes: AtomicPtr::new(core::ptr::null_mut()),
        len: AtomicUsize::new(0),
    }
}; ROOM];
static COUNT: AtomicU32 = AtomicU32::new(0);

fn probes(key: u64) -> impl Iterator<Item = &'static Entry> {
    (0..ROOM).filter_map(move |probe| ENTRIES.get((key as usize).wrapping_add(probe) % ROOM))
}

/// Number of objects with an answer.
pub fn count() -> u32 {
    COUNT.load(Ordering::Acquire)
}

/// Stores that the objects with this key belong to the plugin with this index, with these facts; an index of 0: to
/// none. Returns 0, `-EINVAL` (no key, or no plugin's index), `-EEXIST`, or `-ENOMEM` (the limit is reached).
/// Lock-free; not for handlers.
///
/// # Safety
/// The bytes must be valid for ever; plugins may ask for an alignment of 8.
pub unsafe extern "C" fn add(key: u64, plugin: u32, bytes: *const u8, len: usize) -> i32 {
    let Some(index) = i32::try_from(plugin).ok().filter(|index| *index <= uunwind_core::walk::MAX_PLUGINS as i32)
    else {
        return -EINVAL;
    };
    if key == 0 || index != 0 && bytes.is_null() {
        return -EINVAL;
    }
    for entry in probes(key) {
        match entry.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                entry.bytes.store(bytes.cast_mut(), Ordering::Relaxed);
                entry.len.store(len, Ordering::Relaxed);
                // Readers use the entry from here on.
                entry.plugin.store(index, Ordering::Release);
                COUNT.fetch_add(1, Ordering::Release);
                return 0;
            }
            Err(other) if other == key => return -EEXIST,
            Err(_) => {}
        }
    }
    -ENOMEM
}

/// The plugin's index (0: none claims it), and its facts. `None`: there is no answer for this key. Async-signal-safe.
pub fn find(key: u64) -> Option<(i32, *const u8, usize)> {
    let entry = probes(key)
        .map(|entry| (entry, entry.key.load(Ordering::Acquire)))
        .take_while(|(_, stored)| *stored != 0)
        .find(|(_, stored)| *stored == key)?
        .0;
    let plugin = entry.plugin.load(Ordering::Acquire);
    (plugin >= 0).then(|| (plugin, entry.bytes.load(Ordering::Relaxed).cast_const(), entry.len.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_key() {
        let bytes = [1u8, 2, 3];
        let at = Box::leak(Box::new(bytes)).as_ptr();
        // SAFETY: the bytes were leaked.
        unsafe {
            assert_eq!(add(5, 2, at, 3), 0);
            assert_eq!(add(5, 1, at, 3), -17);
            assert_eq!(add(5 + ROOM as u64, 0, core::ptr::null(), 0), 0, "the next entry");
            assert_eq!(add(0, 1, at, 3), -22);
            assert_eq!(add(6, 8, at, 3), -22);
            assert_eq!(add(6, 1, core::ptr::null(), 3), -22);
        }
        assert_eq!(find(5), Some((2, at, 3)));
        assert_eq!(find(5 + ROOM as u64), Some((0, core::ptr::null(), 0)));
        assert_eq!(find(7), None);
        assert_eq!(count(), 2);
    }
}
