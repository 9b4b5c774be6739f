//! Decodes the samples of a thread's ring, which may be any bytes (`uunwind_ring::samples`, docs/ring-format.md).
//!
//! A sample says what its stack does not share with the sample before, so the reader keeps that stack, as the
//! recording's nodes. Without it, or with another one than the thread had, a sample is lost: the next one with
//! `RESTART` begins anew.

use uunwind_core::frame::{frame_words, KIND_NATIVE, KIND_OMITTED, KIND_SEMANTIC, KIND_WINDOW};
use uunwind_core::walk::{MAX_FRAMES, OUTERMOST};
use uunwind_ring::numbers::{self, unzigzag};
use uunwind_ring::samples::{
    Callers, Recent, Sample, Sum, Words, EXPECTED, FAR, FOLLOWERS, GAP, PAYLOAD, PAYLOAD_BITS, RESTART, STATE, WEIGHT,
};

/// Frames of the deepest stack: the innermost and the outermost ones, and one for those left out between them.
const DEEPEST: usize = MAX_FRAMES as usize + 1 + OUTERMOST;

/// A frame of the last stack.
#[derive(Clone, Copy)]
struct Frame {
    words: Words,
    /// Number of words from the root, this frame's included.
    to: u64,
    node: u32,
}

/// The reading end of a thread's samples.
#[derive(Default)]
pub struct Samples {
    /// The rest is what the thread had when it wrote the last sample.
    is_whole: bool,
    sum: Sum,
    last: Option<Sample>,
    recent: Recent,
    followers: Vec<Words>,
    /// The last stack, from the root.
    stack: Vec<Frame>,
}

/// Why a sample could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// What it refers to is not what was read before, or it has more frames than are decoded now. Its weight.
    NoBase(u32),
    /// It does not begin as a sample.
    Damaged,
}

impl Samples {
    /// Forgets the last stack: records were skipped.
    pub fn forget(&mut self) {
        self.is_whole = false;
    }

    /// Reads a sample: the bytes of its record after the header, and the header's mark. `node` gives the number of a
    /// frame's node, from that of its caller (0: none). At most `budget` frames, which are taken off it, are not
    /// shared. Returns the sample and its leaf's node.
    pub fn read(
        &mut self,
        mark: u16,
        coded: &[u8],
        budget: &mut u64,
        node: impl FnMut(u32, Words) -> u32,
    ) -> Result<(Sample, u32), Unread> {
        let (sample, leaf, sum) = self.read_unmarked(coded, budget, node)?;
        if sum.mark() != mark {
            self.forget();
            return Err(Unread::NoBase(sample.weight));
        }
        Ok((sample, leaf))
    }

    /// Reads a sample, and returns the sum that its header's mark is a part of.
    pub fn read_unmarked(
        &mut self,
        coded: &[u8],
        budget: &mut u64,
        node: impl FnMut(u32, Words) -> u32,
    ) -> Result<(Sample, u32, Sum), Unread> {
        let was_whole = std::mem::replace(&mut self.is_whole, false);
        let mut bytes = Bytes { rest: coded };
        let first = bytes.byte().ok_or(Unread::Damaged)?;
        if first & RESTART != 0 {
            self.restart();
        }
        let (sample, shared) = self.head(first, &mut bytes).ok_or(Unread::Damaged)?;
        if !was_whole && first & RESTART == 0 {
            return Err(Unread::NoBase(sample.weight));
        }
        self.share(shared).ok_or(Unread::NoBase(sample.weight))?;
        self.sum = self.sum.with_shared(shared);
        self.frames(&mut bytes, budget, node).ok_or(Unread::NoBase(sample.weight))?;
        self.last = Some(sample);
        self.is_whole = true;
        Ok((sample, self.stack.last().map_or(0, |frame| frame.node), self.sum))
    }

    fn restart(&mut self) {
        self.followers.clear();
        self.followers.resize(FOLLOWERS, Words::default());
        self.stack.clear();
        (self.sum, self.last, self.recent) = (Sum::default(), None, Recent::default());
    }

