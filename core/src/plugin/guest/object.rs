//! An ELF file as an analyse half sees it. Not signal code.

use super::Plain;
use crate::plugin::ObjectFile;
use core::ffi::CStr;
use core::mem::size_of;

/// An ELF file, with the host's functions, during one call.
pub struct Object<'o> {
    file: &'o ObjectFile,
}

/// The object is the plugin's, but it cannot be served; [`Object::note`] has said why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unserved;

impl<'o> Object<'o> {
    /// Path of the file.
    pub fn path(&self) -> &'o [u8] {
        // SAFETY: the host's path is NUL-terminated, and lives as long as the call.
        unsafe { CStr::from_ptr(self.file.path) }.to_bytes()
    }

    /// The whole file. Its bytes are hostile.
    pub fn data(&self) -> &'o [u8] {
        if self.file.data.is_null() {
            return &[];
        }
        // SAFETY: the host has mapped `len` bytes.
        unsafe { core::slice::from_raw_parts(self.file.data, self.file.len) }
    }

    /// File address and size in bytes of a symbol, from the dynamic symbol table or else the full one.
    pub fn symbol(&self, name: &CStr) -> Option<(u64, u64)> {
        let (mut address, mut size) = (0, 0);
        // SAFETY: the host's function, with its own first argument; both places outlive the call.
        let found = unsafe { (self.file.symbol)(self.file.host, name.as_ptr(), &raw mut address, &raw mut size) };
        found.then_some((address, size))
    }

    /// Fills `out` with what the file's segments have at a file address. False: the file does not contain all of it.
    pub fn read(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: the host's function, with its own first argument; `out` is writable for its length.
        unsafe { (self.file.read)(self.file.host, address, out.as_mut_ptr(), out.len()) }
    }

    /// Reports to people, in one line of UTF-8 without the file's name, why an object of the plugin's cannot be served.
    pub fn note(&self, text: &CStr) {
        // SAFETY: the host's function, with its own first argument; the text is NUL-terminated.
        unsafe { (self.file.note)(self.file.host, text.as_ptr()) };
    }
}

/// Calls a safe analyse half for the host, and writes the facts that it returns. [`analyse!`](crate::analyse) makes a
/// table's function of it.
///
/// # Safety
/// `object` must be null or the host's object, and `facts` its place for `room` bytes.
pub unsafe fn analyse<T: Plain>(
    object: *const ObjectFile,
    facts: *mut u8,
    room: usize,
    find: impl FnOnce(&Object<'_>) -> Result<Option<T>, Unserved>,
) -> isize {
    // SAFETY: the caller's promise.
    let Some(file) = (unsafe { object.as_ref() }) else { return 0 };
    match find(&Object { file }) {
        Ok(Some(found)) if size_of::<T>() <= room => {
            // SAFETY: there is room, at any alignment.
            unsafe { facts.cast::<T>().write_unaligned(found) };
            size_of::<T>() as isize
        }
        Ok(_) => 0,
        Err(Unserved) => -1,
    }
}
