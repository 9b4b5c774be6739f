//! [jitdump files](https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jitdump-specification.txt):
//! binary records of functions that are loaded or moved, and of their lines, each with its time. The JIT maps the
//! file's first page executable, so that the file is found in `/proc/<pid>/maps`.

use super::table::{name, Code, Line, Table, When};
use std::collections::HashMap;
use std::rc::Rc;
use uunwind_recording::JitSource;

/// "JiTD", in the byte order of the machine that wrote it.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// The machine whose code is taken (`e_machine`).
const MACHINE: u32 = uunwind_elf::MACHINE as u32;
/// Flag of the header: times are those of the CPU's time-stamp counter, not of CLOCK_MONOTONIC.
const ARCH_TIMESTAMP: u64 = 1;
/// Size of the file header in version 1, in bytes.
const HEADER: usize = 40;
/// Size of a record's prefix (kind, size, time), in bytes.
const PREFIX: usize = 16;
/// Largest record that is read, in bytes; a larger one is skipped.
const LARGEST: u32 = 8 << 20;
/// At most this number of lines of a function are read.
const MOST_LINES: usize = 1 << 16;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;

/// A parser for a file that is read while it grows: bytes are fed in order, and kept until their record is complete.
pub struct JitDump {
    pending: Vec<u8>,
    /// Bytes that `pending` has taken from the table's room.
    held: usize,
    header: bool,
    own_times: bool,
    /// Bytes of an over-large record that are still to be skipped.
    skip: u64,
    /// Why the rest of the file is not read; empty after a CLOSE record.
    ended: Option<String>,
    /// The function's number in the file -> its index in the table.
    codes: HashMap<u64, u32>,
    /// Address of a function -> its lines, which the file has before the function.
    lines: HashMap<u64, Rc<[Line]>>,
    files: HashMap<Vec<u8>, Rc<str>>,
}

/// Takes fields off the front of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.raw(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.raw(8)?.try_into().ok()?))
    }

    /// A NUL-terminated text, without the NUL.
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|b| *b == 0)?;
        let text = self.raw(len)?;
        self.raw(1)?;
        Some(text)
    }
}

/// The times that a look at a file goes by (CLOCK_MONOTONIC, ns).
#[derive(Clone, Copy)]
pub struct Clock {
    /// Time of the previous look, for records without a valid time.
    pub before: u64,
    /// Earliest valid time of a record. A record with a time outside `earliest..=latest` is treated as one without a
    /// time.
    pub earliest: u64,
    /// Latest valid time of a record.
    pub latest: u64,
}

impl Default for JitDump {
    fn default() -> JitDump {
        JitDump {
            pending: Vec::new(),
            held: 0,
            header: false,
            own_times: true,
            skip: 0,
            ended: None,
            codes: HashMap::new(),
            lines: HashMap::new(),
            files: HashMap::new(),
        }
    }
}

impl JitDump {
    /// Why the rest of the file is not read; `None` while it is read, empty after its CLOSE record.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Parses the next bytes of the file, which may be any bytes.
    pub fn feed(&mut self, mut bytes: &[u8], table: &mut Table, clock: Clock) {
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        bytes = bytes.get(skipped as usize..).unwrap_or(&[]);
        if self.ended.is_some() || bytes.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(len) = self.one(pending.get(at..).unwrap_or(&[]), table, clock) {
            at += len;
        }
        // After an over-large record.
        if at > pending.len() {
            self.skip = (at - pending.len()) as u64;
            at = pending.len();
        }
        pending.drain(..at);
        self.pending = pending;
        self.hold(table);
    }

    /// Accounts the bytes of an incomplete record to the table's room, instead of those that were pending before.
    fn hold(&mut self, table: &mut Table) {
        table.room.give(self.held);
        self.held = self.pending.len();
        if !table.room.take(self.held) {
            (self.pending, self.held) = (Vec::new(), 0);
            self.ended = Some("there is no room for more of what JITs report".to_owned());
        }
    }

