//! The object under an address by musl's list of objects (`struct dso`,
//! [ldso/dynlink.c](https://git.musl-libc.org/cgit/musl/tree/ldso/dynlink.c)), which begins as `struct link_map` of
//! link.h does: load bias, path, dynamic section, next, previous.
//!
//! musl unloads nothing: its list only grows, but for what a dlopen(3) that fails takes back. It has no counter that
//! can be read, so that the list is read at each lookup, without the loader's lock. Each object is mapped in one piece,
//! which begins at its load bias; only the kernel maps the program elsewhere.

use super::DlFindObject;
use crate::headers::Headers;
use crate::memory::Reader;
use crate::object_key::fnv;
use crate::span::Span;
use core::sync::atomic::{AtomicU64, Ordering};

/// Objects that are looked at.
const OBJECTS: usize = 1 << 12;
/// Offsets in `struct link_map` (link.h).
const L_NAME: u64 = 8;
const L_NEXT: u64 = 24;
/// Words of a path that distinguish one load from another.
const PATH: u64 = 32;

pub(super) struct MuslList {
    /// The first object, the program; 0: another C library.
    first: AtomicU64,
}

impl MuslList {
    pub(super) const fn new() -> MuslList {
        MuslList { first: AtomicU64::new(0) }
    }

    pub(super) fn locate(&self, first: u64) {
        self.first.store(first, Ordering::Release);
    }

    pub(super) fn is_located(&self) -> bool {
        self.first.load(Ordering::Acquire) != 0
    }

    /// The object under `pc`, or nothing: as `_dl_find_object` has it. `program`: its image. Async-signal-safe.
    pub(super) fn find(&self, pc: u64, program: Span, reader: &mut Reader<'_>) -> Option<DlFindObject> {
        let first = self.first.load(Ordering::Acquire);
        if first == 0 {
            return None;
        }
        if program.contains(pc) {
            return describe(first, reader.word(first)?, program.start, pc, reader);
        }
        let (mut best, mut map) = ((0, 0), reader.word(first.wrapping_add(L_NEXT))?);
        for _ in 0..OBJECTS {
            if map == 0 {
                break;
            }
            let bias = reader.word(map)?;
            if bias <= pc && bias > best.0 {
                best = (bias, map);
            }
            map = reader.word(map.wrapping_add(L_NEXT))?;
        }
        let (bias, link_map) = best;
        if link_map == 0 {
            return None;
        }
        describe(link_map, bias, bias, pc, reader)
    }

    /// Distinguishes loads of what may be taken back by their headers and their path: not 0, and less than `1 << 31`.
    pub(super) fn load_of(found: &DlFindObject, reader: &mut Reader<'_>) -> Option<u64> {
        let bias = reader.word(found.link_map)?;
        let mut hash = Headers::read(found.map_start, bias, reader)?.hash(reader);
        let path = reader.word(found.link_map.wrapping_add(L_NAME))?;
        for at in 0..PATH {
            let Some(word) = reader.word(path.wrapping_add(at * 8)) else { break };
            let bytes = word.to_le_bytes();
            hash = fnv(hash, bytes.into_iter().take_while(|byte| *byte != 0));
            if bytes.contains(&0) {
                break;
            }
        }
        Some((hash >> 33).max(1))
    }
}

/// The object with these headers, if it covers `pc`.
fn describe(link_map: u64, bias: u64, start: u64, pc: u64, reader: &mut Reader<'_>) -> Option<DlFindObject> {
    let headers = Headers::read(start, bias, reader)?;
    let (mut first, mut end) = (u64::MAX, 0);
    headers.each_segment(bias, reader, |segment| {
        first = first.min(segment.start & !0xfff);
        end = end.max(segment.end);
    });
    let eh_frame = headers.eh_frame_hdr(bias, reader).unwrap_or(0);
    let found = DlFindObject { flags: 0, map_start: first, map_end: end, link_map, eh_frame, reserved: [0; 7] };
    (first <= pc && pc < end).then_some(found)
}
