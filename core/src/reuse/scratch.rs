//! The plugins' scratch memory as part of a walk's state: written down where it changed, and compared.

use super::trail::{LOST_STATE, MARKS, STATES};
use super::Recording;

/// Plugins, 0 included.
const PLUGINS: usize = 8;

/// The scratch memory of a walk's plugins, as far as it is used.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// Start of the memory; may be null when nothing is used.
    pub memory: *const u8,
    /// Bytes of each plugin's part.
    pub stride: usize,
    /// Bytes that each plugin uses; 0: it was not called.
    pub used: [u16; PLUGINS],
}

impl Scratch {
    /// Nothing is used.
    pub const NONE: Scratch = Scratch { memory: core::ptr::null(), stride: 0, used: [0; PLUGINS] };

    /// Which plugins were called, and how much each uses, in one word; 0 when none was.
    fn shape(&self) -> u64 {
        (0..).zip(&self.used).fold(0, |shape, (plugin, used)| shape | u64::from(used.div_ceil(8) as u8) << (8 * plugin))
    }

    /// How many words a plugin uses: at most 64, as `SCRATCH_BYTES` has.
    fn words(&self, plugin: usize) -> usize {
        self.used.get(plugin).map_or(0, |used| usize::from(*used).div_ceil(8).min(self.stride / 8).min(64))
    }

    fn word(&self, plugin: usize, index: usize) -> Option<u64> {
        let offset = plugin.checked_mul(self.stride)?.checked_add(index * 8)?;
        // SAFETY: `words` keeps the index within the plugin's part, and the memory has a part for each plugin that was called.
        Some(unsafe { self.memory.add(offset).cast::<u64>().read_unaligned() })
    }
}

impl Recording<'_> {
    /// The state of the plugins: their [`Scratch::shape`]; for each that was called, which of its words are not 0, a bit each, and
    /// these words. Most are 0.
    pub(super) fn write_state(&mut self, at: usize, scratch: &Scratch) -> Option<usize> {
        let mut next = at;
        let limit = usize::from(self.trail.first_state);
        let states = &mut self.trail.states;
        let put = |states: &mut [u64; STATES], word: u64, next: &mut usize| -> Option<()> {
            let room = states.get_mut(*next).filter(|_| *next < limit)?;
            *room = word;
            *next += 1;
            Some(())
        };
        let header = next;
        put(states, 0, &mut next)?;
        for plugin in 0..PLUGINS {
            let words = scratch.words(plugin);
            if words == 0 {
                continue;
            }
            let (place, mut present) = (next, 0u64);
            put(states, 0, &mut next)?;
            for index in 0..words {
                let word = scratch.word(plugin, index)?;
                if word != 0 {
                    present |= 1 << index;
                    put(states, word, &mut next)?;
                }
            }
            *states.get_mut(place)? = present;
        }
        *states.get_mut(header)? = scratch.shape();
        Some(next - header)
    }

    /// Whether the plugins' scratch memory is now as it was before the old walk's candidate.
    pub(super) fn same_state(&self, scratch: &Scratch) -> bool {
        if self.state_of == MARKS {
            return scratch.shape() == 0;
        }
        let Some(mark) = self.trail.marks.get(self.state_of) else { return false };
        if mark.flags & LOST_STATE != 0 {
            return false;
        }
        self.is_state(usize::from(mark.state), scratch)
    }

    /// Whether the state that stands at `at` is that of the plugins' scratch memory now.
    pub(super) fn is_state(&self, at: usize, scratch: &Scratch) -> bool {
        let mut old = self.trail.states.get(at..).unwrap_or_default().iter();
        if old.next() != Some(&scratch.shape()) {
            return false;
        }
        (0..PLUGINS).all(|plugin| {
            let words = scratch.words(plugin);
            if words == 0 {
                return true;
            }
            let Some(present) = old.next() else { return false };
            (0..words).all(|index| match scratch.word(plugin, index) {
                None => false,
                Some(0) => present & (1 << index) == 0,
                Some(word) => present & (1 << index) != 0 && old.next() == Some(&word),
            })
        })
    }
}
