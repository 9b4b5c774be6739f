//! The records in a thread's ring.
//!
//! A record is 8-aligned and never wraps: where it does not fit before the end of the ring, a [`RecordType::Pad`] fills
//! the rest. It begins with a [`RecordHeader`]; `size` covers the header, the fixed part and the trailing bytes, rounded
//! up to 8. The writer advances `head` (release) only after the whole record stands, so what lies between `tail` and
//! `head` is complete.

/// Type of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RecordType {
    /// Filler up to the end of the ring.
    Pad = 1,
    /// One sample: [`SampleRecord`], then `words` frame words (`uunwind_core::frame`).
    Sample = 2,
    /// What names a code object: [`NameRecord`], then name, file and table bytes, each padded to 8.
    Name = 3,
    /// A loaded object was seen for the first time: [`ObjectRecord`], then build-id and path bytes, each padded to 8.
    Object = 4,
    /// Samples were lost before this record: [`LostRecord`].
    Lost = 5,
    /// The thread's name: [`ThreadRecord`].
    Thread = 6,
}

impl RecordType {
    /// The type with this number.
    pub const fn from_number(n: u16) -> Option<RecordType> {
        Some(match n {
            1 => RecordType::Pad,
            2 => RecordType::Sample,
            3 => RecordType::Name,
            4 => RecordType::Object,
            5 => RecordType::Lost,
            6 => RecordType::Thread,
            _ => return None,
        })
    }
}

/// First 8 bytes of every record.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecordHeader {
    /// Bytes of the whole record, a multiple of 8, at least 8.
    pub size: u32,
    /// [`RecordType`].
    pub kind: u16,
    /// Zero.
    pub reserved: u16,
}

/// Why the sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SampleKind {
    /// The thread's CPU timer expired.
    Timer = 0,
    /// The thread asked for it.
    Explicit = 1,
}

/// `SampleRecord::flags`: the weight above 1 was gathered while the thread had signals blocked; it belongs to no line.
pub const SAMPLE_BLOCKED: u8 = 1;
/// `SampleRecord::flags`: an interpreter's facts had not arrived, so its frames are missing.
pub const SAMPLE_FACTS_PENDING: u8 = 2;
/// `SampleRecord::flags`: a plugin reported that semantic frames are missing or doubtful.
pub const SAMPLE_DESYNC: u8 = 4;
/// `SampleRecord::flags`: reads were probed instead of guarded, and plugins left out (SEGV blocked or small alternate stack).
pub const SAMPLE_NO_PLUGINS: u8 = 8;

/// Fixed part of a sample.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SampleRecord {
    /// Header.
    pub header: RecordHeader,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// 1 + timer overruns: how many periods of CPU time this sample stands for.
    pub weight: u32,
    /// `uunwind_core::stop_reason::StopReason` number.
    pub stop: u16,
    /// [`SampleKind`].
    pub kind: u8,
    /// `SAMPLE_*` flags.
    pub flags: u8,
    /// Number of frame words that follow.
    pub words: u32,
    /// Sequence number of the sample in this thread, from 1, counting lost ones too.
    pub sequence: u32,
}

/// Fixed part of a name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NameRecord {
    /// Header.
    pub header: RecordHeader,
    /// Process-wide id, from 1; used by samples of all threads of the process, also ones already in other rings.
    pub id: u32,
    /// Index of the plugin in `ProcessBlock::plugins`.
    pub plugin: u32,
    /// Address of the code object.
    pub code: u64,
    /// Its fingerprint.
    pub fingerprint: u64,
    /// First line.
    pub first_line: u32,
    /// `uunwind_core::plugin::TABLE_*`.
    pub table_kind: u32,
    /// Bytes of the name that follow, before padding.
    pub name_bytes: u32,
    /// Bytes of the file name.
    pub file_bytes: u32,
    /// Bytes of the table; 0 when it was too long or unreadable.
    pub table_bytes: u32,
    /// Bytes per character of the name (1, 2, 4); 1 means Latin-1 unless `name_utf8`.
    pub name_width: u8,
    /// 1: the name is UTF-8.
    pub name_utf8: u8,
    /// Bytes per character of the file name.
    pub file_width: u8,
    /// 1: the file name is UTF-8.
    pub file_utf8: u8,
}

/// Fixed part of an object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectRecord {
    /// Header.
    pub header: RecordHeader,
    /// CLOCK_MONOTONIC, ns: the time of the sample that met it first. It holds for samples from then on, until another covers the range.
    pub time: u64,
    /// Load bias: address in the process minus address in the file (`l_addr`).
    pub bias: u64,
    /// First mapped address.
    pub start: u64,
    /// End of the mapping, exclusive.
    pub end: u64,
    /// Bytes of build-id that follow (0 when the object has none).
    pub build_id_bytes: u32,
    /// Bytes of the path that follow; 0 when it is not known (for the program itself: see `/proc/<pid>/exe`).
    pub path_bytes: u32,
    /// Key under which the target looks for facts ([`crate::facts::key`]).
    pub facts_key: u64,
}

/// Samples were lost.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LostRecord {
    /// Header.
    pub header: RecordHeader,
    /// How many, since the record before.
    pub samples: u64,
    /// Their weight.
    pub weight: u64,
}

/// The thread's name (`comm`), once, before its first sample.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadRecord {
    /// Header.
    pub header: RecordHeader,
    /// NUL-padded.
    pub name: [u8; 16],
}

/// `bytes` rounded up to a multiple of 8.
pub const fn padded(bytes: usize) -> usize {
    (bytes + 7) & !7
}
