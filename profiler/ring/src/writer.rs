//! The writing end of a thread's ring: one writer (the thread itself, its handler included), one reader.
//!
//! A record is reserved, filled in place and committed; only the commit advances `head`. An abandoned reservation
//! leaves no trace. When the ring is full nothing is overwritten: the caller counts the loss.

use crate::layout::{ThreadBlock, RING_BYTES};
use crate::record::{padded, RecordHeader, RecordType};
use core::sync::atomic::{AtomicU64, Ordering};

/// The writing end of a ring.
#[derive(Clone, Copy)]
pub struct RingWriter<'a> {
    block: &'a ThreadBlock,
    ring: *mut u8,
}

/// A record under construction: at most `size` bytes.
pub struct Reservation<'a> {
    writer: RingWriter<'a>,
    at: *mut u8,
    size: usize,
    used: usize,
    head: u64,
    kind: RecordType,
    mark: u16,
}

impl<'a> RingWriter<'a> {
    /// # Safety
    /// `ring` must point to [`RING_BYTES`] writable bytes, 8-aligned, that belong to `block` and outlive the writer,
    /// and no other writer may exist.
    pub unsafe fn new(block: &'a ThreadBlock, ring: *mut u8) -> RingWriter<'a> {
        RingWriter { block, ring }
    }

    /// Reserves a record of at most `bytes` (header included). `None` if the ring has no space for it.
    pub fn reserve(&self, kind: RecordType, bytes: usize) -> Option<Reservation<'a>> {
        let size = padded(bytes.max(core::mem::size_of::<RecordHeader>()));
        // Any process of the session may have changed it; records begin at multiples of 8 only.
        let mut head = self.block.head.load(Ordering::Relaxed) & !7;
        let tail = self.block.tail.load(Ordering::Acquire);
        let mut free = (RING_BYTES as u64).checked_sub(head.wrapping_sub(tail))? as usize;
        let mut offset = (head % RING_BYTES as u64) as usize;
        let to_end = RING_BYTES - offset;
        if size > to_end {
            if to_end > free || size > free - to_end {
                return None;
            }
            // SAFETY: offset is a multiple of 8 below RING_BYTES (every record size is), so a header fits there.
            unsafe {
                self.ring.add(offset).cast::<RecordHeader>().write(RecordHeader {
                    size: to_end as u32,
                    kind: RecordType::Pad.number(),
                    mark: 0,
                });
            }
            head = head.wrapping_add(to_end as u64);
            free -= to_end;
            offset = 0;
        }
        if size > free {
            return None;
        }
        // SAFETY: offset + size <= RING_BYTES.
        let at = unsafe { self.ring.add(offset) };
        Some(Reservation { writer: *self, at, size, used: core::mem::size_of::<RecordHeader>(), head, kind, mark: 0 })
    }
}

