//! Going along the last chain of plain frames is exact: over random changes of a stack, its code and the registers, a walk with a
//! chain tells what a walk without one tells.
#![cfg(target_arch = "x86_64")]

#[path = "chain/world.rs"]
mod world;

use std::sync::atomic::Ordering;
use uunwind_core::chain::Chain;
use uunwind_core::regs::{RBP, RSP};
use uunwind_core::rule::Rule;
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;
use world::{handle_faults, Table, World, FUNCTIONS, WATCHED, WORDS};

impl World {
    /// What a chain has come to know of this stack by meeting it again and again, or in turns with another one that shares its outer part,
    /// tells what a walk tells; where one word has changed, too. How often the whole was told.
    fn again(&mut self, random: &mut Random, table: &Table, chain: &Chain) -> u64 {
        let mut told = 0;
        let mut check = |world: &World, capacity: usize, by_walk: bool| {
            let (plain, words) = world.tell(capacity, None);
            if by_walk {
                assert_eq!(world.tell(capacity, Some(chain)).1, words, "along, room for {capacity}: {plain:?}");
            } else if let Some((stop, all)) = world.whole(capacity, table, chain) {
                assert_eq!((stop, &all), (plain.stop, &words), "the whole of {plain:?}, room for {capacity}");
                told += 1;
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
                let rules = self.rules.clone();
                self.recompile(random);
                self.remember(table);
                check(self, all, false);
                self.rules = rules;
                *self.stamp += 1;
                self.remember(table);
            } else if random.one_in(3) {
                self.registers[usize::from(RBP)] = self.word(random);
            } else {
                // Sometimes the frame behind the last one for which there is room, and then often one that has no caller.
                let is_last = all < 4000 && random.one_in(2);
                let frame = if is_last { all - 1 } else { random.index(40) };
                let (_, sp, _) = self.frames.get(frame).copied().unwrap_or((0, self.address(100), 0));
                let place = 1 + if is_last { 0 } else { random.below(4) };
                let at = ((sp - self.address(0)) / 8).saturating_sub(place);
                // Or one of the innermost frames', which lead to what is known.
                let inner = (self.registers[usize::from(RSP)] - self.address(0)) / 8 + random.below(20);
                let at = if random.one_in(3) { inner.min(WORDS as u64 - 1) } else { at } as usize;
                self.stack[at] = if random.one_in(4) { 0 } else { self.word(random) };
                if turns && random.one_in(2) {
                    other.3[at] = self.stack[at];
                }
            }
            check(self, all, false);
        }
        told
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

/// A world whose functions are all plain, but for the first, where stacks end, and `others`; a chain of nothing; and all rules in a table.
fn plain(others: &[(usize, Rule)]) -> (World, Box<Chain>, Box<Table>) {
    let (mut world, table) = (World::new(&mut Random::new(1)), empty());
    world.rules = vec![Rule::simple(RSP, 16); FUNCTIONS as usize + 1];
    (world.rules[1], world.exact) = (Rule::end(), false);
    others.iter().for_each(|(function, rule)| world.rules[*function] = *rule);
    world.remember(&table);
    (world, Box::new(Chain::new()), table)
}

#[test]
fn a_walk_along_a_chain_tells_what_a_walk_without_tells() {
    handle_faults();
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let (mut walks, mut whole, mut whole_asked, mut along_asked) = (0u64, 0u64, 0u64, 0u64);
    let (mut followed, mut frames, mut told, mut again) = (0u64, 0u64, 0u64, 0u64);
    let mut at_once = [0, 0];
    let mut stops = std::collections::HashMap::<StopReason, u64>::new();
    let most = std::env::var("UU_REUSE_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000) / 4;
    while walks < most {
        let mut world = World::new(&mut random);
        let chain = Box::new(Chain::new());
        let table = empty();
        let mut known = 0;
        for _ in 0..400 {
            if known != *world.stamp {
                world.remember(&table);
                known = *world.stamp;
            }
            if random.one_in(16) {
                again += world.again(&mut random, &table, &chain);
            }
            walks += 1;
            let capacity = match random.below(8) {
                0 => random.below(40) as usize,
                1 => 100,
                _ => 4000,
            };
            let (plain, words) = world.tell(capacity, None);
            *stops.entry(plain.stop).or_default() += 1;
            // Both use the chain that either has left.
            if !random.one_in(3) {
                whole_asked += 1;
                if let Some((stop, all)) = world.whole(capacity, &table, &chain) {
                    assert_eq!((stop, &all), (plain.stop, &words), "walk {walks}: the whole of {plain:?}");
                    whole += 1;
                }
            }
            if random.one_in(2) {
                world.change(&mut random);
                continue;
            }
            along_asked += 1;
            let (with, along) = world.tell(capacity, Some(&chain));
            assert_eq!((plain.stop, plain.frames), (with.stop, with.frames), "walk {walks}: {plain:?} {with:?}");
            assert_eq!(words, along, "walk {walks}: {plain:?} {with:?}");
            followed += u64::from(with.reused > 0);
            frames += u64::from(with.reused);
            told += u64::from(with.frames);
            world.change(&mut random);
        }
        at_once.iter_mut().zip(&world.known).for_each(|(sum, told)| *sum += told.get());
    }
    println!("{walks} walks: {whole} of {whole_asked} as a whole, {again} again, {at_once:?} at once, {along_asked} of {told} frames, {followed} along {frames} steps; {stops:?}");
    assert!(whole > whole_asked / 8, "few stacks are told as a whole: {whole} of {whole_asked}");
    assert!(at_once.iter().all(|told| *told > walks / 400), "little is known at once: {at_once:?}");
    assert!(
        followed > along_asked / 8 && frames > told / 8,
        "little is followed: {followed} of {along_asked}, {frames} of {told}"
    );
    for stop in [StopReason::Complete, StopReason::BufferFull, StopReason::BadCfa] {
        assert!(stops.get(&stop).is_some_and(|n| *n > 100), "seldom {stop:?}: {stops:?}");
    }
}

#[test]
fn a_chain_that_is_taken_elsewhere_leads_to_no_stale_frame_pointer() {
    const BASE: usize = 224;
    handle_faults();
    // Eleven plain functions, 2 to 12, call one another; the last is called by one whose CFA counts from rbp.
    let (mut world, chain, table) = plain(&[(13, Rule::simple(RBP, 56))]);
    world.stack[BASE + 6] = (1 << 12) + 0x10;
    let told = |world: &mut World, place: usize| {
        world.pc = (2 << 12) + 0x120;
        world.registers[usize::from(RSP)] = world.address(place as u64);
        world.registers[usize::from(RBP)] = world.address(BASE as u64);
        for call in 0..11 {
            world.stack[place + 2 * call + 1] = ((3 + call as u64) << 12) + 0x10;
        }
        let (plain, words) = world.tell(100, None);
        (plain.stop, world.whole(100, &table, &chain), words)
    };
    // The caller's stack pointer is 22 words further out than the place: up to rbp, and beyond.
    for place in [100, 200, 190, 202] {
        let (stop, whole, words) = told(&mut world, place);
        assert_eq!((stop, whole), (StopReason::Complete, Some((StopReason::Complete, words))), "at {place}");
    }
    let (stop, whole, _) = told(&mut world, 203);
    assert_eq!((stop, whole), (StopReason::BadCfa, None));
}

#[test]
fn frames_for_which_a_chain_has_no_room_are_told_again() {
    handle_faults();
    let (mut world, chain, table) = plain(&[]);
    // 440 frames; then 470 others that are called from their 390th.
    for (function, begin, end) in [(4, 1000, 1878), (5, 840, 1778)] {
        world.stack[1879] = (1 << 12) + 0x10;
        (begin..end).step_by(2).for_each(|at| world.stack[at + 1] = (function << 12) + 0x10);
        world.pc = (function << 12) + 0x120;
        world.registers[usize::from(RSP)] = world.address(begin as u64);
        for _ in 0..5 {
            let (plain, words) = world.tell(1000, None);
            assert_eq!(plain.stop, StopReason::Complete);
            assert_eq!(world.whole(1000, &table, &chain), Some((StopReason::Complete, words)), "{plain:?}");
        }
    }
}

const PAGE: u64 = 4096;

extern "C" {
    fn mprotect(start: u64, len: usize, protection: i32) -> i32;
}

/// Whether a page of a made-up stack can be read, which nobody but walks looks at meanwhile.
fn protect(page: u64, protection: i32) {
    // SAFETY: the caller vouches for the page.
    assert_eq!(unsafe { mprotect(page, PAGE as usize, protection) }, 0);
}

#[test]
fn what_cannot_be_read_any_more_is_not_known() {
    handle_faults();
    let (mut world, chain, table) = plain(&[]);
    world.stack.fill((4 << 12) + 0x10);
    let page = world.address(0).next_multiple_of(PAGE) + PAGE;
    let end = ((page - world.address(0)) / 8 + 101) as usize;
    world.stack[end] = (1 << 12) + 0x10;
    // So many frames of which all can be read.
    for frames in 1..40 {
        world.pc = (4 << 12) + 0x120;
        world.registers[usize::from(RSP)] = page - 16 * frames;
        let tell = |expected: StopReason| {
            let (plain, words) = world.tell(1000, None);
            assert_eq!(plain.stop, expected, "{frames} frames");
            (world.whole(1000, &table, &chain), words)
        };
        for _ in 0..4 {
            let (whole, words) = tell(StopReason::Complete);
            assert_eq!(whole, Some((StopReason::Complete, words)), "{frames} frames");
        }
        protect(page, 0);
        let (whole, _) = tell(StopReason::UnreadableStack);
        protect(page, 3);
        assert_eq!(whole, None, "{frames} frames, and then nothing");
    }
}

#[test]
fn nothing_behind_a_stack_is_read() {
    handle_faults();
    let (mut world, _, table) = plain(&[]);
    let page = world.address(0).next_multiple_of(PAGE) + PAGE;
    let end = ((page - world.address(0)) / 8) as usize;
    // The outermost frame's stack pointer is where the stack ends.
    world.stack.fill((4 << 12) + 0x10);
    world.stack[end - 1] = (1 << 12) + 0x10;
    protect(page, 0);
    WATCHED[0].store(page, Ordering::Relaxed);
    let told: Vec<bool> = (1..40)
        .map(|frames| {
            world.pc = (4 << 12) + 0x120;
            world.registers[usize::from(RSP)] = page - 16 * frames;
            let told = world.whole(1000, &table, &Chain::new());
            told.is_some_and(|(stop, words)| stop == StopReason::Complete && words.len() == frames as usize + 1)
        })
        .collect();
    protect(page, 3);
    assert!(told.iter().all(|told| *told), "{told:?}");
    assert_eq!(WATCHED[1].load(Ordering::Relaxed), 0, "faults behind the stack");
}
