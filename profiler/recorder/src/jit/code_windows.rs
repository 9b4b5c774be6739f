//! Windows of uu.h whose functions have no unwind data: rules are made from their machine code. They are found in the
//! process's memory ([`windows`](super::windows)), like GDB's list: its tree differs after each change, and growing
//! windows count their functions.
//!
//! A window's description is looked at again after it was read, so that what is asked for is what one registrar has
//! said. What has changed since then does no harm: walks compare the code.

use super::gdb::Memory;
use super::windows::{tables, undescribed_functions, Root};
use std::collections::{HashMap, HashSet};
use uunwind_core::registry::window::{Kind, Window};
use uunwind_core::span::Span;

/// At most this number of nodes and of windows are looked at.
const MOST: usize = 1 << 14;
/// At most this number of functions of all windows of a process are looked after.
const MOST_FUNCTIONS: usize = 1 << 14;
/// At most this number of a window's functions are looked at, and in one look of all windows' that are new.
const A_WINDOW: usize = 1 << 13;
const A_LOOK: usize = 1 << 17;
/// The time between two looks is at least this multiple of the time that a look takes.
const PART_OF_TIME: u64 = 5;

/// A window in a cell, as it was last read.
struct Known {
    start: u64,
    generation: u64,
    /// Of a window whose functions are looked after: its description, and the numbers of its functions, by where they
    /// begin.
    window: Option<Window>,
    functions: HashMap<u64, u32>,
    /// Number of the last look that found it.
    seen: u64,
}

/// What has changed.
pub enum Change {
    /// A function with this number came, at these process addresses; and where its tables of jumps may lie.
    Comes(u32, Span, Option<Span>),
    /// The function with this number is gone.
    Goes(u32),
}

/// The windows of one library in a process.
pub struct CodeWindows {
    /// Process address of their description, and what it says, once that is sound.
    at: u64,
    root: Option<Root>,
    /// The state of the tree that was last read whole.
    state: Option<(u64, u64)>,
    /// By the process addresses of their cells.
    known: HashMap<u64, Known>,
    functions: usize,
    next: u32,
    looks: u64,
    /// The next look begins no earlier (CLOCK_MONOTONIC, ns).
    not_before: u64,
    /// Number of functions that found no room.
    left_out: u64,
}

impl CodeWindows {
    /// Those whose description is at the process address `at`.
    pub fn new(at: u64) -> CodeWindows {
        CodeWindows {
            at,
            root: None,
            state: None,
            known: HashMap::new(),
            functions: 0,
            next: 0,
            looks: 0,
            not_before: 0,
            left_out: 0,
        }
    }

    /// Whether the description is at this process address.
    pub fn is_at(&self, at: u64) -> bool {
        self.at == at
    }

    /// Number of functions that found no room, since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Finds what has changed since the last look. Where nothing has, it costs two system calls, and some for each
    /// growing window. `clock` returns CLOCK_MONOTONIC in ns.
    pub fn look(&mut self, memory: &impl Memory, clock: impl Fn() -> u64) -> Vec<Change> {
        let begun = clock();
        if begun < self.not_before {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut read = |at: u64, out: &mut [u8]| match memory.read(at, out.len()) {
            Some(bytes) => {
                out.copy_from_slice(&bytes);
                true
            }
            None => false,
        };
        // The library may be loaded later than it is looked at, and relocated then.
        self.root = self.root.or_else(|| Root::read_by(self.at, &mut read));
        let Some(root) = self.root else { return changes };
        let state = root.state(&mut read);
        if state != self.state {
            let is_done = self.look_at_all(&root, &mut read, &mut changes);
            // If it changed meanwhile, the next look begins anew.
            self.state = state.filter(|state| is_done && root.state(&mut read) == Some(*state));
        } else {
            self.look_at_growing(&root, &mut read, &mut changes);
        }
        let ended = clock();
        self.not_before = ended.saturating_add(ended.saturating_sub(begun).saturating_mul(PART_OF_TIME - 1));
        changes
    }

    /// Looks at all windows. False: some are left for the next look.
    fn look_at_all(
        &mut self,
        root: &Root,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        changes: &mut Vec<Change>,
    ) -> bool {
        let mut cells = Vec::new();
        let is_whole = root.cells(MOST, read, &mut |cell, start| cells.push((cell, start)));
        self.looks += 1;
        let mut left = A_LOOK;
        for (cell, start) in cells {
            let known = self.known.get_mut(&cell).filter(|known| known.start == start);
            if let Some(known) = known.filter(|known| root.is_still(cell, known.generation, read)) {
                known.seen = self.looks;
                continue;
            }
            let Some(window) = root.window_at(cell, start, read) else { continue };
            if left == 0 {
                return false;
            }
            left = left.saturating_sub(window.capacity as usize);
            self.forget(cell, changes);
            let is_wanted = window.kind == Kind::Code || window.kind == Kind::EhFrame && window.functions != 0;
            let known = Known {
                start,
                generation: window.generation,
                window: Some(window).filter(|_| is_wanted),
                functions: HashMap::new(),
                seen: self.looks,
            };
            self.known.insert(cell, known);
            self.look_at(root, cell, read, changes);
        }
        // Where there are too many, those that are gone are not known. Their code is compared.
        if is_whole {
            let gone = self.known.iter().filter(|(_, known)| known.seen != self.looks).map(|(cell, _)| *cell);
            gone.collect::<Vec<u64>>().into_iter().for_each(|cell| self.forget(cell, changes));
        }
        true
    }

    fn look_at_growing(
        &mut self,
        root: &Root,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let is_growing = |known: &Known| known.window.is_some_and(|window| window.published != 0);
        let growing: Vec<u64> =
            self.known.iter().filter(|(_, known)| is_growing(known)).map(|(cell, _)| *cell).collect();
        growing.into_iter().for_each(|cell| self.look_at(root, cell, read, changes));
    }

    /// Looks for functions of a window that are new, or retired.
    fn look_at(
        &mut self,
        root: &Root,
        cell: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        changes: &mut Vec<Change>,
    ) {
        let Some(known) = self.known.get_mut(&cell) else { return };
        let Some(window) = known.window else { return };
        let Some(spans) = undescribed_functions(&window, A_WINDOW, read) else { return };
        if !root.is_still(cell, known.generation, read) {
            return;
        }
        let starts: HashSet<u64> = spans.iter().map(|span| span.start).collect();
        known.functions.retain(|start, number| {
            let stays = starts.contains(start);
            if !stays {
                changes.push(Change::Goes(*number));
                self.functions -= 1;
            }
            stays
        });
        for span in spans {
            if known.functions.contains_key(&span.start) {
                continue;
            }
            if self.functions >= MOST_FUNCTIONS {
                self.left_out += 1;
                continue;
            }
            self.next = self.next.wrapping_add(1);
            self.functions += 1;
            known.functions.insert(span.start, self.next);
            changes.push(Change::Comes(self.next, span, tables(&window)));
        }
    }

    fn forget(&mut self, cell: u64, changes: &mut Vec<Change>) {
        let Some(known) = self.known.remove(&cell) else { return };
        self.functions -= known.functions.len();
        changes.extend(known.functions.into_values().map(Change::Goes));
    }
}

#[cfg(test)]
mod tests;
