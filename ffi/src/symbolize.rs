//! `uu_symbolize`: names of native functions, inlined ones, and source lines. The set-up object looks them up, because
//! that reads files and allocates.
//!
//! The C interface; `uu.h` documents it.

use crate::describe::uu_describe;
use crate::home;
use crate::library::uu_private_library_0;
use crate::setup::{entry, keeping_errno};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::AtomicPtr;
use uunwind_core::errno::EINVAL;
use uunwind_stacks::symbol::{Free, Symbol, Symbolize, FREE, SYMBOLIZE};

/// The set-up object's functions, once they were found; null before.
static SYMBOLIZE_FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FREE_FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// See `uu.h`.
///
/// # Safety
/// `frames` must be null or `words` frame words; `symbols` null or a place for a pointer.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_symbolize(frames: *const u64, words: usize, symbols: *mut *const Symbol) -> c_int {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.symbolize)(frames, words, symbols) };
    }
    if symbols.is_null() || frames.is_null() || !frames.is_aligned() {
        return -EINVAL;
    }
    // Both, so that a child may give back what it has got.
    keeping_errno(|| match entry(&FREE_FOUND, FREE).and_then(|_| entry(&SYMBOLIZE_FOUND, SYMBOLIZE)) {
        // SAFETY: the symbol is a function of this type, which checks the table's build; the arguments were checked.
        Ok(found) => unsafe {
            let symbolize = transmute::<*mut c_void, Symbolize>(found);
            symbolize(&raw const uu_private_library_0, uu_describe, frames, words, symbols)
        },
        Err(error) => -error,
    })
}

/// See `uu.h`.
///
/// # Safety
/// `symbols` must be null or a list of [`uu_symbolize`] that was not given back.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_symbols_free(symbols: *const Symbol) {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.symbols_free)(symbols) };
    }
    if symbols.is_null() {
        return;
    }
    keeping_errno(|| {
        if let Ok(found) = entry(&FREE_FOUND, FREE) {
            // SAFETY: the symbol is a function of this type, of the object that made the list.
            unsafe { transmute::<*mut c_void, Free>(found)(symbols) }
        }
    });
}
