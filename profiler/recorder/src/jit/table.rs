//! What the JITs of one process told: functions, and from when to when each of them covered its range.

use std::rc::Rc;
use uunwind_report::recording::JitSource;

/// Most functions of one process that are kept.
pub const MOST_CODES: usize = 1 << 20;
/// Longest name that is kept, in bytes.
pub const LONGEST_NAME: usize = 4096;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Who told of it.
    pub source: JitSource,
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// Name as told.
    pub name: Rc<str>,
    /// Its lines, by offset, in order; empty when none were told.
    pub lines: Rc<[Line]>,
}

/// A line of a function, from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bytes from the function's start.
    pub offset: u64,
    /// Source file.
    pub file: Rc<str>,
    /// Line.
    pub line: u32,
}

/// When something happened, CLOCK_MONOTONIC, ns: behind `after`, and not behind `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The last time at which it is known not to have happened.
    pub after: u64,
    /// The first time at which it is known to have happened.
    pub by: u64,
}

impl When {
    /// At this very time: the JIT told it.
    pub fn at(time: u64) -> When {
        When { after: time, by: time }
    }
}

/// A function comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub when: When,
    /// Index of the function.
    pub code: u32,
    /// It comes; else it goes.
    pub comes: bool,
}

/// All of it.
#[derive(Default)]
pub struct Table {
    /// Functions.
    pub codes: Vec<Code>,
    /// In the order in which they were told.
    pub events: Vec<Event>,
    /// Functions that found no room.
    pub left_out: u64,
}

impl Table {
    /// A function comes. Its index, if there is room for it.
    pub fn come(&mut self, code: Code, when: When) -> Option<u32> {
        if self.codes.len() >= MOST_CODES {
            self.left_out += 1;
            return None;
        }
        let index = self.codes.len() as u32;
        self.codes.push(code);
        self.events.push(Event { when, code: index, comes: true });
        Some(index)
    }

    /// A function goes.
    pub fn go(&mut self, code: u32, when: When) {
        if self.events.len() < 2 * MOST_CODES {
            self.events.push(Event { when, code, comes: false });
        }
    }
}

/// A name as text, cut to what is kept.
pub fn name(bytes: &[u8]) -> Rc<str> {
    String::from_utf8_lossy(bytes.get(..LONGEST_NAME).unwrap_or(bytes)).into()
}
