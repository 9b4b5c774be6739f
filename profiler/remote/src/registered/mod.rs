//! Code that a process has registered at run time, found in its memory: windows of `uu.h` ([`windows`]), the ELF
//! objects of GDB's JIT interface (`gdb`), and what was given to libgcc's `__register_frame` (`libgcc`).
//!
//! Nothing is asked of the process, which may stand still, or be dead. What lies there may change at any moment, or be
//! made to mislead: all lists have limits, in number and in time, and each answer is read again before it counts. An
//! answer is wanted only for code that no file covers.

mod code;
mod frames;
mod gdb;
mod kinds;
mod libgcc;
mod losses;
mod searches;

use crate::memory::Memory;
use frames::Frames;
pub use losses::Losses;
use searches::Searches;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::registry::outside::SYMBOL;
use uunwind_core::registry::window::{Kind, Window};
use uunwind_core::rule::Packed;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::DEEP_WORDS;
use uunwind_elf::Image;
use uunwind_live::skipped::Surroundings;
use uunwind_live::window_rule::{self, Missing};
use uunwind_recorder::jit::gdb as gdb_list;
pub use uunwind_recorder::jit::windows;

/// At most this number of places of one kind is looked at in a process.
const PLACES: usize = 64;
/// How long lists that look the same are believed in.
const FRESH: Duration = Duration::from_millis(100);
/// The time between two readings of the lists is at least this multiple of the time that one takes.
const PART_OF_TIME: u32 = 9;
/// At most this number of times a window is looked for again, while windows come and go.
const ATTEMPTS: usize = 8;

/// What one walk may cost. Without it, lists that were made to mislead would hold up the walk at each of its frames.
struct Budget {
    /// Descriptions that are read, and windows that are looked for: for the deepest stack, one a frame.
    lookups: usize,
    /// Windows that are looked for again.
    attempts: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { lookups: DEEP_WORDS / 2, attempts: PLACES }
    }
}

/// Takes one of what is left. False: there was nothing.
fn take(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

/// Where an ELF file has what such registrations begin with (file addresses).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The description of libuunwind's windows.
    windows: Option<u64>,
    /// The head of GDB's list.
    gdb: Option<u64>,
    /// What libgcc keeps.
    libgcc: Vec<libgcc::Root>,
}

impl Places {
    /// Those of a file.
    pub fn of(image: &Image) -> Places {
        Places {
            windows: image.any_symbol(SYMBOL).map(|symbol| symbol.address),
            gdb: gdb_list::find(image),
            libgcc: libgcc::find(image),
        }
    }

    /// The process address of the head of GDB's list.
    pub fn gdb_at(&self, bias: u64) -> Option<u64> {
        Some(bias.wrapping_add(self.gdb?))
    }
}

/// What a process has registered.
#[derive(Default)]
pub struct Registered {
    windows: Vec<windows::Root>,
    /// Places of descriptions that are not read yet (process addresses).
    unread: Vec<u64>,
    gdb: Vec<u64>,
    libgcc: Vec<libgcc::Root>,
    frames: Option<Frames>,
    /// The heads of the lists as `frames` was made of them, and when that was.
    heads: Vec<u64>,
    read_at: Option<Instant>,
    /// The lists are not read again before.
    not_before: Option<Instant>,
    /// Number of frames of which it could not be found out whether a window covers them. Of the last one, pc and stack
    /// pointer: a walk may ask again for it.
    unsettled: u64,
    last_unsettled: Option<(u64, u64)>,
    /// What is left for this walk.
    budget: Budget,
    /// The searches for rules in unwind data.
    searches: Searches,
    /// Functions of GDB's list, for rules from their code.
    functions: code::Functions,
    /// Whether a list was longer than what is read.
    cut: bool,
    /// The rule of the current frame was made from its machine code.
    pub is_by_code: bool,
}

/// The rule of a frame by lists whose heads lie at these process addresses: GDB's, libgcc's list, its tree.
pub fn rule_by_lists([gdb, list, tree]: [u64; 3], cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
    let mut frames = Frames::new();
    gdb::read(gdb, reader, &mut frames);
    libgcc::Root::List(list).read(reader, &mut frames);
    libgcc::Root::Tree(tree).read(reader, &mut frames);
    frames.sort();
    frames.fde(cursor.lookup_pc())?.rule(cursor, reader)
}

