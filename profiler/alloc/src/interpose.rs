//! The functions of [malloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html) and its relatives, which stand in
//! front of the real ones.
//!
//! What is allocated is sampled when the real function has returned, and before the program has the address. What is
//! freed leaves the table of live allocations before the real function frees it: afterwards, another thread may be
//! given the address.

use crate::live::Live;
use crate::real::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_preload::events::{self, Allocation, Countdown, Subject};

/// The sampled allocations that live.
static LIVE: Live = Live::new();
/// Whether the table of them is mapped: 0 not yet, 1 a thread maps it, 2 yes, 3 there is no memory.
static MAPPED: AtomicU32 = AtomicU32::new(0);
const MAPPING: u32 = 1;
const IS_MAPPED: u32 = 2;
const NO_MEMORY: u32 = 3;

/// The table has a bucket for each sample of a heap of this size, in bytes; and the least and the largest number of
/// buckets.
const HEAP: u64 = 16 << 30;
const LEAST: u64 = 1 << 12;
const MOST: u64 = 1 << 20;

/// Counts what the real function has returned.
#[inline(always)]
fn counted(block: *mut c_void, size: usize) -> *mut c_void {
    if events::is_on() && !block.is_null() {
        match events::countdown() {
            // One of no bytes counts, too.
            Some(countdown) if countdown.passes(size.max(1) as u64) => {}
            countdown => due(countdown, block as u64, size),
        }
    }
    block
}

/// Samples an allocation, if its turn has come.
#[cold]
#[inline(never)]
fn due(countdown: Option<&'static Countdown>, address: u64, size: usize) {
    let Some(interval) = events::interval() else { return };
    if !is_mapped(interval) || !LIVE.is_own() && !adopt() {
        return;
    }
    let countdown = countdown.or_else(|| events::keeping_errno(events::begin_thread));
    let Some(countdown) = countdown else { return events::lost(size as u64) };
    if interval > 1 && !countdown.is_due(interval) {
        return;
    }
    // As the distances have no memory, leaving some out leaves the others as they would be.
    if events::is_paused() {
        return;
    }
    let id = events::next_id();
    countdown.remember(id);
    let inserted = LIVE.insert(address, id);
    if let Some(old) = inserted.before {
        events::freed(old);
    }
    if !inserted.is_there {
        events::untracked();
    }
    let allocation = Allocation { id: if inserted.is_there { id } else { 0 }, size: size as u64 };
    if !events::sampled(Subject::Allocation(allocation)) && inserted.is_there {
        LIVE.remove(address);
    }
}

/// In the child of a fork: whether it is recorded by now. Before that, its slots and its block are its parent's.
#[cold]
fn adopt() -> bool {
    let is_recorded = events::is_own();
    if is_recorded {
        LIVE.adopt();
    }
    is_recorded
}

/// Maps the table, unless it is. False: there is no memory, or another thread is about to.
fn is_mapped(interval: u32) -> bool {
    match MAPPED.load(Ordering::Acquire) {
        IS_MAPPED => true,
        NO_MEMORY => false,
        _ => {
            if MAPPED.compare_exchange(0, MAPPING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return false;
            }
            // A bucket has seven places.
            let buckets = (HEAP / u64::from(interval.max(1))).clamp(LEAST, MOST);
            let is_there = LIVE.map(buckets as usize);
            MAPPED.store(if is_there { IS_MAPPED } else { NO_MEMORY }, Ordering::Release);
            is_there
        }
    }
}

/// Takes what is about to be freed out of the table; returns its number if it was sampled.
#[inline(always)]
fn forgotten(block: *mut c_void) -> Option<u64> {
    if !events::is_on() || block.is_null() || !LIVE.may_have(block as u64) {
        return None;
    }
    LIVE.remove(block as u64)
}

/// What free returns.
const NOTHING: () = ();
const NULL: *mut c_void = core::ptr::null_mut();

real!(real_malloc, c"malloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_calloc, c"calloc", fn(count: usize, size: usize) -> *mut c_void, NULL);
real!(real_realloc, c"realloc", fn(block: *mut c_void, size: usize) -> *mut c_void, NULL);
real!(real_aligned_alloc, c"aligned_alloc", fn(alignment: usize, size: usize) -> *mut c_void, NULL);
real!(
    real_posix_memalign,
    c"posix_memalign",
    fn(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int,
    libc::ENOMEM
);
real!(real_memalign, c"memalign", fn(alignment: usize, size: usize) -> *mut c_void, NULL);
real!(real_valloc, c"valloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_pvalloc, c"pvalloc", fn(size: usize) -> *mut c_void, NULL);
real!(real_free, c"free", fn(block: *mut c_void) -> (), NOTHING);

/// Declares a function that allocates, and returns what it has allocated.
macro_rules! allocates {
    ($name:ident, $real:ident, $($arg:ident),* => $size:expr) => {
        /// The interposed function of this name ([malloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html),
        /// [posix_memalign(3)](https://man7.org/linux/man-pages/man3/posix_memalign.3.html)).
        ///
        /// # Safety
        /// As the real one.
        #[cfg_attr(panic = "abort", no_mangle)]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut c_void {
            // SAFETY: the program's own arguments.
            counted(events::allocating(|| unsafe { $real($($arg),*) }), $size)
        }
    };
}

allocates!(malloc, real_malloc, size => size);
allocates!(calloc, real_calloc, count, size => count.wrapping_mul(size));
allocates!(aligned_alloc, real_aligned_alloc, alignment, size => size);
allocates!(memalign, real_memalign, alignment, size => size);
allocates!(valloc, real_valloc, size => size);
allocates!(pvalloc, real_pvalloc, size => size);

/// Interposed [posix_memalign(3)](https://man7.org/linux/man-pages/man3/posix_memalign.3.html).
///
/// # Safety
/// As posix_memalign.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    // SAFETY: the program's own arguments.
    let result = events::allocating(|| unsafe { real_posix_memalign(block, alignment, size) });
    if result == 0 {
        // SAFETY: the real function has just written there.
        counted(unsafe { *block }, size);
    }
    result
}

/// Interposed [free(3)](https://man7.org/linux/man-pages/man3/malloc.3.html).
///
/// # Safety
/// As free.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if let Some(id) = forgotten(block) {
        events::freed(id);
    }
    // SAFETY: the program's own argument.
    unsafe { real_free(block) };
}

/// Interposed [realloc(3)](https://man7.org/linux/man-pages/man3/malloc.3.html). What has grown or shrunk counts as freed,
/// and as allocated anew.
///
/// # Safety
/// As realloc.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    changed(block, size, || events::allocating(|| unsafe { real_realloc(block, size) }))
}

/// Interposed [reallocarray(3)](https://man7.org/linux/man-pages/man3/malloc.3.html). glibc's calls realloc by its name,
/// which would be counted, too: so does this.
///
/// # Safety
/// As reallocarray.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(size) else {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return NULL;
    };
    // SAFETY: the program's own arguments.
    unsafe { realloc(block, size) }
}

/// Counts what happens to a block that changes its size by this call.
#[inline(always)]
fn changed(block: *mut c_void, size: usize, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let old = forgotten(block);
    let new = call();
    if let Some(id) = old {
        // With a size of 0, glibc frees the block and returns null.
        if new.is_null() && size != 0 {
            LIVE.insert(block as u64, id);
        } else {
            events::freed(id);
        }
    }
    counted(new, size)
}
