//! How a sample's frame words are coded in a ring: the words that a thread's stack shares with that of its last sample,
//! counted from the root, are not written again, and a frame that follows the same two callers as it did before is
//! not either. docs/ring-format.md describes every byte; `write` is the thread's side, `uunwind_recorder::samples` the
//! recorder's.
//!
//! Both sides keep the same memory of what was written: the last stack, and a table of the frame that last followed
//! two others (`Followers` in `write.rs`). A sample that found no room leaves that memory as it was. A sample with
//! [`RESTART`] needs none, and empties it: the first of a thread, every [`RESTART_EVERY`]th, and one after a sample
//! that was begun and not finished. The record's header has a sum of all that was coded since then ([`Sum`]), so that a
//! reader that has another memory notices it.

mod write;

use uunwind_core::frame::KIND_SEMANTIC;
pub use write::{Past, Sample, LARGEST, PAST_BYTES};

/// First byte of a sample: the reader's memory is emptied before.
pub const RESTART: u8 = 1;
/// First byte: stop reason, kind and flags follow; otherwise they are those of the sample before.
pub const STATE: u8 = 2;
/// First byte: the weight follows; otherwise it is 1.
pub const WEIGHT: u8 = 4;
/// First byte: the number of samples lost since the one before follows; otherwise none was.
pub const GAP: u8 = 8;

/// Tag in the two lowest bits of a step: the frame has the upper byte of the expected one, and differs from it by
/// this.
pub const NEAR: u64 = 0;
/// Tag: the upper byte of the frame's word; its payload and its second word follow, less those of the last frame of
/// its kind.
pub const FAR: u64 = 2;
/// Tag in the lowest bit: this number of frames are the expected ones.
pub const EXPECTED: u64 = 1;

/// A sample with [`RESTART`] comes after at most this number of others.
pub const RESTART_EVERY: u32 = 256;
/// Entries of the table of followers.
pub const FOLLOWERS: usize = 1024;
/// Bits of a frame word below its upper byte, which holds its flags and kind.
pub const PAYLOAD_BITS: u32 = 56;
/// The payload of a frame word.
pub const PAYLOAD: u64 = (1 << PAYLOAD_BITS) - 1;

/// The words of a frame: the second is 0 for frames of one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Words {
    /// The frame's word.
    pub word: u64,
    /// Its second word, or 0.
    pub second: u64,
}

impl Words {
    /// Both in one. Other frames rarely have the same: flags, kind and plugin are above a name's id, and positions are
    /// small.
    #[inline(always)]
    fn folded(self) -> u64 {
        self.word ^ self.second.rotate_left(32)
    }
}

/// The two innermost frames so far, the outer one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callers(pub Words, pub Words);

impl Callers {
    /// The callers of the frame after `frame`.
    pub fn then(self, frame: Words) -> Callers {
        Callers(self.1, frame)
    }

    /// Index of their follower in the table of [`FOLLOWERS`].
    pub fn index(self) -> usize {
        let Callers(outer, inner) = self;
        index_of(outer.folded(), inner.folded())
    }
}

/// As [`Callers::index`], by what both are folded to.
#[inline(always)]
fn index_of(outer: u64, inner: u64) -> usize {
    (mixed(outer, inner) >> (u64::BITS - FOLLOWERS.ilog2())) as usize
}

/// The last frame of each kind that was written out: neither shared nor expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    machine: Words,
    semantic: Words,
}

impl Recent {
    /// The last one of this frame's kind.
    pub fn of(self, frame: Words) -> Words {
        if is_semantic(frame) {
            self.semantic
        } else {
            self.machine
        }
    }

    /// Takes the place of the last one.
    pub fn put(&mut self, frame: Words) {
        *(if is_semantic(frame) { &mut self.semantic } else { &mut self.machine }) = frame;
    }
}

fn is_semantic(frame: Words) -> bool {
    (frame.word >> PAYLOAD_BITS) as u8 & 15 == KIND_SEMANTIC
}

fn mixed(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A sum of what was coded since the last [`RESTART`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(pub u64);

impl Sum {
    /// The sum with the number of words shared with the sample before.
    pub fn with_shared(self, words: u64) -> Sum {
        Sum(mixed(self.0, !words))
    }

    /// The sum with a frame that is not shared.
    pub fn with(self, frame: Words) -> Sum {
        self.with_folded(frame.folded())
    }

    #[inline(always)]
    fn with_folded(self, folded: u64) -> Sum {
        Sum(mixed(self.0, folded))
    }

    /// What the record's header has of it.
    pub fn mark(self) -> u16 {
        (self.0 >> 48) as u16
    }
}