/// A frame in registered code.
pub struct Found {
    /// The window, for its rule and its function's name; `None`: it is unwind data without one.
    pub window: Option<Window>,
    /// Distinguishes it from other registered code.
    pub generation: u64,
    /// Its rule, where it is no window.
    pub rule: Packed,
}

impl Registered {
    /// Of a process whose files have these places. `bias`: process address minus file address.
    pub fn new<'p>(places: impl Iterator<Item = (&'p Places, u64)>) -> Registered {
        let mut found = Registered::default();
        for (places, bias) in places {
            let at = |address: u64| bias.wrapping_add(address);
            found.unread.extend(places.windows.map(at));
            found.gdb.extend(places.gdb.map(at));
            found.libgcc.extend(places.libgcc.iter().map(|root| root.moved(bias)));
        }
        found.unread.truncate(PLACES);
        found.gdb.truncate(PLACES);
        found.libgcc.truncate(PLACES);
        found
    }

    /// A walk begins.
    pub fn begin_walk(&mut self) {
        self.budget = Budget::default();
        self.last_unsettled = None;
        self.searches.begin_walk();
    }

    /// What covers the frame, which lies in no object.
    pub fn find(&mut self, cursor: &Cursor, memory: &Memory, reader: &mut Reader<'_>) -> Option<Found> {
        let lookup = cursor.lookup_pc();
        let (window, is_settled) = self.window(lookup, memory, reader);
        let frame = Some((lookup, cursor.regs.sp()));
        if !is_settled && self.last_unsettled != frame {
            self.last_unsettled = frame;
            self.unsettled += 1;
        }
        if let Some(window) = window {
            return Some(Found {
                generation: window.generation,
                window: Some(window),
                rule: Packed::failed(StopReason::NoRule),
            });
        }
        if self.gdb.is_empty() && self.libgcc.is_empty() {
            return None;
        }
        self.read_lists(memory);
        let fde = self.frames.as_ref()?.fde(lookup)?;
        let rule = if fde.needs_search() {
            self.searches.find(frames::GENERATION, cursor, memory, || fde.rule(cursor, reader))?
        } else {
            fde.rule(cursor, reader)?
        };
        Some(Found { window: None, generation: frames::GENERATION, rule })
    }

    /// The rule of a frame in code that a window, or GDB's list, has without unwind data, made from that code.
    pub fn rule_by_code(
        &mut self,
        window: Option<&Window>,
        cursor: &Cursor,
        memory: &Memory,
        reader: &mut Reader<'_>,
    ) -> Option<Packed> {
        let of_window =
            window.and_then(|window| Some((window, windows::undescribed(window, cursor.lookup_pc(), reader)?)));
        if let Some((window, span)) = of_window {
            return self.functions.rule_of(span, windows::tables(window).as_slice(), cursor, reader);
        }
        if self.gdb.is_empty() {
            return None;
        }
        self.read_lists(memory);
        self.functions.rule(&self.gdb, cursor, reader)
    }

    /// The rule of a frame in a window. Where it must be looked for in the window's data, there is none once such
    /// searches have cost a walk too much.
    pub fn rule_in(
        &mut self,
        window: &Window,
        cursor: &Cursor,
        (memory, places): (&Memory, &mut dyn Surroundings),
        reader: &mut Reader<'_>,
    ) -> Packed {
        let mut rule = || match window_rule::find(window, cursor, places, reader, None) {
            Ok(rule) => rule.pack(),
            Err(Missing::NoRule(reason) | Missing::Failed(reason)) => Packed::failed(reason),
        };
        match window.kind {
            Kind::EhFrame | Kind::SFrame => {
                let found = self.searches.find(window.generation, cursor, memory, || Some(rule()));
                found.unwrap_or(Packed::failed(StopReason::NoRule))
            }
            Kind::Opaque | Kind::FramePointer | Kind::Rule | Kind::Stepper | Kind::Code => rule(),
        }
    }

    /// The window that covers an address. False: it could not be found out whether there is one.
    fn window(&mut self, lookup: u64, memory: &Memory, reader: &mut Reader<'_>) -> (Option<Window>, bool) {
        // The program may load the library later than it is looked at, and relocates it then: until it is sound, its
        // description is read again.
        let (windows, budget) = (&mut self.windows, &mut self.budget);
        self.unread.retain(|at| {
            let root = take(&mut budget.lookups).then(|| windows::Root::read(*at, reader)).flatten();
            windows.extend(root);
            root.is_none()
        });
        let mut is_settled = true;
        for root in &self.windows {
            let mut now = |address: u64| {
                let mut word = [0; 8];
                memory.read_now(address, &mut word).then(|| u64::from_le_bytes(word))
            };
            let mut answer = windows::Answer::Changed;
            for attempt in 0..=ATTEMPTS {
                if attempt > 0 {
                    if !take(&mut self.budget.attempts) {
                        break;
                    }
                    memory.read_anew();
                }
                if !take(&mut self.budget.lookups) {
                    break;
                }
                answer = root.find(lookup, reader, &mut now);
                if answer != windows::Answer::Changed {
                    break;
                }
            }
            match answer {
                windows::Answer::Window(window) => return (Some(window), true),
                windows::Answer::None => {}
                windows::Answer::Changed => is_settled = false,
            }
        }
        (None, is_settled)
    }

    /// What could not be found out so far.
    pub fn losses(&self) -> Losses {
        Losses { unsettled: self.unsettled, unsearched: self.searches.refused, cut: self.cut }
    }

    /// Reads the lists again, if they may have changed.
    fn read_lists(&mut self, memory: &Memory) {
        let begun = Instant::now();
        if self.not_before.is_some_and(|at| begun < at) {
            return;
        }
        let heads = self.heads_now(memory);
        if self.frames.is_some() && heads == self.heads && self.read_at.is_some_and(|at| begun - at < FRESH) {
            return;
        }
        let mut frames = Frames::new();
        let mut reader = memory.quiet_reader();
        for at in &self.gdb {
            gdb::read(*at, &mut reader, &mut frames);
        }
        for root in &self.libgcc {
            root.read(&mut reader, &mut frames);
        }
        frames.sort();
        self.cut |= frames.is_cut();
        if heads != self.heads {
            self.functions.forget();
        }
        (self.frames, self.heads, self.read_at) = (Some(frames), heads, Some(begun));
        self.not_before = Some(Instant::now() + begun.elapsed() * PART_OF_TIME);
    }

    fn heads_now(&self, memory: &Memory) -> Vec<u64> {
        let word = |at: u64| {
            let mut word = [0; 8];
            if memory.read_now(at, &mut word) {
                u64::from_le_bytes(word)
            } else {
                0
            }
        };
        let gdb = self.gdb.iter().flat_map(|at| [word(*at), word(at.wrapping_add(8)), word(at.wrapping_add(16))]);
        gdb.chain(self.libgcc.iter().map(|root| word(root.at()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use searches::READS;
    use uunwind_core::memory::Region;
    use uunwind_core::registry::outside::{Shape, MAGIC, VERSION};
    use uunwind_core::regs::{Regs, COUNT, SP};
    use uunwind_eh_frame::list::MAX_ENTRIES;
    use uunwind_eh_frame::scan::Shape as ListShape;
    use uunwind_live::skipped::Place;

    /// No object is mapped anywhere.
    struct Nowhere;

    impl Surroundings for Nowhere {
        fn place(&mut self, _: u64, _: &mut Reader<'_>) -> Place {
            Place::Unowned
        }
    }

    /// Lists and trees without an end are cut, which is noticed, and whoever looks goes on.
    #[test]
    fn lists_and_trees_without_an_end_are_cut() {
        const AT: u64 = 0x10_0000;
        type Read = fn(&mut Reader<'_>, &mut Frames);
        let worlds: [(&[(u64, u64)], Read); 3] = [
            // GDB's head, an entry, and one that follows itself.
            (&[(0, 1), (16, AT + 64), (64, AT + 128), (128, AT + 128)], |reader, frames| gdb::read(AT, reader, frames)),
            // The head of a list of libgcc's, and an object that follows itself.
            (&[(0, AT + 64), (64 + 40, AT + 64)], |reader, frames| libgcc::Root::List(AT).read(reader, frames)),
            // A tree's root, which has itself below, several times.
            (&[(0, AT + 64), (72, 15), (88, AT + 64), (104, AT + 64), (120, AT + 64)], |reader, frames| {
                libgcc::Root::Tree(AT).read(reader, frames);
            }),
        ];
        for (number, (words, read)) in worlds.into_iter().enumerate() {
            let mut bytes = vec![0; 512];
            for (at, word) in words {
                bytes[*at as usize..][..8].copy_from_slice(&word.to_le_bytes());
            }
            let regions = [Region { address: AT, bytes: &bytes }];
            let mut frames = Frames::new();
            read(&mut Reader::recorded(&regions), &mut frames);
            assert!(frames.is_cut(), "{number}");
        }
    }

    /// A library whose windows seem to change each time that they are looked at: one node, with one window, which was
    /// removed. `bytes` must stay where it is.
    fn never_at_rest(bytes: &mut [u8], code: u64) {
        let at = bytes.as_ptr() as u64;
        let (node, cell) = (at + 512, at + 4096);
        let fields = Shape {
            node_size: 64,
            node_keys: 0,
            node_below: 8,
            node_entries: 1,
            node_change: 16,
            node_len: 24,
            node_height: 28,
            cell_size: 96,
            cell_generation: 0,
            cell_unlinked: 8,
            window_start: 16,
            window_end: 24,
            window_kind: 32,
            window_flags: 36,
            window_unwind: 40,
            window_unwind_len: 48,
            window_functions: 56,
            window_capacity: 64,
            window_published: 72,
        };
        // SAFETY: fields of 4 bytes each, without gaps.
        let fields: [u8; size_of::<Shape>()] = unsafe { std::mem::transmute(fields) };
        let mut put = |place: u64, of: &[u8]| bytes[(place - at) as usize..][..of.len()].copy_from_slice(of);
        put(at, &MAGIC);
        put(at + 8, &VERSION.to_le_bytes());
        put(at + 12, &(24 + fields.len() as u32).to_le_bytes());
        put(at + 16, &(at + 256).to_le_bytes());
        put(at + 24, &fields);
        put(at + 256, &node.to_le_bytes());
        put(node, &[code, cell].map(u64::to_le_bytes).concat());
        put(node + 24, &1u32.to_le_bytes());
        put(cell, &[1u64, 1, code, code + 4096].map(u64::to_le_bytes).concat());
        put(cell + 32, &Kind::FramePointer.number().to_le_bytes());
    }

    /// Windows that never come to rest, of as many libraries as are looked at, hold up a walk for a while only, however
    /// many frames it has.
    #[test]
    fn windows_without_rest_do_not_hold_up_a_walk() {
        const CODE: u64 = 0x10_0000;
        let mut bytes = vec![0; 8192];
        never_at_rest(&mut bytes, CODE);
        let memory = Memory::of(std::process::id());
        let places = Places { windows: Some(bytes.as_ptr() as u64), ..Places::default() };
        let mut registered = Registered::new(std::iter::repeat_n((&places, 0), PLACES));
        for walk in 1..=2 {
            registered.begin_walk();
            for frame in 0..1000 {
                let mut saved = [0; COUNT];
                saved[usize::from(SP)] = frame;
                let cursor = Cursor { regs: Regs::some(CODE + 16, saved, 1 << SP), exact: true };
                // A frame that is asked for again counts once.
                for _ in 0..=usize::from(frame == 0) {
                    assert!(registered.find(&cursor, &memory, &mut memory.reader()).is_none());
                }
            }
            assert_eq!((registered.windows.len(), registered.unsettled), (PLACES, walk * 1000));
            let Budget { lookups, attempts, .. } = registered.budget;
            // What is looked for once more costs three pages at most.
            assert_eq!(attempts, 0);
            assert!(memory.pages_read() <= walk as usize * 3 * (PLACES + 1), "{}", memory.pages_read());
            assert!(DEEP_WORDS / 2 - lookups <= (1000 + 2) * PLACES, "{lookups}");
        }
        // Where there is nothing left to look up with, nothing is looked up.
        registered.budget.lookups = 0;
        let before = memory.pages_read();
        memory.read_anew();
        let cursor = Cursor { regs: Regs::some(CODE + 16, [0; COUNT], 0), exact: true };
        assert!(registered.find(&cursor, &memory, &mut memory.reader()).is_none());
        assert_eq!((memory.pages_read(), registered.unsettled), (before, 2001));
    }

    /// A list of unwind data without a rule for them, as long as it is searched, holds up a walk for a while only,
    /// however many frames it has; the next one searches it again.
    #[test]
    fn long_lists_of_windows_do_not_hold_up_a_walk() {
        const CODE: u64 = 0x10_0000;
        // CIEs of a length and their mark.
        let list = [4u32, 0].map(u32::to_le_bytes).as_flattened().repeat(MAX_ENTRIES + 1);
        let memory = Memory::of(std::process::id());
        let (unwind, unwind_len) = (list.as_ptr() as u64, list.len() as u64);
        let window = Window { unwind, unwind_len, ..Window::new(CODE, CODE + 4096, Kind::EhFrame) };
        let others = [Kind::Opaque, Kind::FramePointer].map(|kind| Window::new(CODE, CODE + 4096, kind));
        let mut registered = Registered::new([].into_iter());
        let mut reader = memory.reader();
        let why = |rule: Packed| StopReason::ALL.iter().find(|why| rule.failed_for(**why));
        // The reads for some frames, the last one's failure, and the number of frames that were not looked for so far.
        let mut rules = |pcs: &mut dyn Iterator<Item = u64>| {
            let (before, mut last) = (memory.reads_made(), Packed::failed(StopReason::NotCode));
            registered.begin_walk();
            let mut cursor = Cursor { regs: Regs::some(CODE, [0; COUNT], 0), exact: true };
            for pc in pcs {
                cursor.regs.pc = pc;
                // A walk may ask twice.
                registered.rule_in(&window, &cursor, (&memory, &mut Nowhere), &mut reader);
                last = registered.rule_in(&window, &cursor, (&memory, &mut Nowhere), &mut reader);
            }
            let reads = memory.reads_made() - before;
            // What is not searched has its rule at any time, and is not counted.
            let rules = [0, 1].map(|of| registered.rule_in(&others[of], &cursor, (&memory, &mut Nowhere), &mut reader));
            assert_eq!(rules.map(why), [StopReason::OpaqueWindow, StopReason::UnknownRegister].each_ref().map(Some));
            (reads, why(last), registered.searches.refused)
        };
        let frames = DEEP_WORDS as u64 / 2;
        let (one_search, too_long) = (rules(&mut std::iter::once(CODE)).0, Some(&StopReason::UnsupportedRule));
        assert!(one_search >= MAX_ENTRIES as u64, "{one_search}");
        // Frames of a recursion are at the same place.
        let recursion = rules(&mut (0..frames).map(|frame| CODE + frame % 4));
        assert!(recursion.0 <= 4 * one_search && (recursion.1, recursion.2) == (too_long, 0), "{recursion:?}");
        let (reads, why, unsearched) = rules(&mut (0..frames).map(|frame| CODE + frame));
        assert!(reads <= READS + one_search, "{reads}");
        assert_eq!(unsearched, frames - reads.div_ceil(one_search), "each once");
        assert_eq!(why, Some(&StopReason::NoRule));
        assert_eq!(rules(&mut std::iter::once(CODE)), (one_search, too_long, unsearched), "the next walk");
        assert!(registered.losses().notes().iter().any(|note| note.contains("takes too long to search")));
    }

    /// Code in lists of GDB or libgcc is searched for once a place in a walk, and as long as there are reads for it.
    #[test]
    fn code_in_lists_is_searched_for_within_limits() {
        const CODE: u64 = 0x10_0000;
        // A CIE with CFA = rsp + 8 and the return address below; an FDE, padded; the end.
        let mut list = [16u32, 0].map(u32::to_le_bytes).concat();
        list.extend([1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0]);
        list.extend([24u32, 24].map(u32::to_le_bytes).as_flattened());
        list.extend([CODE, 4096, 0].map(u64::to_le_bytes).as_flattened());
        let memory = Memory::of(std::process::id());
        let mut frames = Frames::new();
        frames.add(list.as_ptr() as u64, ListShape::List, None, &mut memory.reader());
        frames.sort();
        let never = Some(Instant::now() + Duration::from_secs(3600));
        let mut registered =
            Registered { gdb: vec![0], frames: Some(frames), not_before: never, ..Registered::default() };
        let mut find = |pcs: std::ops::Range<u64>, is_spent| {
            let before = memory.reads_made();
            if is_spent {
                registered.searches.left = 0;
            }
            let rules: Vec<_> = pcs
                .map(|pc| {
                    let cursor = Cursor { regs: Regs::some(CODE + pc, [0; COUNT], 0), exact: true };
                    let again = registered.find(&cursor, &memory, &mut memory.reader());
                    assert!(again.is_some());
                    registered.find(&cursor, &memory, &mut memory.reader()).map(|found| found.rule.is_failed())
                })
                .collect();
            (memory.reads_made() - before, rules.last().copied().flatten(), registered.searches.refused)
        };
        let (one_search, is_failed, _) = find(0..1, false);
        assert!(one_search > 0 && is_failed == Some(false), "{one_search} {is_failed:?}");
        assert_eq!(find(0..1, false), (0, Some(false), 0), "it is known");
        assert_eq!(find(0..3, true), (0, Some(true), 2));
    }
}
