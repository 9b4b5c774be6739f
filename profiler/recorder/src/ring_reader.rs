//! Drains a thread's ring.

use crate::records::{records, Damage, Record};
use crate::session::Session;
use uunwind_ring::layout::RING_BYTES;

/// The reader of a ring. It keeps its own position: the one in shared memory is for the writer, and a target could
/// overwrite it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingReader {
    tail: u64,
}

/// The result of draining a ring.
#[derive(Debug, Default)]
pub struct Drained {
    /// The valid records, in the order in which they were written.
    pub records: Vec<Record>,
    /// Number of invalid records.
    pub damaged_records: u64,
    /// Whether the ring's positions or a record's size were invalid; the bytes from there on were dropped.
    pub damaged_ring: bool,
    /// Number of bytes that the ring held.
    pub bytes: u64,
}

impl RingReader {
    /// Takes everything out of the ring of a block. `buffer` is working memory.
    pub fn drain(&mut self, session: &Session, block: usize, buffer: &mut Vec<u8>) -> Drained {
        let head = session.head(block);
        let bytes = head.wrapping_sub(self.tail);
        let mut drained = Drained { bytes, ..Drained::default() };
        if bytes == 0 {
            return drained;
        }
        if bytes > RING_BYTES as u64 || !head.is_multiple_of(8) {
            // Our writer never does this. Continue at the position in shared memory.
            self.tail = head;
            session.set_tail(block, self.tail);
            return Drained { damaged_ring: true, bytes: 0, ..drained };
        }
        session.copy_ring(block, self.tail, head, buffer);
        self.tail = head;
        session.set_tail(block, head);
        for record in records(buffer) {
            match record {
                Ok(record) => drained.records.push(record),
                Err(Damage::Size(_)) => drained.damaged_ring = true,
                Err(Damage::Type(_) | Damage::Parts(_)) => drained.damaged_records += 1,
            }
        }
        drained
    }
}
