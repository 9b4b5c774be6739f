//! What processes free of the allocations that were sampled, and unmap of the mappings.

use super::{Drain, Pass};
use crate::block_owners::Use;
use crate::machine;
use uunwind_recording::{Free, Unmap};
use uunwind_ring::frees::Entry;

impl Drain {
    /// Reads the logs of all processes.
    pub(super) fn frees(&mut self, pass: &mut Pass) {
        if self.interval == 0 {
            return;
        }
        for block in 0..self.session.blocks() {
            if let Some(Some(Use::Process(_))) = self.uses.get(block) {
                self.frees_of(block, false, pass);
            }
        }
    }

    /// Reads the log of a process. `is_over`: nothing is written to it any more.
    fn frees_of(&mut self, block: usize, is_over: bool, pass: &mut Pass) {
        let Some(Some(Use::Process(process))) = self.uses.get_mut(block) else { return };
        let (process_index, mappings, writer) = (process.index, &mut process.mappings, &mut self.writer);
        let fullness = process.frees.drain(&self.session, block, is_over, |entry, time| match entry {
            Entry::Free { id, is_temporary } => {
                writer.free(Free { process: process_index, id, time });
                if is_temporary {
                    writer.temporary(process_index, id);
                }
            }
            entry => mappings.take(entry, |id, bytes, is_temporary| {
                writer.unmap(Unmap { process: process_index, id, time, bytes });
                if is_temporary {
                    writer.temporary(process_index, id);
                }
            }),
        });
        pass.fullest = pass.fullest.max(fullness);
        pass.has_found |= fullness > 0;
    }

    /// Reads the log of a process a last time. What it has not freed goes with it, unless the recording ends first.
    pub(super) fn last_frees(&mut self, block: usize, has_ended: bool) {
        if self.interval == 0 {
            return;
        }
        self.frees_of(block, true, &mut Pass::default());
        if let (true, Some(Some(Use::Process(process)))) = (has_ended, self.uses.get(block)) {
            self.writer.free(Free { process: process.index, id: Free::ALL, time: machine::monotonic() });
        }
    }
}
