//! The notes of a core file (`PT_NOTE`). Which there are, and what is in them, is in the kernel's
//! [binfmt_elf.c](https://github.com/torvalds/linux/blob/v6.1/fs/binfmt_elf.c#L1580) and
//! [elfcore.h](https://github.com/torvalds/linux/blob/v6.1/include/linux/elfcore.h); gdb writes the same ones, in
//! another order.

use super::{CoreFile, ProgramHeader};
use object::elf;
use object::LittleEndian;
use std::collections::HashSet;
use uunwind_remote::doing::Signal;
use uunwind_remote::registers::{add_note, of_prstatus, Registers, PRSTATUS};
use uunwind_remote::threads::THREADS;

/// At most this number of notes is looked at.
const NOTES: u32 = 1 << 20;
/// The longest list of mapped files that is read, in bytes: a thousand bytes for each of 65,530 mappings.
const FILES_BYTES: u64 = 64 << 20;
/// The longest auxiliary vector that is read, in bytes; the kernel's has some 50 entries of 16.
const AUXV_BYTES: u64 = 4096;

/// Types of notes (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/elf.h>).
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;

/// Entries of the auxiliary vector, as [getauxval(3)](https://man7.org/linux/man-pages/man3/getauxval.3.html) has them.
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;

/// A thread, as its `NT_PRSTATUS` note has it.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// The signal it was dealing with; 0: none.
    pub signal: i32,
    /// Its registers.
    pub registers: Registers,
}

/// A part of a file that was mapped, as the `NT_FILE` note has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// First process address.
    pub start: u64,
    /// End, exclusive (process address).
    pub end: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Path of the file in the process's root, with ` (deleted)` after it where the file had no name any more.
    pub name: Vec<u8>,
}

/// What the notes say.
#[derive(Default)]
pub struct Notes {
    /// The threads, in the file's order: the kernel writes the one that the signal has killed first.
    pub threads: Vec<Thread>,
    /// The process's id; 0: there is no `NT_PRPSINFO`.
    pub pid: u32,
    /// Name of the process's first thread, at most 15 bytes.
    pub name: Vec<u8>,
    /// The beginning of the command, at most 79 bytes, with blanks between its words.
    pub command: Vec<u8>,
    /// The signal.
    pub signal: Option<Signal>,
    /// What was mapped from files, in order of addresses.
    pub files: Vec<MappedFile>,
    /// Address of the vDSO's ELF header; 0: unknown.
    pub vdso: u64,
    /// The program's first instruction; 0: unknown.
    pub entry: u64,
}

impl Notes {
    /// Reads the notes of a core file. What is damaged is left out, and named in `troubles`.
    pub(super) fn read(core: &CoreFile, headers: &[ProgramHeader], troubles: &mut Vec<String>) -> Notes {
        let mut notes = Notes::default();
        let (mut seen, mut left) = (HashSet::new(), NOTES);
        for header in headers.iter().filter(|header| header.p_type.get(LittleEndian) == elf::PT_NOTE) {
            let (mut at, size) = (header.p_offset.get(LittleEndian), header.p_filesz.get(LittleEndian));
            let end = at.saturating_add(size).min(core.len);
            while left > 0 && end.saturating_sub(at) >= 12 {
                left -= 1;
                let Some(note) = Note::at(core, at, end) else {
                    troubles.push(format!("the note at offset {at:#x} reaches beyond its list: no more are read"));
                    break;
                };
                if note.owner {
                    notes.take(core, &note, &mut seen, troubles);
                } else if note.linux {
                    // It follows the registers of its thread.
                    let mut bytes = [0; 16];
                    let some = note.some(core, 16);
                    bytes.iter_mut().zip(&some).for_each(|(to, from)| *to = *from);
                    notes.threads.last_mut().into_iter().for_each(|t| add_note(&mut t.registers, note.kind, &bytes));
                }
                at = note.next;
            }
        }
        if left == 0 {
            troubles.push(format!("it has more than {NOTES} notes: the others are left out"));
        }
        // gdb writes the signal of each thread; the first is that of the thread it stood on.
        let first = notes.threads.first().map_or(0, |thread| thread.signal);
        if notes.signal.is_none() && first != 0 {
            notes.signal = Some(Signal { number: first, code: 0, address: None, sender: None });
        }
        // With it, gdb stops a process that it attaches to.
        notes.signal = notes.signal.filter(|signal| signal.number != libc::SIGSTOP);
        notes.files.sort_by_key(|file| (file.start, file.end));
        notes
    }

