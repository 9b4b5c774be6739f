//! The step cache is exact: over random changes of a stack, its code and the registers, a walk with a step cache emits
//! the same frames as a walk without one.
#![cfg(target_arch = "x86_64")]

#[path = "step_cache/world.rs"]
mod world;

use std::sync::atomic::Ordering;
use uunwind_core::cache::steps::StepCache;
use uunwind_core::regs::{RBP, RSP, UCONTEXT_FP, UCONTEXT_PC, UCONTEXT_SP};
use uunwind_core::rule::{Rule, RuleKind};
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;
use world::{by_both, handle_faults, Table, World, FUNCTIONS, UCONTEXT_WORDS, WATCHED, WORDS};

impl World {
    /// A replay of this stack, after repeated captures of it, or of it and another one in turns that shares its outer
    /// part, has the same frames as a walk; also after a word has changed. Returns the number of replays.
    fn again(&mut self, random: &mut Random, table: &Table, cache: &StepCache) -> u64 {
        let mut emitted = 0;
        let mut check = |world: &World, capacity: usize, by_walk: bool| {
            let (plain, words) = world.emit(capacity, None);
            if by_walk {
                assert_eq!(world.emit(capacity, Some(cache)).1, words, "along, room for {capacity}: {plain:?}");
            } else if let Some((stop, all)) = world.whole(capacity, table, cache) {
                assert_eq!((stop, &all), (plain.stop, &words), "the whole of {plain:?}, room for {capacity}");
                emitted += 1;
            }
        };
        let mut other = (self.pc, self.registers, self.frames.clone(), self.stack.clone());
        let turns = random.one_in(2);
        let all = if random.one_in(3) { 1 + random.below(60) as usize } else { 4000 };
        for _ in 0..3 {
            if turns {
                self.call(random);
            } else if random.one_in(2) {
                self.go_out(random);
            }
            for _ in 0..2 + random.below(16) {
                let room = if random.one_in(8) { random.below(all as u64 + 2) as usize } else { all };
                check(self, room, random.one_in(20));
                if turns {
                    (self.pc, other.0) = (other.0, self.pc);
                    std::mem::swap(&mut self.registers, &mut other.1);
                    std::mem::swap(&mut self.frames, &mut other.2);
                    self.stack.swap_with_slice(&mut other.3);
                }
            }
            if random.one_in(8) {
                self.exact = !self.exact;
                check(self, all, false);
                self.exact = !self.exact;
            }
            if random.one_in(8) {
                let rules = (self.rules.clone(), self.exact_rules.clone());
                self.recompile(random);
                self.remember(table);
                check(self, all, false);
                (self.rules, self.exact_rules) = rules;
                *self.stamp += 1;
                self.remember(table);
            } else if random.one_in(3) {
                self.registers[usize::from(RBP)] = self.word(random);
            } else {
                // Sometimes the frame after the last one for which there is room, and then often one that has no
                // caller.
                let is_last = all < 4000 && random.one_in(2);
                let frame = if is_last { all - 1 } else { random.index(40) };
                let (_, sp, _) = self.frames.get(frame).copied().unwrap_or((0, self.address(100), 0));
                let place = 1 + if is_last { 0 } else { random.below(4) };
                let at = ((sp - self.address(0)) / 8).saturating_sub(place);
                // Or a word of the innermost frames, which lead to the verified tail.
                let inner = (self.registers[usize::from(RSP)] - self.address(0)) / 8 + random.below(20);
                let at = if random.one_in(3) { inner } else { at };
                // Or of a ucontext, if there is one.
                let ucontext = (sp - self.address(0)) / 8 + random.below(UCONTEXT_WORDS);
                let at = if random.one_in(3) { ucontext } else { at }.min(WORDS as u64 - 1) as usize;
                self.stack[at] = if random.one_in(4) { 0 } else { self.word(random) };
                if turns && random.one_in(2) {
                    other.3[at] = self.stack[at];
                }
            }
            check(self, all, false);
        }
        emitted
    }
}

/// A table without rules.
fn empty() -> Box<Table> {
    let mut table = Box::<Table>::new_uninit();
    // SAFETY: all-zero is the empty table.
    unsafe {
        table.as_mut_ptr().write_bytes(0, 1);
        table.assume_init()
    }
}

