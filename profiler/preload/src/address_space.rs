//! A program that limits its own address space (RLIMIT_AS) means its own: what uu has reserved is added to the limit
//! that the kernel gets, and taken off again when the program asks.
//!
//! What it limits without the C library's functions, or in a child of vfork(2), counts uu's share. A program that is
//! executed later inherits the higher limit, has a share of its own, and sees the limit as the kernel has it.

use crate::{process, slots};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::facts::TABLES_OFFSET;

const RLIMIT_AS: c_uint = 9;
const INFINITY: u64 = u64::MAX;
/// uu's own objects, and what libuunwind and plugins map besides: measured at 12 MiB with all of uu's plugins.
const OBJECTS: u64 = 16 << 20;

/// What the kernel's soft and hard limit are above the program's.
static ADDED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// `struct rlimit`, and `struct rlimit64`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    current: u64,
    maximum: u64,
}

/// The limit for the kernel, of one that the program wants. `now`: the kernel's hard limit, of which `added` is ours;
/// `reserved`: bytes of address space that are uu's.
fn for_kernel(wanted: Limit, now: u64, added: u64, reserved: u64) -> Limit {
    // It fails, as it does alone.
    if wanted.current > wanted.maximum {
        return wanted;
    }
    let above = |limit: u64| if limit == INFINITY { limit } else { limit.saturating_add(reserved).min(INFINITY - 1) };
    let is_higher = now != INFINITY && wanted.maximum > now.saturating_sub(added);
    let maximum = if is_higher { above(wanted.maximum) } else { above(wanted.maximum).min(now) };
    Limit { current: above(wanted.current).min(maximum), maximum }
}

/// The program's limit, of the kernel's.
fn for_program(limit: Limit, [soft, hard]: [u64; 2]) -> Limit {
    let without = |limit: u64, added: u64| if limit == INFINITY { limit } else { limit.saturating_sub(added) };
    Limit { current: without(limit.current, soft), maximum: without(limit.maximum, hard) }
}

/// Bytes of address space of this process that are uu's; 0 where nothing is recorded.
fn reserved() -> u64 {
    let of = |process: &process::Process| {
        (process.session.bytes() + TABLES_OFFSET + process.tables.bytes() + slots::reserved()) as u64 + OBJECTS
    };
    process::process().filter(|_| process::is_own()).map_or(0, of)
}

/// [prlimit(2)](https://man7.org/linux/man-pages/man2/prlimit.2.html), the kernel's.
///
/// # Safety
/// Each pointer is null or one to a limit.
unsafe fn kernel(pid: c_int, resource: c_uint, new: *const Limit, old: *mut Limit) -> c_int {
    let arguments = [pid as usize, resource as usize, new as usize, old as usize, 0, 0];
    // SAFETY: as the caller says; the kernel checks the pointers.
    let result = unsafe { syscall::call(nr::PRLIMIT64, arguments) };
    if result < 0 {
        #[cfg(not(feature = "no-libc"))]
        // SAFETY: the calling thread's errno.
        unsafe {
            *libc::__errno_location() = -result as c_int;
        }
        return -1;
    }
    0
}

/// # Safety
/// As [`kernel`].
unsafe fn limit(pid: c_int, resource: c_uint, new: *const Limit, old: *mut Limit) -> c_int {
    let reserved = if resource == RLIMIT_AS && [0, process::pid() as c_int].contains(&pid) { reserved() } else { 0 };
    if reserved == 0 {
        // SAFETY: as the caller says.
        return unsafe { kernel(pid, resource, new, old) };
    }
    let mut now = Limit { current: INFINITY, maximum: INFINITY };
    // SAFETY: a limit of our own.
    if unsafe { kernel(0, RLIMIT_AS, core::ptr::null(), &mut now) } != 0 {
        return -1;
    }
    let added = [0, 1].map(|index: usize| ADDED.get(index).map_or(0, |added| added.load(Ordering::Relaxed)));
    let [_, hard] = added;
    // SAFETY: null, or the program's limit, as the caller says.
    if let Some(wanted) = unsafe { new.as_ref() } {
        let raised = for_kernel(*wanted, now.maximum, hard, reserved);
        // SAFETY: a limit of our own.
        if unsafe { kernel(0, RLIMIT_AS, &raised, core::ptr::null_mut()) } != 0 {
            return -1;
        }
        for (place, more) in ADDED
            .iter()
            .zip([raised.current.saturating_sub(wanted.current), raised.maximum.saturating_sub(wanted.maximum)])
        {
            place.store(more, Ordering::Relaxed);
        }
    }
    // SAFETY: null, or the program's place for a limit.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = for_program(now, added);
    }
    0
}

macro_rules! interposed {
    ($($name:ident($($argument:ident: $type:ty),*) = $answer:expr;)*) => {$(
        /// Interposed [prlimit(2)](https://man7.org/linux/man-pages/man2/prlimit.2.html), or one of its relatives.
        ///
        /// # Safety
        /// As the function of this name.
        #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { $answer }
        }
    )*};
}

interposed! {
    setrlimit(resource: c_uint, new: *const Limit) = limit(0, resource, new, core::ptr::null_mut());
    setrlimit64(resource: c_uint, new: *const Limit) = limit(0, resource, new, core::ptr::null_mut());
    getrlimit(resource: c_uint, old: *mut Limit) = limit(0, resource, core::ptr::null(), old);
    getrlimit64(resource: c_uint, old: *mut Limit) = limit(0, resource, core::ptr::null(), old);
    prlimit(pid: c_int, resource: c_uint, new: *const Limit, old: *mut Limit) = limit(pid, resource, new, old);
    prlimit64(pid: c_int, resource: c_uint, new: *const Limit, old: *mut Limit) = limit(pid, resource, new, old);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limit(current: u64, maximum: u64) -> Limit {
        Limit { current, maximum }
    }

    /// Whatever the program sets, it gets as much as alone where the kernel allows it, and reads what it has set.
    #[test]
    fn a_limit_is_the_programs_own() {
        const OURS: u64 = 100;
        for (wanted, now, added, kernels) in [
            (limit(50, 50), INFINITY, 0, limit(150, 150)),
            (limit(50, INFINITY), INFINITY, 0, limit(150, INFINITY)),
            (limit(INFINITY, INFINITY), INFINITY, 0, limit(INFINITY, INFINITY)),
            // Below a hard limit that others have set: no more than that.
            (limit(50, 80), 120, 0, limit(120, 120)),
            (limit(5, 10), 120, 0, limit(105, 110)),
            // The same again, and its own hard limit as the soft one.
            (limit(50, 50), 150, 100, limit(150, 150)),
            (limit(20, 50), 150, 100, limit(120, 150)),
            // Higher than the hard limit: the kernel refuses it, or not.
            (limit(60, 60), 150, 100, limit(160, 160)),
            (limit(9, 8), 150, 100, limit(9, 8)),
        ] {
            let found = for_kernel(wanted, now, added, OURS);
            assert_eq!(found, kernels, "{wanted:?}");
            if wanted.current <= wanted.maximum {
                let more = [found.current - wanted.current, found.maximum - wanted.maximum];
                assert_eq!(for_program(found, more), wanted);
            }
        }
    }
}
