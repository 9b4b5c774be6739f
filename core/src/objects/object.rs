//! One loaded object, and what distinguishes it from another at the same place.

use super::answer::Settled;
use super::bases::Bases;
use super::code::Code;
use super::{fingerprint_of, DlFindObject};
use crate::headers::Headers;
use crate::memory::Reader;
use crate::span::Span;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Most bytes of a build-id that are kept.
pub const BUILD_ID_LIMIT: usize = 32;
/// Number of bytes from which on a build-id identifies an object by itself.
pub const UNIQUE_BUILD_ID: usize = 16;

/// One loaded object. Immutable once published, but for the atomics.
#[derive(Debug)]
pub struct Object {
    /// First mapped process address.
    pub start: u64,
    /// End of the mapping, exclusive (process address).
    pub end: u64,
    /// The whole image, in which headers and unwind data lie. Differs from `[start, end)` for a program whose segments
    /// leave gaps: the loader then reports each executable segment separately.
    pub image: Span,
    /// The loader's `struct link_map`.
    pub link_map: u64,
    /// Address of `.eh_frame_hdr`; 0 when there is none.
    pub eh_frame_hdr: u64,
    /// Its SFrame segment (`PT_GNU_SFRAME`): process addresses; empty when there is none.
    pub sframe: Span,
    /// The page (process address) with the last byte of its file that is mapped; 0: not available.
    pub last_page: u64,
    /// Where what runs on a part of another's stack begins.
    pub bases: Bases,
    /// Its executable segments (process addresses).
    pub code: Code,
    /// Load bias (`l_addr`): process address minus file address.
    pub bias: u64,
    /// Fingerprint of an object whose build-id does not identify it: see [`fingerprint_of`]. Otherwise 0.
    pub(super) fingerprint: u64,
    /// Where its build-id lies in memory; 0 when it has none.
    pub(super) build_id_at: u64,
    /// Its number among all objects of the table; with [`MADE`], one of its own.
    pub(super) number: u64,
    /// The build-id, or nothing.
    pub build_id: BuildId,
    /// FNV-1a over the build-id, or over the ELF and program headers: the key of its facts.
    pub facts_key: u64,
    /// [`unwind_key`](crate::headers::unwind_key) of what is mapped: a rule table with another key is not this
    /// object's. 0: its headers cannot be read, so it has none.
    pub unwind_key: u64,
    /// Never goes away, need not be confirmed.
    pub permanent: bool,
    /// The plugin that claims it, and its facts.
    pub claim: Settled,
    /// Recording epoch in which this object was reported; 0 = never, or something else was in its place since.
    pub reported: AtomicU32,
    /// Its rule table.
    pub table: Settled,
    /// Time from which on the recorder knows that this object is here (CLOCK_MONOTONIC, ns), if `reported`.
    pub reported_at: AtomicU64,
    /// Which load of it was found last ([`crate::loads::Loads::load_of`]): the same file may come again to the same
    /// place, or another one that cannot be distinguished from it.
    pub(super) load: AtomicU64,
    /// [`sealed`] of the loader's counters and of that load, when it was last found to be there; 0: never.
    pub(super) confirmed: AtomicU64,
}

/// [`Object::number`] of objects that the table has no room for.
pub(super) const MADE: u64 = 1 << 54;
/// Bits of a number of the table in [`Loaded::generation`].
pub(super) const NUMBER_BITS: u32 = 12;

/// An object, and which load of it: what is cached of its code is valid for this load only.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The object.
    pub object: &'a Object,
    /// [`crate::loads::Loads::load_of`]; 0 for an object that is never unloaded.
    pub(super) load: u64,
}

impl Loaded<'_> {
    /// Distinguishes this load from every other one of any object, in 55 bits.
    pub fn generation(&self) -> u64 {
        if self.object.number & MADE != 0 {
            return self.object.number;
        }
        self.load << NUMBER_BITS | self.object.number
    }
}

/// Whether two generations are of loads of one object of the table.
pub fn same_object(a: u64, b: u64) -> bool {
    (a ^ b) & (MADE | ((1 << NUMBER_BITS) - 1)) == 0 && (a & MADE == 0 || a == b)
}

/// A word that shows whether two others, stored apart, belong together.
pub(super) fn sealed(loads: u64, load: u64) -> u64 {
    loads.wrapping_add(load.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The contents of a GNU build-id note; of a long one, the first [`BUILD_ID_LIMIT`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildId {
    bytes: [u8; BUILD_ID_LIMIT],
    len: u8,
}

impl Object {
    /// As what it was found: one that the table has no room for.
    pub fn made(&self) -> Loaded<'_> {
        Loaded { object: self, load: 0 }
    }

    /// `[start, end)` (process addresses).
    pub fn text(&self) -> Span {
        Span::new(self.start, self.end)
    }

    /// Whether its build-id distinguishes it from every other file.
    pub fn has_unique_build_id(&self) -> bool {
        self.build_id.as_bytes().len() >= UNIQUE_BUILD_ID
    }

    /// The offset in the object's file of the byte at the process address `address`, by its program headers in memory.
    /// Async-signal-safe.
    pub fn file_offset(&self, address: u64, reader: &mut Reader<'_>) -> Option<u64> {
        Headers::read(self.image.start, self.bias, reader)?.file_offset(address, self.bias, reader)
    }

    /// Whether this is its place.
    pub(super) fn is_at(&self, found: &DlFindObject) -> bool {
        self.start == found.map_start
            && self.end == found.map_end
            && self.link_map == found.link_map
            && self.eh_frame_hdr == found.eh_frame
    }

    /// Whether the object that is mapped now has the same key: its build-id, or its headers where it has none. It may
    /// be another load of the file, or another file with the same key.
    pub(super) fn is_alike(&self, found: &DlFindObject, reader: &mut Reader<'_>) -> bool {
        let id = self.build_id.as_bytes();
        if !self.has_unique_build_id() {
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