    fn take(&mut self, core: &CoreFile, note: &Note, seen: &mut HashSet<u32>, troubles: &mut Vec<String>) {
        match note.kind {
            NT_PRSTATUS if self.threads.len() >= THREADS => {}
            NT_PRSTATUS => match note.bytes::<PRSTATUS>(core).as_ref().and_then(thread) {
                Some(thread) if seen.insert(thread.tid) => self.threads.push(thread),
                Some(thread) => troubles.push(format!("it has two threads {}: the second is left out", thread.tid)),
                None => troubles.push(format!("the NT_PRSTATUS note at offset {:#x} is too short", note.at)),
            },
            NT_PRPSINFO if self.pid == 0 => {
                // struct elf_prpsinfo: pr_pid at 24, pr_fname at 40, pr_psargs at 56.
                let Some(bytes) = note.bytes::<136>(core) else { return };
                self.pid = int(&bytes, 24).unsigned_abs();
                self.name = until_nul(bytes.get(40..56));
                self.command = until_nul(bytes.get(56..136)).trim_ascii_end().to_vec();
            }
            NT_SIGINFO if self.signal.is_none() => {
                let Some(bytes) = note.bytes::<128>(core) else { return };
                self.signal = signal(&bytes);
            }
            NT_AUXV => {
                let bytes = note.some(core, AUXV_BYTES);
                for [key, value] in pairs(&bytes) {
                    match key {
                        AT_SYSINFO_EHDR => self.vdso = value,
                        AT_ENTRY => self.entry = value,
                        _ => {}
                    }
                }
            }
            NT_FILE if self.files.is_empty() => match note.size > FILES_BYTES {
                true => troubles.push(format!("its list of files has {} bytes, too many to be read", note.size)),
                false => self.files = files(&note.some(core, FILES_BYTES), troubles),
            },
            _ => {}
        }
    }
}

/// The head of a note.
struct Note {
    kind: u32,
    /// Whether its name is `CORE`.
    owner: bool,
    /// Whether its name is `LINUX`, as that of a CPU's own register sets.
    linux: bool,
    /// Offset of its content in the file, and its size.
    at: u64,
    size: u64,
    /// Offset of the next one.
    next: u64,
}

impl Note {
    fn at(core: &CoreFile, at: u64, end: u64) -> Option<Note> {
        let mut head = [0; 20];
        let got = core.read_at(at, &mut head);
        if got < 12 {
            return None;
        }
        let [name, size, kind] = [0, 4, 8].map(|at| int(&head, at) as u32);
        let content = at.checked_add(12)?.checked_add(u64::from(name).next_multiple_of(4))?;
        let next = content.checked_add(u64::from(size))?.checked_next_multiple_of(4)?;
        // The last one may lack what it is filled up with.
        (content.checked_add(u64::from(size))? <= end).then(|| Note {
            kind,
            owner: got >= 17 && head.get(12..17) == Some(b"CORE\0"),
            linux: got >= 18 && head.get(12..18) == Some(b"LINUX\0"),
            at: content,
            size: size.into(),
            next,
        })
    }

    fn bytes<const N: usize>(&self, core: &CoreFile) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.size >= N as u64 && core.read_at(self.at, &mut bytes) == N).then_some(bytes)
    }

    /// Its content, at most `limit` bytes.
    fn some(&self, core: &CoreFile, limit: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.size.min(limit) as usize];
        let got = core.read_at(self.at, &mut bytes);
        bytes.truncate(got);
        bytes
    }
}

/// `struct elf_prstatus`: pr_cursig at 12, pr_pid at 32, pr_reg at 112.
fn thread(bytes: &[u8; PRSTATUS]) -> Option<Thread> {
    let registers = of_prstatus(bytes)?;
    let signal = bytes.get(12..14).and_then(|bytes| bytes.first_chunk()).map_or(0, |two| i16::from_le_bytes(*two));
    Some(Thread { tid: int(bytes, 32).unsigned_abs(), signal: signal.into(), registers })
}

/// `siginfo_t`: si_signo at 0, si_code at 8, si_addr or si_pid at 16.
fn signal(bytes: &[u8; 128]) -> Option<Signal> {
    let (number, code) = (int(bytes, 0), int(bytes, 8));
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
    let address = (faults.contains(&number) && code > 0 && code != libc::SI_KERNEL).then(|| word(bytes, 16));
    let sender = (code <= 0).then(|| int(bytes, 16).unsigned_abs()).filter(|pid| *pid != 0);
    (number > 0).then_some(Signal { number, code, address, sender })
}

/// The list of files: their number, the unit of their offsets in bytes; of each, start, end and offset; then their
/// names, each with a NUL.
fn files(bytes: &[u8], troubles: &mut Vec<String>) -> Vec<MappedFile> {
    let (count, unit) = (word(bytes, 0), word(bytes, 8));
    let places = bytes.get(16..).unwrap_or_default().as_chunks::<24>().0;
    let there = usize::try_from(count).ok().and_then(|count| places.get(..count));
    let Some(places) = there else {
        troubles.push(format!("its list of files is damaged: {count} files in {} bytes", bytes.len()));
        return Vec::new();
    };
    let mut names = bytes.get(16 + places.len() * 24..).unwrap_or_default().split(|byte| *byte == 0);
    let files = places.iter().filter_map(|place| {
        let [start, end, offset] = [0, 8, 16].map(|at| word(place, at));
        let name = names.next()?.to_vec();
        Some(MappedFile { start, end, offset: offset.checked_mul(unit)?, name }).filter(|file| file.start < file.end)
    });
    let files: Vec<MappedFile> = files.collect();
    if files.len() < places.len() {
        troubles.push(format!("its list of files is damaged: {} of {count} files make sense", files.len()));
    }
    files
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = [u64; 2]> + '_ {
    bytes.as_chunks::<16>().0.iter().map(|pair| [word(pair, 0), word(pair, 8)])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

fn int(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |int| i32::from_le_bytes(*int))
}

fn until_nul(bytes: Option<&[u8]>) -> Vec<u8> {
    bytes.unwrap_or_default().iter().copied().take_while(|byte| *byte != 0).collect()
}
