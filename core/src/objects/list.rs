//! The object under an address by the loader's own list of objects, for glibcs without `_dl_find_object` (before 2.35).
//!
//! The list (`_ns_loaded` of each link namespace, `struct link_map`) is read without the loader's lock, and what was
//! read counts only while the loader's counters stand still ([`Loads`]). It is read once after each load and unload,
//! into a sorted table. Where an object begins and ends is in two words of its `struct link_map`, `l_map_start` and
//! `l_map_end` ([include/link.h](https://github.com/bminor/glibc/blob/glibc-2.28/include/link.h)), whose place differs
//! from version to version: it is found by observation, when the library is loaded, and accepted only if both agree
//! with the program headers of every object that is compared.

use super::DlFindObject;
use crate::headers::Headers;
use crate::loads::Loads;
use crate::memory::Reader;
use crate::span::Span;
use core::ops::ControlFlow;
use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Ranges that the table has room for: nearly all objects have one. Of more, the list is read at each lookup.
const ROOM: usize = 1024;
/// The bytes of a `struct link_map` in which the two words are searched for, and objects that are compared.
const LINK_MAP: core::ops::Range<u64> = 40..2048;
const COMPARED: usize = 32;
/// Offset of the address of the dynamic section in `struct link_map` (link.h).
const L_LD: u64 = 16;
const PAGE: u64 = 4096;

/// Words of an entry: start, end, `struct link_map`, `.eh_frame_hdr`.
type Entry = [AtomicU64; 4];

/// The ranges of all objects, sorted.
pub(super) struct List {
    /// Offset of `l_map_start` in `struct link_map`; 0: not found.
    map_start_at: AtomicU64,
    /// [`Loads::now`] for which the table holds; 0: for none.
    holds: AtomicU64,
    /// Raised before each change of the table.
    changes: AtomicU64,
    /// Whether someone changes it.
    changing: AtomicU32,
    count: AtomicUsize,
    entries: [Entry; ROOM],
}

impl List {
    pub(super) const fn new() -> List {
        List {
            map_start_at: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            changing: AtomicU32::new(0),
            count: AtomicUsize::new(0),
            entries: [const { [const { AtomicU64::new(0) }; 4] }; ROOM],
        }
    }

    /// Whether objects can be found.
    pub(super) fn is_located(&self) -> bool {
        self.map_start_at.load(Ordering::Acquire) != 0
    }

