//! Names of threads: the kernel's, until the thread's language has one.

use super::Drain;
use crate::block_owners::Use;
use crate::machine;
use crate::thread_names::LOOKS;
use std::collections::HashMap;
use uunwind_elf::process;

impl Drain {
    /// Writes a name that the kernel has for a thread.
    pub(super) fn kernel_name(&mut self, thread: u32, name: &str) {
        let has_other = |used: &Use| matches!(used, Use::Thread(t) if t.index == thread && t.language_name.is_some());
        if !self.uses.iter().flatten().any(has_other) {
            self.writer.thread_name(thread, name);
        }
    }

    /// Reads the name of a main thread again: it was recorded when the thread began, and may have changed before its
    /// first sample.
    pub(super) fn rename(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return };
        if thread.tid != thread.pid || std::mem::replace(&mut thread.renamed, true) {
            return;
        }
        let (index, pid, process_block) = (thread.index, thread.pid, thread.process_block);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        // Read after the name: exec changes the executable first, so if it is still the same, the name is not another
        // program's.
        let exe = std::fs::read_link(process::file(pid, "exe")).map(|path| path.into_os_string().into_encoded_bytes());
        if let (Ok(name), Ok(exe), Some(process)) = (name, exe, self.process(process_block)) {
            if process.exe == exe {
                self.kernel_name(index, name.trim_end_matches('\n'));
            }
        }
    }

    /// Looks for the names that languages have for threads, where it is time for it.
    pub fn language_names(&mut self) {
        if self.facts.claims().is_empty() {
            return;
        }
        // Block of a process -> whether one of its threads waits for a name.
        let mut processes = HashMap::new();
        for used in self.uses.iter().flatten() {
            if let Use::Thread(thread) = used {
                let waits = thread.language_name.is_none() && thread.looks < LOOKS;
                *processes.entry(thread.process_block).or_insert(false) |= waits;
            }
        }
        let now = machine::monotonic();
        for (block, waits) in processes {
            let Some(Some(Use::Process(process))) = self.uses.get_mut(block) else { continue };
            if process.thread_names.is_due(now, waits) {
                let names = process.thread_names.look(process.pid, self.facts.claims());
                if let Some(note) = process.thread_names.note() {
                    self.writer.note(&format!("process {}: {note}", process.pid));
                }
                self.take_names(block, names);
            }
        }
    }

    fn take_names(&mut self, block: usize, names: Vec<(u32, String)>) {
        let mut names: HashMap<u32, String> = names.into_iter().collect();
        for used in self.uses.iter_mut().flatten() {
            let Use::Thread(thread) = used else { continue };
            if thread.process_block != block {
                continue;
            }
            thread.looks = thread.looks.saturating_add(1);
            let name = names.remove(&thread.own_tid).filter(|name| thread.language_name.as_ref() != Some(name));
            if let Some(name) = name {
                self.writer.thread_name(thread.index, &name);
                thread.language_name = Some(name);
            }
        }
    }
}
