//! What a thread writes comes back, whatever is lost on the way; and what comes back was written.

use super::*;
use crate::records::{records, Record};
use crate::stacks::Stacks;
use std::sync::atomic::Ordering;
use uunwind_core::frame::{native_word, omitted_word, semantic_word, window_word, FLAG_EXACT, FLAG_INTERPRETER};
use uunwind_random::Random;
use uunwind_recording::Node;
use uunwind_ring::layout::{ThreadBlock, RING_BYTES, SAMPLE_WORDS};
use uunwind_ring::samples::{Past, RESTART_EVERY};
use uunwind_ring::writer::RingWriter;

/// A thread and its ring.
struct Thread {
    block: Box<ThreadBlock>,
    ring: Vec<u64>,
    past: Box<Past>,
    taken: u32,
}

impl Thread {
    fn new() -> Thread {
        // SAFETY: all-zero is a valid ThreadBlock, and a Past that has written nothing.
        let (block, past) = unsafe { (Box::new(std::mem::zeroed()), Box::new(std::mem::zeroed())) };
        Thread { block, ring: vec![0; RING_BYTES / 8], past, taken: 0 }
    }

    /// Takes a sample, which is lost if the ring is full.
    fn take(&mut self, sample: Sample, words: &[u64]) -> Option<Sample> {
        self.taken += 1;
        let sample = Sample { sequence: self.taken, ..sample };
        // SAFETY: the ring has RING_BYTES, is 8-aligned and used by this writer only.
        let writer = unsafe { RingWriter::new(&self.block, self.ring.as_mut_ptr().cast()) };
        self.past.write(&writer, &sample, words).then_some(sample)
    }

    /// What has been written since the last call.
    fn drained(&self) -> Vec<(u16, Vec<u8>)> {
        let (head, tail) = (self.block.head.load(Ordering::Acquire), self.block.tail.load(Ordering::Relaxed));
        let positions = (tail..head).step_by(8);
        let bytes: Vec<u8> = positions.flat_map(|at| self.ring[at as usize % RING_BYTES / 8].to_ne_bytes()).collect();
        self.block.tail.store(head, Ordering::Release);
        let samples = records(&bytes).map(|record| match record {
            Ok(Record::Sample { mark, coded }) => (mark, coded),
            other => panic!("{other:?}"),
        });
        samples.collect()
    }
}

/// The recorder's side: nodes, and stacks read back from them.
#[derive(Default)]
struct Reader {
    samples: Samples,
    stacks: Stacks,
    nodes: Vec<Node>,
}

impl Reader {
    fn read(&mut self, mark: u16, coded: &[u8]) -> Result<(Sample, Vec<u64>), Unread> {
        let Reader { samples, stacks, nodes } = self;
        let read = samples
            .read(mark, coded, &mut (1 << 20), |parent, frame| stacks.node(parent, frame, |node| nodes.push(node)));
        let (sample, mut at) = read?;
        let mut words = Vec::new();
        while at != 0 {
            let node = nodes[at as usize - 1];
            words.push(node.word);
            if frame_words(node.word) == 2 {
                words.push(node.position);
            }
            at = node.parent;
        }
        Ok((sample, words))
    }
}

fn sample(random: &mut Random, time: &mut u64) -> Sample {
    *time += random.number() % 10_000_000;
    let rare = |random: &mut Random, value: u64| if random.one_in(8) { value } else { 1 };
    let weight = rare(random, random.clone().number() % 400) as u32;
    let stop = rare(random, 70) as u16;
    Sample { time: *time, weight, sequence: 0, stop, kind: 0, flags: rare(random, 96) as u8 }
}

