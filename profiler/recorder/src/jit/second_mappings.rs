//! Second mappings: a program that maps the file of one of its objects again, at another address, and runs the code
//! there, as Node.js does with V8's builtins, to have them near the code of its JIT. No loader reports them. They are
//! found in `/proc/PID/maps`, and named as the object's own code.
//!
//! A range is one of these while its bytes equal the object's: they are compared in a few spots when it is found, and
//! at every look from then on, with one system call. The first look that finds other bytes ends it at the look before.

use std::collections::{BTreeMap, HashMap, HashSet};
use uunwind_elf::maps::Mapping;
use uunwind_recording::SecondMapping;

/// At most this number of them of one process are looked at.
const MOST: usize = 64;
/// Bytes are compared in this number of spots of a range, of this length.
const SPOTS: u64 = 16;
const SPOT: usize = 64;

/// Reads another process's memory in several places.
pub trait Memory {
    /// The bytes of these places (process address, length), one after the other.
    fn read(&self, places: &[(u64, usize)]) -> Read;
}

/// What a read found.
pub enum Read {
    /// All bytes.
    Bytes(Vec<u8>),
    /// There is no memory in one of the places.
    Unmapped,
    /// The process has ended.
    Ended,
}

/// The memory of the live process with this pid
/// ([process_vm_readv(2)](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html)).
pub struct Live(pub u32);

impl Memory for Live {
    fn read(&self, places: &[(u64, usize)]) -> Read {
        let mut out = vec![0u8; places.iter().map(|(_, len)| *len).sum()];
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote: Vec<libc::iovec> =
            places.iter().map(|(at, len)| libc::iovec { iov_base: *at as *mut libc::c_void, iov_len: *len }).collect();
        let count = remote.len() as libc::c_ulong;
        let read = uunwind_elf::process::with_memory(self.0, |id| {
            // SAFETY: `local` is our own buffer; the kernel checks the other process's addresses.
            let read = unsafe { libc::process_vm_readv(id as libc::pid_t, &local, 1, remote.as_ptr(), count, 0) };
            usize::try_from(read).map_err(|_| std::io::Error::last_os_error())
        });
        match read {
            Ok(read) if read == out.len() => Read::Bytes(out),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Read::Ended,
            _ => Read::Unmapped,
        }
    }
}

/// A range, and the process address in an object whose bytes it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Range {
    start: u64,
    end: u64,
    original: u64,
}

impl Range {
    /// Whether its bytes equal the object's; `None`: the process has ended.
    fn is_same(&self, memory: &impl Memory) -> Option<bool> {
        let spot = (SPOT as u64).min(self.end - self.start);
        let step = (self.end - self.start - spot) / (SPOTS - 1);
        let at = |from: u64| (0..SPOTS).map(move |n| (from.wrapping_add(n * step), spot as usize));
        let places: Vec<_> = at(self.start).chain(at(self.original)).collect();
        match memory.read(&places) {
            Read::Bytes(bytes) => {
                let (here, there) = bytes.split_at(bytes.len() / 2);
                Some(here == there)
            }
            Read::Unmapped => Some(false),
            Read::Ended => None,
        }
    }
}

/// An executable mapping, and since when it is there at the latest: where other code was before, since it was seen;
/// else, since the search before.
struct Seen {
    mapping: Mapping,
    since: u64,
}

/// Those of one process.
#[derive(Default)]
pub struct SecondMappings {
    /// The process's objects: start and end of each.
    objects: BTreeMap<u64, u64>,
    /// What has an object's bytes now.
    live: Vec<Range>,
    /// What looked like one, and has other bytes.
    others: HashSet<Range>,
    /// What was executable at the last search, by address, and the search's time; before the first one, nothing.
    seen: Vec<Seen>,
    searched: u64,
    /// The last time at which the live ones had their objects' bytes.
    checked: u64,
    found: Vec<SecondMapping>,
    left_out: u64,
}

impl SecondMappings {
    /// Of a process that began at this time (CLOCK_MONOTONIC, ns).
    pub fn new(start: u64) -> SecondMappings {
        SecondMappings { searched: start, checked: start, ..SecondMappings::default() }
    }

    /// Adds an object of the process, from `start` to `end` (process addresses).
    pub fn object(&mut self, start: u64, end: u64) {
        self.objects.insert(start, end);
    }

    /// What was found since the last call. The index of the process is left to the caller.
    pub fn take(&mut self) -> Vec<SecondMapping> {
        std::mem::take(&mut self.found)
    }

    /// Number of ranges for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Up to this time, what was mapped has not changed, as somebody else has seen.
    pub fn unchanged_until(&mut self, time: u64) {
        self.checked = self.checked.max(time);
        self.searched = self.searched.max(time);
    }

