//! The overlay over damaged and random memory: it always ends, within its bounds, and never panics; what it shows are
//! code objects, at positions in their instructions. With UU_CAMPAIGNS=1 over a million damaged memories.

mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use uunwind_core::memory::{Read, Reader, Recalled};
use uunwind_core::plugin::OVERLAY_DESYNC;
use uunwind_core::walk::DEEPEST;
use uunwind_python::facts::Facts;
use uunwind_random::Random;
use world::host::{loop_frame, Native, Shown, Walk};
use world::python::{Process, Version, ALL, BIAS, CHUNK, GENERATOR, STACK, THREAD, TSTATE};
use world::Memory;

/// More words and texts than any walk may read: five words for each frame that is measured and for each that is
/// emitted, and the names of the code objects of those that are kept.
const READS_LIMIT: usize = DEEPEST as usize * 2 * 5 + 8192 * 20;
/// Entries of a walk's log.
const LOG: usize = 3072;

/// Calls of [`show`], and frames that were drafted in some of them.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static DRAFTED: [AtomicUsize; ALL.len()] = [const { AtomicUsize::new(0) }; ALL.len()];

/// Number of damaged memories of each version.
fn rounds() -> u64 {
    if std::env::var_os("UU_CAMPAIGNS").is_some() {
        1_000_000 / ALL.len() as u64 + 1
    } else if cfg!(debug_assertions) {
        3_000
    } else {
        30_000
    }
}

fn natives() -> Vec<Native> {
    (0..6).map(|n| loop_frame(STACK - 0x6000 + n * 0x400, 0x200 + n * 8, n == 0)).collect()
}

fn process(version: usize) -> Process {
    let mut p = Process::new(ALL[version]);
    let [a, b, c] = ["a", "b", "c"].map(|name| p.code(name, "/x.py", 3, 64));
    for (n, native) in natives().iter().enumerate().rev() {
        p.activate(native.cfa);
        p.call(a, 8, THREAD);
        p.call(b, 12, if n % 2 == 0 { GENERATOR } else { THREAD });
        p.call(c, 14, THREAD);
    }
    p
}

/// Shows a process's native frames: how many frames the plugin emits, and whether it has doubts.
fn show(memory: &Memory, version: usize) -> (usize, bool) {
    let mut walk = Walk::new(memory);
    walk.room = 4096;
    let natives: Vec<_> = natives().into_iter().map(|native| (native, ALL[version])).collect();
    let shown = walk.show(&natives);
    assert!(walk.reads <= READS_LIMIT, "{} reads", walk.reads);
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
        let by_reader = show_by_reader(memory, &natives, version);
        // What was learned of the interpreter meanwhile may change the answer.
        let is_same = by_reader == shown || by_reader == Walk::new(memory).show(&natives);
        assert!(is_same, "{by_reader:?} instead of {shown:?}");
    }
    for (name, position) in &walk.emitted {
        let code = walk.names[*name as u32 as usize - 1].code;
        assert_is_in_code(memory, &ALL[version].facts, code, *position);
    }
    (walk.emitted.len(), shown.iter().any(|shown| shown.answer & OVERLAY_DESYNC != 0))
}

