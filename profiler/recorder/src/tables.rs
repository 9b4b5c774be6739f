//! Publishes rule tables to targets, in the memory after the facts.

use crate::facts::Full;
use crate::session::SharedMemory;
use std::collections::HashSet;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;
use uunwind_ring::facts::FACTS_BYTES;
use uunwind_ring::tables::{TablesEntry, DATA_OFFSET, ENTRIES};

/// The only writer of the published rule tables.
#[derive(Default)]
pub struct TablesPublisher {
    /// The keys of all tables.
    published: HashSet<u64>,
    next: usize,
}

impl TablesPublisher {
    /// Publishes a table under a key, once. `memory` holds the facts, then the tables.
    pub fn publish(&mut self, memory: &SharedMemory, key: u64, table: &[u8]) -> Result<(), Full> {
        if key == 0 || self.published.contains(&key) {
            return Ok(());
        }
        // One entry stays free, so that every reader's probe sequence ends.
        if self.published.len() + 1 >= ENTRIES {
            return Err(Full);
        }
        let offset = self.next.max(DATA_OFFSET);
        let at = memory.at(FACTS_BYTES + offset, table.len()).ok_or(Full)?;
        // SAFETY: the table's bytes inside the memory, in a part to which no entry points yet.
        unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), at, table.len()) };
        let entry = free_entry(memory, key).ok_or(Full)?;
        let half = |field| memory.half(entry + field).ok_or(Full);
        half(offset_of!(TablesEntry, offset))?.store(offset as u32, Ordering::Relaxed);
        half(offset_of!(TablesEntry, len))?.store(table.len() as u32, Ordering::Relaxed);
        memory.word(entry + offset_of!(TablesEntry, key)).ok_or(Full)?.store(key, Ordering::Release);
        self.next = (offset + table.len()).next_multiple_of(16);
        self.published.insert(key);
        Ok(())
    }

    /// Whether a table was published under this key.
    pub fn has(&self, key: u64) -> bool {
        self.published.contains(&key)
    }
}

/// Offset of the first free entry in the key's probe sequence.
fn free_entry(memory: &SharedMemory, key: u64) -> Option<usize> {
    let entries =
        (0..ENTRIES).map(|probe| FACTS_BYTES + (key as usize).wrapping_add(probe) % ENTRIES * size_of::<TablesEntry>());
    let free = |at: &usize| memory.word(*at).is_some_and(|word| word.load(Ordering::Acquire) == 0);
    entries.into_iter().find(free)
}
