//! Rule tables of objects. A walk looks for an object's table, by the object's key, among those of the sampler and
//! those that were added with [`add`].

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::errno::{EEXIST, EINVAL, ENOMEM};
use uunwind_core::library::Client;
use uunwind_core::objects::{Answer, Object, Source};
use uunwind_tables::Table;

/// Limit of the number of tables that the program itself has added (`uu_setup`).
const ROOM: usize = 2048;

/// A table that the program has added. The key is stored last: in the child of a fork that comes while another thread
/// adds a table, the entry stays taken and empty, and the key can be added again.
struct Given {
    /// A thread writes the entry, or has written it.
    taken: AtomicBool,
    /// 0: it is not complete.
    key: AtomicU64,
    len: AtomicUsize,
    bytes: AtomicPtr<u8>,
}

static GIVEN: [Given; ROOM] = [const {
    Given {
        taken: AtomicBool::new(false),
        key: AtomicU64::new(0),
        len: AtomicUsize::new(0),
        bytes: AtomicPtr::new(core::ptr::null_mut()),
    }
}; ROOM];
/// Number of tables in [`GIVEN`].
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The entries that may have this key: open addressing with linear probing.
fn probes(key: u64) -> impl Iterator<Item = &'static Given> {
    (0..ROOM).filter_map(move |probe| GIVEN.get((key as usize).wrapping_add(probe) % ROOM))
}

/// Adds a table of `len` bytes for objects with this key. Returns 0, `-EINVAL` (no table, or no key), `-EEXIST` (there
/// is one for this key), or `-ENOMEM` (the limit is reached). Of two threads that add one for the same key at once,
/// both may succeed; the first in the table counts. Lock-free; not for handlers.
///
/// # Safety
/// As [`uunwind_core::library::Library::add_table`].
pub unsafe extern "C" fn add(key: u64, bytes: *const u8, len: usize) -> i32 {
    if key == 0 || bytes.is_null() {
        return -EINVAL;
    }
    // SAFETY: the caller vouches for the bytes.
    if Table::new(unsafe { core::slice::from_raw_parts(bytes, len) }).is_err() {
        return -EINVAL;
    }
    if given(key).is_some() {
        return -EEXIST;
    }
    for place in probes(key) {
        if place.taken.swap(true, Ordering::AcqRel) {
            continue;
        }
        place.len.store(len, Ordering::Relaxed);
        place.bytes.store(bytes.cast_mut(), Ordering::Relaxed);
        // Readers use the entry from here on.
        place.key.store(key, Ordering::Release);
        COUNT.fetch_add(1, Ordering::Release);
        return 0;
    }
    -ENOMEM
}

/// The bytes of the table that was added for this key, and their number.
fn given(key: u64) -> Option<(*const u8, usize)> {
    let place = probes(key)
        .take_while(|place| place.taken.load(Ordering::Acquire))
        .find(|place| key != 0 && place.key.load(Ordering::Acquire) == key)?;
    Some((place.bytes.load(Ordering::Relaxed).cast_const(), place.len.load(Ordering::Relaxed)))
}

/// The object's table, if there is one. `source`: whose walk asks. After a miss, the search is repeated only when
/// tables or facts have been published. Async-signal-safe. Not inlined, so that its stack frame does not add to its
/// caller's.
#[inline(never)]
pub fn of(object: &Object, source: Source, client: Option<(&Client, *mut c_void)>) -> Option<Table<'static>> {
    let found = match object.table.get() {
        Some(cached) => cached,
        None => {
            search(object, source, client)?;
            // Cached walks may have used worse rules, or none.
            crate::replay_dependencies::changed();
            object.table.get()?
        }
    };
    // SAFETY: the sampler, and the caller of `add`, guarantee that the bytes never change and are never freed.
    Table::new(unsafe { core::slice::from_raw_parts(found.bytes, found.len) }).ok()
}

