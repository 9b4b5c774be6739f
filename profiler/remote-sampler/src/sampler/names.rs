//! The names of threads.

use super::Sampler;
use crate::target::Target;
use uunwind_recorder::machine;
use uunwind_recorder::thread_names::LOOKS;
use uunwind_remote::doing;
use uunwind_remote::walks::Walks;

impl Sampler {
    /// Looks for the names that languages have for the threads, where it is time for it.
    pub(super) fn take_language_names(&mut self, target: &mut Target, walks: &Walks<'_>) {
        let waits = target.threads.values().any(|thread| !thread.is_languages && thread.looks < LOOKS);
        if !walks.needs_thread_pointer() || !target.language_names.rest.is_over(machine::monotonic(), waits) {
            return;
        }
        let mut names = walks.thread_names(&mut target.language_names);
        for (tid, thread) in &mut target.threads {
            thread.looks = thread.looks.saturating_add(1);
            if names.is_empty() {
                continue;
            }
            thread.inner = thread.inner.or_else(|| doing::inner_id(target.pid, *tid));
            let Some(name) = thread.inner.and_then(|inner| names.remove(&inner)) else { continue };
            thread.is_languages = true;
            if name != thread.name {
                self.writer.thread_name(thread.index, &name);
                thread.name = name;
            }
        }
        let note = target.language_names.note().filter(|note| !self.notes.contains(note));
        self.notes.extend(note);
    }

    /// Reads the name of a thread again, which it may have given itself.
    pub(super) fn rename(&mut self, target: &mut Target, tid: u32, index: u32) {
        let Some(thread) = target.threads.get_mut(&tid).filter(|t| t.index == index && !t.is_languages) else { return };
        let name = doing::name(target.pid, tid);
        if !name.is_empty() && name != thread.name {
            self.writer.thread_name(index, &name);
            thread.name = name;
        }
    }
}
