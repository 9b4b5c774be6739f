//! Walks that replay what a thread's last walk found, over memory that changes between them: each shows what a walk
//! without a memory of earlier ones shows. The plugin reads frames without logging them (`chain::Debt`); what it does
//! not read again must never be replayed.

mod world;

use std::collections::BTreeSet;
use uunwind_core::cache::last_walk::{Found, LastWalk, Scratch as ScratchOf, Stamp, Visited, WalkEnd, WalkLog};
use uunwind_core::frame::{native_word, semantic_word};
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{OVERLAY_DESYNC, SCRATCH_BYTES};
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;
use world::host::{loop_frame, Name, Native, Scratch, Walk, PLUGIN};
use world::python::{Process, Version, ALL, BIAS, GENERATOR, STACK, THREAD, TSTATE};
use world::Memory;

/// What a walk shows: frames by their names, and native ones; and the number of doubtful calls.
type Shown = (Vec<(String, u64)>, u32);

/// A thread: its last walk, and the names that its walks have described.
struct Thread {
    last: Box<LastWalk>,
    names: Vec<Name>,
    /// Frames that were replayed.
    replayed: usize,
}

impl Thread {
    fn new() -> Thread {
        Thread { last: Box::new(LastWalk::new()), names: Vec::new(), replayed: 0 }
    }

    /// One walk, as `uunwind_core::walk` makes it: each frame is logged, sought in the last walk, and shown to the
    /// plugin.
    fn walk(
        &mut self,
        (memory, pages): (&Memory, &BTreeSet<u64>),
        natives: &[Native],
        version: &'static Version,
    ) -> (Shown, usize) {
        let regions = memory.regions(pages);
        let mut reader = Reader::recorded(&regions);
        let mut walk = Walk::new(memory);
        walk.names = std::mem::take(&mut self.names);
        walk.reader = &raw mut reader;
        // SAFETY: the reader is forgotten at the log's end; the plugin uses it during its calls only.
        let mut log = unsafe { WalkLog::begin(&mut self.last, &mut *walk.reader, 1) };
        let (mut scratch, mut is_called, mut words, mut desync, mut count) =
            (Scratch([0; SCRATCH_BYTES]), false, Vec::new(), 0, 0);
        let mut tail = None;
        for native in natives {
            let at = Visited {
                pc: native.pc,
                sp: native.sp,
                exact: native.exact,
                by_frame_pointer: false,
                words: words.len(),
                count,
                desync,
            };
            // SAFETY: no other reference to the reader is in use.
            let reader = unsafe { &mut *walk.reader };
            // The index of the plugin is that of its part of the scratch memory.
            let memory = scratch.0.as_ptr().wrapping_sub(PLUGIN as usize * SCRATCH_BYTES);
            let state = |is_called: bool| {
                let mut state = ScratchOf::new(memory, SCRATCH_BYTES);
                if is_called {
                    state.begin(PLUGIN as u8, SCRATCH_BYTES);
                }
                state
            };
            if log.visit(at, reader) == Found::Cached {
                tail = log.tail(reader, &state(is_called), |_| None);
                if tail.is_some() {
                    break;
                }
            }
            let before = walk.emitted.len();
            let shown = walk.show_one(native, version, &mut scratch);
            is_called = true;
            log.note_plugin(&state(is_called), 0, false);
            log.note_rule(0, 0x7f);
            for (id, position) in &walk.emitted[before..] {
                words.extend([semantic_word(PLUGIN as u8, *id as u32), *position]);
                count += 1;
            }
            words.push(native_word(native.pc, 0));
            count += 1;
            desync += u32::from(shown.answer & OVERLAY_DESYNC != 0);
        }
        let mut all = words.clone();
        let mut doubts = desync;
        if let Some(tail) = &tail {
            all.extend(log.words(tail));
            doubts += tail.desync;
            count += tail.frames;
            self.replayed += tail.frames as usize;
        }
        let end = WalkEnd {
            words: &words,
            tail: tail.as_ref(),
            stop: StopReason::Complete,
            count,
            desync: doubts,
            probed: false,
            stamp: Stamp { general: 1, windows: 0 },
            objects: &[],
        };
        // What the plugin has learned counts for later walks.
        // SAFETY: as above.
        log.end(unsafe { &mut *walk.reader }, end, walk.learned == 0);
        let frames = uunwind_core::frame::frames(&all).flatten_names(&walk);
        self.names = std::mem::take(&mut walk.names);
        ((frames, doubts), walk.learned)
    }
}

