//! Code that a test makes, and what it calls back.

use uunwind::Stack;

/// Memory that can be executed.
pub struct Code(pub *mut u8, usize);

impl Code {
    pub fn of(bytes: &[u8]) -> Code {
        let (read_write_execute, private_anonymous) = (7, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of its own, into which the bytes fit.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, read_write_execute, private_anonymous, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len());
            Code(at.cast(), bytes.len())
        }
    }
}

impl AsRef<[u8]> for Code {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped until it is dropped.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: its own mapping.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

/// Captures the stack.
pub extern "C" fn called_back(stack: *mut Option<Stack>) {
    // SAFETY: the place that the test passes.
    unsafe { *stack = Stack::capture().ok() };
}