/// A world whose functions are all plain, but for the first, where stacks end, and `others`; an empty step cache; and
/// all rules in a table.
fn plain(others: &[(usize, Rule)]) -> (World, Box<StepCache>, Box<Table>) {
    let (mut world, table) = (World::new(&mut Random::new(1)), empty());
    world.rules = vec![Rule::simple(RSP, 16); FUNCTIONS as usize + 1];
    (world.rules[1], world.exact) = (Rule::end(), false);
    others.iter().for_each(|(function, rule)| world.rules[*function] = *rule);
    world.exact_rules = world.rules.clone();
    world.remember(&table);
    (world, Box::new(StepCache::new()), table)
}

#[test]
fn a_walk_with_a_step_cache_emits_what_a_walk_without_emits() {
    by_both(|| {
        handle_faults();
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let (mut walks, mut whole, mut whole_asked, mut along_asked) = (0u64, 0u64, 0u64, 0u64);
        let (mut followed, mut frames, mut emitted, mut again) = (0u64, 0u64, 0u64, 0u64);
        let (mut replayed, mut through_signals, mut handed_on) = ([0, 0], 0, [0, 0]);
        let mut stops = std::collections::HashMap::<StopReason, u64>::new();
        let most = std::env::var("UU_REUSE_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000) / 4;
        while walks < most {
            let mut world = World::new(&mut random);
            let cache = Box::new(StepCache::new());
            let table = empty();
            let mut stored_stamp = 0;
            for _ in 0..400 {
                if stored_stamp != *world.stamp {
                    world.remember(&table);
                    stored_stamp = *world.stamp;
                }
                if random.one_in(16) {
                    again += world.again(&mut random, &table, &cache);
                }
                walks += 1;
                let capacity = match random.below(8) {
                    0 => random.below(40) as usize,
                    1 => 100,
                    _ => 4000,
                };
                let (plain, words) = world.emit(capacity, None);
                *stops.entry(plain.stop).or_default() += 1;
                // Both use the step cache, in the state in which either left it.
                if !random.one_in(3) {
                    whole_asked += 1;
                    if let Some((stop, all)) = world.whole(capacity, &table, &cache) {
                        assert_eq!((stop, &all), (plain.stop, &words), "walk {walks}: the whole of {plain:?}");
                        whole += 1;
                    }
                }
                if random.one_in(2) {
                    world.change(&mut random);
                    continue;
                }
                along_asked += 1;
                let (with, along) = world.emit(capacity, Some(&cache));
                assert_eq!((plain.stop, plain.frames), (with.stop, with.frames), "walk {walks}: {plain:?} {with:?}");
                assert_eq!(words, along, "walk {walks}: {plain:?} {with:?}");
                followed += u64::from(with.reused > 0);
                frames += u64::from(with.reused);
                emitted += u64::from(with.frames);
                world.change(&mut random);
            }
            handed_on.iter_mut().zip(&world.handed_on).for_each(|(sum, number)| *sum += number.get());
            through_signals += world.through_signals.get();
            replayed.iter_mut().zip(&world.replayed).for_each(|(sum, emitted)| *sum += emitted.get());
        }
        println!("{walks} walks: {whole} of {whole_asked} as a whole, {again} again, {replayed:?} replayed, {along_asked} of {emitted} frames, {followed} along {frames} steps; {stops:?}");
        println!("{handed_on:?} handed on, {through_signals} replayed through signal frames");
        assert!(through_signals > walks / 1000, "few stacks are replayed through signal frames: {through_signals}");
        assert!(handed_on[0] > walks / 20 && handed_on[1] > 4 * handed_on[0], "little is handed on: {handed_on:?}");
        assert!(whole > whole_asked / 8, "few stacks are captured as a whole: {whole} of {whole_asked}");
        // They come in clusters, some dozens in one world and none in the next: one in 250 to 550 of those with an
        // exact pc, depending on the number of walks.
        assert!(replayed.iter().all(|emitted| *emitted > walks / 1000), "few stacks are replayed: {replayed:?}");
        assert!(
            followed > along_asked / 8 && frames > emitted / 8,
            "little is followed: {followed} of {along_asked}, {frames} of {emitted}"
        );
        for stop in [StopReason::Complete, StopReason::BufferFull, StopReason::BadCfa] {
            assert!(stops.get(&stop).is_some_and(|n| *n > 100), "seldom {stop:?}: {stops:?}");
        }
    });
}

#[test]
fn relocated_steps_lead_to_no_stale_frame_pointer() {
    by_both(|| {
        const BASE: usize = 224;
        handle_faults();
        // Eleven plain functions, 2 to 12, call one another; the last is called by one whose CFA counts from rbp.
        let (mut world, cache, table) = plain(&[(13, Rule::simple(RBP, 56))]);
        world.stack[BASE + 6] = (1 << 12) + 0x10;
        let emitted = |world: &mut World, place: usize| {
            world.pc = (2 << 12) + 0x120;
            world.registers[usize::from(RSP)] = world.address(place as u64);
            world.registers[usize::from(RBP)] = world.address(BASE as u64);
            for call in 0..11 {
                world.stack[place + 2 * call + 1] = ((3 + call as u64) << 12) + 0x10;
            }
            let (plain, words) = world.emit(100, None);
            (plain.stop, world.whole(100, &table, &cache), words)
        };
        // The caller's stack pointer lies 22 words above the place: up to rbp, and beyond.
        for place in [100, 200, 190, 202] {
            let (stop, whole, words) = emitted(&mut world, place);
            assert_eq!((stop, whole), (StopReason::Complete, Some((StopReason::Complete, words))), "at {place}");
        }
        let (stop, whole, words) = emitted(&mut world, 203);
        assert_eq!((stop, whole), (StopReason::BadCfa, Some((StopReason::BadCfa, words))));
    });
}

/// Frames that align their stack leave gaps, so that of a stack that is elsewhere not all frames have moved by the same
/// distance. They are relocated none the less: where the table has no rule any more, none is asked for.
#[test]
fn a_stack_that_is_elsewhere_needs_no_rule() {
    by_both(|| {
        handle_faults();
        let mut framed = Rule::simple(RBP, 16);
        framed.slots[1] = -2;
        // Of function 9 the CFA is a word of the frame, of function 10 it is rbp + 16; the others' frames have two
        // words.
        let rules = [(9, world::realigned(&mut Random::new(1))), (10, framed)];
        for (calls, further) in
            [0, 1, 3, 7, 8, 12, 30].into_iter().flat_map(|calls| [320, 410, 500].map(|by| (calls, by)))
        {
            let ((mut world, cache, table), none) = (plain(&rules), empty());
            let functions: Vec<u64> = (0..4).flat_map(|at| std::iter::repeat_n(4, calls).chain([9 + at % 2])).collect();
            for turn in 0..6 {
                // Gaps of other sizes in each turn, and a place so far away that no frame is where it was.
                let mut random = Random::new(1 + turn * further);
                let begin = 100 + turn * further;
                let (mut at, mut saved) = (begin as usize, None::<usize>);
                world.stack.fill(0);
                for (index, function) in functions.iter().enumerate() {
                    let mut cfa = at + 2;
                    if *function != 4 {
                        let base = at + 2 + random.index(6);
                        cfa = base + 2;
                        if *function == 9 {
                            cfa += random.index(6);
                            world.stack[base - 1] = world.address(cfa as u64);
                        }
                        let fp = world.address(base as u64);
                        match saved {
                            Some(saved) => world.stack[saved] = fp,
                            None => world.registers[usize::from(RBP)] = fp,
                        }
                        saved = Some(base);
                    }
                    at = cfa;
                    world.stack[at - 1] = (functions.get(index + 1).unwrap_or(&1) << 12) + 0x10;
                }
                (world.pc, world.registers[usize::from(RSP)]) = ((functions[0] << 12) + 0x10, world.address(begin));
                let (plain, words) = world.emit(2000, None);
                assert_eq!(
                    (plain.stop, words.len()),
                    (StopReason::Complete, functions.len() + 1),
                    "{calls}, turn {turn}"
                );
                // From the third one on it is a stack that is elsewhere, and not one that shares frames with the last.
                let rules = if turn < 2 { &table } else { &none };
                let what = format!("{calls} calls between, turn {turn}, {further} further");
                assert_eq!(world.whole(2000, rules, &cache), Some((StopReason::Complete, words)), "{what}");
                assert_eq!(world.handed_on[0].take(), 0, "{what}: it was stepped anew");
            }
        }
    });
}

#[test]
fn frames_for_which_the_step_cache_has_no_room_are_captured_again() {
    by_both(|| {
        handle_faults();
        let (mut world, cache, table) = plain(&[]);
        // 440 frames; then 470 others that are called from their 390th.
        for (function, begin, end) in [(4, 1000, 1878), (5, 840, 1778)] {
            world.stack[1879] = (1 << 12) + 0x10;
            (begin..end).step_by(2).for_each(|at| world.stack[at + 1] = (function << 12) + 0x10);
            world.pc = (function << 12) + 0x120;
            world.registers[usize::from(RSP)] = world.address(begin as u64);
            for _ in 0..5 {
                let (plain, words) = world.emit(1000, None);
                assert_eq!(plain.stop, StopReason::Complete);
                assert_eq!(world.whole(1000, &table, &cache), Some((StopReason::Complete, words)), "{plain:?}");
            }
        }
    });
}

/// One frame of a stack has a rule that is not short. The walk begins there, and the frames before it are not looked
/// at again; also where there are more than the log has room for, and where the stack has changed.
#[test]
fn a_frame_without_a_short_rule_is_all_that_a_walk_looks_at() {
    by_both(|| {
        handle_faults();
        let mut dereferenced = Rule::simple(RBP, 16);
        dereferenced.kind = RuleKind::Deref;
        for inner in [1, 2, 30, 440, 445, 446, 450, 500, 1000] {
            let (mut world, cache, table) = plain(&[(9, dereferenced)]);
            let begin = 100;
            world.stack.fill(0);
            let odd = begin + 2 * inner;
            (begin..odd + 60).step_by(2).for_each(|at| world.stack[at + 1] = (4 << 12) + 0x10);
            world.stack[odd - 1] = (9 << 12) + 0x10;
            // The odd frame has four words; the third one is its CFA.
            world.registers[usize::from(RBP)] = world.address(odd as u64);
            world.stack[odd + 2] = world.address(odd as u64 + 4);
            world.stack[odd + 61] = (1 << 12) + 0x10;
            world.pc = (4 << 12) + 0x10;
            world.registers[usize::from(RSP)] = world.address(begin as u64);
            for turn in 0..6 {
                // From the fourth one on, another function is in the middle of the outer frames.
                if turn == 3 {
                    world.stack[odd + 31] = (5 << 12) + 0x10;
                }
                let (plain, words) = world.emit(2000, None);
                assert_eq!((plain.stop, words.len()), (StopReason::Complete, inner + 31), "{inner} inner frames");
                world.looked_at.take();
                assert_eq!(
                    world.whole(2000, &table, &cache),
                    Some((StopReason::Complete, words)),
                    "{inner} inner frames"
                );
                assert_eq!(world.looked_at.take(), [(9 << 12) + 0xf], "{inner} inner frames, turn {turn}");
                assert_eq!(world.handed_on[1].take(), inner as u64, "turn {turn}");
            }
        }
    });
}

/// The CFA of a frame that aligned itself is a word of the frame: where it changes, and nothing else does, what was
/// cached of the stack does not hold, wherever the frame is.
#[test]
fn a_frame_that_says_where_its_cfa_is_may_change_its_mind() {
    by_both(|| {
        handle_faults();
        for inner in [1, 2, 5, 12, 40, 300] {
            let (mut world, cache, table) = plain(&[(9, world::realigned(&mut Random::new(1)))]);
            let begin = 100;
            world.stack.fill(0);
            let at = begin + 2 * inner;
            (begin..at + 60).step_by(2).for_each(|at| world.stack[at + 1] = (4 << 12) + 0x10);
            // Called by the realigned function, whose frame: two words, its CFA, rbp, two words, the return address.
            world.stack[at - 1] = (9 << 12) + 0x10;
            world.registers[usize::from(RBP)] = world.address(at as u64 + 3);
            world.stack[at + 2] = world.address(at as u64 + 8);
            world.stack[at + 3] = 0;
            world.stack[at + 7] = (4 << 12) + 0x10;
            world.stack[at + 61] = (1 << 12) + 0x10;
            world.pc = (4 << 12) + 0x10;
            world.registers[usize::from(RSP)] = world.address(begin as u64);
            for turn in 0..24 {
                // In the second half it says that a frame less lies outside of it.
                if turn == 12 {
                    assert!(world.replayed[0].take() >= 4, "{inner} inner frames");
                    world.stack[at + 2] = world.address(at as u64 + 10);
                }
                let (plain, words) = world.emit(2000, None);
                assert_eq!(
                    (plain.stop, words.len()),
                    (StopReason::Complete, inner + 29 - turn / 12),
                    "{inner} inner frames"
                );
                world.looked_at.take();
                assert_eq!(
                    world.whole(2000, &table, &cache),
                    Some((StopReason::Complete, words)),
                    "{inner}, turn {turn}"
                );
                assert_eq!(world.looked_at.take(), [], "a short rule is enough");
            }
            assert!(world.replayed[0].get() >= 4, "{inner} inner frames");
        }
    });
}

/// That a buffer is full says that there is one more frame: where the last one for which there is room has no caller
/// any more, and nothing else has changed, what was cached does not hold.
#[test]
fn a_full_buffer_says_that_there_is_one_more_frame() {
    by_both(|| {
        handle_faults();
        for room in [12, 13, 20, 21, 100] {
            let (mut world, cache, table) = plain(&[]);
            // Frames of two words each.
            world.stack.fill((4 << 12) + 0x10);
            world.pc = (4 << 12) + 0x10;
            world.registers[usize::from(RSP)] = world.address(100);
            for turn in 0..24 {
                if turn == 12 {
                    assert!(world.replayed[0].get() >= 4, "room for {room}");
                    world.stack[100 + 2 * room - 1] = 0;
                }
                let (plain, words) = world.emit(room, None);
                assert_eq!((plain.stop == StopReason::BufferFull, words.len()), (turn < 12, room), "turn {turn}");
                let whole = world.whole(room, &table, &cache);
                assert_eq!(whole, Some((plain.stop, words)), "room for {room}, turn {turn}");
            }
            // Once the buffer has room for all, one reply serves any that has.
            for more in 0..24 {
                let (plain, words) = world.emit(room + more, None);
                assert_eq!(world.whole(room + more, &table, &cache), Some((plain.stop, words)), "{room} and {more}");
            }
        }
    });
}

/// What a signal interrupted is said by its frame's ucontext: where one of the words changes from which the rest of the
/// stack follows, and nothing else does, what was cached does not hold.
#[test]
fn a_signal_frame_may_have_interrupted_something_else() {
    by_both(|| {
        handle_faults();
        // The interrupted function: by rsp, or by rbp, and the word of the ucontext that changes.
        const PC: usize = UCONTEXT_PC as usize / 8;
        const SP: usize = UCONTEXT_SP as usize / 8;
        const FP: usize = UCONTEXT_FP as usize / 8;
        let by_rbp = Rule::simple(RBP, 16);
        for (function, word) in [(10, PC), (4, PC), (4, SP), (10, FP)] {
            for (inner, change) in
                [1, 2, 5, 12, 40, 300].into_iter().flat_map(|inner| [1, 2, 3, 12].map(|at| (inner, at)))
            {
                let (mut world, cache, table) = plain(&[(9, Rule::signal(0)), (10, by_rbp)]);
                let at = 100 + 2 * inner;
                // Frames of two words each, of a function that begins the stack and is the interrupted one's caller.
                world.stack.fill((4 << 12) + 0x10);
                world.stack[at - 1] = (9 << 12) + 0x10;
                world.stack[at + PC] = (function << 12) + 0x120;
                world.stack[at + SP] = world.address(at as u64 + 40);
                world.stack[at + FP] = world.address(at as u64 + 44);
                world.stack[at + 101] = (1 << 12) + 0x10;
                world.pc = (4 << 12) + 0x10;
                world.registers[usize::from(RSP)] = world.address(100);
                let mut seen = Vec::new();
                for turn in 0..24 {
                    if turn == change {
                        world.stack[at + word] = match (word, function) {
                            (PC, 10) => (4 << 12) + 0x120,
                            (PC, _) => (10 << 12) + 0x120,
                            _ => world.stack[at + word] + 16,
                        };
                    }
                    let (plain, words) = world.emit(2000, None);
                    let what =
                        format!("function {function}, word {word}, {inner} inner frames, turn {turn} of {change}");
                    assert_eq!(plain.stop, StopReason::Complete, "{what}");
                    assert_eq!(
                        world.whole(2000, &table, &cache),
                        Some((StopReason::Complete, words.clone())),
                        "{what}"
                    );
                    seen.push(words);
                }
                assert_ne!(seen.first(), seen.last(), "function {function}, word {word}");
                assert!(world.through_signals.get() >= 8, "{} replayed", world.through_signals.get());
            }
        }
    });
}

/// Two stacks in turn that begin with the same frames and end with the same frames, and differ between these: what a
/// signal interrupted, or one function. Both are replayed; the one is not taken for the other.
#[test]
fn stacks_of_the_same_top_are_replayed_in_turns() {
    by_both(|| {
        handle_faults();
        for (interrupts, outer) in [false, true].into_iter().flat_map(|how| [12, 40, 300].map(|outer| (how, outer))) {
            let ((mut world, cache, table), none) = (plain(&[(9, Rule::signal(0))]), empty());
            let at = 106;
            world.stack.fill((4 << 12) + 0x10);
            world.stack[at + 41 + 2 * outer] = (1 << 12) + 0x10;
            if interrupts {
                world.stack[at - 1] = (9 << 12) + 0x10;
            }
            (world.pc, world.registers[usize::from(RSP)]) = ((4 << 12) + 0x10, world.address(100));
            for turn in 0..40 {
                let other = turn % 2;
                if interrupts {
                    world.stack[at + UCONTEXT_PC as usize / 8] = ((4 + other) << 12) + 0x120;
                    world.stack[at + UCONTEXT_SP as usize / 8] = world.address(at as u64 + 40 - 4 * other);
                } else {
                    world.stack[at + 1] = ((4 + other) << 12) + 0x10;
                }
                let (plain, words) = world.emit(2000, None);
                assert_eq!(plain.stop, StopReason::Complete);
                // In the second half, nothing is stepped.
                let rules = if turn < 20 { &table } else { &none };
                let what = format!("{outer} outer frames, interrupted: {interrupts}, turn {turn}");
                assert_eq!(world.whole(2000, rules, &cache), Some((StopReason::Complete, words)), "{what}");
                assert_eq!(world.handed_on[0].take(), 0, "{what}: it was stepped anew");
            }
            assert!(world.replayed[0].get() >= 10, "{outer} outer frames, interrupted: {interrupts}");
        }
    });
}

/// Where a handler's frames are elsewhere on the stack, so is its ucontext; the one before it may still be there.
#[test]
fn relocated_steps_lead_to_no_stale_ucontext() {
    by_both(|| {
        handle_faults();
        let (mut world, cache, table) = plain(&[(9, Rule::signal(0))]);
        world.stack.fill((4 << 12) + 0x10);
        world.stack[1101] = (1 << 12) + 0x10;
        for (turn, place) in [600, 500, 490, 502, 480, 400, 396, 300, 290].into_iter().enumerate() {
            let ucontext = place + 24;
            world.stack[ucontext - 1] = (9 << 12) + 0x10;
            world.stack[ucontext + UCONTEXT_PC as usize / 8] = (4 << 12) + 0x120;
            world.stack[ucontext + UCONTEXT_SP as usize / 8] = world.address(1000 + 2 * turn as u64);
            world.pc = (2 << 12) + 0x120;
            world.registers[usize::from(RSP)] = world.address(place as u64);
            for _ in 0..1 + turn % 3 {
                let (plain, words) = world.emit(200, None);
                assert_eq!(plain.stop, StopReason::Complete, "at {place}");
                assert_eq!(world.whole(200, &table, &cache), Some((StopReason::Complete, words)), "at {place}");
            }
            // Where the frames before it were.
            world.stack[ucontext - 1] = (4 << 12) + 0x10;
        }
    });
}

const PAGE: u64 = 4096;

extern "C" {
    fn mprotect(start: u64, len: usize, protection: i32) -> i32;
}

/// Whether a page of a made-up stack can be read, which only walks read meanwhile.
fn protect(page: u64, protection: i32) {
    // SAFETY: the caller guarantees that the page is its own.
    assert_eq!(unsafe { mprotect(page, PAGE as usize, protection) }, 0);
}

#[test]
fn what_has_become_unreadable_is_not_replayed() {
    handle_faults();
    let (mut world, cache, table) = plain(&[]);
    world.stack.fill((4 << 12) + 0x10);
    let page = world.address(0).next_multiple_of(PAGE) + PAGE;
    let end = ((page - world.address(0)) / 8 + 101) as usize;
    world.stack[end] = (1 << 12) + 0x10;
    // Stacks of this number of frames, all readable.
    for frames in 1..40 {
        world.pc = (4 << 12) + 0x120;
        world.registers[usize::from(RSP)] = page - 16 * frames;
        let both = |expected: StopReason| {
            let (plain, words) = world.emit(1000, None);
            assert_eq!(plain.stop, expected, "{frames} frames");
            (world.whole(1000, &table, &cache), words)
        };
        for _ in 0..4 {
            let (whole, words) = both(StopReason::Complete);
            assert_eq!(whole, Some((StopReason::Complete, words)), "{frames} frames");
        }
        protect(page, 0);
        let (whole, words) = both(StopReason::UnreadableStack);
        protect(page, 3);
        assert_eq!(whole, Some((StopReason::UnreadableStack, words)), "{frames} frames, and then nothing");
    }
}

/// A stack is cached whose frames lie on three pages. Then the middle one is taken away, in the midst of a larger frame
/// than any that was there, as an array with a guard page is: the frames above and below it are the same ones.
#[test]
fn what_no_frame_needs_may_become_unreadable() {
    by_both(|| {
        handle_faults();
        for (framed, inner) in [(false, 3), (false, 12), (true, 3), (true, 12), (false, 100), (true, 100)] {
            let mut small = Rule::simple(if framed { RBP } else { RSP }, 16);
            small.slots[1] = if framed { -2 } else { small.slots[1] };
            let (mut world, cache, table) = plain(&[]);
            for function in [4, 5] {
                world.rules[function] = small;
            }
            world.rules[6] = Rule { cfa_offset: 3 * PAGE as i32, ..Rule::simple(RSP, 16) };
            world.exact_rules = world.rules.clone();
            *world.stamp += 1;
            world.remember(&table);
            let hole = world.address(0).next_multiple_of(PAGE) + PAGE;
            let top = hole - 16 * inner;
            let fill = |world: &mut World, large: bool| {
                let at = |world: &World, address: u64| ((address - world.address(0)) / 8) as usize;
                let mut sp = top;
                let mut frame = 0;
                while sp < hole + 2 * PAGE {
                    let is_large = large && frame == inner - 1;
                    let next = if is_large { sp + 3 * PAGE } else { sp + 16 };
                    let returns = at(world, next - 8);
                    let calls_large = large && frame == inner - 2;
                    world.stack[returns] = if calls_large { (6 << 12) + 0x10 } else { (4 << 12) + 0x10 };
                    // The frame pointer of the next frame that has one.
                    world.stack[returns - 1] = if calls_large { next + 3 * PAGE } else { next };
                    (sp, frame) = (next, frame + 1);
                }
                let returns = at(world, sp - 8);
                world.stack[returns] = (1 << 12) + 0x10;
            };
            world.pc = (4 << 12) + 0x120;
            world.registers[usize::from(RSP)] = top;
            world.registers[usize::from(RBP)] = top;
            for large in [false, true, false, true] {
                fill(&mut world, large);
                let (plain, words) = world.emit(1000, None);
                assert_eq!(plain.stop, StopReason::Complete);
                for turn in 0..6 {
                    if large {
                        protect(hole, 0);
                    }
                    let whole = world.whole(1000, &table, &cache);
                    protect(hole, 3);
                    assert_eq!(whole, Some((StopReason::Complete, words.clone())), "{framed}, {inner}, turn {turn}");
                }
            }
        }
    });
}

#[test]
fn nothing_after_a_stack_is_read() {
    by_both(|| {
        handle_faults();
        let (mut world, _, table) = plain(&[]);
        let page = world.address(0).next_multiple_of(PAGE) + PAGE;
        let end = ((page - world.address(0)) / 8) as usize;
        // The outermost frame's stack pointer is where the stack ends.
        world.stack.fill((4 << 12) + 0x10);
        world.stack[end - 1] = (1 << 12) + 0x10;
        protect(page, 0);
        WATCHED[0].store(page, Ordering::Relaxed);
        let emitted: Vec<bool> = (1..40)
            .map(|frames| {
                world.pc = (4 << 12) + 0x120;
                world.registers[usize::from(RSP)] = page - 16 * frames;
                let emitted = world.whole(1000, &table, &StepCache::new());
                emitted.is_some_and(|(stop, words)| stop == StopReason::Complete && words.len() == frames as usize + 1)
            })
            .collect();
        // The page may be another test's next.
        WATCHED[0].store(0, Ordering::Relaxed);
        protect(page, 3);
        assert!(emitted.iter().all(|emitted| *emitted), "{emitted:?}");
        assert_eq!(WATCHED[1].load(Ordering::Relaxed), 0, "faults after the end of the stack");
    });
}
