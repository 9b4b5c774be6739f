//! Publishes to processes where their executable memory is, for copies of stacks (`uunwind_ring::code_map`).

use crate::session::Session;
use std::collections::HashMap;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps;
use uunwind_elf::process;
use uunwind_ring::code_map::{in_use, of_word, offset_of, IN_USE, RANGES};

/// A process whose sizes have not changed is looked at again after this time: memory can become executable without a
/// change of them.
const AT_LAST: Duration = Duration::from_millis(250);
/// The looks take at most one part in this number of a CPU's time.
const SHARE: u32 = 50;

/// What was published of the processes.
#[derive(Default)]
pub struct CodeMaps {
    /// By block.
    published: HashMap<usize, Published>,
    /// No look before this time.
    not_before: Option<Instant>,
    /// Time that the looks of this pass have taken.
    spent: Duration,
}

struct Published {
    pid: u32,
    /// Its sizes when its map was read ([statm](https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html)).
    sizes: String,
    when: Instant,
}

impl CodeMaps {
    /// Whether it is time for a pass over the processes.
    pub fn is_due(&self) -> bool {
        self.not_before.is_none_or(|time| Instant::now() >= time)
    }

    /// Publishes the map of the process with this block, if it may have changed.
    pub fn look(&mut self, session: &Session, block: usize, pid: u32) {
        let begun = Instant::now();
        let sizes = sizes(pid);
        let is_current = self.published.get(&block).is_some_and(|published| {
            published.pid == pid && published.sizes == sizes && published.when.elapsed() < AT_LAST
        });
        if !is_current {
            publish(session, block, pid);
            self.published.insert(block, Published { pid, sizes, when: Instant::now() });
        }
        self.spent += begun.elapsed();
    }

    /// Ends a pass.
    pub fn end(&mut self) {
        self.not_before = Some(Instant::now() + std::mem::take(&mut self.spent) * SHARE);
    }
}

/// Total size and data size, in pages; what a process uses of them changes all the time.
fn sizes(pid: u32) -> String {
    let text = std::fs::read_to_string(process::file(pid, "statm")).unwrap_or_default();
    let fields: Vec<&str> = text.split(' ').collect();
    [fields.first(), fields.get(5)].into_iter().flatten().copied().collect::<Vec<_>>().join(" ")
}

fn publish(session: &Session, block: usize, pid: u32) {
    let Ok(mappings) = maps::of(pid) else { return };
    let Some(word) = session.process_word(block, IN_USE) else { return };
    let list = 1 - of_word(word.load(std::sync::atomic::Ordering::Relaxed)).0;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings.filter(maps::Mapping::is_executable) {
        match ranges.last_mut() {
            Some(last) if last.1 == mapping.start => last.1 = mapping.end,
            _ => ranges.push((mapping.start, mapping.end)),
        }
    }
    ranges.truncate(RANGES);
    for (range, (start, end)) in ranges.iter().enumerate() {
        let offset = offset_of(list, range);
        for (offset, value) in [(offset, start), (offset + 8, end)] {
            if let Some(word) = session.process_word(block, offset) {
                word.store(*value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
    word.store(in_use(list, ranges.len()), std::sync::atomic::Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_ring::code_map::CodeMap;

    #[test]
    fn the_code_of_this_process_is_published() {
        let session = Session::create().expect("memfd");
        let mut maps = CodeMaps::default();
        assert!(maps.is_due());
        maps.look(&session, 3, std::process::id());
        maps.end();
        let block = session.memory().at(uunwind_ring::layout::DATA_OFFSET + 3 * uunwind_ring::layout::BLOCK_BYTES, 8);
        // SAFETY: a block of a session that is mapped.
        let map = unsafe { CodeMap::new(block.expect("a block")) };
        let here = the_code_of_this_process_is_published as *const () as u64;
        assert!(map.covers(here) && !map.covers(&raw const here as u64));
    }
}
