//! The records in a thread's ring.
//!
//! A record is 8-aligned and contiguous: if it does not fit before the end of the ring, a [`RecordType::Pad`] fills the
//! rest. It begins with a [`RecordHeader`], whose `size` covers the header, the fixed part and the trailing bytes,
//! rounded up to 8. The writer advances `head` (release) only once the record is complete, so everything between `tail`
//! and `head` is complete.

uunwind_core::numbered! {
    /// Type of a record: what follows its head.
    pub enum RecordType: u16 {
        /// Filler up to the end of the ring.
        Pad = 1;
        /// One sample, coded: see [`samples`](crate::samples).
        Sample = 2;
        /// The names of a code object: [`NameRecord`], then name, file and table bytes, each padded to 8.
        Name = 3;
        /// A loaded object, when a sample first meets it: [`ObjectRecord`], then build-id and path bytes, each padded
        /// to 8.
        Object = 4;
        /// Samples were lost before this record: [`LostRecord`].
        Lost = 5;
        /// The thread's name: [`ThreadRecord`].
        Thread = 6;
        /// One sample whose stack is to be walked later: [`CopyRecord`], then a coded copy ([`crate::copy`]), padded to
        /// 8.
        Copy = 7;
        /// Where the thread was interrupted for the sample after it: [`PlaceRecord`]. Only where perf events time the
        /// samples.
        Place = 8;
        /// The allocation that the sample after it is of: [`AllocationRecord`].
        Allocation = 9;
        /// The thread's labels, when they have changed: [`LabelsRecord`], then their text ([`crate::labels`]), padded
        /// to 8.
        Labels = 10;
        /// The wait that the sample after it is of: [`WaitRecord`].
        Wait = 11;
    }
}

/// The first 8 bytes of every record: its state, which is written last, at once.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RecordHeader {
    /// Bytes of the whole record, a multiple of 8, at least 8.
    pub size: u32,
    /// Number of a [`RecordType`].
    pub kind: u16,
    /// [`RecordType::Sample`]: the upper bits of the [`Sum`](crate::samples::Sum) of what was coded; otherwise zero.
    pub mark: u16,
}

impl RecordHeader {
    /// The header as one word.
    pub fn word(self) -> u64 {
        u64::from(self.size) | u64::from(self.kind) << 32 | u64::from(self.mark) << 48
    }
}

uunwind_core::numbered! {
    /// Why the sample was taken.
    pub enum SampleKind: u8 {
        /// The thread's CPU timer expired.
        Timer = 0;
        /// The thread requested it.
        Explicit = 1;
        /// A signal is about to end the process. Its number stands in place of the weight.
        Fatal = 2;
        /// No handler took it: the thread was found waiting, from outside.
        Waiting = 3;
        /// The thread has allocated memory.
        Allocation = 4;
        /// The thread has waited for a lock.
        Lock = 5;
        /// The thread has mapped anonymous memory.
        Mapping = 6;
    }
}

uunwind_core::numbered! {
    /// What a thread has waited for.
    pub enum WaitKind: u32 {
        /// A mutex.
        Mutex = 1;
        /// A reader-writer lock, to read.
        Read = 2;
        /// A reader-writer lock, to write.
        Write = 3;
        /// A condition variable.
        Condition = 4;
        /// A semaphore.
        Semaphore = 5;
        /// A barrier.
        Barrier = 6;
        /// The end of a thread.
        End = 7;
        /// A word that the thread waited on by futex(2), for a lock that is not the C library's.
        Futex = 8;
    }
}

/// Flag of a sample: the weight above 1 accumulated while the sampling signal was blocked; it belongs to no function.
pub const SAMPLE_BLOCKED: u8 = 1;
/// Flag of a sample: the weight above 1 came due at once, although nothing blocked the signal. The thread's CPU clock
/// advanced by several ticks between two instructions, as it does when a hypervisor takes the CPU away; it belongs to
/// no function.
pub const SAMPLE_LATE: u8 = 16;
/// Flag of a sample, in recordings only: the kernel took it at a moment of which no user stack is known.
pub const SAMPLE_APART: u8 = 128;
/// Flag of a sample: an interpreter's facts had not arrived, so its frames are missing.
pub const SAMPLE_FACTS_PENDING: u8 = 2;
/// Flag of a sample: semantic frames are missing or doubtful, as a plugin reported, or because one that claims code of
/// the stack was not called.
pub const SAMPLE_DESYNC: u8 = 4;
/// Flag of a sample: reads were probed instead of guarded, and plugins were left out (SEGV blocked, or a small
/// alternate stack).
pub const SAMPLE_NO_PLUGINS: u8 = 8;
/// Lowest of the two bits of a sample's flags that say how the thread stood to the lock of a language's runtime: one of
/// `LOCK_*` of `uunwind_core::plugin`.
pub const SAMPLE_LOCK_SHIFT: u32 = 5;

