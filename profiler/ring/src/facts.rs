//! Layout of the facts memfd: what analysers found in ELF files, keyed by build-id, for targets to apply.
//!
//! ```text
//! 0      FactsHeader
//! 64     FactsEntry[ENTRIES]   open addressing, linear probing from key % ENTRIES
//! DATA   the facts' bytes, 16-aligned
//! ```
//! The recorder appends: it writes the bytes, then the entry's fields, then the entry's key (release), then the count.
//! Entries never change and never go away. Targets map it read-only.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of the header.
pub const FACTS_MAGIC: u64 = u64::from_le_bytes(*b"uu-fact1");
/// Number of entries.
pub const ENTRIES: usize = 4096;
/// Offset of the bytes.
pub const DATA_OFFSET: usize = 64 + ENTRIES * core::mem::size_of::<FactsEntry>();
/// Bytes of the facts: the first part of the memfd.
pub const FACTS_BYTES: usize = 4 << 20;
/// Bytes of the whole memfd: the facts, then the [`crate::tables`].
pub const PUBLISHED_BYTES: usize = FACTS_BYTES + crate::tables::TABLES_BYTES;

/// First 64 bytes.
#[repr(C)]
pub struct FactsHeader {
    /// [`FACTS_MAGIC`].
    pub magic: u64,
    /// Facts and tables published; a target that found nothing looks again when this moves.
    pub count: AtomicU32,
    /// Zero.
    pub reserved: u32,
}

/// One object's facts for one plugin (an object has at most one claiming plugin).
#[repr(C)]
pub struct FactsEntry {
    /// [`key`] of the object; 0 = empty.
    pub key: AtomicU64,
    /// Offset of the bytes from the start of the memfd.
    pub offset: u32,
    /// Length of the bytes. 0: analysed, no plugin claims the object.
    pub len: u32,
    /// Name of the plugin, NUL-padded.
    pub plugin: [u8; 16],
}

const _: () = assert!(core::mem::size_of::<FactsEntry>() == 32 && core::mem::size_of::<FactsHeader>() <= 64);

/// Key of an object: FNV-1a over its build-id, or, where it has none, over its ELF header and program headers as loaded
/// (`identity`). Never 0.
pub fn key(identity: &[u8]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in identity {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    if h == 0 {
        1
    } else {
        h
    }
}

/// A target's read-only view.
#[derive(Clone, Copy)]
pub struct FactsView {
    base: *const u8,
}

// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Send for FactsView {}
// SAFETY: as above.
unsafe impl Sync for FactsView {}

/// Facts found for an object.
#[derive(Clone, Copy)]
pub struct Found {
    /// The bytes; empty when no plugin claims the object.
    pub bytes: &'static [u8],
    /// NUL-padded name of the plugin they belong to.
    pub plugin: [u8; 16],
}

impl FactsView {
    /// A view of a mapped facts memfd, or `None` if it is not one.
    ///
    /// # Safety
    /// `base` must point to [`FACTS_BYTES`] readable bytes, 16-aligned, that stay mapped for ever.
    pub unsafe fn new(base: *const u8) -> Option<FactsView> {
        let view = FactsView { base };
        (view.header().magic == FACTS_MAGIC).then_some(view)
    }

    fn header(&self) -> &FactsHeader {
        // SAFETY: `new` demands a mapping that is larger than the header; its fields are plain or atomic.
        unsafe { &*self.base.cast::<FactsHeader>() }
    }

    /// How many entries were published so far.
    pub fn count(&self) -> u32 {
        self.header().count.load(Ordering::Acquire)
    }

    /// Facts published for `key`. Bounded: at most [`ENTRIES`] probes. Async-signal-safe.
    pub fn find(&self, key: u64) -> Option<Found> {
        for probe in 0..ENTRIES {
            let index = (key as usize).wrapping_add(probe) % ENTRIES;
            // SAFETY: index < ENTRIES, so the entry lies inside the mapping.
            let entry = unsafe { &*self.base.add(64).cast::<FactsEntry>().add(index) };
            match entry.key.load(Ordering::Acquire) {
                0 => return None,
                k if k == key => {
                    let (offset, len) = (entry.offset as usize, entry.len as usize);
                    if offset < DATA_OFFSET || len > FACTS_BYTES || offset > FACTS_BYTES - len {
                        return None;
                    }
                    // SAFETY: the range was just checked to lie inside the mapping, which lives for ever and whose
                    // published bytes never change.
                    let bytes = unsafe { core::slice::from_raw_parts(self.base.add(offset), len) };
                    return Some(Found { bytes, plugin: entry.plugin });
                }
                _ => {}
            }
        }
        None
    }
}
