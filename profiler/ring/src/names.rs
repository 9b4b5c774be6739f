//! The table of names already sent: in a process block, shared by all threads of the process.
//!
//! Open addressing, keyed by (code address, fingerprint). An entry is claimed by compare-and-swap on its state; the
//! claimer writes the name record into its own ring and then publishes the id, or gives the entry back when its ring was
//! full, so that the next sighting tries again. An entry whose claimer never came back (killed, or left the walk) stays
//! `BUSY` for ever and is passed over: a later sighting then takes another entry.

use crate::layout::{BLOCK_BYTES, BLOCK_HEADER};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One entry.
#[repr(C)]
pub struct NameEntry {
    /// Address of the code object.
    pub code: AtomicU64,
    /// Fingerprint of the words that name it.
    pub fingerprint: AtomicU64,
    /// Name id.
    pub id: AtomicU32,
    /// 0 free, 1 busy, 2 published.
    pub state: AtomicU32,
}

/// Entries of a process's table.
pub const ENTRIES: usize = (BLOCK_BYTES - BLOCK_HEADER) / core::mem::size_of::<NameEntry>();
/// Longest probe. A table this full refuses instead of slowing every sample down.
const PROBES: usize = 32;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const PUBLISHED: u32 = 2;

/// The table of one process.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    entries: &'a [NameEntry],
}

fn start(code: u64, fingerprint: u64) -> usize {
    let h = (code ^ fingerprint.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (h >> 32) as usize % ENTRIES
}

impl<'a> Names<'a> {
    /// The table over [`ENTRIES`] entries (fewer are accepted and simply fill up sooner).
    pub fn new(entries: &'a [NameEntry]) -> Names<'a> {
        Names { entries }
    }

    fn probes(&self, code: u64, fingerprint: u64) -> impl Iterator<Item = &'a NameEntry> {
        let entries = self.entries;
        let first = start(code, fingerprint);
        (0..PROBES).filter_map(move |i| entries.get((first + i) % ENTRIES))
    }

    /// The id of a name that was sent; 0 if it was not. Async-signal-safe.
    pub fn find(&self, code: u64, fingerprint: u64) -> u32 {
        for entry in self.probes(code, fingerprint) {
            match entry.state.load(Ordering::Acquire) {
                FREE => return 0,
                PUBLISHED
                    if entry.code.load(Ordering::Relaxed) == code
                        && entry.fingerprint.load(Ordering::Relaxed) == fingerprint =>
                {
                    return entry.id.load(Ordering::Relaxed);
                }
                _ => {}
            }
        }
        0
    }

    /// Claims an entry for a name that `find` did not know. `None`: the neighbourhood is full.
    pub fn claim(&self, code: u64, fingerprint: u64) -> Option<&'a NameEntry> {
        let entry = self.probes(code, fingerprint).find(|entry| {
            entry.state.load(Ordering::Relaxed) == FREE
                && entry.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        entry.code.store(code, Ordering::Relaxed);
        entry.fingerprint.store(fingerprint, Ordering::Relaxed);
        Some(entry)
    }
}

impl NameEntry {
    /// Publishes a claimed entry under `id`, after the name record was committed.
    pub fn publish(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
        self.state.store(PUBLISHED, Ordering::Release);
    }

    /// Gives a claimed entry back.
    pub fn give_back(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}