    /// Compares what is there with the objects. `now`: a time before the call (CLOCK_MONOTONIC, ns).
    pub fn look(&mut self, memory: &impl Memory, now: u64) {
        let mut live = std::mem::take(&mut self.live);
        live.retain(|range| {
            let is_same = range.is_same(memory).unwrap_or(true);
            if !is_same {
                self.gone(*range, self.checked);
            }
            is_same
        });
        self.live = live;
        self.checked = self.checked.max(now);
    }

    /// Looks for new ones in what the process has mapped, in order of addresses; after [`SecondMappings::look`] with
    /// the same time.
    pub fn search(&mut self, mappings: &[Mapping], memory: &impl Memory, now: u64) {
        let executable = mappings.iter().filter(|mapping| mapping.is_executable());
        self.seen = executable.map(|m| Seen { mapping: m.clone(), since: self.since(m, now) }).collect();
        let found = self.ranges(mappings);
        let mut live = std::mem::take(&mut self.live);
        live.retain(|range| {
            let is_there = found.contains(range);
            if !is_there {
                // A part of it may have been replaced, where its bytes were not compared.
                self.gone(*range, self.searched);
            }
            is_there
        });
        self.live = live;
        self.others.retain(|range| found.contains(range));
        for range in &found {
            if self.live.contains(range) || self.others.contains(range) {
                continue;
            }
            if self.live.len() + self.others.len() >= MOST {
                self.left_out = self.left_out.max(1);
                break;
            }
            match range.is_same(memory) {
                Some(true) => {
                    let Range { start, end, original } = *range;
                    let after = self.seen.partition_point(|seen| seen.mapping.start <= start);
                    let time = after.checked_sub(1).and_then(|at| self.seen.get(at)).map_or(now, |seen| seen.since);
                    self.found.push(SecondMapping { process: 0, time, start, end, original });
                    self.live.push(*range);
                }
                Some(false) => {
                    self.others.insert(*range);
                }
                None => break,
            }
        }
        self.searched = now;
    }

    /// Since when a mapping is there that is found `now`.
    fn since(&self, mapping: &Mapping, now: u64) -> u64 {
        let first = self.seen.partition_point(|seen| seen.mapping.end <= mapping.start);
        match self.seen.get(first).filter(|seen| seen.mapping.start < mapping.end) {
            None => self.searched,
            Some(seen) if seen.mapping == *mapping => seen.since,
            Some(_) => now,
        }
    }

    fn gone(&mut self, range: Range, time: u64) {
        let Range { start, end, .. } = range;
        // From the next nanosecond on: at that time it was there.
        self.found.push(SecondMapping { process: 0, time: time + 1, start, end, original: 0 });
    }

