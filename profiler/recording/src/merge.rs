//! Several recordings as one.

use crate::objects::ObjectMap;
use crate::{End, EndCause, Of, Recording, Sample, Settings};

impl Recording {
    /// Whether threads that wait were sampled, too: samples then stand for the time of threads, not for CPU time.
    pub fn is_wall(&self) -> bool {
        self.settings.flags & Settings::WALL != 0
    }

    /// Whether this is what a recording had when it went on.
    pub fn is_snapshot(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.cause == EndCause::Snapshot)
    }

    /// Adds another recording: its processes and threads stand beside this one's, and its times count from this one's
    /// beginning. The error says why the two cannot be added.
    pub fn merge(&mut self, mut other: Recording) -> Result<(), String> {
        self.has_value_of(&other)?;
        let (rate, others) = (self.settings.rate, other.settings.rate);
        if rate != others {
            if self.is_lock() {
                return Err(format!(
                    "its samples are {others} ns of waiting apart on average, and another one's {rate}: what one stands for \
                     differs"
                ));
            }
            if self.is_alloc() {
                return Err(format!(
                    "its samples are {others} bytes apart on average, and another one's {rate}: what one stands for differs"
                ));
            }
            return Err(format!(
                "it was made at {others} Hz, and another one at {rate} Hz: their samples stand for different times"
            ));
        }
        let shift = self.settings.start_monotonic.wrapping_sub(other.settings.start_monotonic) as i64;
        let processes = self.processes.len() as u32;
        let threads = self.threads.len() as u32;
        let objects = self.objects.len() as u32;
        let nodes = self.nodes.len() as u32;
        let codes = self.jit.codes.len() as u32;
        // An index that is none in its own recording, which may hold anything, is none in this one.
        let moved_by = |index: &mut u32, by: u32| *index = index.saturating_add(by);
        let node = |node: u32| if node == 0 { 0 } else { node.saturating_add(nodes) };
        // What began before the other recording, or before boot, stays in order.
        let at = |time: u64| time.saturating_add_signed(shift);

        other.processes.iter_mut().for_each(|process| process.start = at(process.start));
        other.threads.iter_mut().for_each(|thread| moved_by(&mut thread.process, processes));
        for object in &mut other.objects {
            moved_by(&mut object.process, processes);
            // 0: since the beginning.
            object.time = if object.time == 0 { 0 } else { at(object.time) };
        }
        other.names.iter_mut().for_each(|name| moved_by(&mut name.process, processes));
        other.nodes.iter_mut().for_each(|entry| entry.parent = node(entry.parent));
        let moved = |sample: &mut Sample| {
            (sample.thread, sample.stack, sample.time) =
                (sample.thread.saturating_add(threads), node(sample.stack), at(sample.time));
        };
        other.samples.iter_mut().chain(&mut other.fatal).for_each(moved);
        for start in &mut other.starts {
            (start.thread, start.time) = (start.thread.saturating_add(threads), at(start.time));
        }
        for wait in &mut other.waits {
            (wait.thread, wait.begin) = (wait.thread.saturating_add(threads), at(wait.begin));
        }
        other.lost.iter_mut().for_each(|lost| moved_by(&mut lost.thread, threads));
        other.counters.iter_mut().for_each(|(process, _)| moved_by(process, processes));
        other.lines.iter_mut().for_each(|line| moved_by(&mut line.process, processes));
        other.places.iter_mut().for_each(|place| moved_by(&mut place.process, processes));
        for mapping in &mut other.second_mappings {
            (mapping.process, mapping.time) = (mapping.process.saturating_add(processes), at(mapping.time));
        }
        for map in &mut other.complete_maps {
            (map.process, map.from, map.until) = (map.process.saturating_add(processes), at(map.from), at(map.until));
        }
        for place in &mut other.jit.places {
            (place.process, place.time) = (place.process.saturating_add(processes), at(place.time));
            place.code = place.code.map(|code| code.saturating_add(codes));
        }
        if let Some(symbols) = &mut other.symbols {
            symbols.entries.iter_mut().for_each(|symbol| moved_by(&mut symbol.object, objects));
            symbols.calls.iter_mut().for_each(|call| moved_by(&mut call.object, objects));
            symbols.unusable.iter_mut().for_each(|(object, _)| moved_by(object, objects));
        }

        other.lock_waits.iter_mut().for_each(|wait| wait.sample += self.samples.len());
        self.lock_waits.append(&mut other.lock_waits);
        for allocation in &mut other.allocations {
            allocation.sample += self.samples.len();
            (allocation.freed, allocation.ended) = (allocation.freed.map(at), allocation.ended.map(at));
            allocation.parts.iter_mut().for_each(|part| part.time = at(part.time));
        }
        for copy in &mut other.copies {
            match &mut copy.of {
                Of::Sample(index) => *index += self.samples.len(),
                Of::Fatal(index) => *index += self.fatal.len(),
                Of::Beside(thread, time) => (*thread, *time) = (thread.saturating_add(threads), at(*time)),
            }
        }
        self.labels.merge(&other.labels, |thread| thread.saturating_add(threads), at);
        self.allocations.append(&mut other.allocations);
        self.copies.append(&mut other.copies);
        self.processes.append(&mut other.processes);
        self.threads.append(&mut other.threads);
        self.objects.append(&mut other.objects);
        self.names.append(&mut other.names);
        self.nodes.append(&mut other.nodes);
        self.depths.append(&mut other.depths);
        self.samples.append(&mut other.samples);
        self.fatal.append(&mut other.fatal);
        self.starts.append(&mut other.starts);
        self.waits.append(&mut other.waits);
        self.lost.append(&mut other.lost);
        self.counters.append(&mut other.counters);
        self.lines.append(&mut other.lines);
        self.places.append(&mut other.places);
        self.second_mappings.append(&mut other.second_mappings);
        self.complete_maps.append(&mut other.complete_maps);
        self.jit.codes.append(&mut other.jit.codes);
        self.jit.places.append(&mut other.jit.places);
        self.warnings.append(&mut other.warnings);
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        for language in other.languages {
            if self.languages.iter().all(|known| known.plugin != language.plugin) {
                self.languages.push(language);
            }
        }
        // Where one lacks them, all are looked up anew.
        self.symbols = self.symbols.take().zip(other.symbols).map(|(mut symbols, mut others)| {
            symbols.entries.append(&mut others.entries);
            symbols.calls.append(&mut others.calls);
            symbols.unusable.append(&mut others.unusable);
            symbols
        });
        self.keep_symbols_with_canonical_objects();
        self.end = self.end.take().zip(other.end).map(|(end, others)| End {
            time: end.time.max(at(others.time)),
            cpu_used: end.cpu_used.saturating_add(others.cpu_used),
            recorder_cpu: end.recorder_cpu.saturating_add(others.recorder_cpu),
            samples: end.samples.saturating_add(others.samples),
            threads_without_block: end.threads_without_block.saturating_add(others.threads_without_block),
            processes_without_block: end.processes_without_block.saturating_add(others.processes_without_block),
            ..end
        });
        Ok(())
    }

    /// Gives symbols to the object that now stands for all with its identity.
    fn keep_symbols_with_canonical_objects(&mut self) {
        let map = ObjectMap::new(self);
        if let Some(symbols) = &mut self.symbols {
            symbols.entries.iter_mut().for_each(|symbol| symbol.object = map.canonical(symbol.object));
            symbols.calls.iter_mut().for_each(|call| call.object = map.canonical(call.object));
            symbols.unusable.iter_mut().for_each(|(object, _)| *object = map.canonical(*object));
            symbols.unusable.sort();
            symbols.unusable.dedup();
        }
    }
}
