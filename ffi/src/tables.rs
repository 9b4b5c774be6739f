//! Rule tables of objects: found by key, from the sampler or from [`add`], when a walk comes to an object.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::library::Client;
use uunwind_core::objects::Object;
use uunwind_tables::Table;

/// Tables that the program itself has handed over (`uu_setup`).
const ROOM: usize = 2048;

struct Given {
    key: AtomicU64,
    len: AtomicUsize,
    bytes: AtomicPtr<u8>,
}

static GIVEN: [Given; ROOM] = [const {
    Given { key: AtomicU64::new(0), len: AtomicUsize::new(0), bytes: AtomicPtr::new(core::ptr::null_mut()) }
}; ROOM];
/// Number of tables in [`GIVEN`].
static COUNT: AtomicU32 = AtomicU32::new(0);

fn probes(key: u64) -> impl Iterator<Item = &'static Given> {
    (0..ROOM).filter_map(move |probe| GIVEN.get((key as usize).wrapping_add(probe) % ROOM))
}

/// Hands over a table. Lock-free; not for handlers.
///
/// # Safety
/// As [`uunwind_core::library::Library::add_table`].
pub unsafe extern "C" fn add(key: u64, bytes: *const u8, len: usize) -> i32 {
    const EINVAL: i32 = 22;
    const ENOMEM: i32 = 12;
    const EEXIST: i32 = 17;
    if key == 0 || bytes.is_null() {
        return -EINVAL;
    }
    // SAFETY: the caller vouches for the bytes.
    if Table::new(unsafe { core::slice::from_raw_parts(bytes, len) }).is_err() {
        return -EINVAL;
    }
    for place in probes(key) {
        match place.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                place.len.store(len, Ordering::Relaxed);
                // Only now is it to be seen.
                place.bytes.store(bytes.cast_mut(), Ordering::Release);
                COUNT.fetch_add(1, Ordering::Release);
                return 0;
            }
            Err(known) if known == key => return -EEXIST,
            Err(_) => {}
        }
    }
    -ENOMEM
}

fn given(key: u64) -> Option<(*const u8, usize)> {
    let place = probes(key)
        .map_while(|place| Some((place, Some(place.key.load(Ordering::Acquire)).filter(|key| *key != 0)?)))
        .find(|(_, known)| *known == key)?
        .0;
    let bytes = place.bytes.load(Ordering::Acquire);
    (!bytes.is_null()).then(|| (bytes.cast_const(), place.len.load(Ordering::Relaxed)))
}

/// The object's table, if there is one. It is searched for again only when tables or facts have been published since.
/// Async-signal-safe. Not inlined: what it needs of the stack is given back before more is asked.
#[inline(never)]
pub fn of(object: &Object, client: Option<(&Client, *mut c_void)>) -> Option<Table<'static>> {
    let known = object.table.load(Ordering::Acquire);
    let (bytes, len) = if known.is_null() {
        let found = search(object, client)?;
        object.table_len.store(found.1, Ordering::Relaxed);
        object.table.store(found.0.cast_mut(), Ordering::Release);
        // A walk from before may have been told less.
        crate::met::changed();
        found
    } else {
        (known.cast_const(), object.table_len.load(Ordering::Relaxed))
    };
    // SAFETY: whoever gave the table vouches for its bytes, for ever.
    Table::new(unsafe { core::slice::from_raw_parts(bytes, len) }).ok()
}

fn search(object: &Object, client: Option<(&Client, *mut c_void)>) -> Option<(*const u8, usize)> {
    // Without a build-id that tells files apart, another file may have the same key, and its rules would be wrong here.
    if !object.has_telling_build_id() {
        return None;
    }
    // SAFETY: the sampler's function and context.
    let published = client.map_or(0, |(client, context)| unsafe { (client.facts_count)(context) });
    // One more, so that "never asked" differs from "none so far".
    let count = published.wrapping_add(COUNT.load(Ordering::Acquire)).wrapping_add(1);
    if object.table_asked.load(Ordering::Relaxed) == count {
        return None;
    }
    object.table_asked.store(count, Ordering::Relaxed);
    let (mut bytes, mut len) = (core::ptr::null(), 0);
    // SAFETY: as above; both places are ours.
    let found = client.is_some_and(|(client, context)| unsafe {
        (client.table)(context, object.facts_key, &raw mut bytes, &raw mut len)
    });
    // SAFETY: the sampler's bytes stay for ever.
    let found = found && Table::new(unsafe { core::slice::from_raw_parts(bytes, len) }).is_ok();
    if found {
        return Some((bytes, len));
    }
    given(object.facts_key)
}
