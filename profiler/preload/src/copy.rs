//! Samples as copies of stacks: what libuunwind needs to know of the thread's stacks.

use crate::client::HEADER;
use crate::process::{self, Process};
use crate::slots::{Buffers, Slot};
use core::ffi::c_char;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::library::{CopyRequest, Request, SAMPLED};
use uunwind_core::syscall;
use uunwind_core::walk::DEEP_WORDS;
use uunwind_ring::layout::SAMPLE_WORDS;
use uunwind_ring::record::{CopyRecord, RecordType};
use uunwind_ring::samples::Sample;
use uunwind_ring::writer::RingWriter;

/// At most this number of bytes is a copy: what the largest sample takes, which a ring has space for.
const LARGEST: usize = SAMPLE_WORDS * 8;
/// Words that are read in the time that a frame is charged with (`budget::FRAME_NS`).
const WORDS_OF_A_FRAME: u64 = 8;
const _: () = assert!(LARGEST <= DEEP_WORDS * 8);

/// End of the main thread's stack (process address), as far as frames lie there; 0: not found.
static MAIN_END: AtomicU64 = AtomicU64::new(0);

extern "C" {
    static environ: *const *const c_char;
}

/// Finds the end of the main thread's stack. Called by the constructor, before code of the program could set variables:
/// the environment lies just after the program's first frame (System V ABI, 3.4.1).
pub fn locate_main_stack() {
    // SAFETY: libc's variable, before there are other threads.
    MAIN_END.store(unsafe { environ } as u64, Ordering::Relaxed);
}

/// Copies the interrupted stack into the frames' buffer. Then `request.words` is the number of bytes. Returns the
/// number of frames whose walk takes as long; `None`: there is no copy.
///
/// # Safety
/// As for a call of `Library::sample` with this request, whose buffers are these.
// Not inlined, like the others here: what it needs must not lie on the stack of walks.
#[inline(never)]
pub unsafe fn take(process: &Process, slot: &Slot, buffers: &Buffers, request: &mut Request) -> Option<u32> {
    // SAFETY: any bytes but for the pointers, which are the caller's.
    let own = unsafe { core::ptr::from_mut(request).read() };
    // Threads of glibc and musl have their TCB at the end of their stack.
    let ends = [syscall::thread_pointer(), MAIN_END.load(Ordering::Relaxed)];
    let mut copy = CopyRequest {
        request: Request { capacity: LARGEST, ..own },
        memory: buffers.copy,
        ends,
        // SAFETY: the kernel's ucontext.
        alternate: unsafe { crate::signals::altstack::of_thread(slot, request.ucontext) }.into(),
        block: process::block().map_or(core::ptr::null(), |block| core::ptr::from_ref(block).cast()),
        read: 0,
    };
    // SAFETY: passed on.
    let done = unsafe { (process.library.copy)(&raw mut copy) } == SAMPLED;
    (request.words, request.code) = (copy.request.words, copy.request.code);
    (request.stop, request.result) = (copy.request.stop, copy.request.result);
    // Copies of deep stacks are paid for like walks.
    done.then_some((copy.read / WORDS_OF_A_FRAME) as u32)
}

/// Writes a sample with the copy in the frames' buffer. `beside`: it is no sample of its own. False: the ring has no
/// space for it.
///
/// # Safety
/// The buffers must be the calling thread's, and hold a copy of this number of bytes.
#[inline(never)]
pub unsafe fn write(ring: &RingWriter<'_>, sample: &Sample, beside: bool, buffers: &Buffers, bytes: usize) -> bool {
    let len = bytes.min(LARGEST);
    let reserved = ring.reserve(RecordType::Copy, core::mem::size_of::<CopyRecord>() + len);
    let Some(mut record) = reserved else { return false };
    let Sample { time, weight, kind, flags, sequence, .. } = *sample;
    let beside = beside.into();
    record.fixed(CopyRecord { header: HEADER, time, weight, beside, kind, flags, bytes: len as u32, sequence });
    // SAFETY: passed on; LARGEST is at most the buffer's size.
    if !record.bytes(unsafe { core::slice::from_raw_parts(buffers.frames.cast::<u8>(), len) }) {
        return false;
    }
    record.commit();
    true
}

/// Writes a copy of the stack that was just walked, to compare both. It may find no space: nothing is lost by that.
///
/// # Safety
/// As for [`take`].
#[inline(never)]
pub unsafe fn put_beside(
    process: &Process,
    slot: &Slot,
    buffers: &Buffers,
    request: &mut Request,
    ring: &RingWriter<'_>,
) {
    let sample = Sample { time: request.time, weight: 0, sequence: 0, stop: 0, kind: 0, flags: 0 };
    // SAFETY: passed on.
    unsafe {
        if take(process, slot, buffers, request).is_some() && request.words > 0 {
            write(ring, &sample, true, buffers, request.words);
        }
    }
}
