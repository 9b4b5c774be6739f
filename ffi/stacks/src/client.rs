//! What a walk asks of its client, answered by the library itself: facts that set-up added, and names that it keeps.

use crate::memory::Memory;
use crate::{facts, names};
use core::ffi::c_void;
use core::sync::atomic::AtomicU64;
use uunwind_core::library::Client;
use uunwind_core::objects::Object;
use uunwind_core::plugin::Description;

/// The function table that each whole walk gets. Its context is the thread's [`Memory`].
pub static CLIENT: Client = Client {
    object_seen,
    facts_count,
    facts: facts_of,
    table,
    code_rule,
    find_name,
    describe,
    foreign_code,
    plugin_failed,
};

unsafe extern "C" fn object_seen(_context: *mut c_void, _object: *const Object) -> bool {
    true
}

unsafe extern "C" fn facts_count(_context: *mut c_void) -> u32 {
    // One more, so that 0 means "never looked up". The sampler's count lies in the same place of an object, so this one
    // begins elsewhere.
    facts::count().wrapping_add(1) | 1 << 31
}

unsafe extern "C" fn facts_of(_context: *mut c_void, key: u64, bytes: *mut *const u8, len: *mut usize) -> i32 {
    let Some((plugin, found, found_len)) = facts::find(key) else { return -1 };
    // SAFETY: the walk passes valid places for the results.
    unsafe {
        bytes.write(found);
        len.write(found_len);
    }
    plugin as i32
}

unsafe extern "C" fn table(_context: *mut c_void, _key: u64, _bytes: *mut *const u8, _len: *mut usize) -> bool {
    // What set-up built is looked at without being asked for (`uunwind_live::tables`).
    false
}

unsafe extern "C" fn code_rule(
    _context: *mut c_void,
    _lookup: u64,
    _same: unsafe extern "C" fn(*mut c_void, u64, *const AtomicU64, usize) -> bool,
    _reader: *mut c_void,
    _rule: *mut [u64; 3],
) -> bool {
    // Nobody analyses code while the program runs.
    false
}

unsafe extern "C" fn find_name(_context: *mut c_void, code: u64, fingerprint: u64) -> u32 {
    names::find(code, fingerprint)
}

unsafe extern "C" fn describe(
    context: *mut c_void,
    plugin: u32,
    description: *const Description,
    read: names::Read,
    reader: *mut c_void,
) -> u32 {
    // SAFETY: the context is the walk's memory, of which nothing else uses this part during the call.
    let room = unsafe { &mut (*context.cast::<Memory>()).name };
    // SAFETY: the walk's description and reader.
    unsafe { names::describe(plugin, &*description, read, reader, room) }
}

unsafe extern "C" fn foreign_code(_context: *mut c_void) {}

unsafe extern "C" fn plugin_failed(_context: *mut c_void, _plugin: u32, _reason: u32, _off: bool) {}
