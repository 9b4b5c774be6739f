//! Layout of the facts memfd: what analysers found in ELF files, keyed by build-id and contents, for targets to use.
//!
//! ```text
//! 0      FactsHeader
//! 64     FactsEntry[ENTRIES]   open addressing, linear probing from key % ENTRIES
//! DATA   bytes of the facts, 16-aligned
//! ```
//! The recorder appends: it writes the bytes, then the entry's fields, then the entry's key (release), then the count.
//! Entries never change and never go away. Targets map it read-only.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of the header.
pub const FACTS_MAGIC: u64 = u64::from_le_bytes(*b"uu-fact2");
/// Number of entries: limit of the objects with facts in a session.
pub const ENTRIES: usize = 4096;
/// Offset of the facts' bytes.
pub const DATA_OFFSET: usize = 64 + ENTRIES * core::mem::size_of::<FactsEntry>();
/// Size of the facts, the first part of the memfd, in bytes.
pub const FACTS_BYTES: usize = 4 << 20;
/// Offset of the [`crate::code_rules`].
pub const CODE_RULES_OFFSET: usize = FACTS_BYTES;
/// Offset of the [`crate::tables`], which extend to the end.
pub const TABLES_OFFSET: usize = CODE_RULES_OFFSET + crate::code_rules::CODE_RULES_BYTES;
/// Size of the whole memfd in bytes, where address space is not limited: the facts, followed by the
/// [`crate::code_rules`] and the [`crate::tables`].
pub const PUBLISHED_BYTES: usize = TABLES_OFFSET + crate::tables::TABLES_BYTES;

/// Bytes of the tables in a memfd of this size; `None`: none of facts has it.
pub const fn tables_in(bytes: u64) -> Option<usize> {
    if bytes <= TABLES_OFFSET as u64 || bytes > PUBLISHED_BYTES as u64 || !bytes.is_multiple_of(4096) {
        return None;
    }
    let tables = bytes as usize - TABLES_OFFSET;
    if tables > crate::tables::DATA_OFFSET {
        Some(tables)
    } else {
        None
    }
}

/// The first 64 bytes of the memory for facts.
#[repr(C)]
pub struct FactsHeader {
    /// [`FACTS_MAGIC`].
    pub magic: u64,
    /// Number of facts and tables published; a target that found nothing searches again when it changes.
    pub count: AtomicU32,
    /// Bit 0: the recording is over. The bits above it count the times at which the recorder has paused the recording
    /// or has resumed it: it is paused where their number is odd.
    pub stopped: AtomicU32,
    /// A robust mutex
    /// ([pthread_mutexattr_setrobust(3)](https://man7.org/linux/man-pages/man3/pthread_mutexattr_setrobust.3.html))
    /// that the recorder holds for as long as it lives. When the recorder ends, however that happens, the kernel sets
    /// [`OWNER_DIED`] in its first word.
    pub recorder: [AtomicU32; 12],
}

/// `FUTEX_OWNER_DIED` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/futex.h>).
pub const OWNER_DIED: u32 = 0x4000_0000;

/// The bit of [`FactsHeader::stopped`] that says that the recording is over.
pub const IS_OVER: u32 = 1;

/// What [`FactsHeader::stopped`] is to be, where it was `before`, from the time on at which the recorder pauses the
/// recording or resumes it.
pub const fn switched(before: u32, paused: bool) -> u32 {
    let switches = (before >> 1).wrapping_add(1);
    let switches = if switches & 1 == paused as u32 { switches } else { switches.wrapping_add(1) };
    before & IS_OVER | switches << 1
}

/// One object's facts for one plugin (an object has at most one claiming plugin).
#[repr(C)]
pub struct FactsEntry {
    /// Key of the object (`uunwind_core::object_key::key`); 0: the entry is empty.
    pub key: AtomicU64,
    /// Offset of the bytes from the start of the memfd.
    pub offset: u32,
    /// Length of the bytes. 0: analysed, no plugin claims the object.
    pub len: u32,
    /// Name of the plugin, NUL-padded.
    pub plugin: [u8; 16],
}

const _: () = assert!(core::mem::size_of::<FactsEntry>() == 32 && core::mem::size_of::<FactsHeader>() <= 64);

/// A target's read-only view of the memfd.
#[derive(Clone, Copy)]
pub struct FactsView {
    base: *const u8,
}

// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Send for FactsView {}
// SAFETY: the mapping is shared, read-only here, and lives as long as the process.
unsafe impl Sync for FactsView {}

/// The facts found for an object.
#[derive(Clone, Copy)]
pub struct PublishedFacts {
    /// Bytes of the facts; empty if no plugin claims the object.
    pub bytes: &'static [u8],
    /// NUL-padded name of the plugin that they belong to.
    pub plugin: [u8; 16],
}

impl FactsView {
    /// A view of a mapped facts memfd; `None` if the mapping is something else.
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

    /// Whether the recording is over: it was stopped, or the recorder ended. Async-signal-safe, without a system call.
    pub fn is_over(&self) -> bool {
        let header = self.header();
        let [recorder, ..] = &header.recorder;
        header.stopped.load(Ordering::Acquire) & IS_OVER != 0 || recorder.load(Ordering::Acquire) & OWNER_DIED != 0
    }

    /// Number of times at which the recorder has paused the recording, or has resumed it. Odd: it is paused.
    /// Async-signal-safe, without a system call.
    pub fn switches(&self) -> u32 {
        self.header().stopped.load(Ordering::Acquire) >> 1
    }

    /// Number of facts and tables published so far.
    pub fn count(&self) -> u32 {
        self.header().count.load(Ordering::Acquire)
    }

    /// Facts published for `key`. Bounded: at most [`ENTRIES`] probes. Async-signal-safe.
    pub fn find(&self, key: u64) -> Option<PublishedFacts> {
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
                    return Some(PublishedFacts { bytes, plugin: entry.plugin });
                }
                _ => {}
            }
        }
        None
    }
}
