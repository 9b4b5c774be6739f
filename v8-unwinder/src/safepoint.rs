//! Calls in optimised code, by the table that follows its instructions: the return address of each call that can lead
//! to a collection, and which state deoptimisation would leave there
//! (<https://github.com/v8/v8/blob/13.6.233/src/codegen/safepoint-table.h>, `maglev-safepoint-table.h`).
//!
//! When a function's code is given up, V8 puts the address of a trampoline in place of each return address into it. The
//! table has both.

use crate::heap::{Heap, Object};

/// Limit of entries.
const LIMIT: u32 = 16 << 10;
/// Limit of the bytes of one entry that are looked at.
const ENTRY: usize = 16;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Where it returns to, in bytes from the first instruction.
    pub offset: u32,
    /// The index of the state there among deoptimisation data.
    pub state: Option<u32>,
}

/// The table of some code.
#[derive(Clone, Copy)]
struct Table {
    /// Address of the first entry.
    entries: u64,
    count: u32,
    /// Bytes of an entry, and of a distance and a state's index in it.
    size: u32,
    distance: usize,
    state: usize,
}

/// An entry. No trampoline, no state: -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    offset: u32,
    state: u32,
    trampoline: u32,
}

const NONE: u32 = u32::MAX;

/// The call that returns to this distance from the first instruction. A call that has no entry, before the last one
/// that has, has no state. `None`: it cannot be read, or the call is in code that follows all others and belongs to
/// any of them.
#[inline(never)]
pub fn call(heap: &Heap<'_, '_>, code: Object, offset: u32, is_maglev: bool) -> Option<Call> {
    let table = Table::read(heap, code, is_maglev)?;
    let last = table.entry(heap, table.count.checked_sub(1)?)?;
    if offset > last.offset {
        return table.trampoline(heap, offset);
    }
    let (mut low, mut high) = (0, table.count);
    while low < high {
        let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
        let entry = table.entry(heap, middle)?;
        if entry.offset == offset {
            return Some(entry.call());
        }
        if entry.offset < offset {
            low = middle.wrapping_add(1);
        } else {
            high = middle;
        }
    }
    Some(Call { offset, state: None })
}

impl Table {
    fn read(heap: &Heap<'_, '_>, code: Object, is_maglev: bool) -> Option<Table> {
        let size = heap.half(code, heap.facts.code_size)?;
        let start = heap.field(code, heap.facts.code_start)?.wrapping_add(size.into());
        let at = start.wrapping_add(heap.facts.safepoint_length.into());
        let count = heap.guest.half(at)?;
        let layout = heap.guest.half(at.wrapping_add(4))?;
        let table = Table::new(layout, is_maglev)?;
        // Maglev's header has the number of stack slots, too.
        let entries = at.wrapping_add(if is_maglev { 12 } else { 8 });
        (count <= LIMIT).then_some(Table { entries, count, ..table })
    }

    /// By the word that says what entries look like.
    fn new(layout: u32, is_maglev: bool) -> Option<Table> {
        let field = |shift: u32| layout >> shift & 7;
        let (registers, distance, state) = (field(1), field(4), field(7));
        let has_states = layout & 1 != 0;
        let of_states = if has_states { state.wrapping_add(distance) } else { 0 };
        let size = distance.wrapping_add(of_states).wrapping_add(u32::from(is_maglev)).wrapping_add(registers);
        let fits = distance != 0 && distance <= 4 && state <= 4;
        let state = if has_states { state as usize } else { 0 };
        fits.then_some(Table { entries: 0, count: 0, size, distance: distance as usize, state })
    }

    fn entry(&self, heap: &Heap<'_, '_>, index: u32) -> Option<Entry> {
        let at = self.entries.wrapping_add(u64::from(index).wrapping_mul(self.size.into()));
        let mut bytes = [0; ENTRY];
        let looked_at = bytes.get_mut(..self.looked_at())?;
        heap.guest.bytes(at, looked_at).then(|| self.decoded(looked_at))?
    }

    /// Bytes of an entry, up to its trampoline.
    fn looked_at(&self) -> usize {
        let states = if self.state == 0 { 0 } else { self.state.wrapping_add(self.distance) };
        self.distance.wrapping_add(states)
    }

    fn decoded(&self, bytes: &[u8]) -> Option<Entry> {
        let number = |from: usize, length: usize| {
            let bytes = bytes.get(from..from.checked_add(length)?)?;
            Some(bytes.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte)))
        };
        let offset = number(0, self.distance)?;
        if self.state == 0 {
            return Some(Entry { offset, state: NONE, trampoline: NONE });
        }
        let state = number(self.distance, self.state)?.wrapping_sub(1);
        let trampoline = number(self.distance.wrapping_add(self.state), self.distance)?.wrapping_sub(1);
        Some(Entry { offset, state, trampoline })
    }

    /// The call whose trampoline begins at a distance.
    fn trampoline(&self, heap: &Heap<'_, '_>, offset: u32) -> Option<Call> {
        for index in 0..self.count.min(LIMIT) {
            let entry = self.entry(heap, index)?;
            if entry.trampoline == offset && entry.state != NONE {
                return Some(entry.call());
            }
        }
        None
    }
}

impl Entry {
    fn call(self) -> Call {
        Call { offset: self.offset, state: Some(self.state).filter(|state| *state != NONE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of Node's code, as `--print-code` shows them.
    #[test]
    fn entries_are_decoded() {
        // Maglev in 24.22.3: two bytes of distance, one of state, one of spilled slots, one of registers.
        let table = Table::new(163, true).expect("a table");
        assert_eq!((table.size, table.looked_at()), (7, 5));
        let entry = table.decoded(&[0x24, 0, 15, 0xc9, 4]);
        assert_eq!(entry, Some(Entry { offset: 0x24, state: 14, trampoline: 0x4c8 }));
        let entry = table.decoded(&[0xe8, 2, 0, 0, 0]).map(Entry::call);
        assert_eq!(entry, Some(Call { offset: 0x2e8, state: None }));
        // TurboFan.
        let table = Table::new(1185, false).expect("a table");
        assert_eq!((table.size, table.looked_at()), (5, 5));
        assert!(Table::new(0, false).is_none() && Table::new(7 << 4, true).is_none());
    }
}