    /// All but the frames, and the number of words that are shared.
    fn head(&self, first: u8, bytes: &mut Bytes<'_>) -> Option<(Sample, u64)> {
        let last = self.last.unwrap_or(Sample { time: 0, weight: 0, sequence: 0, stop: 0, kind: 0, flags: 0 });
        let time = last.time.wrapping_add(unzigzag(bytes.number()?) as u64);
        let (mut stop, mut kind, mut flags) = (last.stop, last.kind, last.flags);
        if first & STATE != 0 {
            (stop, kind, flags) = (u16::try_from(bytes.number()?).ok()?, bytes.byte()?, bytes.byte()?);
        }
        let weight = if first & WEIGHT != 0 { u32::try_from(bytes.number()?).ok()? } else { 1 };
        let lost = if first & GAP != 0 { bytes.number()? as u32 } else { 0 };
        let sequence = last.sequence.wrapping_add(lost).wrapping_add(1);
        Some((Sample { time, weight, sequence, stop, kind, flags }, bytes.number()?))
    }

    /// Keeps this number of words of the last stack, from the root. `None` if it has no frame that ends there.
    fn share(&mut self, words: u64) -> Option<()> {
        let frames = match words {
            0 => 0,
            _ => self.stack.binary_search_by_key(&words, |frame| frame.to).ok()? + 1,
        };
        self.stack.truncate(frames);
        Some(())
    }

    fn frames(
        &mut self,
        bytes: &mut Bytes<'_>,
        budget: &mut u64,
        mut node: impl FnMut(u32, Words) -> u32,
    ) -> Option<()> {
        let at = |stack: &[Frame], from_leaf: usize| {
            let index = stack.len().checked_sub(from_leaf + 1)?;
            stack.get(index).map(|frame| frame.words)
        };
        let (outer, inner) = (at(&self.stack, 1), at(&self.stack, 0));
        let mut callers = Callers(outer.unwrap_or_default(), inner.unwrap_or_default());
        while !bytes.is_done() {
            let step = bytes.number()?;
            let expected = if step & EXPECTED != 0 { step >> 1 } else { 0 };
            for _ in 0..expected.max(1) {
                *budget = budget.checked_sub(1)?;
                let index = callers.index();
                let follower = self.followers.get(index).copied()?;
                let frame = if expected > 0 { follower } else { self.other(step, follower, bytes)? };
                if !is_frame(frame.word) || self.stack.len() >= DEEPEST {
                    return None;
                }
                let caller = self.stack.last();
                let to = caller.map_or(0, |caller| caller.to) + frame_words(frame.word) as u64;
                let node = node(caller.map_or(0, |caller| caller.node), frame);
                self.stack.push(Frame { words: frame, to, node });
                if expected == 0 {
                    *self.followers.get_mut(index)? = frame;
                    self.recent.put(frame);
                }
                self.sum = self.sum.with(frame);
                callers = callers.then(frame);
            }
        }
        Some(())
    }

    /// The frame that a step describes by another one.
    fn other(&self, step: u64, follower: Words, bytes: &mut Bytes<'_>) -> Option<Words> {
        let (upper, other, difference) = if step & 3 == FAR {
            let upper = u8::try_from(step >> 2).ok()?;
            (upper, self.recent.of(Words { word: u64::from(upper) << PAYLOAD_BITS, second: 0 }), bytes.number()?)
        } else {
            ((follower.word >> PAYLOAD_BITS) as u8, follower, step >> 2)
        };
        let payload = (other.word & PAYLOAD).wrapping_add(unzigzag(difference) as u64) & PAYLOAD;
        let word = u64::from(upper) << PAYLOAD_BITS | payload;
        let second = match frame_words(word) {
            2 => other.second.wrapping_add(unzigzag(bytes.number()?) as u64),
            _ => 0,
        };
        Some(Words { word, second })
    }
}

fn is_frame(word: u64) -> bool {
    matches!((word >> PAYLOAD_BITS) as u8 & 15, KIND_NATIVE | KIND_SEMANTIC | KIND_WINDOW | KIND_OMITTED)
}

struct Bytes<'a> {
    rest: &'a [u8],
}

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        numbers::read(|| self.byte())
    }

    /// Whether only padding is left. No step consists of zeros: it would be the expected frame.
    fn is_done(&self) -> bool {
        self.rest.len() < 8 && self.rest.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests;
