//! A value that the library reads, too, while this crate owns it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// As a `Box`, but without its promise that nobody else has a pointer to the value: that promise is made again whenever
/// a `Box` moves.
pub struct Held<T: ?Sized> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: it owns the value, as a Box does.
unsafe impl<T: ?Sized + Send> Send for Held<T> {}
// SAFETY: it gives shared references only, as a shared Box does.
unsafe impl<T: ?Sized + Sync> Sync for Held<T> {}

impl<T: ?Sized> Held<T> {
    pub fn of(value: Box<T>) -> Held<T> {
        // SAFETY: what a Box points to is not null.
        Held { value: unsafe { NonNull::new_unchecked(Box::into_raw(value)) }, owns: PhantomData }
    }

    pub fn get(&self) -> &T {
        // SAFETY: it lives as long as this, and is not changed meanwhile.
        unsafe { self.value.as_ref() }
    }

    /// Its address, for the library.
    pub fn address(&self) -> *mut c_void {
        self.value.as_ptr().cast()
    }

    /// The value, which the library reads no more.
    pub fn into_box(self) -> Box<T> {
        let value = std::mem::ManuallyDrop::new(self).value;
        // SAFETY: of a Box, and given back once: this is not dropped.
        unsafe { Box::from_raw(value.as_ptr()) }
    }
}

impl<T: ?Sized> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: of a Box, and dropped once.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

impl<T: ?Sized> std::fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.value)
    }
}
