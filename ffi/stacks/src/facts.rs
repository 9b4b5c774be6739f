//! Facts of the process's objects, as set-up found them: which plugin an object belongs to, and what it has to know.
//!
//! Keys are those of objects (`uunwind_core::object_key`). An entry never changes and is never removed. Its key is
//! stored last: in the child of a fork that comes while another thread adds an entry, that entry stays taken and empty,
//! and its key can be added again.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::errno::{EEXIST, EINVAL, ENOMEM};

/// Limit of the number of objects.
const ROOM: usize = 4096;

struct Entry {
    /// A thread writes it, or has written it.
    taken: AtomicBool,
    /// 0: it is not complete.
    key: AtomicU64,
    /// Index of the plugin, 0: no plugin claims it.
    plugin: AtomicU32,
    bytes: AtomicPtr<u8>,
    len: AtomicUsize,
}

static ENTRIES: [Entry; ROOM] = [const {
    Entry {
        taken: AtomicBool::new(false),
        key: AtomicU64::new(0),
        plugin: AtomicU32::new(0),
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
/// none. Returns 0, `-EINVAL` (no key, or no plugin's index), `-EEXIST`, or `-ENOMEM` (the limit is reached). Of two
/// threads that add the same key at once, both may succeed; one of the two entries counts. Lock-free; not for handlers.
///
/// # Safety
/// The bytes must be valid for ever; plugins may ask for an alignment of 8.
pub unsafe extern "C" fn add(key: u64, plugin: u32, bytes: *const u8, len: usize) -> i32 {
    if key == 0 || plugin > uunwind_core::walk::LAST_INDEX as u32 || plugin != 0 && bytes.is_null() {
        return -EINVAL;
    }
    if find(key).is_some() {
        return -EEXIST;
    }
    for entry in probes(key) {
        if entry.taken.swap(true, Ordering::AcqRel) {
            continue;
        }
        entry.plugin.store(plugin, Ordering::Relaxed);
        entry.bytes.store(bytes.cast_mut(), Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        // Readers use the entry from here on.
        entry.key.store(key, Ordering::Release);
        COUNT.fetch_add(1, Ordering::Release);
        return 0;
    }
    -ENOMEM
}

/// The plugin's index (0: none claims it), and its facts. `None`: there is no answer for this key. Async-signal-safe.
pub fn find(key: u64) -> Option<(u32, *const u8, usize)> {
    if key == 0 {
        return None;
    }
    let entry = probes(key)
        .take_while(|entry| entry.taken.load(Ordering::Acquire))
        .find(|entry| entry.key.load(Ordering::Acquire) == key)?;
    let (plugin, bytes) = (entry.plugin.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
    Some((plugin, bytes.cast_const(), entry.len.load(Ordering::Relaxed)))
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
            assert_eq!(add(6, uunwind_core::walk::LAST_INDEX as u32 + 1, at, 3), -22);
            assert_eq!(add(6, 1, core::ptr::null(), 3), -22);
        }
        assert_eq!(find(5), Some((2, at, 3)));
        assert_eq!(find(5 + ROOM as u64), Some((0, core::ptr::null(), 0)));
        assert_eq!(find(7), None);
    }

    #[test]
    fn an_entry_that_another_thread_was_writing_at_a_fork_is_passed_by() {
        let key = 1000;
        let entry = probes(key).next().expect("a place");
        entry.taken.store(true, Ordering::Relaxed);
        entry.plugin.store(3, Ordering::Relaxed);
        assert_eq!(find(key), None);
        // SAFETY: no bytes.
        assert_eq!(unsafe { add(key, 0, core::ptr::null(), 0) }, 0);
        assert_eq!(find(key), Some((0, core::ptr::null(), 0)));
        // SAFETY: no bytes.
        assert_eq!(unsafe { add(key, 0, core::ptr::null(), 0) }, -17);
    }
}