    /// Number of the following bytes that belong to an over-large record and must not be fed. Resets it.
    pub fn skip(&mut self) -> u64 {
        std::mem::take(&mut self.skip)
    }

    /// Parses one record and returns its length. `None`: it is not complete yet, or the rest of the file is not read.
    fn one(&mut self, bytes: &[u8], table: &mut Table, clock: Clock) -> Option<usize> {
        if self.ended.is_some() {
            return None;
        }
        if !self.header {
            return self.file_header(bytes);
        }
        let mut f = Fields(bytes);
        let (kind, size, time) = (f.u32()?, f.u32()?, f.u64()?);
        if (size as usize) < PREFIX {
            self.ended = Some(format!("it has a record of {size} bytes, less than its own prefix"));
            return None;
        }
        if size > LARGEST {
            table.left_out += 1;
            return Some(size as usize);
        }
        let body = bytes.get(PREFIX..size as usize)?;
        let timed = self.own_times && (clock.earliest..=clock.latest).contains(&time);
        let when = if timed { When::at(time) } else { When { after: clock.before, by: clock.latest } };
        let taken = match kind {
            LOAD => self.load(Fields(body), table, when),
            MOVE => self.moved(Fields(body), table, when),
            DEBUG_INFO => self.debug_info(Fields(body), table),
            CLOSE => {
                self.ended = Some(String::new());
                Some(())
            }
            // Unwinding information, and kinds that later versions add.
            _ => Some(()),
        };
        if taken.is_none() {
            table.left_out += 1;
        }
        Some(size as usize)
    }

    fn file_header(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut f = Fields(bytes.get(..HEADER)?);
        let (magic, version, size, machine) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
        let (_pad, _pid, _time, flags) = (f.u32()?, f.u32()?, f.u64()?, f.u64()?);
        let wrong = if magic != MAGIC {
            Some(format!("it begins with {magic:#010x}, where jitdump has {MAGIC:#010x}"))
        } else if version != VERSION {
            Some(format!("it has version {version}, and {VERSION} is known"))
        } else if machine != MACHINE {
            Some(format!("it is for machine {machine}, not {MACHINE} ({})", uunwind_elf::MACHINE_NAME))
        } else if (size as usize) < HEADER || size > 4096 {
            Some(format!("its header has {size} bytes"))
        } else {
            None
        };
        if wrong.is_some() {
            self.ended = wrong;
            return None;
        }
        self.header = true;
        self.own_times = flags & ARCH_TIMESTAMP == 0;
        Some(size as usize)
    }

    fn load(&mut self, mut f: Fields<'_>, table: &mut Table, when: When) -> Option<()> {
        let (_pid, _tid, _vma) = (f.u32()?, f.u32()?, f.u64()?);
        let (start, size, index) = (f.u64()?, f.u64()?, f.u64()?);
        let bytes = f.text()?;
        let end = start.checked_add(size).filter(|end| *end > start)?;
        let lines = self.lines.remove(&start).unwrap_or_else(|| Rc::from([]));
        let code = Code { source: JitSource::JitDump, start, end, name: name(bytes), lines };
        self.codes.insert(index, table.come(code, when)?);
        Some(())
    }

    fn moved(&mut self, mut f: Fields<'_>, table: &mut Table, when: When) -> Option<()> {
        let (_pid, _tid, _vma) = (f.u32()?, f.u32()?, f.u64()?);
        let (_old, start, size, index) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
        let old = *self.codes.get(&index)?;
        let code = table.codes.get(old as usize)?.clone();
        let end = start.checked_add(size).filter(|end| *end > start)?;
        table.go(old, when);
        self.codes.insert(index, table.come(Code { start, end, ..code }, when)?);
        Some(())
    }

