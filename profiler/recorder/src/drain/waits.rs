//! What is seen of threads that wait, and of their processes, from outside.

use super::Drain;
use crate::block_owners::Use;
use crate::watch::{Seen, Watched};
use uunwind_recording::{Object, Sample};
use uunwind_ring::record::SampleKind;

impl Drain {
    /// Takes what was seen of threads that wait.
    pub(super) fn watch(&mut self) {
        let Some(mut watcher) = self.watcher.take() else { return };
        let threads = std::mem::take(&mut self.is_other).then(|| self.watched());
        self.seen(watcher.pass(threads));
        self.watcher = Some(watcher);
    }

    /// Nothing more is seen of threads that wait.
    pub fn end_watching(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            self.seen(watcher.end());
        }
    }

    fn watched(&self) -> Vec<Watched> {
        let threads = self.uses.iter().flatten().filter_map(|used| {
            let Use::Thread(thread) = used else { return None };
            let Some(Some(Use::Process(process))) = self.uses.get(thread.process_block) else { return None };
            let (index, process) = (thread.index, process.index);
            let (pid, tid, cpu) = (thread.pid, thread.tid, thread.cpu_before);
            Some(Watched { thread: index, process, pid, tid, began: thread.began, cpu })
        });
        threads.collect()
    }

    /// Adds an object that a process has, unless it has reported it itself.
    fn object(&mut self, mut object: Object) {
        let process = object.process;
        let uses = self.uses.iter_mut().flatten();
        let of = uses.filter_map(|used| if let Use::Process(process) = used { Some(process) } else { None });
        let Some(of) = of.into_iter().find(|of| of.index == process) else { return };
        of.thread_names.object(object.facts_key, object.bias);
        if self.reported.insert((process, object.start, object.facts_key)) {
            self.objects.seen(of.pid, &of.exe, &mut object, &mut self.facts);
            self.jit.object(process, &object, || self.objects.files(&object));
            self.writer.object(&object);
        }
    }

    fn seen(&mut self, seen: Vec<Seen>) {
        // Whoever watches goes on meanwhile, so that nothing is due at once afterwards.
        let paused = if seen.is_empty() { Vec::new() } else { self.paused_threads() };
        for seen in seen {
            match seen {
                Seen::Name(name) => self.writer.name(&name),
                Seen::Object(object) => self.object(object),
                Seen::ThreadName(thread, name) => self.kernel_name(thread, &name),
                Seen::Sample { thread, .. } if paused.contains(&thread) => {}
                Seen::Sample { thread, time, weight, words, stop, flags } => {
                    let (stack, _) = self.stacks.intern(&words, |node| self.writer.node(node));
                    let kind = SampleKind::Waiting.number();
                    self.writer.sample(Sample { thread, stack, time, weight, stop, kind, flags });
                    self.samples += 1;
                    self.waited.iter_mut().for_each(|waited| waited.sample(thread, weight));
                }
                Seen::Waits(mut waits) => {
                    waits.retain(|wait| !paused.contains(&wait.thread));
                    self.writer.waits(&waits);
                }
                Seen::Note(note) => self.writer.note(&note),
            }
        }
    }
}