trait Named {
    fn flatten_names(self, walk: &Walk<'_>) -> Vec<(String, u64)>;
}

impl<I: Iterator<Item = uunwind_core::frame::Frame>> Named for I {
    fn flatten_names(self, walk: &Walk<'_>) -> Vec<(String, u64)> {
        self.map(|frame| match frame {
            uunwind_core::frame::Frame::Semantic { name, position, .. } => (walk.name(u64::from(name)), position),
            other => (format!("{other:?}"), 0),
        })
        .collect()
    }
}

/// Native frames, leaf first: activations, and functions of the interpreter between them.
fn natives() -> Vec<Native> {
    let glue = |cfa: u64| {
        let start = BIAS + 0x20_0000;
        Native {
            pc: start + cfa % 0x90,
            sp: cfa - 0x40,
            cfa,
            exact: false,
            function_start: start,
            function_end: start + 0x100,
        }
    };
    (0..3)
        .flat_map(|n| {
            let cfa = STACK - 0x6000 + n * 0x800;
            [glue(cfa - 0x300), glue(cfa - 0x280), loop_frame(cfa, 0x200 + n * 8, false)]
        })
        .collect()
}

fn process(version: &'static Version) -> Process {
    let mut p = Process::new(version);
    let codes: Vec<u64> = (0..5).map(|n| p.code(&format!("f{n}"), "/x.py", 3, 64)).collect();
    let activations: Vec<Native> = natives().into_iter().filter(|native| native.cfa - native.sp >= 0x200).collect();
    for (n, native) in activations.iter().enumerate().rev() {
        p.activate(native.cfa);
        for call in 0..19u64 {
            let owner = if call == 4 && n == 1 { GENERATOR } else { THREAD };
            p.call(codes[call as usize % 5], 8 + 2 * call as i64, owner);
        }
    }
    p
}

#[test]
fn walks_that_replay_show_what_others_show() {
    let mut random = Random::new(20_251_125);
    let rounds = if cfg!(debug_assertions) { 150 } else { 3_000 };
    let (mut replayed, mut same) = (0, 0);
    for version in ALL {
        let good = process(version).memory;
        let used = good.used_words();
        let pages = used.iter().map(|at| at & !0xfff).collect();
        let (mut memory, mut thread, mut other) = (good.clone(), Thread::new(), Thread::new());
        for round in 0..rounds {
            // Some words become others, mostly ones that mean something, or what they were; then a walk from some
            // frame on.
            for _ in 0..random.below(3) {
                let at = used[random.below(used.len() as u64) as usize];
                let other = good.word(used[random.below(used.len() as u64) as usize]);
                let new = match random.below(6) {
                    0 => other,
                    1 => good.word(at) ^ 1 << random.below(64),
                    2 => good.word(at).wrapping_add(2),
                    3 => TSTATE + random.below(64) * 8,
                    _ => good.word(at),
                };
                memory.put64(at, new);
            }
            if random.below(8) == 0 {
                memory = good.clone();
            }
            let mut natives = natives();
            natives.drain(..random.below(3) as usize);
            if random.below(4) == 0 {
                natives[0].pc += 16;
            }
            let (shown, learned) = thread.walk((&memory, &pages), &natives, version);
            other.last.reset();
            let (expected, learned_too) = other.walk((&memory, &pages), &natives, version);
            if learned + learned_too > 0 {
                thread.last.reset();
                continue;
            }
            assert_eq!(shown, expected, "round {round} of {:#x}", version.facts.python);
            same += 1;
        }
        replayed += thread.replayed;
    }
    assert!(replayed > 5_000 && same > 500, "{replayed} frames were replayed, {same} walks compared");
}