impl Reservation<'_> {
    /// Writes the fixed part `T`, whose first field is the record header (overwritten at commit). May be called again
    /// after the trailing bytes were written.
    pub fn fixed<T: Copy>(&mut self, value: T) {
        let len = core::mem::size_of::<T>();
        if len <= self.size && core::mem::align_of::<T>() <= 8 {
            // SAFETY: the record has room for T and begins 8-aligned.
            unsafe { self.at.cast::<T>().write(value) };
            self.used = self.used.max(len);
        }
    }

    /// Space for `len` more bytes (then padded to 8), which the caller fills before the commit; null if there is none.
    pub fn room(&mut self, len: usize) -> *mut u8 {
        let end = self.used + padded(len);
        if len > self.size || end > self.size {
            return core::ptr::null_mut();
        }
        // SAFETY: used <= end <= size.
        let at = unsafe { self.at.add(self.used) };
        if end > self.used {
            // SAFETY: the last word of the padded range lies inside the record; the padding is thus zero.
            unsafe { self.at.add(end - 8).cast::<u64>().write(0) };
        }
        self.used = end;
        at
    }

    /// Appends bytes, padded to 8. False if there is no space.
    pub fn bytes(&mut self, bytes: &[u8]) -> bool {
        let at = self.room(bytes.len());
        if at.is_null() {
            return false;
        }
        // SAFETY: `room` gave bytes.len() bytes inside the record, which the source cannot overlap.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        true
    }

    /// Appends one byte; what follows the last one up to a multiple of 8 is zero. False if there is no space.
    pub fn byte(&mut self, byte: u8) -> bool {
        if self.used >= self.size {
            return false;
        }
        // SAFETY: used < size, and both the record and its size are multiples of 8.
        unsafe {
            let at = self.at.add(self.used);
            if self.used.is_multiple_of(8) {
                at.cast::<u64>().write(0);
            }
            at.write(byte);
        }
        self.used += 1;
        true
    }

    /// Sets the header's mark, 0 otherwise.
    pub fn mark(&mut self, mark: u16) {
        self.mark = mark;
    }

    /// Makes the record visible to the reader, cut to the bytes that were used.
    pub fn commit(self) {
        let size = padded(self.used);
        let header = RecordHeader { size: size as u32, kind: self.kind.number(), mark: self.mark };
        // SAFETY: every record begins 8-aligned and has room for its header.
        unsafe { &*self.at.cast::<AtomicU64>() }.store(header.word(), Ordering::Release);
        self.writer.block.head.store(self.head.wrapping_add(size as u64), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::LostRecord;
    use crate::samples::LARGEST;

    fn block() -> (Box<ThreadBlock>, Vec<u64>) {
        // SAFETY: all-zero is a valid ThreadBlock.
        (Box::new(unsafe { core::mem::zeroed() }), vec![0u64; RING_BYTES / 8])
    }

    fn header(ring: &[u64], at: u64) -> (u32, u16) {
        let w = ring[(at as usize % RING_BYTES) / 8];
        (w as u32, (w >> 32) as u16)
    }

    #[test]
    fn fills_wraps_and_never_overwrites() {
        let (block, mut ring) = block();
        let ptr = ring.as_mut_ptr().cast::<u8>();
        // SAFETY: ring is RING_BYTES long and used by this writer only.
        let writer = unsafe { RingWriter::new(&block, ptr) };
        let payload = [0xabu8; 1000];
        let mut records = 0;
        while let Some(mut r) = writer.reserve(RecordType::Name, 8 + payload.len()) {
            assert!(r.bytes(&payload));
            assert!(!r.bytes(&payload), "no room for more than was reserved");
            r.commit();
            records += 1;
        }
        assert_eq!(records, RING_BYTES / 1008);
        // The reader takes two records: room for one more, after a pad.
        block.tail.store(2016, Ordering::Release);
        let before = block.head.load(Ordering::Relaxed);
        let mut r = writer.reserve(RecordType::Lost, core::mem::size_of::<LostRecord>()).expect("room at the end");
        r.fixed(LostRecord { header: RecordHeader::default(), samples: 7, weight: 9 });
        r.commit();
        let at = if header(&ring, before).1 == RecordType::Pad.number() {
            before + u64::from(header(&ring, before).0)
        } else {
            before
        };
        assert_eq!(header(&ring, at), (24, RecordType::Lost.number()));
        assert!(writer.reserve(RecordType::Name, 2024).is_none());
    }

    /// From any position, an empty ring takes two of the LARGEST samples before the reader has to drain it.
    #[test]
    fn two_of_the_largest_samples_find_room() {
        let (block, mut ring) = block();
        // SAFETY: as above.
        let writer = unsafe { RingWriter::new(&block, ring.as_mut_ptr().cast()) };
        for start in (0..2 * RING_BYTES as u64).step_by(8) {
            block.head.store(start, Ordering::Relaxed);
            block.tail.store(start, Ordering::Relaxed);
            for nth in 1..=2 {
                let room = writer.reserve(RecordType::Sample, LARGEST);
                room.unwrap_or_else(|| panic!("no room for sample {nth} from {start}")).commit();
                // As if all of the reservation had been used.
                block.head.fetch_add(padded(LARGEST) as u64 - 8, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn an_abandoned_reservation_leaves_no_trace() {
        let (block, mut ring) = block();
        // SAFETY: as above.
        let writer = unsafe { RingWriter::new(&block, ring.as_mut_ptr().cast()) };
        let mut r = writer.reserve(RecordType::Name, 64).expect("empty ring");
        r.bytes(&[1, 2, 3]);
        let _abandoned = r;
        assert_eq!(block.head.load(Ordering::Relaxed), 0);
    }
}
