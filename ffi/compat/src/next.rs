//! The definitions that this object stands before: what the program's calls would have reached without it.

use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use uunwind_core::loaded::{self, Callback, PhdrInfo};

extern "C" {
    /// [dl_iterate_phdr(3)](https://man7.org/linux/man-pages/man3/dl_iterate_phdr.3.html).
    pub fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
}

/// A function of this name, in the first object after this one that defines it.
pub struct Next {
    name: &'static CStr,
    /// Null: it was not looked for, or there was none.
    found: AtomicPtr<c_void>,
    /// The addresses of the object that has it: its first, and the end.
    object: [AtomicU64; 2],
}

impl Next {
    /// The function of this name.
    pub const fn of(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(core::ptr::null_mut()), object: [const { AtomicU64::new(0) }; 2] }
    }

    /// Its address; `None`: no object defines it. The first call is not for handlers, nor is one without a result:
    /// objects that are opened later may define it.
    pub fn get(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: normal context, libc's function.
            let next = unsafe { loaded::next(dl_iterate_phdr, Next::of as *const () as u64, self.name) };
            let address = next?.address;
            // SAFETY: as above; the loader's structure, during its iteration.
            let extent =
                unsafe { loaded::find(dl_iterate_phdr, |object| object.covers(address).then(|| extent(object))) };
            for (place, value) in self.object.iter().zip(extent?) {
                place.store(value, Ordering::Relaxed);
            }
            found = address as *mut c_void;
            self.found.store(found, Ordering::Release);
        }
        Some(found)
    }

    /// Whether the object that has it also has this address.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for cursors"))]
    pub fn is_of_object(&self, address: u64) -> bool {
        let [start, end] = &self.object;
        self.get().is_some() && (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
    }

    /// Whether calls from elsewhere reach an object before this one: the program's own definition.
    pub fn is_defined_before(&self) -> bool {
        let own = Next::of as *const () as u64;
        let first = |object: &PhdrInfo| {
            // SAFETY: the loader's structure, during its iteration.
            unsafe { object.dynamic().symbol(self.name).map(|_| !object.covers(own)) }
        };
        // SAFETY: normal context, libc's function.
        unsafe { loaded::find(dl_iterate_phdr, first) }.unwrap_or(false)
    }
}

/// From where to where an object has segments.
///
/// # Safety
/// It must be the loader's, during its iteration.
unsafe fn extent(object: &PhdrInfo) -> [u64; 2] {
    // SAFETY: passed on.
    let segments = unsafe { object.segments() };
    segments.fold([u64::MAX, 0], |[start, end], segment| [start.min(segment.start), end.max(segment.end)])
}
