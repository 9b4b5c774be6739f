//! The recorder's side of the [rules made from machine code](uunwind_ring::code_rules): their only writer.

use super::made::{Made, Piece};
use crate::facts::Full;
use crate::session::SharedMemory;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use uunwind_ring::code_rules::{BLOCK_HEAD, DATA, ENTRIES, INDEX, WORDS};
use uunwind_ring::facts::CODE_RULES_OFFSET;

/// What is published of a function: the place of its block, in words. A forked process has the code of its parent.
struct Entry {
    start: u64,
    end: u64,
    block: usize,
    len: usize,
    /// Number of times that it was added, and not removed.
    uses: usize,
    /// Its key among [`Published::numbers`].
    key: (u64, u64),
}

/// Publishes rules to targets. What was added and removed is seen by them after [`Published::publish`].
pub struct Published {
    memory: Arc<SharedMemory>,
    generation: u64,
    /// By number.
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// Their numbers, by where they begin and a hash of their blocks.
    numbers: HashMap<(u64, u64), u64>,
    /// Free parts of the memory, by their first words, and their lengths.
    free: BTreeMap<usize, usize>,
    /// What is free after the next generation.
    freed: Vec<(usize, usize)>,
    changed: bool,
}

impl Published {
    /// Creates it with nothing published. `memory` holds the facts, the tables, and these rules.
    pub fn new(memory: Arc<SharedMemory>) -> Published {
        Published {
            memory,
            generation: 0,
            entries: BTreeMap::new(),
            next: 0,
            numbers: HashMap::new(),
            free: BTreeMap::from([(DATA, WORDS - DATA)]),
            freed: Vec::new(),
            changed: false,
        }
    }

    /// Adds a function. Returns its number here.
    pub fn add(&mut self, function: &Piece, constants: &[Piece], made: &Made) -> Result<u64, Full> {
        let pieces: Vec<&Piece> =
            [function].into_iter().chain(constants.iter().filter(|_| made.reads_constants)).collect();
        let mut words = vec![pieces.len() as u64, made.rows.len() as u64, made.rules.len() as u64];
        debug_assert_eq!(words.len(), BLOCK_HEAD);
        words.extend(pieces.iter().flat_map(|piece| [piece.start, piece.bytes.len() as u64]));
        for piece in &pieces {
            words.extend(piece.bytes.chunks(8).map(|part| {
                let mut word = [0; 8];
                word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                u64::from_le_bytes(word)
            }));
        }
        words.extend(made.rows.iter().map(|(offset, rule)| u64::from(*offset) | u64::from(*rule) << 32));
        words.extend(made.rules.iter().flatten());
        let (start, end) = (function.start, function.start + function.bytes.len() as u64);
        let key = key(start, &words);
        if let Some(number) = self.numbers.get(&key).copied() {
            let same = |entry: &&mut Entry| {
                let place = |at: usize| self.memory.word(CODE_RULES_OFFSET + 8 * at);
                let is = |(at, word): (usize, &u64)| place(at).is_some_and(|w| w.load(Ordering::Relaxed) == *word);
                entry.len == words.len() && (entry.block..).zip(&words).all(is)
            };
            if let Some(entry) = self.entries.get_mut(&number).filter(same) {
                entry.uses += 1;
                return Ok(number);
            }
        }
        if self.entries.len() >= ENTRIES {
            return Err(Full);
        }
        let block = self.take(words.len()).ok_or(Full)?;
        for (at, word) in (block..).zip(&words) {
            self.put(at, *word);
        }
        self.next += 1;
        self.entries.insert(self.next, Entry { start, end, block, len: words.len(), uses: 1, key });
        self.numbers.insert(key, self.next);
        self.changed = true;
        Ok(self.next)
    }

    /// Removes a function by its number.
    pub fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.uses -= 1;
        let key = entry.key;
        if entry.uses == 0 {
            self.freed.push((entry.block, entry.len));
            self.entries.remove(&number);
            self.numbers.remove(&key);
            self.changed = true;
        }
    }

    /// Makes what was added and removed since the last call visible, all at once.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let generation = self.generation + 1;
        let index = INDEX[(generation % 2) as usize];
        let mut sorted: Vec<&Entry> = self.entries.values().collect();
        sorted.sort_by_key(|entry| entry.start);
        self.put(index, sorted.len() as u64);
        for (at, word) in (index + 1..).zip(sorted.iter().flat_map(|e| [e.start, e.end, e.block as u64])) {
            self.put(at, word);
        }
        if let Some(word) = self.memory.word(CODE_RULES_OFFSET) {
            word.store(generation, Ordering::Release);
        }
        // Before anything is overwritten that a reader of the generation before may read.
        fence(Ordering::Release);
        self.generation = generation;
        for (start, len) in std::mem::take(&mut self.freed) {
            self.give(start, len);
        }
    }

    fn put(&self, at: usize, word: u64) {
        if let Some(place) = self.memory.word(CODE_RULES_OFFSET + 8 * at) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Takes this number of words of the free memory.
    fn take(&mut self, len: usize) -> Option<usize> {
        let (start, room) = self.free.iter().map(|(start, room)| (*start, *room)).find(|(_, room)| *room >= len)?;
        self.free.remove(&start);
        if room > len {
            self.free.insert(start + len, room - len);
        }
        Some(start)
    }

    fn give(&mut self, mut start: usize, mut len: usize) {
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        if let Some((before, room)) = self.free.range(..start).next_back().map(|(at, room)| (*at, *room)) {
            if before + room == start {
                (start, len) = (before, room + len);
            }
        }
        self.free.insert(start, len);
    }
}

