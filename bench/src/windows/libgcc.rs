//! libgcc's registration of frame tables: one CIE and FDE for each made-up function.

use std::ffi::{c_int, c_void};

extern "C" {
    fn __register_frame_info(begin: *const c_void, object: *mut c_void);
    fn __deregister_frame_info(begin: *const c_void) -> *mut c_void;
    fn _Unwind_Find_FDE(pc: *mut c_void, bases: *mut c_void) -> *const c_void;
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
}

/// A registered function: its table, and room for libgcc's own record of it.
pub struct Registered {
    table: Box<[u64; 8]>,
    object: Box<[u64; 16]>,
}

impl Registered {
    /// Registers `[start, start + len)`.
    pub fn new(start: u64, len: u64) -> Registered {
        // A CIE (version 1, no augmentation, absolute pointers) of 16 bytes, an FDE of 24, and the end.
        let mut bytes = [0u8; 64];
        bytes[..16].copy_from_slice(&[12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 12, 7, 8]);
        bytes[16..24].copy_from_slice(&[20, 0, 0, 0, 20, 0, 0, 0]);
        bytes[24..32].copy_from_slice(&start.to_le_bytes());
        bytes[32..40].copy_from_slice(&len.to_le_bytes());
        let mut table = Box::new([0; 8]);
        for (word, bytes) in table.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        let mut object = Box::new([0; 16]);
        // SAFETY: both stay where they are until `drop` takes them out.
        unsafe { __register_frame_info(table.as_ptr().cast(), object.as_mut_ptr().cast()) };
        Registered { table, object }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new`.
        let object = unsafe { __deregister_frame_info(self.table.as_ptr().cast()) };
        assert!(std::ptr::eq(object.cast_const().cast(), self.object.as_ptr()), "another function was taken out");
    }
}

/// Whether a function is registered at `pc`.
pub fn finds(pc: u64) -> bool {
    let mut bases = [0u64; 3];
    // SAFETY: `bases` is a struct dwarf_eh_bases.
    !unsafe { _Unwind_Find_FDE(pc as *mut c_void, bases.as_mut_ptr().cast()) }.is_null()
}

extern "C" fn count(_context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: `backtrace` passes its counter.
    unsafe { *argument.cast::<usize>() += 1 };
    0
}

/// The number of frames of the calling thread.
pub fn backtrace() -> usize {
    let mut frames = 0usize;
    // SAFETY: the argument is what `count` expects.
    unsafe { _Unwind_Backtrace(count, (&raw mut frames).cast()) };
    frames
}
