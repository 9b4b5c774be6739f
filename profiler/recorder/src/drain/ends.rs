//! The end of a thread or a process: what is left of it is written, and its block is given back.

use super::{Drain, Pass};
use crate::block_owners::{plugin_failures, plugins, ThreadUse, Use};
use crate::machine;
use crate::startup_time::Life;
use std::sync::atomic::Ordering;
use uunwind_recording::Start;

impl Drain {
    /// Ends everything that is still in use. Call after the last pass. Blocks of live processes are left to them: they
    /// may be writing.
    pub fn finish_all(&mut self) {
        self.closing = true;
        for line in self.survey.lines(false) {
            self.writer.note(&line);
        }
        for block in 0..self.session.blocks() {
            self.finish(block);
        }
        self.write_unseen();
        self.writer.second_mappings(&self.jit.take_second_mappings());
        self.objects.finish(&mut self.facts);
        for note in self.objects.take_notes().into_iter().chain(self.jit.take_notes()) {
            self.writer.note(&note);
        }
    }

    pub(super) fn losses(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return };
        if let Some((samples, weight)) = thread.new_losses(&self.session, block) {
            thread.is_sampled = true;
            self.writer.lost(thread.index, samples, weight);
        }
    }

    pub(super) fn finish_thread(&mut self, block: usize) {
        self.stitch(block, true);
        self.losses(block);
        self.carried(block);
        self.start(block);
        self.add_run_delay(block);
        self.add_waited(block);
        self.set(block, None);
        if !self.closing {
            self.session.free(block);
        }
    }

    /// Counts the periods that no sample of a thread stands for as lost: it has ended before its next sample.
    fn carried(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get(block) else { return };
        let carried = self.session.thread(block).map_or(0, |header| header.carried.load(Ordering::Relaxed));
        if carried > 0 {
            self.writer.lost(thread.index, 1, u64::from(carried));
        }
    }

    /// Takes the start of a thread that has ended.
    fn start(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get(block) else { return };
        let Some(Some(Use::Process(process))) = self.uses.get(thread.process_block) else { return };
        let was_paused = self.was_paused(thread.process_block);
        let (Some(starts), Some(header)) = (&mut self.starts, self.session.thread(block)) else { return };
        let ThreadUse { index, pid, tid, is_sampled, .. } = **thread;
        // What has passed in a pause is in no sample.
        let is_sampled = is_sampled || was_paused;
        let is_next = |other: &Use| matches!(other, Use::Process(p) if p.pid == pid && p.index > process.index);
        let goes_on = self.uses.iter().flatten().any(is_next);
        let cpu_before = header.cpu_before.load(Ordering::Relaxed);
        let charge = starts.ended(Life { tid, pid, cpu_before, is_sampled, goes_on });
        let (block, time) = (thread.process_block, if tid == pid { process.start } else { machine::monotonic() });
        if charge.periods > 0 {
            self.writer.start(Start { thread: index, time, weight: charge.periods });
        }
        if let Some(Some(Use::Process(process))) = self.uses.get_mut(block) {
            process.cpu_before = process.cpu_before.saturating_add(charge.left_out);
        }
    }

    /// Drains a block that is no longer written to, and frees it.
    pub(super) fn finish(&mut self, block: usize) {
        let mut pass = Pass::default();
        match self.uses.get(block) {
            Some(Some(Use::Thread(_))) => {
                self.drain(block, &mut pass);
                self.finish_thread(block);
            }
            Some(Some(Use::Process(_))) => {
                let threads = self
                    .uses
                    .iter()
                    .enumerate()
                    .filter(|(_, used)| matches!(used, Some(Use::Thread(t)) if t.process_block == block));
                for thread in threads.map(|(thread, _)| thread).collect::<Vec<_>>() {
                    self.drain(thread, &mut pass);
                    self.finish_thread(thread);
                }
                self.finish_process(block);
            }
            _ => {}
        }
    }

    fn finish_process(&mut self, block: usize) {
        self.last_frees(block, !self.closing);
        if let (Some(header), Some(Some(Use::Process(p)))) = (self.session.process(block), self.uses.get(block)) {
            let plugins = plugins(&header);
            if plugins != p.plugins {
                self.writer.plugins(p.index, &plugins);
            }
            self.writer.counters(p.index, &p.counters(&header));
            for note in plugin_failures(&header) {
                self.writer.note(&note);
            }
            self.jit.finish(p.index);
            if let Some(maps) = &mut self.code_maps {
                maps.ended(block);
                self.writer.complete_maps(&maps.take_complete());
            }
            if let Some(status) = p.wait_status() {
                self.ended.add(p.pid, &p.exe, status);
            }
        }
        self.set(block, None);
        if !self.closing {
            self.session.free(block);
        }
    }
}
