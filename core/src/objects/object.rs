//! One loaded object, and what tells it from another at the same place.

use super::{fingerprint_of, DlFindObject};
use crate::memory::Reader;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Most bytes of a build-id that are kept.
pub const BUILD_ID_LIMIT: usize = 32;
/// A build-id of so many bytes tells objects apart by itself.
pub const TELLING_BUILD_ID: usize = 16;

/// One loaded object. Immutable once published, but for the atomics.
#[derive(Debug)]
pub struct Object {
    /// First mapped address.
    pub start: u64,
    /// End of the mapping, exclusive.
    pub end: u64,
    /// The whole image, in which headers and unwind data lie. Differs from `[start, end)` for a program whose segments
    /// leave gaps: the loader then tells of each executable segment apart.
    pub image: (u64, u64),
    /// The loader's `struct link_map`.
    pub link_map: u64,
    /// Address of `.eh_frame_hdr`; 0 when there is none.
    pub eh_frame_hdr: u64,
    /// Its SFrame segment (`PT_GNU_SFRAME`): address and length; (0, 0) when there is none.
    pub sframe: (u64, u64),
    /// Load bias (`l_addr`).
    pub bias: u64,
    /// Of an object without a build-id that tells it apart: see [`fingerprint_of`]. Else 0.
    pub(super) fingerprint: u64,
    /// Where its build-id lies in memory; 0 when it has none.
    pub(super) build_id_at: u64,
    /// Distinguishes this object from every other one that was or will be in the same place.
    pub generation: u64,
    /// The build-id, or nothing.
    pub build_id: BuildId,
    /// FNV-1a over the build-id, or over the ELF and program headers: the key of its facts.
    pub facts_key: u64,
    /// Never goes away, need not be confirmed.
    pub permanent: bool,
    /// Facts, once known; null before, and for objects that no plugin claims.
    pub facts: AtomicPtr<u8>,
    /// Length of the facts.
    pub facts_len: AtomicUsize,
    /// Index of the claiming plugin; 0 = none. Published (release) after the facts.
    pub plugin: AtomicU32,
    /// [`FACTS_UNKNOWN`] or [`FACTS_SETTLED`].
    pub facts_state: AtomicU32,
    /// Count of published facts when they were last searched for this object's.
    pub facts_asked: AtomicU32,
    /// Recording epoch in which this object was reported; 0 = never, or something else was in its place since.
    pub reported: AtomicU32,
    /// Its rule table, once known; null before. Published (release) after its length.
    pub table: AtomicPtr<u8>,
    /// Length of the table.
    pub table_len: AtomicUsize,
    /// Count of published facts and tables when this object's table was last searched for.
    pub table_asked: AtomicU32,
    /// Time from which on the recorder knows that this object is here (CLOCK_MONOTONIC, ns), if `reported`.
    pub reported_at: AtomicU64,
    /// The loader's counters when this object was last found to be there; 0 = not known.
    pub(super) confirmed: AtomicU64,
}

/// `Object::facts_state`: not found so far.
pub const FACTS_UNKNOWN: u32 = 0;
/// `Object::facts_state`: found, or known to be none.
pub const FACTS_SETTLED: u32 = 1;

/// A build-id note's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildId {
    bytes: [u8; BUILD_ID_LIMIT],
    len: u8,
}

impl Object {
    /// Whether its build-id tells it from every other file.
    pub fn has_telling_build_id(&self) -> bool {
        self.build_id.as_bytes().len() >= TELLING_BUILD_ID
    }

    /// Whether what is mapped now is this object: by its build-id where it has one, else by its headers.
    pub(super) fn is_still_there(&self, found: &DlFindObject, reader: &mut Reader<'_>) -> bool {
        let id = self.build_id.as_bytes();
        if !self.has_telling_build_id() {
            return self.fingerprint == fingerprint_of(found, reader);
        }
        id.chunks_exact(8).zip(0..).all(|(chunk, i)| {
            let word = reader.word(self.build_id_at.wrapping_add(i * 8));
            word.is_some_and(|word| word.to_le_bytes() == chunk)
        })
    }
}

impl BuildId {
    /// Of an object without one.
    pub(super) const NONE: BuildId = BuildId { bytes: [0; BUILD_ID_LIMIT], len: 0 };

    /// The bytes at an address; of long ones the first.
    pub(crate) fn read(at: u64, len: u64, reader: &mut Reader<'_>) -> Option<BuildId> {
        let mut id = BuildId { bytes: [0; BUILD_ID_LIMIT], len: len.min(BUILD_ID_LIMIT as u64) as u8 };
        let room = id.bytes.get_mut(..usize::from(id.len))?;
        (len > 0 && reader.read(at, room)).then_some(id)
    }

    /// The bytes; empty when the object has no build-id.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}
