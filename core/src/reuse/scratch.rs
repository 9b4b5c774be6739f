//! The plugins' scratch memory as part of a walk's state: written down where it changed, and compared.

use super::trail::{LOST_STATE, MARKS};
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

    fn words(&self, plugin: usize) -> usize {
        self.used.get(plugin).map_or(0, |used| usize::from(*used).div_ceil(8).min(self.stride / 8))
    }

    fn word(&self, plugin: usize, index: usize) -> Option<u64> {
        let offset = plugin.checked_mul(self.stride)?.checked_add(index * 8)?;
        // SAFETY: `words` keeps the index within the plugin's part, and the memory has a part for each plugin that was called.
        Some(unsafe { self.memory.add(offset).cast::<u64>().read_unaligned() })
    }
}

impl Recording<'_> {
    /// The state of the plugins: for each that was called, its index and length, and its bytes.
    pub(super) fn write_state(&mut self, at: usize, scratch: &Scratch) -> Option<usize> {
        let mut next = at;
        let limit = usize::from(self.trail.first_state);
        let mut put = |word: u64, next: &mut usize| -> Option<()> {
            let room = self.trail.states.get_mut(*next).filter(|_| *next < limit)?;
            *room = word;
            *next += 1;
            Some(())
        };
        let header = next;
        put(0, &mut next)?;
        for plugin in 0..PLUGINS {
            for index in 0..scratch.words(plugin) {
                put(scratch.word(plugin, index)?, &mut next)?;
            }
        }
        *self.trail.states.get_mut(header)? = scratch.shape();
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
        (0..PLUGINS)
            .all(|plugin| (0..scratch.words(plugin)).all(|index| scratch.word(plugin, index).as_ref() == old.next()))
    }
}
