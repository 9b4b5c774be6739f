//! The thread's side: one sample into one record.

use super::*;
use crate::layout::SAMPLE_WORDS;
use crate::numbers::{self, zigzag};
use crate::record::RecordType;
use crate::writer::{Reservation, RingWriter};
use core::sync::atomic::{compiler_fence, AtomicU32, Ordering};
use uunwind_core::frame::frame_words;
use uunwind_core::memory::block;

/// Bytes of a record besides its frames, at most.
const FIXED: usize = 64;
/// Bytes of a frame for each of its words, at most; what needs more is refused.
const WORD: usize = 10;
/// Bits of a word.
const BITS: usize = u64::BITS as usize;
/// Bytes of the largest record of a sample.
pub const LARGEST: usize = FIXED + SAMPLE_WORDS * WORD;

/// What is written of one sample.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Time, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Number of periods of CPU time that the sample stands for: 1 + timer overruns. `SampleKind::Fatal`: the number
    /// of the signal.
    pub weight: u32,
    /// Number of the sample in this thread, from 1, counting lost ones too.
    pub sequence: u32,
    /// Number of the `uunwind_core::stop_reason::StopReason`.
    pub stop: u16,
    /// Number of the `SampleKind`.
    pub kind: u8,
    /// `SAMPLE_*` flags, or-ed.
    pub flags: u8,
}

/// What the thread has written so far: memory private to the process, all zero at first.
#[repr(C)]
pub struct Past {
    /// Non-zero: the rest is as the last committed sample has left it.
    whole: AtomicU32,
    /// Samples since the last one with [`RESTART`], that one included.
    samples: u32,
    /// Words of the last sample, which stand at the end of `words`.
    len: usize,
    sum: Sum,
    last: Sample,
    recent: Recent,
    /// The table of followers may have entries.
    is_used: bool,
    /// A bit for each word of the sample in work that begins a frame.
    begins: [u64; SAMPLE_WORDS.div_ceil(BITS)],
    followers: [Words; FOLLOWERS],
    words: [u64; SAMPLE_WORDS],
}

/// Bytes of a [`Past`].
pub const PAST_BYTES: usize = core::mem::size_of::<Past>();

impl Past {
    /// Writes a sample with these frame words, leaf first. False, and nothing is written: the ring has no room, or
    /// there are more than [`SAMPLE_WORDS`] words.
    ///
    /// Not inlined: its stack must not add to that of the walk before it.
    #[inline(never)]
    pub fn write(&mut self, ring: &RingWriter<'_>, sample: &Sample, words: &[u64]) -> bool {
        if words.len() > SAMPLE_WORDS {
            return false;
        }
        let Some(record) = ring.reserve(RecordType::Sample, FIXED + words.len() * WORD) else { return false };
        // The handler may be left by a longjmp between any two instructions.
        let restart = self.whole.swap(0, Ordering::Relaxed) == 0 || self.samples >= RESTART_EVERY;
        compiler_fence(Ordering::SeqCst);
        let mut out = Out { record, whole: true };
        self.encode(sample, words, restart, &mut out);
        if !out.whole {
            return false;
        }
        out.record.mark(self.sum.mark());
        out.record.commit();
        compiler_fence(Ordering::SeqCst);
        self.whole.store(1, Ordering::Relaxed);
        true
    }

    fn encode(&mut self, sample: &Sample, words: &[u64], restart: bool, out: &mut Out<'_>) {
        if restart {
            self.restart();
        }
        let shared = self.shared(words);
        self.head(sample, shared, restart, out);
        let (own, rest) = words.split_at_checked(words.len() - shared).unwrap_or((words, &[]));
        let Callers(outer, inner) = innermost(rest);
        // Of the callers, all that counts here is what they are folded to.
        let (mut outer, mut inner) = (outer.folded(), inner.folded());
        let (mut expected, mut end) = (0u64, own.len());
        let mut sum = self.sum;
        for group in (0..own.len().div_ceil(BITS)).rev() {
            let mut bits = self.begins.get(group).copied().unwrap_or(0);
            while bits != 0 {
                let last = bits.ilog2() as usize;
                bits ^= 1 << last;
                let at = group * BITS + last;
                let Some(word) = own.get(at) else { break };
                // The frame before this one begins where this one ends.
                let second = if end - at == 2 { own.get(at + 1) } else { None };
                let frame = Words { word: *word, second: second.copied().unwrap_or(0) };
                end = at;
                let index = index_of(outer, inner);
                if self.followers.get(index) == Some(&frame) {
                    expected += 1;
                } else {
                    self.unexpected(out, core::mem::take(&mut expected), frame, index);
                }
                let folded = frame.folded();
                sum = sum.with_folded(folded);
                (outer, inner) = (inner, folded);
            }
        }
        self.sum = sum;
        out.expected(&mut expected);
        self.keep(own, words.len());
    }

    /// Writes a frame that is not the expected one, after this number of expected ones. Not inlined: most frames are
    /// expected, and what this needs would take their registers.
    #[inline(never)]
    fn unexpected(&mut self, out: &mut Out<'_>, mut expected: u64, frame: Words, index: usize) {
        out.expected(&mut expected);
        let Some(follower) = self.followers.get_mut(index) else { return };
        out.frame(frame, *follower, self.recent.of(frame));
        self.recent.put(frame);
        *follower = frame;
    }

    fn restart(&mut self) {
        if self.is_used {
            self.followers.fill(Words::default());
        }
        self.is_used = true;
        (self.samples, self.len, self.sum, self.recent) = (0, 0, Sum(0), Recent::default());
        self.last = Sample { time: 0, weight: 0, sequence: 0, stop: 0, kind: 0, flags: 0 };
    }

