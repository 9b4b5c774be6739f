//! What the perf events of threads have taken goes into the recording.

use super::Drain;
use crate::block_owners::Use;
use crate::kernel::clock::KernelClock;
use crate::kernel::stitch::Piece;
use uunwind_core::frame::{native_word, FLAG_EXACT};
use uunwind_recording::{Sample, KERNEL_FRAMES};
use uunwind_ring::record::{SampleKind, SAMPLE_APART};
use uunwind_ring::samples::Words;

impl Drain {
    /// Writes the samples of the kernel's whose user stacks are there. `last`: no more of them come.
    pub(super) fn stitch(&mut self, block: usize, last: bool) {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return };
        let (index, process_block) = (thread.index, thread.process_block);
        let Some(stitch) = &mut thread.stitch else { return };
        let mut pieces = Vec::new();
        let lost = stitch.pieces(last, |piece| pieces.push(piece));
        thread.is_sampled |= lost > 0 || !pieces.is_empty();
        if lost > 0 {
            self.writer.lost(index, lost, lost);
        }
        let Some(process) = self.process(process_block).map(|p| p.index) else { return };
        for piece in pieces {
            self.piece(index, process, piece);
        }
    }

    fn piece(&mut self, thread: u32, process: u32, piece: Piece) {
        let (stacks, writer) = (&mut self.stacks, &mut self.writer);
        // Where a thread took no stack, the kernel still says at which instruction it was.
        let leaf = piece.at.map(|at| Words { word: native_word(at.pc, FLAG_EXACT), second: 0 });
        let mut stack = match (piece.user, leaf) {
            (Some(user), _) => user.node,
            (None, Some(leaf)) => stacks.node(0, leaf, |node| writer.node(node)),
            (None, None) => 0,
        };
        if let Some(clock) = self.clock.as_mut().filter(|_| !piece.kernel.is_empty()) {
            let frames = clock.frames(process, &piece.kernel, |name| writer.name(name));
            for frame in frames.into_iter().take(KERNEL_FRAMES).rev() {
                stack = stacks.node(stack, frame, |node| writer.node(node));
            }
        }
        let (stop, flags) = piece.user.map_or((0, SAMPLE_APART), |user| (user.sample.stop, user.sample.flags));
        let (time, weight, kind) = (piece.time, piece.weight, SampleKind::Timer.number());
        self.writer.sample(Sample { thread, stack, time, weight, stop, kind, flags });
        self.samples += 1;
    }

    /// Ends the timing by perf events. To be called before targets learn that the recording is over: then they give
    /// their signals back.
    pub fn end_events(&mut self) {
        for used in self.uses.iter().flatten() {
            let Use::Thread(thread) = used else { continue };
            if let Some(stitch) = &thread.stitch {
                stitch.event().stop();
            }
        }
        if let Some(line) = self.clock.as_ref().and_then(KernelClock::trouble) {
            self.writer.note(&line);
        }
    }
}