    /// Finds the place of the two words, once `loads` are located. False: no place, or more than one, is right for
    /// every object. Not for handlers.
    pub(super) fn locate(&self, loads: &Loads, reader: &mut Reader<'_>) -> bool {
        let mut found = None;
        for at in LINK_MAP.step_by(8) {
            let (mut compared, mut agree) = (0, true);
            loads.each_object(reader, |link_map, _, reader| {
                agree = agrees(link_map, at, reader) == Some(true);
                compared += 1;
                if agree && compared < COMPARED {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            if agree && compared > 1 && found.replace(at).is_some() {
                return false;
            }
        }
        self.map_start_at.store(found.unwrap_or(0), Ordering::Release);
        found.is_some()
    }

    /// The object under `pc`, or nothing: as `_dl_find_object` has it. Async-signal-safe.
    pub(super) fn find(&self, pc: u64, loads: &Loads, reader: &mut Reader<'_>) -> Option<DlFindObject> {
        let now = loads.now()?;
        if self.holds.load(Ordering::Acquire) != now {
            self.read(now, loads, reader);
        }
        match self.in_table(pc, now) {
            Some(found) => found,
            None => self.in_list(pc, now, loads, reader),
        }
    }

    /// In the child of a fork: the one that changed the table may be gone. Not for handlers.
    pub(super) fn after_fork(&self) {
        self.holds.store(0, Ordering::Relaxed);
        self.changing.store(0, Ordering::Release);
    }

    /// By the table; `None`: it does not hold for these counters.
    fn in_table(&self, pc: u64, now: u64) -> Option<Option<DlFindObject>> {
        let before = self.changes.load(Ordering::Acquire);
        if self.holds.load(Ordering::Acquire) != now {
            return None;
        }
        let entries = self.entries.get(..self.count.load(Ordering::Relaxed))?;
        // The number of entries that begin at or below the pc; the last of them may cover it.
        let (mut low, mut high) = (0, entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if entries.get(middle)?[0].load(Ordering::Relaxed) <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found =
            low.checked_sub(1).and_then(|index| entries.get(index)).map(load).filter(|found| pc < found.map_end);
        fence(Ordering::Acquire);
        (self.changes.load(Ordering::Relaxed) == before).then_some(found)
    }

    /// Makes the table anew, unless someone else does.
    fn read(&self, now: u64, loads: &Loads, reader: &mut Reader<'_>) {
        if self.changing.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.holds.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut count = Some(0);
        let complete = self.each_range(loads, reader, |found| {
            count = count.and_then(|count| self.insert(count, &found));
            if count.is_some() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if let Some(count) = count.filter(|_| complete && loads.now() == Some(now)) {
            self.count.store(count, Ordering::Relaxed);
            self.holds.store(now, Ordering::Release);
        }
        self.changing.store(0, Ordering::Release);
    }

    /// Puts a range among the first `count`, and returns their number; `None`: there is no room. Objects are mapped
    /// downwards, one after the other, so that most belong at the beginning or at the end.
    fn insert(&self, count: usize, found: &DlFindObject) -> Option<usize> {
        let mut place = count;
        self.entries.get(place)?;
        while let Some(before) = place.checked_sub(1).and_then(|index| self.entries.get(index)) {
            if before[0].load(Ordering::Relaxed) <= found.map_start {
                break;
            }
            store(self.entries.get(place)?, &load(before));
            place -= 1;
        }
        store(self.entries.get(place)?, found);
        Some(count + 1)
    }

    /// By the list itself, while the counters stand still.
    fn in_list(&self, pc: u64, now: u64, loads: &Loads, reader: &mut Reader<'_>) -> Option<DlFindObject> {
        let mut covering = None;
        self.each_range(loads, reader, |found| {
            if !(found.map_start..found.map_end).contains(&pc) {
                return ControlFlow::Continue(());
            }
            covering = Some(found);
            ControlFlow::Break(())
        });
        covering.filter(|_| loads.now() == Some(now))
    }

    /// Hands out what each object covers; the result is whether that was all of it.
    fn each_range(
        &self,
        loads: &Loads,
        reader: &mut Reader<'_>,
        mut each: impl FnMut(DlFindObject) -> ControlFlow<()>,
    ) -> bool {
        let at = self.map_start_at.load(Ordering::Relaxed);
        at != 0
            && loads.each_object(reader, |link_map, is_program, reader| {
                let word = |address: u64, reader: &mut Reader<'_>| {
                    reader.word(link_map.wrapping_add(address)).map_or(ControlFlow::Break(()), ControlFlow::Continue)
                };
                let (bias, start, end) = (word(0, reader)?, word(at, reader)?, word(at + 8, reader)?);
                let headers = Headers::read(start, bias, reader);
                let eh_frame = headers.as_ref().and_then(|headers| headers.eh_frame_hdr(bias, reader)).unwrap_or(0);
                let whole =
                    DlFindObject { flags: 0, map_start: start, map_end: end, link_map, eh_frame, reserved: [0; 7] };
                // The loader reserves all that an object spans. The kernel, which maps the program, does not, and
                // others may be in the gaps.
                let Some(headers) = headers.filter(|_| is_program) else { return each(whole) };
                let mut pending: Option<Span> = None;
                let mut flow = ControlFlow::Continue(());
                headers.each_segment(bias, reader, |segment| {
                    let adjoins = |before: &Span| segment.start & !(PAGE - 1) <= before.end.next_multiple_of(PAGE);
                    match pending {
                        Some(before) if adjoins(&before) => {
                            pending = Some(Span::new(before.start, before.end.max(segment.end)));
                        }
                        _ => {
                            if let (Some(before), ControlFlow::Continue(())) = (pending, flow) {
                                flow = each(DlFindObject { map_start: before.start, map_end: before.end, ..whole });
                            }
                            pending = Some(Span::new(segment.start & !(PAGE - 1), segment.end));
                        }
                    }
                });
                flow?;
                pending.map_or(ControlFlow::Continue(()), |last| {
                    each(DlFindObject { map_start: last.start, map_end: last.end, ..whole })
                })
            })
    }
}

/// Whether the words at `at` are where the object begins and ends, by its program headers.
fn agrees(link_map: u64, at: u64, reader: &mut Reader<'_>) -> Option<bool> {
    let mut word = |offset: u64| reader.word(link_map.wrapping_add(offset));
    let (bias, dynamic, start, end) = (word(0)?, word(L_LD)?, word(at)?, word(at + 8)?);
    if start & (PAGE - 1) != 0 || !(start..end).contains(&dynamic) {
        return Some(false);
    }
    let (mut first, mut last) = (u64::MAX, 0);
    Headers::read(start, bias, reader)?.each_segment(bias, reader, |segment| {
        first = first.min(segment.start & !(PAGE - 1));
        last = last.max(segment.end);
    });
    // Of the loader itself the end is a symbol of its own, which is aligned.
    Some(first == start && last.next_multiple_of(PAGE) == end.next_multiple_of(PAGE))
}

fn load(entry: &Entry) -> DlFindObject {
    let [map_start, map_end, link_map, eh_frame] =
        [0, 1, 2, 3].map(|index: usize| entry.get(index).map_or(0, |word| word.load(Ordering::Relaxed)));
    DlFindObject { flags: 0, map_start, map_end, link_map, eh_frame, reserved: [0; 7] }
}

fn store(entry: &Entry, found: &DlFindObject) {
    let words = [found.map_start, found.map_end, found.link_map, found.eh_frame];
    entry.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
}

#[cfg(test)]
mod tests;