    /// Writes all but the frames.
    fn head(&mut self, sample: &Sample, shared: usize, restart: bool, out: &mut Out<'_>) {
        let last = core::mem::replace(&mut self.last, *sample);
        let has_state = (last.stop, last.kind, last.flags) != (sample.stop, sample.kind, sample.flags);
        let lost = sample.sequence.wrapping_sub(last.sequence).wrapping_sub(1);
        let first = [(restart, RESTART), (has_state, STATE), (sample.weight != 1, WEIGHT), (lost != 0, GAP)]
            .iter()
            .fold(0, |first, (is, bit)| if *is { first | bit } else { first });
        out.byte(first);
        out.number(zigzag(sample.time.wrapping_sub(last.time) as i64));
        if has_state {
            out.number(u64::from(sample.stop));
            out.byte(sample.kind);
            out.byte(sample.flags);
        }
        if sample.weight != 1 {
            out.number(u64::from(sample.weight));
        }
        if lost != 0 {
            out.number(u64::from(lost));
        }
        out.number(shared as u64);
        self.sum = self.sum.with_shared(shared as u64);
        self.samples = self.samples.saturating_add(1);
    }

    /// Number of words, from the root, that are whole frames and the same as in the last sample. Marks where each
    /// frame of the others begins.
    fn shared(&mut self, words: &[u64]) -> usize {
        let last = self.words.get(SAMPLE_WORDS - self.len.min(SAMPLE_WORDS)..).unwrap_or(&[]);
        let differing = words.len() - same_at_the_end(last, words);
        let mut at = 0;
        for (group, begins) in self.begins.iter_mut().enumerate().take(differing / BITS + 1) {
            let mut bits = 0;
            let part = words.get(..differing.min((group + 1) * BITS)).unwrap_or(&[]);
            while let Some(word) = part.get(at) {
                bits |= 1 << (at % BITS);
                at += frame_words(*word);
            }
            *begins = bits;
        }
        words.len() - at.min(words.len())
    }

    /// Puts these words in the place of those that the last sample does not share.
    fn keep(&mut self, own: &[u64], total: usize) {
        let from = SAMPLE_WORDS - total.min(SAMPLE_WORDS);
        if let Some(place) = self.words.get_mut(from..).and_then(|rest| rest.get_mut(..own.len())) {
            block::copy(own, place);
        }
        self.len = total;
    }
}

/// Number of words, from the ends on, that are the same in both.
fn same_at_the_end(last: &[u64], now: &[u64]) -> usize {
    /// Compared at once: a comparison of each would take longer than the words.
    const BLOCK: usize = 8;
    let len = last.len().min(now.len());
    let (last, now) = (last.get(last.len() - len..).unwrap_or(&[]), now.get(now.len() - len..).unwrap_or(&[]));
    let blocks = last.rchunks_exact(BLOCK).zip(now.rchunks_exact(BLOCK));
    let differ = |(last, now): &(&[u64], &[u64])| last.iter().zip(*now).fold(0, |all, (last, now)| all | (last ^ now));
    let same = blocks.take_while(|block| differ(block) == 0).count() * BLOCK;
    let (last, now) = (last.get(..len - same).unwrap_or(&[]), now.get(..len - same).unwrap_or(&[]));
    same + last.iter().rev().zip(now.iter().rev()).take_while(|(last, now)| last == now).count()
}

/// The frame whose word is the one at `at`.
fn frame_at(words: &[u64], at: usize) -> Words {
    let word = words.get(at).copied().unwrap_or(0);
    let second = if frame_words(word) == 2 { words.get(at + 1).copied().unwrap_or(0) } else { 0 };
    Words { word, second }
}

/// The two frames with which a stack begins.
fn innermost(words: &[u64]) -> Callers {
    if words.is_empty() {
        return Callers::default();
    }
    let inner = frame_at(words, 0);
    let next = frame_words(inner.word);
    let outer = if next < words.len() { frame_at(words, next) } else { Words::default() };
    Callers(outer, inner)
}

/// A record into which numbers are written.
struct Out<'a> {
    record: Reservation<'a>,
    /// All of them found room.
    whole: bool,
}

impl Out<'_> {
    fn byte(&mut self, byte: u8) {
        self.whole &= self.record.byte(byte);
    }

    fn number(&mut self, number: u64) {
        numbers::write(number, |byte| self.byte(byte));
    }

    /// Writes that the last frames were the expected ones.
    fn expected(&mut self, frames: &mut u64) {
        match core::mem::take(frames) {
            0 => {}
            frames => self.number(frames << 1 | EXPECTED),
        }
    }

    /// Writes a frame as what distinguishes it from the expected one, or from the last one of its kind.
    fn frame(&mut self, frame: Words, expected: Words, recent: Words) {
        let upper = frame.word >> PAYLOAD_BITS;
        let difference = |other: Words| zigzag((frame.word & PAYLOAD) as i64 - (other.word & PAYLOAD) as i64);
        let (near, far) = (difference(expected), difference(recent));
        let is_near = expected.word >> PAYLOAD_BITS == upper && near >> 7 <= far;
        let other = if is_near {
            self.number(near << 2 | NEAR);
            expected
        } else {
            self.number(upper << 2 | FAR);
            self.number(far);
            recent
        };
        if frame_words(frame.word) == 2 {
            self.number(zigzag(frame.second.wrapping_sub(other.second) as i64));
        }
    }
}
