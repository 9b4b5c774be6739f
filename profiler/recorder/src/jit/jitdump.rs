//! jitdump files: binary records of functions that come, move, have lines, each with its time (Linux,
//! tools/perf/Documentation/jitdump-specification.txt). The JIT maps the file's first page executable, which is how it is
//! found: in `/proc/<pid>/maps`.

use super::table::{name, Code, Line, Table, When};
use std::collections::HashMap;
use std::rc::Rc;
use uunwind_report::recording::JitSource;

/// "JiTD", in the byte order of the machine that wrote it.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const X86_64: u32 = 62;
/// Flag of the header: times are of the processor's counter, not of CLOCK_MONOTONIC.
const ARCH_TIMESTAMP: u64 = 1;
/// Bytes of the header that every version 1 has.
const HEADER: usize = 40;
/// Bytes before the body of a record.
const PREFIX: usize = 16;
/// Largest record that is taken; a larger one is skipped.
const LARGEST: u32 = 64 << 20;
/// Most lines of a function.
const MOST_LINES: usize = 1 << 16;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;

/// A file that is read while it grows: bytes are fed in order, and kept until their record is whole.
pub struct JitDump {
    pending: Vec<u8>,
    header: bool,
    own_times: bool,
    /// Bytes of an over-large record still to come.
    skip: u64,
    /// Why no more is taken.
    ended: Option<String>,
    /// The function's own number -> index in the table.
    codes: HashMap<u64, u32>,
    /// Lines, told before the function of that address.
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

    /// A text up to its NUL.
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|b| *b == 0)?;
        let text = self.raw(len)?;
        self.raw(1)?;
        Some(text)
    }
}

/// What a look at the bytes was told.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Time of the look before this one, for records without a time of their own, ns.
    pub before: u64,
    /// Times of records may lie between these two, else they are no times of CLOCK_MONOTONIC.
    pub earliest: u64,
    /// See `earliest`.
    pub latest: u64,
}

impl Default for JitDump {
    fn default() -> JitDump {
        JitDump {
            pending: Vec::new(),
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
    /// Why no more is taken from the file, if so.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Takes the next bytes of the file. Any bytes are safe to give.
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
        // Behind an over-large record.
        if at > pending.len() {
            self.skip = (at - pending.len()) as u64;
            at = pending.len();
        }
        pending.drain(..at);
        self.pending = pending;
    }

    /// Takes one record; its length. None: it is not whole yet, or nothing more is taken.
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
            DEBUG_INFO => self.debug_info(Fields(body)),
            CLOSE => {
                self.ended = Some(String::new());
                Some(())
            }
            // Unwind data, and what later versions add.
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
        } else if machine != X86_64 {
            Some(format!("it is for machine {machine}, not {X86_64} (x86-64)"))
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
        let told = f.text()?;
        let end = start.checked_add(size).filter(|end| *end > start)?;
        let lines = self.lines.remove(&start).unwrap_or_else(|| Rc::from([]));
        let code = Code { source: JitSource::JitDump, start, end, name: name(told), lines };
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

    fn debug_info(&mut self, mut f: Fields<'_>) -> Option<()> {
        let (start, count) = (f.u64()?, f.u64()?);
        let mut lines = Vec::new();
        let mut file: Rc<str> = Rc::from("");
        for _ in 0..count.min(MOST_LINES as u64) {
            let (address, line, _discriminator) = (f.u64()?, f.u32()?, f.u32()?);
            // One byte 0xff stands for the file of the entry before.
            match f.text()? {
                [0xff] => {}
                told => file = self.file(told),
            }
            let Some(offset) = address.checked_sub(start) else { continue };
            lines.push(Line { offset, file: file.clone(), line });
        }
        lines.sort_by_key(|l| l.offset);
        if self.lines.len() >= MOST_LINES {
            // Lines whose functions never came.
            self.lines.clear();
        }
        self.lines.insert(start, lines.into());
        Some(())
    }

    fn file(&mut self, told: &[u8]) -> Rc<str> {
        if let Some(known) = self.files.get(told) {
            return known.clone();
        }
        let file = name(told);
        if self.files.len() < MOST_LINES {
            self.files.insert(told.to_vec(), file.clone());
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { before: 50, earliest: 100, latest: 1000 };

    /// A writer after the specification.
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
            header(X86_64, 0),
            record(DEBUG_INFO, 100, &lines),
            record(LOAD, 110, &words(&[0x1000, 0x1000, 0x40, 1], b"first\0CODE")),
            record(9, 111, b"something new"),
            record(MOVE, 120, &words(&[0x2000, 0x1000, 0x2000, 0x40, 1], b"")),
            record(LOAD, 7, &words(&[0x1000, 0x1000, 0x40, 2], b"without a time\0CODE")),
            record(CLOSE, 130, b""),
            record(LOAD, 140, &words(&[0x9000, 0x9000, 0x40, 3], b"behind the end\0")),
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
            ([header(X86_64, 0), record(LOAD, 1, b"")[..4].to_vec(), vec![3; 12]].concat(), ""),
            ([header(X86_64, 0), vec![0; 16]].concat(), "record of 0 bytes"),
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
        dump.feed(&header(X86_64, 0), &mut table, CLOCK);
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
    fn times_of_another_clock_are_not_taken() {
        let (mut dump, mut table) = (JitDump::default(), Table::default());
        dump.feed(&header(X86_64, ARCH_TIMESTAMP), &mut table, CLOCK);
        dump.feed(&record(LOAD, 110, &words(&[0x1000, 0x1000, 0x40, 1], b"f\0")), &mut table, CLOCK);
        assert_eq!(table.events.first().map(|e| e.when), Some(When { after: 50, by: CLOCK.latest }));
    }
}