    /// The executable ranges outside all objects, of files that an object has mapped, where the object's mapping is
    /// executable, too.
    fn ranges(&self, mappings: &[Mapping]) -> Vec<Range> {
        let mut originals: HashMap<_, Vec<&Mapping>> = HashMap::new();
        let mut seconds = Vec::new();
        for mapping in mappings.iter().filter(|m| m.is_executable() && !m.is_writable() && m.inode != 0) {
            let object = self.objects.range(..=mapping.start).next_back();
            if object.is_some_and(|(_, end)| mapping.start < *end) {
                originals.entry((mapping.device, mapping.inode)).or_default().push(mapping);
            } else {
                seconds.push(mapping);
            }
        }
        let end_of = |m: &Mapping| m.offset.saturating_add(m.end.saturating_sub(m.start));
        let mut found = Vec::new();
        for second in seconds {
            for original in originals.get(&(second.device, second.inode)).into_iter().flatten() {
                let from = second.offset.max(original.offset);
                let to = end_of(second).min(end_of(original));
                // A file may be mapped in many pieces.
                if from < to && found.len() < 2 * MOST {
                    let at = |m: &Mapping, offset: u64| m.start.wrapping_add(offset.wrapping_sub(m.offset));
                    let (start, end) = (at(second, from), at(second, to));
                    found.push(Range { start, end, original: at(original, from) });
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use uunwind_elf::maps::in_text;

    /// Objects have bytes by their offset in the file; what is mapped again has the same, if it is `as_the_file`.
    struct Fake {
        as_the_file: Cell<bool>,
        has_ended: Cell<bool>,
    }

    const OBJECT: u64 = 0x40_0000;
    const SECOND: u64 = 0x7f00_0000;

    impl Memory for Fake {
        fn read(&self, places: &[(u64, usize)]) -> Read {
            if self.has_ended.get() {
                return Read::Ended;
            }
            let byte = |at: u64| match at {
                // The file's offsets 0x2000 to 0x5000 are mapped a second time.
                SECOND.. if self.as_the_file.get() => {
                    (at - SECOND + 0x2000) as u8 ^ ((at - SECOND + 0x2000) >> 8) as u8
                }
                SECOND.. => 0xcc,
                _ => (at - OBJECT) as u8 ^ ((at - OBJECT) >> 8) as u8,
            };
            Read::Bytes(places.iter().flat_map(|(at, len)| (*at..*at + *len as u64).map(byte)).collect())
        }
    }

    const FILE: &str = "400000-401000 r--p 00000000 08:01 12 /bin/a\n401000-404000 r-xp 00001000 08:01 12 /bin/a\n";
    const AGAIN: &str = "7f000000-7f003000 r-xp 00002000 08:01 12 /bin/a\n";

    fn process() -> (SecondMappings, Fake) {
        let mut of = SecondMappings::new(5);
        of.object(OBJECT, OBJECT + 0x5000);
        (of, Fake { as_the_file: Cell::new(true), has_ended: Cell::new(false) })
    }

    fn mapped(text: &str) -> Vec<Mapping> {
        in_text([FILE, text].concat().as_bytes()).collect()
    }

    fn event(time: u64, original: u64) -> SecondMapping {
        // Only what the object has mapped executable, too.
        SecondMapping { process: 0, time, start: SECOND, end: SECOND + 0x2000, original }
    }

    #[test]
    fn a_part_of_an_objects_file_that_is_mapped_again_is_found_and_its_end_too() {
        let (mut of, memory) = process();
        of.search(&mapped(""), &memory, 10);
        assert_eq!(of.take(), []);
        of.search(&mapped(AGAIN), &memory, 20);
        assert_eq!(of.take(), [event(10, OBJECT + 0x2000)], "from when nothing was there");
        of.look(&memory, 30);
        memory.as_the_file.set(false);
        of.look(&memory, 40);
        assert_eq!(of.take(), [event(31, 0)]);
        of.search(&mapped(AGAIN), &memory, 50);
        memory.as_the_file.set(true);
        of.search(&mapped(AGAIN), &memory, 60);
        assert_eq!(of.take(), [], "what had other bytes is not looked at again");
        of.search(&mapped(""), &memory, 70);
        of.search(&mapped(AGAIN), &memory, 80);
        assert_eq!(of.take(), [event(70, OBJECT + 0x2000)], "but what was mapped anew is");
    }

    #[test]
    fn an_object_that_is_reported_late_names_what_was_there_before() {
        let (_, memory) = process();
        let mut of = SecondMappings::new(5);
        of.search(&mapped(AGAIN), &memory, 10);
        of.search(&mapped(AGAIN), &memory, 20);
        of.object(OBJECT, OBJECT + 0x5000);
        of.search(&mapped(AGAIN), &memory, 30);
        assert_eq!(of.take(), [event(5, OBJECT + 0x2000)]);
    }

    #[test]
    fn where_other_code_was_it_holds_from_when_it_was_seen() {
        let (mut of, memory) = process();
        of.search(&mapped("7f001000-7f002000 rwxp 00000000 00:00 0\n"), &memory, 10);
        of.search(&mapped(AGAIN), &memory, 20);
        assert_eq!(of.take(), [event(20, OBJECT + 0x2000)]);
        of.look(&memory, 30);
        // A part was replaced: since the last search, for all that is known.
        of.search(&mapped("7f000000-7f001000 r-xp 00002000 08:01 12 /bin/a\n"), &memory, 40);
        let part = SecondMapping { time: 40, end: SECOND + 0x1000, ..event(0, OBJECT + 0x2000) };
        assert_eq!(of.take(), [event(21, 0), part]);
    }

    #[test]
    fn what_ends_with_its_process_was_there_until_then() {
        let (mut of, memory) = process();
        of.search(&mapped(AGAIN), &memory, 20);
        assert_eq!(of.take(), [event(5, OBJECT + 0x2000)]);
        memory.has_ended.set(true);
        of.look(&memory, 30);
        assert_eq!(of.take(), []);
    }

    #[test]
    fn other_files_writable_and_anonymous_code_are_none() {
        let (mut of, memory) = process();
        for line in [
            "7f000000-7f003000 r-xp 00002000 08:02 12 /bin/a\n",
            "7f000000-7f003000 r-xp 00002000 08:01 13 /bin/b\n",
            "7f000000-7f003000 rwxp 00002000 08:01 12 /bin/a\n",
            "7f000000-7f003000 r--p 00002000 08:01 12 /bin/a\n",
            "7f000000-7f003000 r-xp 00000000 00:00 0\n",
            "7f000000-7f003000 r-xp 00004000 08:01 12 /bin/a\n",
        ] {
            of.search(&mapped(line), &memory, 20);
            assert_eq!(of.take(), [], "{line}");
        }
    }

    /// A process that maps its own code again, read as the recorder does.
    #[test]
    fn this_process_is_read_and_one_that_has_ended_is_not() {
        let own = std::process::id();
        let here: &[u8; SPOT] = &[7; SPOT];
        let place = (here.as_ptr() as u64, SPOT);
        assert!(matches!(Live(own).read(&[place, place]), Read::Bytes(bytes) if bytes == [7; 2 * SPOT]));
        assert!(matches!(Live(own).read(&[place, (1, SPOT)]), Read::Unmapped));
        assert!(matches!(Live(i32::MAX as u32).read(&[place]), Read::Ended));
    }
}
