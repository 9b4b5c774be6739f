//! Reads a process's log of frees.

use crate::session::Session;
use std::sync::atomic::Ordering;
use uunwind_ring::frees::{offset, Entry, FREES};

/// The reader of a log. It keeps its own position: the one in shared memory is for the writers.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeReader {
    tail: u64,
    /// Entries that were left out, or could not be understood.
    pub lost: u64,
}

impl FreeReader {
    /// Takes everything out of the log of a process's block: entries with their times. `is_over`: nothing is written
    /// any more, so that what is not written is left out. Returns how full it was, in percent: at least 1 if there was
    /// anything.
    pub fn drain(&mut self, session: &Session, block: usize, is_over: bool, mut give: impl FnMut(Entry, u64)) -> u64 {
        let Some(header) = session.process(block) else { return 0 };
        let head = header.frees_head.load(Ordering::Acquire);
        let count = head.wrapping_sub(self.tail);
        if count == 0 {
            return 0;
        }
        if count > FREES as u64 {
            // Our writers never do this. Continue at the position in shared memory.
            (self.tail, self.lost) = (head, self.lost.saturating_add(1));
            session.set_frees_tail(block, self.tail);
            return 0;
        }
        let place = |place: u64| {
            let at = offset(place);
            Some([session.process_word(block, at)?, session.process_word(block, at + 8)?])
        };
        while self.tail != head {
            let Some([number, time]) = place(self.tail) else { break };
            let (first, time) = (number.load(Ordering::Acquire), time.load(Ordering::Relaxed));
            // A thread has taken the place, and will write.
            if first == 0 && !is_over {
                break;
            }
            number.store(0, Ordering::Relaxed);
            let places = Entry::places(first).unwrap_or(1) as u64;
            if first == 0 || places > head.wrapping_sub(self.tail) {
                self.lost = self.lost.saturating_add(1);
                self.tail = self.tail.wrapping_add(1);
                continue;
            }
            let mut rest = [0; 4];
            for (more, words) in (1..places).zip(rest.chunks_exact_mut(2)) {
                let Some(read) = place(self.tail.wrapping_add(more)) else { break };
                read.iter().zip(words).for_each(|(word, into)| *into = word.load(Ordering::Relaxed));
                // Whoever takes the place next finds it not written.
                read[0].store(0, Ordering::Relaxed);
            }
            match Entry::of(first, rest) {
                Some(entry) => give(entry, time),
                None => self.lost = self.lost.saturating_add(1),
            }
            self.tail = self.tail.wrapping_add(places);
        }
        session.set_frees_tail(block, self.tail);
        (count * 100 / FREES as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_ring::frees::{FreeLog, Span};
    use uunwind_ring::layout::{ProcessBlock, BLOCK_BYTES, DATA_OFFSET};

    #[test]
    fn it_reads_what_many_threads_write() {
        const THREADS: u64 = 8;
        const EACH: u64 = 20_000;
        let session = Session::create(16).expect("memfd");
        let block = session.memory().at(DATA_OFFSET + 5 * BLOCK_BYTES, 8).expect("a block") as usize;
        let (mut reader, mut seen) = (FreeReader::default(), vec![0u64; (THREADS * EACH) as usize + 1]);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    // SAFETY: a whole block of a session that is mapped.
                    let log = unsafe { FreeLog::new(&*(block as *const ProcessBlock)) };
                    for n in 0..EACH {
                        let id = thread * EACH + n + 1;
                        let wait = || {
                            std::thread::yield_now();
                            true
                        };
                        // Each third one takes three places.
                        let span = Span { start: id * 4096, bytes: id };
                        let entry = match id % 3 {
                            0 => Entry::Comes { id, span, moved_by: id + 1 },
                            _ => Entry::Free { id, is_temporary: false },
                        };
                        assert!(log.put(entry, id * 3, wait));
                    }
                });
            }
            let mut count = 0;
            while count < THREADS * EACH {
                let mut read = |entry: Entry, time: u64| {
                    let id = match entry {
                        Entry::Free { id, .. } => id,
                        Entry::Comes { id, span, moved_by } => {
                            let wanted = (Span { start: id * 4096, bytes: id }, id + 1);
                            assert_eq!((span, moved_by, id % 3), (wanted.0, wanted.1, 0));
                            id
                        }
                        other => unreachable!("{other:?}"),
                    };
                    assert_eq!(time, id * 3);
                    seen[id as usize] += 1;
                    count += 1;
                };
                reader.drain(&session, 5, false, &mut read);
            }
        });
        assert!(seen.iter().skip(1).all(|times| *times == 1) && reader.lost == 0);
        assert_eq!(reader.drain(&session, 5, true, |_, _| unreachable!("all were read")), 0);
    }

    #[test]
    fn what_was_never_written_is_left_out_in_the_end() {
        let session = Session::create(16).expect("memfd");
        let word = |offset: usize| session.memory().word(DATA_OFFSET + 2 * BLOCK_BYTES + offset).expect("a word");
        let head = std::mem::offset_of!(ProcessBlock, frees_head);
        word(head).store(2, Ordering::Release);
        session.process_word(2, offset(1)).expect("a word").store(7, Ordering::Release);
        let (mut reader, mut read) = (FreeReader::default(), Vec::new());
        reader.drain(&session, 2, false, |entry, _| read.push(entry));
        assert_eq!((read.len(), reader.lost), (0, 0));
        reader.drain(&session, 2, true, |entry, _| read.push(entry));
        assert_eq!((&read[..], reader.lost), (&[Entry::Free { id: 7, is_temporary: false }][..], 1));
        // One that is longer than what was taken, and one of no kind.
        word(head).store(4, Ordering::Release);
        for (place, first) in [(2, 9 << 56), (3, 3 << 56 | 1)] {
            session.process_word(2, offset(place)).expect("a word").store(first, Ordering::Release);
        }
        reader.drain(&session, 2, false, |entry, _| unreachable!("{entry:?}"));
        assert_eq!(reader.lost, 3);
        // No writer of ours goes so far.
        word(head).store(u64::MAX / 2, Ordering::Release);
        assert_eq!(reader.drain(&session, 2, false, |_, _| unreachable!("nothing was written")), 0);
        assert_eq!(reader.lost, 4);
    }
}
