//! Processes whose recording is paused.

use super::Drain;
use crate::block_owners::Use;
use std::sync::atomic::Ordering;
use uunwind_ring::layout::ProcessBlock;

impl Drain {
    /// Pauses the recording of all processes, or resumes it.
    pub fn switch(&mut self, paused: bool) {
        self.facts.switch(paused);
    }

    /// Whether the process with this header is paused: as the recorder has it, unless the process has decided since.
    pub(super) fn is_paused(&self, header: &ProcessBlock) -> bool {
        let (own, switches) = (header.pause.load(Ordering::Relaxed), self.facts.switches());
        let last = if own >> 1 == u64::from(switches) { own } else { u64::from(switches) };
        last & 1 != 0
    }

    /// Whether a process has been paused, or is.
    pub(super) fn was_paused(&self, block: usize) -> bool {
        self.session
            .process(block)
            .is_some_and(|header| header.paused_periods.load(Ordering::Relaxed) > 0 || self.is_paused(&header))
    }

    /// Indices of the threads that are paused.
    pub(super) fn paused_threads(&self) -> Vec<u32> {
        let threads = self.uses.iter().flatten().filter_map(|used| match used {
            Use::Thread(thread) => Some((thread.index, thread.process_block)),
            Use::Process(_) => None,
        });
        let is_paused = |block: &usize| self.session.process(*block).is_some_and(|header| self.is_paused(&header));
        threads.filter(|(_, block)| is_paused(block)).map(|(index, _)| index).collect()
    }
}
