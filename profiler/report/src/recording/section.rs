//! The frame of a section: kind, length, payload, checksum.

use flate2::Crc;

/// First bytes of a recording.
pub const MAGIC: &[u8; 8] = b"uu-rec01";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of the file header: magic, version, zero.
pub const HEADER_BYTES: usize = 16;
/// Bytes around a payload: kind and length before it, checksum behind it.
pub const FRAME_BYTES: usize = 12;

/// Kind of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// `Settings`; the first section.
    Settings = 1,
    /// `Process`, one.
    Process = 2,
    /// `Thread`: process, tid.
    Thread = 3,
    /// Name of a thread: thread, text.
    ThreadName = 4,
    /// `Object`, one.
    Object = 5,
    /// `Name`, one.
    Name = 6,
    /// `Node`s.
    Nodes = 7,
    /// `Sample`s.
    Samples = 8,
    /// Lost samples: thread, number, weight.
    Lost = 9,
    /// Counters of a process: process, `Counters`.
    Counters = 10,
    /// A note for people.
    Note = 11,
    /// `End`.
    End = 12,
    /// `Symbols`.
    Symbols = 13,
    /// Names of a process's plugins, when they were not known with the process: process, texts.
    Plugins = 14,
    /// `JitNames`.
    Jit = 15,
}

impl Kind {
    /// The kind with this number.
    pub fn from_number(n: u32) -> Option<Kind> {
        use Kind::*;
        [
            Settings, Process, Thread, ThreadName, Object, Name, Nodes, Samples, Lost, Counters, Note, End, Symbols,
            Plugins, Jit,
        ]
        .into_iter()
        .find(|k| *k as u32 == n)
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
    out.extend_from_slice(&(kind as u32).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    let sum = checksum(&out[from..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// What was wrong with a section's frame.
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
        /// In the file.
        found: u32,
        /// Computed over the bytes.
        computed: u32,
    },
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