/// Settles the object's table, if there is one.
fn search(object: &Object, source: Source, client: Option<(&Client, *mut c_void)>) -> Option<()> {
    // Without a unique build-id, another file may have the same key, and its rules would be wrong here.
    if !object.has_unique_build_id() {
        return None;
    }
    // Only a recorder publishes tables through its client.
    let client = client.filter(|_| source == Source::Recorder);
    // SAFETY: the sampler's function and context.
    let published = client.map_or(0, |(client, context)| unsafe { (client.facts_count)(context) });
    // One more, so that the initial 0 ("never searched") differs from a search when none was published.
    if !object.table.may_ask(source, published.wrapping_add(COUNT.load(Ordering::Acquire)).wrapping_add(1)) {
        return None;
    }
    let (mut bytes, mut len) = (core::ptr::null(), 0);
    // SAFETY: as above; both results are written to local variables.
    let found = client.is_some_and(|(client, context)| unsafe {
        (client.table)(context, object.facts_key, &raw mut bytes, &raw mut len)
    });
    let published = found.then_some((Source::Recorder, (bytes, len)));
    let given = given(object.facts_key).map(|given| (Source::Process, given));
    // Two objects may have the same build-id, so a table is used only for an object with the unwind data that it was
    // made from.
    let (from, (bytes, len)) = [published, given].into_iter().flatten().find(|(_, (bytes, len))| {
        // SAFETY: the sampler's bytes, and those of `add`, are never freed.
        let table = Table::new(unsafe { core::slice::from_raw_parts(*bytes, *len) });
        table.is_ok_and(|table| object.unwind_key != 0 && table.key() == object.unwind_key)
    })?;
    object.table.settle(from, Answer { bytes, len, plugin: 0 });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{CHANGES, OBJECTS};
    use uunwind_core::memory::Reader;
    use uunwind_core::objects::Settled;
    use uunwind_tables::format::{TableHead, HEAD_BYTES, MAGIC};

    /// A table without rules, made from the unwind data with this key.
    fn table(key: u64) -> (*const u8, usize) {
        let (rows, row_bytes, index_bytes) = (2, 2, 2);
        let head = TableHead { magic: MAGIC, key, rows, shift: 5, row_bytes, index_bytes, ..TableHead::default() };
        let len = HEAD_BYTES + usize::from(index_bytes) + rows as usize * usize::from(row_bytes);
        let words: &'static mut [u64] = vec![0; len.div_ceil(8)].leak();
        for (to, from) in words.iter_mut().zip(head.to_bytes().chunks(8)) {
            *to = u64::from_le_bytes(from.try_into().expect("a head is whole words"));
        }
        (words.as_ptr().cast(), len)
    }

    /// libc, as if it had these keys.
    fn object(facts_key: u64, unwind_key: u64) -> Object {
        extern "C" {
            fn getpid() -> i32;
            fn _dl_find_object(pc: *mut c_void, result: *mut c_void) -> i32;
        }
        OBJECTS.set_finder(_dl_find_object);
        let mut object = OBJECTS.make(getpid as *const () as u64, &mut Reader::probed()).expect("libc is loaded");
        assert!(object.has_unique_build_id());
        (object.facts_key, object.unwind_key, object.table) = (facts_key, unwind_key, Settled::new());
        object
    }

    fn give(facts_key: u64, (bytes, len): (*const u8, usize)) -> i32 {
        // SAFETY: bytes that are never freed.
        unsafe { add(facts_key, bytes, len) }
    }

    fn key_of(object: &Object) -> Option<u64> {
        of(object, Source::Process, None).map(|table| table.key())
    }

    #[test]
    fn a_table_that_was_made_from_other_unwind_data_is_not_used() {
        assert_eq!(give(101, table(7)), 0);
        assert_eq!(key_of(&object(101, 8)), None);
        assert_eq!(give(100, table(0)), 0);
        assert_eq!(key_of(&object(100, 0)), None, "what it has cannot be read");
        assert_eq!(key_of(&object(101, 7)), Some(7));
    }

    #[test]
    fn an_object_keeps_its_table_when_its_key_gets_another() {
        let (first, loaded_again) = (object(102, 7), object(102, 9));
        assert_eq!(give(102, table(7)), 0);
        assert_eq!((key_of(&first), key_of(&loaded_again)), (Some(7), None));
        assert_eq!(give(102, table(9)), -EEXIST);
        assert_eq!((key_of(&first), key_of(&loaded_again)), (Some(7), None));
    }

    #[test]
    fn a_table_that_comes_later_is_found_and_ends_what_was_cached() {
        let object = object(103, 7);
        assert_eq!(key_of(&object), None);
        assert_eq!(give(103, table(7)), 0);
        let before = CHANGES.load(Ordering::Acquire);
        assert_eq!(key_of(&object), Some(7));
        // Other tests may add to it, too: it never goes back.
        assert!(CHANGES.load(Ordering::Acquire) > before);
        assert_eq!(give(103, table(7)), -EEXIST);
    }
}
