//! Bytes of a table that are read in order, in chunks
//! (<https://github.com/v8/v8/blob/11.3.244/src/base/vlq.h>).

use crate::heap::Heap;

/// Bytes that are read at once.
const CHUNK: usize = 64;

/// Bytes that are read in order.
pub struct Bytes<'h, 'g, 'v> {
    heap: &'h Heap<'g, 'v>,
    address: u64,
    left: u32,
    chunk: [u8; CHUNK],
    at: usize,
    len: usize,
}

impl<'h, 'g, 'v> Bytes<'h, 'g, 'v> {
    /// `left` bytes from an address on.
    pub fn new(heap: &'h Heap<'g, 'v>, address: u64, left: u32) -> Bytes<'h, 'g, 'v> {
        Bytes { heap, address, left, chunk: [0; CHUNK], at: 0, len: 0 }
    }

    /// The next byte. `None`: it was the last one, or is unreadable, as in all functions here.
    pub fn next(&mut self) -> Option<u8> {
        if self.at >= self.len {
            let size = self.left.min(CHUNK as u32);
            let bytes = self.chunk.get_mut(..size as usize)?;
            if size == 0 || !self.heap.guest.bytes(self.address, bytes) {
                return None;
            }
            self.address = self.address.wrapping_add(size.into());
            self.left = self.left.saturating_sub(size);
            (self.at, self.len) = (0, size as usize);
        }
        let byte = self.chunk.get(self.at).copied();
        self.at = self.at.wrapping_add(1);
        byte
    }

    /// Passes bytes over.
    pub fn skip(&mut self, count: u32) -> Option<()> {
        for _ in 0..count {
            self.next()?;
        }
        Some(())
    }

    /// A number with 7 bits in a byte, the lowest first; more bytes follow one whose highest bit is set.
    pub fn number(&mut self) -> Option<u32> {
        let (mut value, mut shift) = (0u32, 0u32);
        loop {
            let byte = self.next()?;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }
}