    fn debug_info(&mut self, mut f: Fields<'_>, table: &mut Table) -> Option<()> {
        let (start, count) = (f.u64()?, f.u64()?);
        let mut lines = Vec::new();
        let mut file: Rc<str> = Rc::from("");
        for _ in 0..count.min(MOST_LINES as u64) {
            let (address, line, _discriminator) = (f.u64()?, f.u32()?, f.u32()?);
            // The single byte 0xff stands for the file of the previous entry.
            match f.text()? {
                [0xff] => {}
                bytes => file = self.file(bytes, table)?,
            }
            let Some(offset) = address.checked_sub(start) else { continue };
            lines.push(Line { offset, file: file.clone(), line });
        }
        lines.sort_by_key(|l| l.offset);
        if self.lines.len() >= MOST_LINES {
            // Lines of functions that were never loaded.
            self.lines.drain().for_each(|(_, lines)| table.room.give(bytes_of(&lines)));
        }
        if !table.room.take(bytes_of(&lines)) {
            return None;
        }
        if let Some(before) = self.lines.insert(start, lines.into()) {
            table.room.give(bytes_of(&before));
        }
        Some(())
    }

    /// A file's name, stored once for all its lines. `None`: there is no room for it.
    fn file(&mut self, bytes: &[u8], table: &mut Table) -> Option<Rc<str>> {
        if let Some(file) = self.files.get(bytes) {
            return Some(file.clone());
        }
        let file = name(bytes);
        if !table.room.take(bytes.len() + file.len()) {
            return None;
        }
        if self.files.len() < MOST_LINES {
            self.files.insert(bytes.to_vec(), file.clone());
        }
        Some(file)
    }
}

