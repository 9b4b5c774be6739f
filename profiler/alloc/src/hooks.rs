//! The hooks of a running process's gate (`uunwind_ring::gate`): what the interposed functions do before and after the
//! real one, whose call is the gate's.
//!
//! An address that is in the table of live allocations and is given out again was freed in a way that is not seen: the
//! program had kept the address of `free`, or an object's entry was not redirected.

use crate::counted::{changed, counted, forgotten, is_mapped};
use crate::ranges::{mapped, pages, remapped, replaced, Leaving, Remap};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_preload::events::{self, Caller};
use uunwind_preload::injected;
use uunwind_ring::gate::{self, Frame};

/// Maps the table of live allocations, before the first hook is called. False: there is no memory.
pub fn prepare() -> bool {
    events::interval().is_none_or(is_mapped)
}

/// What mremap(2) with these arguments does.
fn remap([old, bytes, new_bytes, flags, new, _]: [u64; 6]) -> Remap {
    Remap::of(old, bytes, new_bytes, flags as c_int, new)
}

/// Called before the function.
///
/// # Safety
/// `frame` must be a stub's, with the arguments of a call that is about to be made.
pub unsafe extern "C" fn before(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let frame = unsafe { &mut *frame };
    let [first, second, _, fourth, ..] = frame.arguments;
    match frame.function() {
        gate::FREE | gate::DELETE..gate::DLOPEN => {
            if let Some(id) = forgotten(first as *mut c_void) {
                events::freed(id);
            }
        }
        function @ gate::NEW..=gate::LAST_NEW => {
            // SAFETY: as the caller says.
            let block = unsafe { new_or_null(function, first, second) };
            if !block.is_null() {
                (frame.result, frame.kept[1]) = (block as u64, gate::DONE);
                allocated(block, first, &Caller::of_gate(frame));
            }
        }
        gate::REALLOC | gate::REALLOCARRAY => frame.kept[0] = forgotten(first as *mut c_void).unwrap_or(0),
        gate::MMAP | gate::MMAP64 if events::is_mapping() => {
            frame.kept = [1, replaced(first, second, fourth as c_int).number()];
        }
        gate::MUNMAP if events::is_mapping() => frame.kept = [1, Leaving::of(pages(first, second)).number()],
        gate::MREMAP if events::is_mapping() => {
            let remap = remap(frame.arguments);
            let replacing = Leaving::of(remap.replaces);
            frame.kept = [replacing.number(), Leaving::of(remap.leaves).number()];
        }
        _ => {}
    }
}

/// Called after the function, with its result.
///
/// # Safety
/// `frame` must be a stub's, as [`before`] has left it if it was called.
pub unsafe extern "C" fn after(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let frame = unsafe { &*frame };
    let [first, second, third, fourth, ..] = frame.arguments;
    let (caller, result) = (Caller::of_gate(frame), frame.result as *mut c_void);
    match frame.function() {
        gate::MALLOC | gate::VALLOC | gate::PVALLOC | gate::NEW_OR_NULL..=gate::LAST_OR_NULL => {
            allocated(result, first, &caller)
        }
        gate::CALLOC => allocated(result, first.wrapping_mul(second), &caller),
        gate::ALIGNED_ALLOC | gate::MEMALIGN => allocated(result, second, &caller),
        gate::POSIX_MEMALIGN if frame.result as c_int == 0 => {
            // SAFETY: the function has just written there.
            allocated(unsafe { *(first as *const *mut c_void) }, third, &caller);
        }
        function @ (gate::REALLOC | gate::REALLOCARRAY) => {
            let old = (frame.kept[0] != 0).then_some(frame.kept[0]);
            let size = if function == gate::REALLOC { second } else { second.wrapping_mul(third) };
            unseen(result);
            changed(old, first as *mut c_void, result, size as usize, Some(&caller));
        }
        gate::MMAP | gate::MMAP64 if frame.kept[0] != 0 => {
            let how = (third as c_int, fourth as c_int);
            mapped(result, second as usize, how, Leaving::numbered(frame.kept[1]), Some(&caller));
        }
        gate::MUNMAP if frame.kept[0] != 0 && frame.result as c_int != 0 => Leaving::numbered(frame.kept[1]).stays(),
        gate::MREMAP if events::is_mapping() => {
            let [replacing, leaving] = frame.kept.map(Leaving::numbered);
            remapped(&remap(frame.arguments), result, third as usize, (leaving, replacing), Some(&caller));
        }
        _ => {}
    }
}

/// What the operator new that does not throw returns, in place of the one with this index, which does: for a size, and
/// an alignment if the function has one. Null: there is no memory, or no such function.
///
/// # Safety
/// The arguments must be those of a call of that function.
unsafe fn new_or_null(function: usize, size: u64, alignment: u64) -> *mut c_void {
    /// Of the helpers, the first one with an alignment.
    const ALIGNED: usize = 2;
    let which = function.wrapping_sub(gate::NEW);
    let helper = injected::gate().and_then(|(called, _)| called.helpers.get(gate::NEW_HELPER + which));
    let helper = helper.map_or(0, |place| place.load(Ordering::Relaxed)) as usize;
    if helper == 0 {
        return core::ptr::null_mut();
    }
    // std::nothrow, whose value nobody looks at.
    let nothrow = core::ptr::from_ref(&0u8);
    // SAFETY: `uu` has found the function of this name there, which has this type.
    unsafe {
        if which < ALIGNED {
            let new = core::mem::transmute::<usize, unsafe extern "C" fn(u64, *const u8) -> *mut c_void>(helper);
            new(size, nothrow)
        } else {
            let new = core::mem::transmute::<usize, unsafe extern "C" fn(u64, u64, *const u8) -> *mut c_void>(helper);
            new(size, alignment, nothrow)
        }
    }
}

fn allocated(block: *mut c_void, size: u64, caller: &Caller) {
    unseen(block);
    counted(block, size as usize, Some(caller));
}

/// Ends the allocation that had this address before, whose free was not seen.
fn unseen(block: *mut c_void) {
    if let Some(id) = forgotten(block) {
        events::replaced(id);
    }
}
