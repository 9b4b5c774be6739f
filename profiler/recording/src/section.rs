//! The frame of a section: kind, length, payload, checksum.

use flate2::Crc;

/// First bytes of a recording.
pub const MAGIC: &[u8; 8] = b"uu-rec01";
/// Version of the format. A reader refuses every other one.
pub const VERSION: u32 = 1;
/// Bytes of the file header: magic, version, zero.
pub const HEADER_BYTES: usize = 16;
/// Bytes before a payload: kind and length.
pub const FRAME_HEAD: usize = 8;
/// Bytes around a payload: kind and length before it, checksum after it.
pub const FRAME_BYTES: usize = 12;

uunwind_core::numbered! {
    /// Kind of a section.
    pub enum Kind: u32 {
        /// The `Settings` of the recording; always the first section.
        Settings = 1;
        /// One `Process`; its index is the number of such sections before.
        Process = 2;
        /// One `Thread`, without its name: process, tid.
        Thread = 3;
        /// Name of a thread: thread, text.
        ThreadName = 4;
        /// One `Object` of a process.
        Object = 5;
        /// One `Name` of a process.
        Name = 6;
        /// Any number of `Node`s.
        Nodes = 7;
        /// Any number of `Sample`s.
        Samples = 8;
        /// Lost samples: thread, number, weight.
        Lost = 9;
        /// Counters of a process: process, `Counters`.
        Counters = 10;
        /// A note for people.
        Note = 11;
        /// The `End` of the recording, with its totals.
        End = 12;
        /// The `Symbols`, written after the end.
        Symbols = 13;
        /// Names of a process's plugins, if they became available after the process: process, texts.
        Plugins = 14;
        /// The `JitNames`: code made at run time.
        Jit = 15;
        /// What reports must know of a plugin's language.
        Language = 16;
        /// Any number of `CodeLine`s, written after the end.
        Lines = 17;
        /// Command line of a process: process, words.
        Command = 18;
        /// Any number of samples with copies of stacks, to be walked later.
        Copies = 19;
        /// One `Start`: thread, time, weight.
        Start = 20;
        /// Any number of single `Wait`s.
        Waits = 21;
        /// Any number of `SecondMapping`s.
        SecondMappings = 22;
        /// Any number of allocations, of the samples of allocations in the order in which both were written: id, size.
        Allocations = 23;
        /// Any number of `Free`s.
        Frees = 24;
        /// Labels of a thread from a time on: thread, time, keys and values.
        Labels = 25;
        /// Any number of `LockWait`s, of the samples of waits in the order in which both were written.
        LockWaits = 26;
        /// Any number of `CompleteMap`s.
        CompleteMaps = 27;
        /// Any number of `Unmap`s.
        Unmaps = 28;
        /// Any number of allocations that their thread has freed before it made another one: process, number.
        Temporaries = 29;
    }
}

/// Checksum of a section: CRC-32 (IEEE) over kind, length and payload.
pub fn checksum(framed: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(framed);
    crc.sum()
}

/// Appends a whole section to `out`.
pub fn frame(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(&kind.number().to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    let sum = checksum(&out[from..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// What is wrong with a section's frame.
#[derive(Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// The file ends inside the section.
    Cut {
        /// Bytes that the section should have.
        wanted: u64,
        /// Bytes that are there.
        left: usize,
    },
    /// The checksum does not match.
    Checksum {
        /// The checksum in the file.
        found: u32,
        /// The checksum computed over the bytes.
        computed: u32,
    },
}

/// Length in bytes of the whole section that begins with `head`; `None` if there are fewer than [`FRAME_HEAD`] bytes.
pub fn wanted(head: &[u8]) -> Option<u64> {
    let len = head.get(4..FRAME_HEAD)?.first_chunk().map(|len| u32::from_le_bytes(*len))?;
    Some(u64::from(len) + FRAME_BYTES as u64)
}

/// The section at the start of `bytes`: its kind number, payload and total length.
pub fn unframe(bytes: &[u8]) -> Result<(u32, &[u8], usize), BadFrame> {
    let word = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let cut = |wanted| BadFrame::Cut { wanted, left: bytes.len() };
    let (kind, len) = match (word(0), word(4)) {
        (Some(kind), Some(len)) => (kind, len as usize),
        _ => return Err(cut(FRAME_BYTES as u64)),
    };
    let wanted = len as u64 + FRAME_BYTES as u64;
    let (framed, found) = match (bytes.get(..len + 8), word(len + 8)) {
        (Some(framed), Some(found)) => (framed, found),
        _ => return Err(cut(wanted)),
    };
    let computed = checksum(framed);
    if found != computed {
        return Err(BadFrame::Checksum { found, computed });
    }
    Ok((kind, &framed[8..], len + FRAME_BYTES))
}
