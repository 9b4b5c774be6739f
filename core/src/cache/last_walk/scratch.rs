//! The plugins' scratch memory as part of a walk's state: logged where it changed, and compared.

use super::record::{FRAMES, LOST_STATE, STATES};
use super::WalkLog;
use crate::walk::PLUGIN_INDICES;

/// The scratch memory of a walk's plugins, as far as it is used.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// Start of the memory, aligned for words; may be null when nothing is used.
    pub memory: *const u8,
    /// Bytes of each plugin's part.
    pub stride: usize,
    /// Bytes that each plugin uses; 0: it was not called.
    pub used: [u16; PLUGIN_INDICES],
}

impl Scratch {
    /// No plugin has scratch memory.
    pub const NONE: Scratch = Scratch { memory: core::ptr::null(), stride: 0, used: [0; PLUGIN_INDICES] };

    /// Which plugins were called, and how much each uses, in one word; 0 when none was.
    fn shape(&self) -> u64 {
        (0..).zip(&self.used).fold(0, |shape, (plugin, used)| shape | u64::from(used.div_ceil(8) as u8) << (8 * plugin))
    }

    /// Whether no plugin has stored anything.
    pub(super) fn is_zero(&self) -> bool {
        (0..PLUGIN_INDICES).all(|plugin| self.words(plugin).iter().all(|word| *word == 0))
    }

    /// The words that a plugin uses: at most 64, as `SCRATCH_BYTES` has.
    fn words(&self, plugin: usize) -> &[u64] {
        let count = self.used.get(plugin).map_or(0, |used| usize::from(*used).div_ceil(8).min(self.stride / 8).min(64));
        if count == 0 {
            return &[];
        }
        let start = self.memory.wrapping_add(plugin.wrapping_mul(self.stride)).cast::<u64>();
        // SAFETY: the memory, aligned for words, has a part for each plugin that was called, and is not written to
        // while a walk looks at it.
        unsafe { core::slice::from_raw_parts(start, count) }
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
    /// The state of the plugins: their [`Scratch::shape`]; for each that was called, which of its words are not 0, a
    /// bit each, and these words. Most are 0.
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
        for plugin in 0..PLUGIN_INDICES {
            let words = scratch.words(plugin);
            if words.is_empty() {
                continue;
            }
            let present = present(words);
            put(states, present, &mut next)?;
            for word in some_of(words, present) {
                put(states, word, &mut next)?;
            }
        }
        *states.get_mut(header)? = scratch.shape();
        Some(next - header)
    }

    /// Whether the plugins' scratch memory is now as it was before the old walk's candidate.
    pub(super) fn same_state(&self, scratch: &Scratch) -> bool {
        if self.state_of == FRAMES {
            return scratch.shape() == 0;
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
        if old.next() != Some(&scratch.shape()) {
            return false;
        }
        (0..PLUGIN_INDICES).all(|plugin| {
            let words = scratch.words(plugin);
            if words.is_empty() {
                return true;
            }
            let present = present(words);
            old.next() == Some(&present) && some_of(words, present).all(|word| old.next() == Some(&word))
        })
    }
}