/// Size of lines in memory, in bytes.
fn bytes_of(lines: &[Line]) -> usize {
    std::mem::size_of_val(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::table::Room;

    const CLOCK: Clock = Clock { before: 50, earliest: 100, latest: 1000 };

    /// A file header as the specification describes it.
    fn header(machine: u32, flags: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [MAGIC, 1, 40, machine, 0, 77] {
            out.extend(n.to_ne_bytes());
        }
        for n in [5u64, flags] {
            out.extend(n.to_ne_bytes());
        }
        out
    }

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(kind.to_ne_bytes());
        out.extend((16 + body.len() as u32).to_ne_bytes());
        out.extend(time.to_ne_bytes());
        out.extend(body);
        out
    }

    fn words(words: &[u64], tail: &[u8]) -> Vec<u8> {
        let mut out = Vec::from([77, 0, 0, 0, 77, 0, 0, 0]);
        words.iter().for_each(|w| out.extend(w.to_ne_bytes()));
        out.extend(tail);
        out
    }

    fn file() -> Vec<u8> {
        let mut lines = Vec::new();
        for n in [0x1000u64, 2] {
            lines.extend(n.to_ne_bytes());
        }
        for (address, line, file) in [(0x1004u64, 8u32, &b"a.js\0"[..]), (0x1010, 9, b"\xff\0")] {
            lines.extend(address.to_ne_bytes());
            lines.extend(line.to_ne_bytes());
            lines.extend(0u32.to_ne_bytes());
            lines.extend(file);
        }
        [
            header(MACHINE, 0),
            record(DEBUG_INFO, 100, &lines),
            record(LOAD, 110, &words(&[0x1000, 0x1000, 0x40, 1], b"first\0CODE")),
            record(9, 111, b"something new"),
            record(MOVE, 120, &words(&[0x2000, 0x1000, 0x2000, 0x40, 1], b"")),
            record(LOAD, 7, &words(&[0x1000, 0x1000, 0x40, 2], b"without a time\0CODE")),
            record(CLOSE, 130, b""),
            record(LOAD, 140, &words(&[0x9000, 0x9000, 0x40, 3], b"after the end\0")),
        ]
        .concat()
    }

    #[test]
    fn records_in_parts_of_any_size() {
        for step in [1, 3, 16, 1000] {
            let (mut dump, mut table) = (JitDump::default(), Table::default());
            file().chunks(step).for_each(|part| dump.feed(part, &mut table, CLOCK));
            let codes: Vec<_> = table.codes.iter().map(|c| (&*c.name, c.start, c.end, c.lines.len())).collect();
            let expected =
                [("first", 0x1000, 0x1040, 2), ("first", 0x2000, 0x2040, 2), ("without a time", 0x1000, 0x1040, 0)];
            assert_eq!(codes, expected);
            let events: Vec<_> =
                table.events.iter().map(|e| (e.when.after, e.code, e.comes, e.when.after == e.when.by)).collect();
            assert_eq!(
                events,
                [(110, 0, true, true), (120, 0, false, true), (120, 1, true, true), (50, 2, true, false)]
            );
            let line = &table.codes[1].lines[1];
            assert_eq!((line.offset, line.line, &*line.file), (0x10, 9, "a.js"));
            assert_eq!((dump.ended(), table.left_out), (Some(""), 0));
        }
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        for (bytes, why) in [
            (header(183, 0), "machine 183"),
            (vec![0; 64], "begins with 0x00000000"),
            ([header(MACHINE, 0), record(LOAD, 1, b"")[..4].to_vec(), vec![3; 12]].concat(), ""),
            ([header(MACHINE, 0), vec![0; 16]].concat(), "record of 0 bytes"),
        ] {
            let (mut dump, mut table) = (JitDump::default(), Table::default());
            dump.feed(&bytes, &mut table, CLOCK);
            assert!(dump.ended().unwrap_or("").contains(why), "{:?} for {why}", dump.ended());
            assert!(table.codes.is_empty());
        }
    }

    #[test]
    fn a_record_that_is_too_large_is_skipped() {
        let (mut dump, mut table) = (JitDump::default(), Table::default());
        dump.feed(&header(MACHINE, 0), &mut table, CLOCK);
        let mut large = record(LOAD, 110, &[]);
        large[4..8].copy_from_slice(&(LARGEST + 16).to_ne_bytes());
        dump.feed(&large, &mut table, CLOCK);
        for _ in 0..LARGEST >> 20 {
            dump.feed(&vec![0; 1 << 20], &mut table, CLOCK);
        }
        let next = record(LOAD, 110, &words(&[0x1000, 0x1000, 0x40, 1], b"next\0"));
        dump.feed(&next, &mut table, CLOCK);
        assert_eq!(table.codes.len(), 1, "{:?}", dump.ended());
        assert_eq!(table.left_out, 1);
    }

    #[test]
    fn lines_take_no_more_than_there_is_room_for() {
        let room = 16 << 20;
        let (mut dump, mut table) = (JitDump::default(), Table { room: Room::of(room), ..Table::default() });
        dump.feed(&header(MACHINE, 0), &mut table, CLOCK);
        // All lines at one address, each in an unnamed file: 17 bytes in the record, and twice that in memory.
        let line = [0x1000u64.to_ne_bytes().as_slice(), &[7, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        let lines = line.repeat(MOST_LINES);
        let most = room / (MOST_LINES * std::mem::size_of::<Line>()) as u64;
        for function in 0..most + 10 {
            let head = [function.to_ne_bytes(), (MOST_LINES as u64).to_ne_bytes()].concat();
            dump.feed(&record(DEBUG_INFO, 100, &[head, lines.clone()].concat()), &mut table, CLOCK);
        }
        let held = dump.lines.values().map(|lines| bytes_of(lines) as u64).sum::<u64>();
        assert!((room / 2..=room).contains(&held), "{held} bytes");
        assert!(table.left_out > 0 || dump.ended().is_some_and(|why| why.contains("no room")));
    }

    #[test]
    fn times_of_another_clock_are_not_taken() {
        let (mut dump, mut table) = (JitDump::default(), Table::default());
        dump.feed(&header(MACHINE, ARCH_TIMESTAMP), &mut table, CLOCK);
        dump.feed(&record(LOAD, 110, &words(&[0x1000, 0x1000, 0x40, 1], b"f\0")), &mut table, CLOCK);
        assert_eq!(table.events.first().map(|e| e.when), Some(When { after: 50, by: CLOCK.latest }));
    }
}
