//! What an analyse half sees of an ELF file. Not signal code.

use core::ffi::{c_char, c_void};

/// An ELF file, as the host shows it to an analyse half. `repr(C)`: the same as `struct uu_object_file`.
#[repr(C)]
pub struct ObjectFile {
    /// `size_of::<ObjectFile>()` at the time the host was built.
    pub size: u32,
    /// Always zero.
    pub reserved: u32,
    /// Path of the file, NUL-terminated.
    pub path: *const c_char,
    /// The whole file, mapped read-only. Its bytes are hostile.
    pub data: *const u8,
    /// Size of the file, in bytes.
    pub len: usize,
    /// Its build-id; null if it has none.
    pub build_id: *const u8,
    /// Length of the build-id, in bytes; 0 if it has none.
    pub build_id_len: usize,
    /// First argument of the functions.
    pub host: *mut c_void,
    /// Finds a symbol by name, in the dynamic symbol table or else the full one. True: `*address` (a file address) and
    /// `*size` (in bytes) were set.
    pub symbol: unsafe extern "C" fn(host: *mut c_void, name: *const c_char, address: *mut u64, size: *mut u64) -> bool,
    /// Fills `out` with the `len` bytes that the file's segments have at a file address. False if the file does not
    /// contain all of them.
    pub read: unsafe extern "C" fn(host: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool,
    /// Reports to people, in one line of UTF-8 without the file's name, why an object of the plugin's cannot be served.
    pub note: unsafe extern "C" fn(host: *mut c_void, text: *const c_char),
}