/// Stacks as a program has them: the outer part mostly stays, and frames come from few functions.
fn change(stack: &mut Vec<Words>, random: &mut Random) {
    let keep = stack.len() - (random.number() as usize % 6).min(stack.len());
    stack.truncate(keep);
    for _ in 0..random.number() % 7 {
        let number = random.number();
        let frame = match number % 16 {
            0 => Words { word: window_word(0x7f11_0000_0000 + number % 64, 0), second: number >> 40 },
            1 => Words { word: omitted_word(1 + number as u32 % 100), second: 0 },
            2 => Words { word: native_word(number >> 8, FLAG_EXACT), second: 0 },
            3..6 => Words { word: semantic_word(1, 1 + (number >> 8) as u32 % 20), second: number >> 32 & 0x3f },
            _ => Words { word: native_word(0x7f22_0000_0000 + (number >> 8) % 64 * 24, FLAG_INTERPRETER), second: 0 },
        };
        stack.push(frame);
    }
}

fn words_of(stack: &[Words]) -> Vec<u64> {
    let words =
        stack.iter().rev().flat_map(|frame| [frame.word, frame.second].into_iter().take(frame_words(frame.word)));
    words.collect()
}

#[test]
fn what_was_written_comes_back_and_what_found_no_room_is_no_base() {
    let mut random = Random::new(7);
    let (mut thread, mut reader) = (Thread::new(), Reader::default());
    let (mut stack, mut time, mut written, mut read, mut lost) = (Vec::new(), 1 << 40, Vec::new(), 0, 0);
    for round in 0..40_000 {
        change(&mut stack, &mut random);
        stack.truncate(if round % 1000 < 500 { 60 } else { 500 });
        let words = words_of(&stack);
        match thread.take(sample(&mut random, &mut time), &words) {
            Some(sample) => written.push((sample, words)),
            None => lost += 1,
        }
        // Sometimes late enough that the ring is full.
        if random.one_in(8000) || round == 39_999 {
            let coded = thread.drained();
            assert_eq!(coded.len(), written.len());
            for ((mark, coded), (sample, words)) in coded.iter().zip(written.drain(..)) {
                let (found, stack) = reader.read(*mark, coded).expect("a sample that refers to what was read");
                assert_eq!(format!("{:?}", key(found)), format!("{:?}", key(sample)));
                assert_eq!(stack, words);
                read += 1;
            }
        }
    }
    assert!(read > 5_000 && lost > 1_000, "{read} read, {lost} lost");
}

fn key(sample: Sample) -> (u64, u32, u32, u16, u8, u8) {
    let Sample { time, weight, sequence, stop, kind, flags } = sample;
    (time, weight, sequence, stop, kind, flags)
}

/// A reader that misses a record, or gets another one in its place, loses samples up to the next that needs none, and
/// all that it does return were written.
#[test]
fn a_reader_without_the_base_invents_nothing() {
    let mut random = Random::new(11);
    for _ in 0..40 {
        let (mut thread, mut reader) = (Thread::new(), Reader::default());
        let (mut stack, mut time, mut written) = (Vec::new(), 0, Vec::new());
        for _ in 0..RESTART_EVERY * 2 {
            change(&mut stack, &mut random);
            let words = words_of(&stack);
            written.push((thread.take(sample(&mut random, &mut time), &words).expect("room"), words));
        }
        let coded = thread.drained();
        let missing = 1 + random.number() as usize % (RESTART_EVERY as usize - 2);
        for (index, ((mark, coded), (sample, words))) in coded.iter().zip(written).enumerate() {
            if index == missing {
                continue;
            }
            match reader.read(*mark, coded) {
                Ok((found, stack)) => {
                    assert!(index < missing || index >= RESTART_EVERY as usize, "{index} without {missing}");
                    assert_eq!((key(found), stack), (key(sample), words));
                }
                Err(unread) => {
                    assert!((missing..RESTART_EVERY as usize).contains(&index), "{index} without {missing}");
                    assert_eq!(unread, Unread::NoBase(sample.weight));
                }
            }
        }
    }
}

