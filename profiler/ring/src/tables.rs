//! Layout of the published rule tables, which are the last part of the memfd with the facts. Targets read them in
//! place.
//!
//! ```text
//! 0      TablesEntry[ENTRIES]   open addressing, linear probing from key % ENTRIES
//! DATA   the tables, 16-aligned
//! ```
//! As with facts, the recorder appends: the bytes, the entry's fields, then its key (release). Entries never change and
//! are never removed. Targets map the memfd read-only.

use core::sync::atomic::{AtomicU64, Ordering};

/// Number of entries: limit of the objects with rule tables in a session.
pub const ENTRIES: usize = 4096;
/// Offset of the tables.
pub const DATA_OFFSET: usize = ENTRIES * core::mem::size_of::<TablesEntry>();
/// Largest size of this part of the memfd in bytes. It is address space, of which only published tables take memory.
/// The tables of a large program take two or three MiB.
pub const TABLES_BYTES: usize = 60 << 20;

/// The place of one object's table.
#[repr(C)]
pub struct TablesEntry {
    /// The object's key (`uunwind_core::object_key::key`); 0: the entry is empty.
    pub key: AtomicU64,
    /// Offset of the table from the start of this part.
    pub offset: u32,
    /// Length of the table in bytes.
    pub len: u32,
}

const _: () = assert!(core::mem::size_of::<TablesEntry>() == 16);

/// A target's read-only view of the tables.
#[derive(Clone, Copy)]
pub struct TablesView {
    base: *const u8,
    bytes: usize,
}

// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Send for TablesView {}
// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Sync for TablesView {}

impl TablesView {
    /// A view of this part of a mapped memfd.
    ///
    /// # Safety
    /// `base` must point to `bytes` readable bytes, more than [`DATA_OFFSET`], 16-aligned, that stay mapped for ever.
    pub unsafe fn new(base: *const u8, bytes: usize) -> TablesView {
        TablesView { base, bytes }
    }

    /// Bytes of this part of the mapping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The table published for `key`. Bounded: at most [`ENTRIES`] probes. Async-signal-safe.
    pub fn find(&self, key: u64) -> Option<&'static [u8]> {
        for probe in 0..ENTRIES {
            let index = (key as usize).wrapping_add(probe) % ENTRIES;
            // SAFETY: index < ENTRIES, so the entry lies inside the mapping.
            let entry = unsafe { &*self.base.cast::<TablesEntry>().add(index) };
            match entry.key.load(Ordering::Acquire) {
                0 => return None,
                k if k == key => {
                    let (offset, len) = (entry.offset as usize, entry.len as usize);
                    if offset < DATA_OFFSET || len > self.bytes || offset > self.bytes - len {
                        return None;
                    }
                    // SAFETY: the range was just checked to lie inside the mapping, which lives for ever and whose
                    // published bytes never change.
                    return Some(unsafe { core::slice::from_raw_parts(self.base.add(offset), len) });
                }
                _ => {}
            }
        }
        None
    }
}
