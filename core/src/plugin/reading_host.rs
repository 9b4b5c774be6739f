//! The host of calls outside of a walk, such as that of a plugin's `rule`: its walk is a reader.

use super::{Caller, Description, Host, Owner, ABI};
use crate::cache::last_walk::PointState;
use crate::memory::{Reader, ANSWER, KEY};
use crate::stop_reason::StopReason;
use core::ffi::c_void;
use core::mem::size_of;

/// Reads through `View::walk`, which must be a [`Reader`] without another user during the call. Of the other functions
/// none does anything: they answer 0, false or [`Owner::NONE`].
pub static READING_HOST: Host = Host {
    size: size_of::<Host>() as u32,
    abi: ABI,
    read_word,
    read,
    find_name,
    describe,
    emit,
    learned,
    lookup,
    native_step,
    read_words,
    recall,
    remember,
    rest_is_known,
    emit_all,
    lend_reader,
    omit,
    hash,
};

unsafe extern "C" fn read_word(reader: *mut c_void, address: u64, out: *mut u64) -> bool {
    // SAFETY: plugins pass back View::walk, which is a reader, during the call only.
    let Some(word) = (unsafe { (*reader.cast::<Reader<'_>>()).word(address) }) else { return false };
    // SAFETY: the plugin passes a place for one word.
    unsafe { out.write(word) };
    true
}

unsafe extern "C" fn read(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: as above; the plugin passes a place for `len` bytes.
    unsafe { (*reader.cast::<Reader<'_>>()).read_raw(address, out, len) }
}

unsafe extern "C" fn read_words(
    reader: *mut c_void,
    address: u64,
    offsets: *const u32,
    count: usize,
    out: *mut u64,
) -> bool {
    // SAFETY: as above; the plugin passes `count` offsets and a place for as many words.
    unsafe { (*reader.cast::<Reader<'_>>()).words_raw(address, offsets, count, out) }
}

unsafe extern "C" fn recall(_: *mut c_void, _: *const [u64; KEY], _: *mut [u64; ANSWER]) -> bool {
    false
}

unsafe extern "C" fn remember(_: *mut c_void, _: *const [u64; KEY], _: *const [u64; ANSWER]) {}

unsafe extern "C" fn rest_is_known(_: *mut c_void, _: u64, _: *const PointState) -> bool {
    false
}

unsafe extern "C" fn find_name(_: *mut c_void, _: u64, _: u64) -> u32 {
    0
}

unsafe extern "C" fn describe(_: *mut c_void, _: *const Description) -> u32 {
    0
}

unsafe extern "C" fn emit(_: *mut c_void, _: u32, _: u64) -> bool {
    false
}

unsafe extern "C" fn emit_all(_: *mut c_void, _: *const [u64; 2], _: usize) -> bool {
    false
}

unsafe extern "C" fn omit(_: *mut c_void, _: u32) -> u32 {
    0
}

unsafe extern "C" fn lend_reader(_: *mut c_void, _: u64) -> *mut c_void {
    core::ptr::null_mut()
}

unsafe extern "C" fn hash(_: *mut c_void, _: u64, _: usize, _: *mut u64) -> bool {
    false
}

unsafe extern "C" fn learned(_: *mut c_void) {}

unsafe extern "C" fn lookup(_: *mut c_void, _: u64, out: *mut Owner) {
    // SAFETY: the plugin passes a place for an owner.
    unsafe { out.write(Owner::NONE) };
}

unsafe extern "C" fn native_step(_: *mut c_void, _: *mut Caller) -> i32 {
    -i32::from(StopReason::NoRule.number())
}