/// A handler that was left in the middle of a sample (longjmp) leaves a memory that is no base.
#[test]
fn after_a_sample_that_was_not_finished_the_next_one_needs_no_base() {
    let (mut thread, mut reader) = (Thread::new(), Reader::default());
    let stack: Vec<u64> = (0..40).map(|n| native_word(0x1000 + n * 8, 0)).collect();
    let plain = Sample { time: 5, weight: 1, sequence: 0, stop: 1, kind: 0, flags: 0 };
    for _ in 0..3 {
        thread.take(plain, &stack).expect("room");
    }
    // As a longjmp leaves it.
    // SAFETY: the first field of a Past is its `whole`, an AtomicU32.
    unsafe { (&raw mut *thread.past).cast::<u32>().write(0) };
    thread.take(plain, &stack[8..]).expect("room");
    let coded = thread.drained();
    let starts: Vec<bool> = coded.iter().map(|(_, coded)| coded[0] & RESTART != 0).collect();
    assert_eq!(starts, [true, false, false, true]);
    assert!(coded[1].1.len() <= 16, "the same stack again takes {} bytes", coded[1].1.len());
    reader.read(coded[0].0, &coded[0].1).expect("the first");
    let (_, words) = reader.read(coded[3].0, &coded[3].1).expect("the last, without the two before");
    assert_eq!(words, stack[8..]);
}

#[test]
fn the_deepest_stacks_fit_and_longer_ones_are_refused() {
    let mut thread = Thread::new();
    let plain = Sample { time: u64::MAX, weight: u32::MAX, sequence: 0, stop: u16::MAX, kind: 255, flags: 255 };
    let far = |n: u64| native_word(if n.is_multiple_of(2) { 0 } else { (1 << 47) - 1 - n }, FLAG_EXACT << (n % 3));
    let deepest: Vec<u64> = (0..SAMPLE_WORDS as u64).map(far).collect();
    assert!(thread.take(plain, &deepest).is_some());
    assert!(thread.take(plain, &[deepest.clone(), deepest].concat()).is_none());
    assert_eq!(thread.drained().len(), 1);
}

/// Twenty-four bytes may stand for thousands of frames: a pass decodes a limited number.
#[test]
fn few_bytes_do_not_make_the_recorder_work_without_end() {
    let (mut thread, mut samples) = (Thread::new(), Samples::default());
    let plain = Sample { time: 5, weight: 3, sequence: 0, stop: 1, kind: 0, flags: 0 };
    let stack = [vec![native_word(1, 0); 4000], vec![native_word(2, 0)]].concat();
    for _ in 0..2 {
        thread.take(plain, &stack).expect("room");
        thread.take(plain, &[]).expect("room");
    }
    let coded = thread.drained();
    assert!(coded[2].1.len() < 32, "{}", coded[2].1.len());
    let mut budget = 6000;
    let read: Vec<bool> =
        coded.iter().map(|(mark, coded)| samples.read(*mark, coded, &mut budget, |node, _| node + 1).is_ok()).collect();
    assert_eq!((read, budget), (vec![true, true, false, false], 0));
}

#[test]
fn any_bytes_are_read_to_an_end() {
    let mut random = Random::new(13);
    let (mut thread, mut stack, mut time) = (Thread::new(), Vec::new(), 0);
    for _ in 0..64 {
        change(&mut stack, &mut random);
        thread.take(sample(&mut random, &mut time), &words_of(&stack)).expect("room");
    }
    let good = thread.drained();
    let mut unread = 0;
    for _ in 0..500 {
        let mut samples = Samples::default();
        for (mark, coded) in &good {
            let mut coded = coded.clone();
            if random.one_in(8) {
                let at = random.number() as usize % coded.len();
                coded[at] ^= 1 << (random.number() % 8);
            }
            unread += u32::from(samples.read(*mark, &coded, &mut 100_000, |node, _| node).is_err());
        }
    }
    assert!(unread > 10_000, "{unread} of 32,000 were refused");
}
