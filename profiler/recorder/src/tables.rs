//! Publishes rule tables to targets, in the last part of the memory with the facts.

use crate::facts::Full;
use crate::session::SharedMemory;
use std::collections::HashSet;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uunwind_ring::facts::{FactsHeader, TABLES_OFFSET};
use uunwind_ring::tables::{TablesEntry, DATA_OFFSET, ENTRIES};

/// The only writer of the published rule tables. Its clones write to the same ones, from any thread.
#[derive(Clone)]
pub struct Tables {
    /// The facts, and at the end the tables.
    memory: Arc<SharedMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The keys of all tables.
    published: HashSet<u64>,
    next: usize,
}

impl Tables {
    /// Creates it with no table. `memory` holds the facts, and at its end the tables.
    pub fn new(memory: Arc<SharedMemory>) -> Tables {
        Tables { memory, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked has left is whole: a key is published last.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a table under a key, once.
    pub fn publish(&self, key: u64, table: &[u8]) -> Result<(), Full> {
        let mut state = self.state();
        if key == 0 || state.published.contains(&key) {
            return Ok(());
        }
        // One entry stays free, so that every reader's probe sequence ends.
        if state.published.len() + 1 >= ENTRIES {
            return Err(Full);
        }
        let offset = state.next.max(DATA_OFFSET);
        let at = self.memory.at(TABLES_OFFSET + offset, table.len()).ok_or(Full)?;
        // SAFETY: the table's bytes inside the memory, in a part to which no entry points yet; the lock is held.
        unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), at, table.len()) };
        let entry = free_entry(&self.memory, key).ok_or(Full)?;
        let half = |field| self.memory.half(entry + field).ok_or(Full);
        half(offset_of!(TablesEntry, offset))?.store(offset as u32, Ordering::Relaxed);
        half(offset_of!(TablesEntry, len))?.store(table.len() as u32, Ordering::Relaxed);
        self.memory.word(entry + offset_of!(TablesEntry, key)).ok_or(Full)?.store(key, Ordering::Release);
        state.next = (offset + table.len()).next_multiple_of(16);
        state.published.insert(key);
        self.memory.half(offset_of!(FactsHeader, count)).ok_or(Full)?.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a table was published under this key.
    pub fn has(&self, key: u64) -> bool {
        self.state().published.contains(&key)
    }
}

/// Offset of the first free entry in the key's probe sequence.
fn free_entry(memory: &SharedMemory, key: u64) -> Option<usize> {
    let entries = (0..ENTRIES)
        .map(|probe| TABLES_OFFSET + (key as usize).wrapping_add(probe) % ENTRIES * size_of::<TablesEntry>());
    let free = |at: &usize| memory.word(*at).is_some_and(|word| word.load(Ordering::Acquire) == 0);
    entries.into_iter().find(free)
}
