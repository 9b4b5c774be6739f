//! The functions that the JITs of one process reported, and when each was added and removed.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem::size_of;
use std::rc::Rc;
use std::sync::Arc;
use uunwind_core::span::Span;
use uunwind_recording::JitSource;

/// At most this number of functions of one process are kept.
pub const MOST_CODES: usize = 1 << 20;
/// Longest name that is kept, in bytes.
pub const LONGEST_NAME: usize = 4096;

/// A function that a JIT has generated. Addresses are process addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The interface that reported it.
    pub source: JitSource,
    /// Address of its first byte.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Name as reported, which may be mangled.
    pub name: Rc<str>,
    /// Its lines in the order of their offsets; empty when none were reported.
    pub lines: Rc<[Line]>,
}

/// A source line of a function, which begins at an offset and ends at the next line's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bytes from the function's start.
    pub offset: u64,
    /// Name of the source file.
    pub file: Rc<str>,
    /// Line number.
    pub line: u32,
}

/// When an event happened (CLOCK_MONOTONIC, ns): at or after `after`, and no later than `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The last time at which it had certainly not happened.
    pub after: u64,
    /// The first time at which it had certainly happened.
    pub by: u64,
}

impl When {
    /// Exactly at this time, which the JIT reported.
    pub fn at(time: u64) -> When {
        When { after: time, by: time }
    }
}

/// A function was added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub when: When,
    /// Index of the function in [`Table::codes`].
    pub code: u32,
    /// True: it was added; false: it was removed.
    pub comes: bool,
}

/// A budget of memory, in bytes, for what JITs report. All processes of a recording share it.
#[derive(Clone)]
pub struct Room(Rc<Cell<u64>>);

/// The budget of a recording, in bytes.
pub const ROOM: u64 = 512 << 20;

impl Default for Room {
    fn default() -> Room {
        Room(Rc::new(Cell::new(ROOM)))
    }
}

impl Room {
    /// A budget of this number of bytes.
    #[cfg(test)]
    pub fn of(bytes: u64) -> Room {
        Room(Rc::new(Cell::new(bytes)))
    }

    /// Takes a number of bytes from the budget. False: there are not enough left.
    pub fn take(&self, bytes: usize) -> bool {
        let left = self.0.get().checked_sub(bytes as u64);
        left.map(|left| self.0.set(left)).is_some()
    }

    /// Returns bytes that were taken.
    pub fn give(&self, bytes: usize) {
        self.0.set(self.0.get().saturating_add(bytes as u64));
    }

    /// Whether too little is left for most functions.
    pub fn is_spent(&self) -> bool {
        self.0.get() < 4 * LONGEST_NAME as u64
    }
}

/// The functions and events of one process.
#[derive(Default)]
pub struct Table {
    /// The budget for its memory.
    pub room: Room,
    /// The functions, in the order in which they were reported.
    pub codes: Vec<Code>,
    /// The events, in the order in which they were reported.
    pub events: Vec<Event>,
    /// Number of functions for which there was no room.
    pub left_out: u64,
    /// Where tables of jumps of a function may lie (process addresses), by its index.
    pub constants: HashMap<u32, Arc<[Span]>>,
}

impl Table {
    /// Adds a function and returns its index. `None`: there is no room for it. The memory of its lines is accounted
    /// already.
    pub fn come(&mut self, code: Code, when: When) -> Option<u32> {
        let bytes = size_of::<Code>() + size_of::<Event>() + code.name.len();
        if self.codes.len() >= MOST_CODES || !self.room.take(bytes) {
            self.left_out += 1;
            return None;
        }
        let index = self.codes.len() as u32;
        self.codes.push(code);
        self.events.push(Event { when, code: index, comes: true });
        Some(index)
    }

    /// Records that a function was removed.
    pub fn go(&mut self, code: u32, when: When) {
        self.constants.remove(&code);
        if self.events.len() < 2 * MOST_CODES && self.room.take(size_of::<Event>()) {
            self.events.push(Event { when, code, comes: false });
        }
    }
}

/// A name as text, truncated to [`LONGEST_NAME`] bytes.
pub fn name(bytes: &[u8]) -> Rc<str> {
    String::from_utf8_lossy(bytes.get(..LONGEST_NAME).unwrap_or(bytes)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_processes_find_room_in_one_place_and_no_more() {
        let all = 4 << 20;
        let room = Room::of(all);
        let mut tables = [0, 1].map(|_| Table { room: room.clone(), ..Table::default() });
        // Each byte that is not UTF-8 becomes a replacement character of three bytes.
        let long: Rc<str> = name(&[0xff; LONGEST_NAME]);
        let code = || Code { source: JitSource::Gdb, start: 1, end: 2, name: long.clone(), lines: Rc::from([]) };
        let mut bytes = 0;
        for n in 0.. {
            match tables[n % 2].come(code(), When::at(1)) {
                Some(_) => bytes += long.len() as u64,
                None => break,
            }
        }
        assert!(room.is_spent() && (all / 2..all).contains(&bytes), "{bytes}");
        assert!(tables.iter_mut().all(|table| table.come(code(), When::at(1)).is_none()));
        assert_eq!(tables.map(|table| table.left_out).iter().sum::<u64>(), 3);
    }
}
