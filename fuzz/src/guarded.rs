//! Memory that ends at an inaccessible page: a read beyond the end faults instead of finding other bytes.

use std::io;

const PAGE: usize = 4096;

/// A mapping whose bytes are followed by an inaccessible page.
pub struct Guarded {
    base: *mut u8,
    bytes: usize,
}

impl Guarded {
    /// Maps `bytes` (rounded up to whole pages), zeroed, and the inaccessible page after them.
    pub fn new(bytes: usize) -> Guarded {
        let bytes = bytes.next_multiple_of(PAGE);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping, at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes + PAGE, prot, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED, "mmap of {bytes} bytes: {}", io::Error::last_os_error());
        let base = base.cast::<u8>();
        // SAFETY: the last page of the mapping just made.
        let done = unsafe { libc::mprotect(base.add(bytes).cast(), PAGE, libc::PROT_NONE) };
        assert!(done == 0, "mprotect: {}", io::Error::last_os_error());
        Guarded { base, bytes }
    }

    /// All bytes before the inaccessible page.
    pub fn all(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` mapped, writable bytes that only this value owns.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }

    /// Copies `data` to the end, 8-aligned as files and rings are; up to seven bytes remain between it and the
    /// inaccessible page. Longer data is cut.
    pub fn place(&mut self, data: &[u8]) -> &[u8] {
        let len = data.len().min(self.bytes);
        let start = (self.bytes - len) & !7;
        let place = &mut self.all()[start..start + len];
        place.copy_from_slice(&data[..len]);
        place
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nothing borrows any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes + PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_after_the_end_cannot_be_read() {
        let mut memory = Guarded::new(PAGE);
        let placed = memory.place(&[7; 16]);
        assert_eq!(placed, [7; 16]);
        let end = placed.as_ptr_range().end;
        // write(2) answers EFAULT instead of faulting.
        let mut pipe = [0; 2];
        // SAFETY: two descriptors fit.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the kernel checks the addresses.
        let written = |at: *const u8| unsafe { libc::write(pipe[1], at.cast(), 1) };
        assert_eq!(written(end.wrapping_sub(1)), 1);
        assert_eq!(written(end), -1, "the forbidden page begins here");
        for fd in pipe {
            // SAFETY: opened above.
            unsafe { libc::close(fd) };
        }
    }
}