/// The same by a reader that the plugin may borrow. It then drafts frames whose code objects are known in the walk.
fn show_by_reader(memory: &Memory, natives: &[(Native, &'static Version)], version: usize) -> Vec<Shown> {
    let regions = memory.all_regions();
    let mut reader = Reader::recorded(&regions);
    let (mut log, mut recalled) = (vec![Read::NONE; LOG], Box::new(Recalled::new()));
    recalled.begin(1);
    // SAFETY: both outlive the reader, and have no other user meanwhile.
    unsafe {
        reader.write_down(log.as_mut_ptr(), log.len());
        reader.keep_answers(&raw mut *recalled);
    }
    let mut walk = Walk::new(memory);
    walk.room = 4096;
    walk.reader = &raw mut reader;
    let shown = walk.show(natives);
    DRAFTED[version].fetch_add(walk.drafted, Ordering::Relaxed);
    shown
}

/// Of what is shown this much holds for any memory: a code object is one, and a position is in its instructions.
fn assert_is_in_code(memory: &Memory, facts: &Facts, code: u64, position: u64) {
    let word = |base: u64, offset: u32| memory.word(base.wrapping_add(u64::from(offset)));
    assert_eq!(word(code, facts.object_type()), BIAS + facts.code_type, "{code:#x} is no code object");
    let units = match facts.code_bytes {
        0 => word(code, facts.object_header),
        bytes => word(word(code, bytes), facts.object_header) / 2,
    };
    assert!(position.is_multiple_of(2) && position / 2 <= units, "{position} is not in the {units} units of {code:#x}");
}

/// Plain noise, or addresses that lead somewhere.
fn word(random: &mut Random) -> u64 {
    let near = |base: u64, random: &mut Random| base + random.below(0x400) * 8;
    match random.below(8) {
        0 => random.number(),
        1 => near(CHUNK, random),
        2 => near(TSTATE, random),
        3 => near(TSTATE + 0x1000, random),
        4 => near(STACK - 0x6000, random),
        5 => random.below(64),
        6 => 0,
        _ => u64::MAX - random.below(64),
    }
}

#[test]
fn single_words_of_a_good_process_are_replaced() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let mut emitted = 0;
    for version in 0..ALL.len() {
        let good = process(version).memory;
        assert_eq!(show(&good, version), (18, false), "all frames of the undamaged process");
        // Only the words in use are damaged.
        let used = good.used_words();
        let mut bad = good.clone();
        for _ in 0..rounds() {
            let mut undo = Vec::new();
            for _ in 0..=random.below(3) {
                let at = used[random.below(used.len() as u64) as usize];
                let old = bad.word(at);
                undo.push((at, old));
                let new = if random.below(2) == 0 { word(&mut random) } else { old ^ 1 << random.below(64) };
                bad.put64(at, new);
            }
            emitted += show(&bad, version).0;
            for (at, old) in undo.into_iter().rev() {
                bad.put64(at, old);
            }
        }
    }
    assert!(emitted > 0, "most damage leaves some frames");
    // Frames that run a copy of their code object's instructions are not.
    let drafting = ALL.iter().zip(&DRAFTED).filter(|(version, _)| version.facts.frame_copy == 0);
    let drafted: Vec<_> = drafting.map(|(_, drafted)| drafted.load(Ordering::Relaxed)).collect();
    let few = emitted / 5000 / ALL.len();
    assert!(drafted.iter().all(|drafted| *drafted > few), "of {emitted} frames, these were drafted: {drafted:?}");
}

#[test]
fn a_chain_in_a_circle_that_shows_nothing_is_given_up() {
    for (version, python) in ALL.iter().enumerate() {
        // The undamaged process teaches where boundaries lie.
        assert_eq!(show(&process(version).memory, version), (18, false));
        let previous = u64::from(python.facts.frame_previous);
        // It has not begun; it stands after its instructions.
        for position in [0, 200] {
            let mut p = process(version);
            let code = p.code("round", "/x.py", 3, 64);
            let first = p.call(code, position, THREAD);
            let last = (0..8).map(|_| p.call(code, position, THREAD)).last().expect("eight");
            p.memory.put64(first + previous, last);
            let (_, doubtful) = show(&p.memory, version);
            assert!(doubtful, "version {version}, position {position}: the stack is not marked");
        }
    }
}

#[test]
fn frames_that_show_nothing_may_stand_between_any_others() {
    for python in ALL {
        let mut p = Process::new(python);
        let [shown, hidden] = ["shown", "hidden"].map(|name| p.code(name, "/x.py", 3, 64));
        let native = natives()[5];
        p.activate(native.cfa);
        for _ in 0..40 {
            p.call(shown, 8, THREAD);
            p.call(hidden, 0, THREAD);
            p.call(hidden, 0, THREAD);
        }
        p.call(shown, 8, THREAD);
        let mut walk = Walk::new(&p.memory);
        let answer = walk.show(&[(native, python)]).remove(0);
        assert_eq!(answer.answer & OVERLAY_DESYNC, 0);
        assert_eq!(answer.frames.len(), 41);
    }
}

#[test]
fn where_too_many_frames_in_a_row_show_nothing_the_rest_is_given_up_with_doubt() {
    for python in ALL {
        let mut p = Process::new(python);
        let [shown, hidden] = ["shown", "hidden"].map(|name| p.code(name, "/x.py", 3, 64));
        let native = natives()[5];
        p.activate(native.cfa);
        p.call(shown, 8, THREAD);
        for _ in 0..40 {
            p.call(hidden, 0, THREAD);
        }
        p.call(shown, 8, THREAD);
        let mut walk = Walk::new(&p.memory);
        let answer = walk.show(&[(native, python)]).remove(0);
        assert_eq!((answer.answer & OVERLAY_DESYNC, answer.frames.len()), (OVERLAY_DESYNC, 1));
    }
}

#[test]
fn all_memory_is_noise() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for version in 0..ALL.len() {
        let mut memory = process(version).memory;
        for _ in 0..rounds() / 100 {
            for (_, bytes) in memory.pages().take(300) {
                // A third of each page in each round.
                let start = random.below(bytes.len() as u64 / 8) as usize * 8;
                for chunk in bytes[start..].chunks_exact_mut(8).take(170) {
                    chunk.copy_from_slice(&word(&mut random).to_le_bytes());
                }
            }
            show(&memory, version);
        }
    }
}

#[test]
fn nothing_is_readable() {
    for version in 0..ALL.len() {
        assert_eq!(show(&Memory::default(), version).0, 0);
    }
}