/// The key of a function that begins at an address, with this block.
fn key(start: u64, block: &[u64]) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    (start, hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::super::made::made;
    use super::*;
    use crate::facts::FactsPublisher;
    use uunwind_core::regs::RSP;
    use uunwind_core::rule::Rule;
    use uunwind_ring::code_rules::CodeRulesView;

    /// push %rbx; call *%rax; pop %rbx; ret
    const PUSHES: [u8; 5] = [0x53, 0xff, 0xd0, 0x5b, 0xc3];
    /// sub $8,%rsp, and the like: as long, with another frame.
    const COUNTS: [u8; 10] = [0x48, 0x83, 0xec, 0x18, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18];

    struct World {
        facts: FactsPublisher,
        published: Published,
    }

    impl World {
        fn new() -> World {
            let facts = FactsPublisher::create(8 << 20).expect("memory");
            let published = Published::new(facts.memory().clone());
            World { facts, published }
        }

        fn view(&self) -> CodeRulesView {
            let base = self.facts.memory().at(CODE_RULES_OFFSET, 8 * WORDS).expect("whole memory");
            // SAFETY: mapped until the end of the test.
            unsafe { CodeRulesView::new(base) }
        }

        fn add(&mut self, start: u64, bytes: &[u8]) -> Result<u64, Full> {
            let function = Piece { start, bytes: bytes.to_vec() };
            let made = made(&function, &[]).expect("rules");
            self.published.add(&function, &[], &made)
        }

        /// The rule for an address, where this is in memory.
        fn rule(&self, address: u64, start: u64, bytes: &[u8]) -> Option<[u64; 3]> {
            self.view().find(address, |at, copy, len| {
                // SAFETY: the copy of a piece.
                let copy = unsafe { std::slice::from_raw_parts(copy.cast::<u8>(), len) };
                at == start && bytes.get(..len) == Some(copy)
            })
        }
    }

    fn counts() -> Vec<u8> {
        COUNTS.iter().copied().chain([0xc3]).collect()
    }

    #[test]
    fn a_target_finds_what_was_published_and_only_where_the_code_is_the_same() {
        let mut world = World::new();
        let number = world.add(0x1000, &PUSHES).expect("room");
        assert_eq!(world.rule(0x1000, 0x1000, &PUSHES), None, "not published yet");
        world.published.publish();
        let entry = Some(Rule::simple(RSP, 8).pack().words());
        assert_eq!(world.rule(0x1000, 0x1000, &PUSHES), entry);
        assert_eq!(world.rule(0x1001, 0x1000, &PUSHES).map(|words| words[0] as u32), Some(16));
        assert_eq!(world.rule(0x1004, 0x1000, &PUSHES), entry);
        for elsewhere in [0, 0xfff, 0x1005, u64::MAX] {
            assert_eq!(world.rule(elsewhere, 0x1000, &PUSHES), None, "{elsewhere:#x}");
        }
        // The owner of the address dies, and another takes its place, before the recorder knows of it.
        assert_eq!(world.rule(0x1000, 0x1000, &counts()), None);
        world.published.remove(number);
        world.add(0x1000, &counts()).expect("room");
        world.published.publish();
        assert_eq!(world.rule(0x1000, 0x1000, &PUSHES), None);
        assert_eq!(world.rule(0x1004, 0x1000, &counts()).map(|words| words[0] as u32), Some(32));
    }

    #[test]
    fn processes_with_different_code_at_one_address_have_their_own_rules() {
        let mut world = World::new();
        world.add(0x1000, &PUSHES).expect("room");
        world.add(0x1000, &counts()).expect("room");
        world.published.publish();
        assert_eq!(world.rule(0x1004, 0x1000, &PUSHES).map(|words| words[0] as u32), Some(8));
        assert_eq!(world.rule(0x1004, 0x1000, &counts()).map(|words| words[0] as u32), Some(32));
    }

    #[test]
    fn code_of_several_processes_has_its_rules_until_the_last_one_ends() {
        let mut world = World::new();
        let parent = world.add(0x1000, &PUSHES).expect("room");
        assert_eq!(world.add(0x1000, &PUSHES), Ok(parent), "the child's");
        world.published.publish();
        world.published.remove(parent);
        world.published.publish();
        assert!(world.rule(0x1000, 0x1000, &PUSHES).is_some());
        world.published.remove(parent);
        world.published.publish();
        assert_eq!(world.rule(0x1000, 0x1000, &PUSHES), None);
    }

    #[test]
    fn memory_of_what_is_gone_is_used_again() {
        let mut world = World::new();
        // A long function: no-operations, and a return.
        let long: Vec<u8> = std::iter::repeat_n(0x90, 200_000).chain([0xc3]).collect();
        let rules = made(&Piece { start: 0, bytes: long.clone() }, &[]).expect("rules");
        let place = |nth: usize| 0x10_0000 * (nth as u64 + 1);
        let mut filled = Vec::new();
        for round in 0..3 {
            let numbers: Vec<u64> = (0..)
                .map_while(|nth| {
                    world.published.add(&Piece { start: place(nth), bytes: long.clone() }, &[], &rules).ok()
                })
                .collect();
            world.published.publish();
            let last = place(numbers.len() - 1);
            assert!(world.rule(last, last, &long).is_some(), "{round}");
            numbers.iter().for_each(|number| world.published.remove(*number));
            assert_eq!(world.add(0x1000, &long), Err(Full), "targets may still read it");
            world.published.publish();
            assert_eq!(world.rule(last, last, &long), None, "{round}");
            filled.push(numbers.len());
        }
        assert!(filled[0] > 64 && filled.iter().all(|count| *count == filled[0]), "{filled:?}");
    }
}