/// The bits of a sample's flags for one of `LOCK_*`.
pub const fn lock_flags(lock: u32) -> u8 {
    ((lock & 3) as u8) << SAMPLE_LOCK_SHIFT
}

/// Fixed part of a sample with a copy of the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// As [`Sample::time`](crate::samples::Sample::time).
    pub time: u64,
    /// As [`Sample::weight`](crate::samples::Sample::weight).
    pub weight: u32,
    /// 1: it stands beside the walked sample of this thread and time, and counts for nothing; else 0.
    pub beside: u16,
    /// Number of a [`SampleKind`].
    pub kind: u8,
    /// `SAMPLE_*` flags, or-ed.
    pub flags: u8,
    /// Bytes of the copy, before padding.
    pub bytes: u32,
    /// As [`Sample::sequence`](crate::samples::Sample::sequence).
    pub sequence: u32,
}

/// Where a thread was interrupted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlaceRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Program counter, a process address.
    pub pc: u64,
    /// Stack pointer, a process address.
    pub sp: u64,
}

/// What was allocated or mapped.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Number of the allocation in its process, from 1 on, by which a [free](crate::frees) says what it frees. 0: its
    /// free will not be seen.
    pub id: u64,
    /// Bytes that were asked for.
    pub size: u64,
}

/// What was waited for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WaitRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Process address of the lock; of the end of a thread, its `pthread_t`.
    pub lock: u64,
    /// How long, in ns.
    pub duration: u64,
    /// Number of a [`WaitKind`].
    pub kind: u32,
    /// Id of the thread that had the lock when the wait began, in the process's own pid namespace; 0: not known.
    pub holder: u32,
}

/// Fixed part of a thread's labels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LabelsRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// When they were set, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Bytes of text that follow, before padding; 0: there are none from then on.
    pub bytes: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Fixed part of a name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NameRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Id, unique in the process, from 1; also samples in rings of other threads of the process may use it already.
    pub id: u32,
    /// Index of the plugin in `ProcessBlock::plugins`.
    pub plugin: u32,
    /// Process address of the code object.
    pub code: u64,
    /// Fingerprint of the code object's names.
    pub fingerprint: u64,
    /// First line of the function.
    pub first_line: u32,
    /// Format of the line table, `uunwind_core::plugin::TABLE_*`.
    pub table_kind: u32,
    /// Bytes of the name that follow, before padding.
    pub name_bytes: u32,
    /// Bytes of the file name.
    pub file_bytes: u32,
    /// Bytes of the line table; 0 if it was too long or unreadable.
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
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Time of the sample that first met the object, in ns of CLOCK_MONOTONIC. The record holds from then on, until
    /// another object covers the range.
    pub time: u64,
    /// Load bias: process address minus file address (`l_addr`).
    pub bias: u64,
    /// First mapped process address.
    pub start: u64,
    /// End of the mapping, exclusive.
    pub end: u64,
    /// Bytes of build-id that follow; 0 if the object has none.
    pub build_id_bytes: u32,
    /// Bytes of the path that follow; 0 if it is not available (for the program itself: see `/proc/<pid>/exe`).
    pub path_bytes: u32,
    /// Key under which the target looks for facts (`uunwind_core::object_key::key`).
    pub facts_key: u64,
}

/// Samples that were lost.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LostRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// Number of samples lost since the record before.
    pub samples: u64,
    /// Their weight, in periods.
    pub weight: u64,
}

/// The thread's name (`comm`), sent once, before its first sample.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadRecord {
    /// Size and type of the record.
    pub header: RecordHeader,
    /// The name, NUL-padded.
    pub name: [u8; 16],
}

/// `bytes` rounded up to a multiple of 8.
pub const fn padded(bytes: usize) -> usize {
    (bytes + 7) & !7
}
