//! The plugins' scratch memory as part of a walk's state: logged where it changed, and compared.

use super::record::{FRAMES, LOST_STATE, STATES};
use super::WalkLog;
use crate::plugin::SCRATCH_BYTES;
use crate::walk::PLUGIN_INDICES;
use core::mem::MaybeUninit;

/// Words of a plugin's part: a bit each in one word.
const WORDS: usize = SCRATCH_BYTES / 8;
const _: () = assert!(WORDS <= 64 && PLUGIN_INDICES <= u32::BITS as usize);

/// The scratch memory of a walk's plugins, as far as it is used.
pub struct Scratch {
    /// Start of the memory, aligned for words; may be null when nothing is used.
    memory: *const u8,
    /// Bytes of each plugin's part.
    stride: usize,
    /// A bit for each plugin that was called, by its index.
    called: u32,
    /// Words that each of these uses: a plugin's number never changes, as its table does not. Of the others it is not
    /// set, since to clear all is dearer than what most walks do here.
    words: [MaybeUninit<u8>; PLUGIN_INDICES],
}

impl Scratch {
    /// No plugin was called yet.
    #[inline(always)]
    pub fn new(memory: *const u8, stride: usize) -> Scratch {
        Scratch { memory, stride, called: 0, words: [const { MaybeUninit::uninit() }; PLUGIN_INDICES] }
    }

    /// A bit for each plugin that was called, by its index.
    pub fn called(&self) -> u32 {
        self.called
    }

    /// Whether the plugin with this index was called.
    pub fn is_called(&self, plugin: u8) -> bool {
        self.called.checked_shr(plugin.into()).is_some_and(|bits| bits & 1 != 0)
    }

    /// The plugin with this index is called for the first time; its part is zeroed. `bytes`: how many it uses; 0: all.
    pub fn begin(&mut self, plugin: u8, bytes: usize) {
        let Some(place) = self.words.get_mut(usize::from(plugin)) else { return };
        let words = if bytes == 0 { WORDS } else { bytes.div_ceil(8).min(WORDS) };
        place.write(words as u8);
        self.called |= 1 << plugin;
    }

    /// Whether no plugin has stored anything.
    pub(super) fn is_zero(&self) -> bool {
        self.parts().all(|words| words.iter().all(|word| *word == 0))
    }

    /// The words of each plugin that was called, in the order of their indices.
    fn parts(&self) -> impl Iterator<Item = &[u64]> + '_ {
        let mut left = self.called;
        core::iter::from_fn(move || {
            let plugin = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let place = self.words.get(plugin)?;
            // SAFETY: `begin` has set it before the plugin's bit.
            let count = usize::from(unsafe { place.assume_init() }).min(self.stride / 8);
            if count == 0 {
                return Some(&[][..]);
            }
            let start = self.memory.wrapping_add(plugin.wrapping_mul(self.stride)).cast::<u64>();
            // SAFETY: the memory, aligned for words, has a part for each plugin that was called, and is not written to
            // while a walk looks at it.
            Some(unsafe { core::slice::from_raw_parts(start, count) })
        })
    }
}

/// A bit for each word that is not 0. Most words are 0, and are skipped in groups of eight.
fn present(words: &[u64]) -> u64 {
    let mut present = 0;
    for (at, some) in words.chunks(8).enumerate() {
        if some.iter().fold(0, |all, word| all | word) != 0 {
            let bits = (0..).zip(some).fold(0u64, |bits, (index, word)| bits | u64::from(*word != 0) << (index & 7));
            present |= bits << ((at & 7) * 8);
        }
    }
    present
}

/// The words that are not 0.
fn some_of(words: &[u64], present: u64) -> impl Iterator<Item = u64> + '_ {
    let mut left = present;
    core::iter::from_fn(move || {
        let index = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        words.get(index).copied()
    })
}

impl WalkLog<'_> {
    /// The state of the plugins: which were called, a bit each; for each of these, which of its words are not 0, a bit
    /// each, and these words. Most are 0.
    pub(super) fn write_state(&mut self, at: usize, scratch: &Scratch) -> Option<usize> {
        let mut next = at;
        let limit = usize::from(self.last_walk.first.state);
        let states = &mut self.last_walk.states;
        let put = |states: &mut [u64; STATES], word: u64, next: &mut usize| -> Option<()> {
            let room = states.get_mut(*next).filter(|_| *next < limit)?;
            *room = word;
            *next += 1;
            Some(())
        };
        let header = next;
        put(states, 0, &mut next)?;
        for words in scratch.parts() {
            let present = present(words);
            put(states, present, &mut next)?;
            for word in some_of(words, present) {
                put(states, word, &mut next)?;
            }
        }
        *states.get_mut(header)? = scratch.called.into();
        Some(next - header)
    }

    /// Whether the plugins' scratch memory is now as it was before the old walk's candidate.
    pub(super) fn same_state(&self, scratch: &Scratch) -> bool {
        if self.state_of == FRAMES {
            return scratch.called == 0;
        }
        let Some(frame) = self.last_walk.frames.get(self.state_of) else { return false };
        if frame.flags & LOST_STATE != 0 {
            return false;
        }
        self.is_state(usize::from(frame.state), scratch)
    }

    /// Whether the state that stands at `at` is that of the plugins' scratch memory now.
    pub(super) fn is_state(&self, at: usize, scratch: &Scratch) -> bool {
        let mut old = self.last_walk.states.get(at..).unwrap_or_default().iter();
        if old.next() != Some(&scratch.called.into()) {
            return false;
        }
        scratch.parts().all(|words| {
            let present = present(words);
            old.next() == Some(&present) && some_of(words, present).all(|word| old.next() == Some(&word))
        })
    }
}
