//! libgcc's unwinder.

use std::ffi::{c_int, c_void};

type Callback = unsafe extern "C" fn(context: *mut c_void, found: *mut c_void) -> c_int;

extern "C" {
    fn _Unwind_Backtrace(callback: Callback, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

struct Found {
    addresses: [u64; 512],
    count: usize,
    after_signal: bool,
}

unsafe extern "C" fn note(context: *mut c_void, found: *mut c_void) -> c_int {
    // SAFETY: `chain_from_signal` passes its structure.
    let found = unsafe { &mut *found.cast::<Found>() };
    let mut before = 0;
    // SAFETY: the unwinder's own context.
    let address = unsafe { _Unwind_GetIPInfo(context, &mut before) } as u64;
    found.after_signal |= before != 0;
    if found.after_signal {
        if let Some(place) = found.addresses.get_mut(found.count) {
            *place = address;
            found.count += 1;
        }
    }
    0
}

/// The chain from the interrupted code on, leaf first; called in a handler. Empty elsewhere.
#[inline(never)]
pub fn chain_from_signal() -> Vec<u64> {
    let mut found = Found { addresses: [0; 512], count: 0, after_signal: false };
    // SAFETY: the callback takes the structure.
    unsafe { _Unwind_Backtrace(note, (&raw mut found).cast()) };
    let mut chain = found.addresses[..found.count].to_vec();
    // At a thread's start there is a frame without a caller, for which libgcc reports null.
    while chain.last() == Some(&0) {
        chain.pop();
    }
    chain
}
