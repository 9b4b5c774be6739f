//! Layout of the session memfd, version [`SESSION_VERSION`].
//!
//! ```text
//! 0        SessionHeader (one page)
//! 4096     block states: AtomicU32[BLOCKS]
//! DATA     block 0, block 1, ... of BLOCK_BYTES each, to the end of the memory: at most BLOCKS
//! ```
//! A block begins with its header ([`ProcessBlock`] or [`ThreadBlock`], one page); what follows is a thread's ring. The
//! memfd is sealed against shrinking, and sparse: untouched blocks cost nothing.
//!
//! Every process of a session can write to all of it, whatever its rights are. So a handler relies on nothing in it: a
//! process can falsify what other processes of its session report, and nothing else.
//!
//! States of a block: `FREE` -> `CLAIMED` (by compare-and-swap in a target, which then writes the header) -> `LIVE` ->
//! `ENDED` (the thread ended; never set if the process was killed) -> drained, zeroed and set `FREE` by the recorder.

use core::sync::atomic::{AtomicU32, AtomicU64};
use uunwind_core::walk::PLUGIN_INDICES;

/// First word of the session header.
pub const SESSION_MAGIC: u64 = u64::from_le_bytes(*b"uu-ring1");
/// Version of the session, the facts and the rule tables; a target that finds another version does not record.
pub const SESSION_VERSION: u32 = 21;
/// Bytes of the first page. The fields that identify the version have the same offsets in all versions: the magic word
/// at 0, the version at 8, and the word at [`OTHER_VERSION_OFFSET`].
pub const FIRST_PAGE: usize = 4096;
/// Offset of an `AtomicU32`: the version of a target that met this session and could not record, 0 if there was none.
pub const OTHER_VERSION_OFFSET: usize = FIRST_PAGE - 4;
/// Offset of the [openings](crate::openings) in the first page.
pub const OPENINGS_OFFSET: usize = 64;
/// Bit in `ProcessBlock::plugin_reasons`: the plugin has been switched off.
pub const PLUGIN_OFF: u32 = 1 << 31;
/// Size of a block, in bytes: the fixed part, and a ring.
pub const BLOCK_BYTES: usize = 260 * 1024;
/// Most blocks of a session: limit of the processes and threads that are recorded at once. A session has fewer where
/// address space is limited.
pub const BLOCKS: usize = 2048;
/// Bytes of the header of a block.
pub const BLOCK_HEADER: usize = 4096;
/// Offset of the block states.
pub const STATES_OFFSET: usize = 4096;
/// Offset of block 0.
pub const DATA_OFFSET: usize = STATES_OFFSET + BLOCKS * 4;
/// Bytes of the whole session, with all blocks.
pub const SESSION_BYTES: usize = session_bytes(BLOCKS);

/// Bytes of a session with this number of blocks.
pub const fn session_bytes(blocks: usize) -> usize {
    DATA_OFFSET + blocks * BLOCK_BYTES
}

/// Number of blocks of a session of this size; `None`: no session has it.
pub const fn blocks_in(bytes: u64) -> Option<usize> {
    if bytes < session_bytes(1) as u64 || bytes > SESSION_BYTES as u64 {
        return None;
    }
    let blocks = (bytes as usize - DATA_OFFSET) / BLOCK_BYTES;
    if session_bytes(blocks) as u64 == bytes {
        Some(blocks)
    } else {
        None
    }
}

/// Frame words of the largest sample (`uunwind_core::walk::MAX_WORDS`).
pub const SAMPLE_WORDS: usize = 8321;
/// Offset of the ring in a thread block.
pub const RING_OFFSET: usize = BLOCK_HEADER;
/// Bytes of a thread's ring. A record is contiguous, so up to one record's length is left unused at the end of
/// the ring: with space for three of the largest records, it takes two of them at any time.
pub const RING_BYTES: usize = BLOCK_BYTES - RING_OFFSET;

/// Block state: may be claimed.
pub const FREE: u32 = 0;
/// Block state: claimed, header not yet complete.
pub const CLAIMED: u32 = 1;
/// Block state: a process block in use.
pub const LIVE_PROCESS: u32 = 2;
/// Block state: a thread block in use.
pub const LIVE_THREAD: u32 = 3;
/// Block state: a thread block whose thread has ended; the recorder drains and frees it.
pub const ENDED_THREAD: u32 = 4;
/// [`ProcessBlock::origin`] of a process that was forked; others are 0.
pub const FORKED: u32 = 1;

/// First page of the session.
#[repr(C)]
pub struct SessionHeader {
    /// [`SESSION_MAGIC`], checked by targets.
    pub magic: u64,
    /// [`SESSION_VERSION`], checked by targets.
    pub version: u32,
    /// `BLOCK_BYTES`, checked by targets.
    pub block_bytes: u32,
    /// Number of blocks. Targets take it from the size of the memory.
    pub blocks: u32,
    /// Pid of the recorder.
    pub recorder: u32,
    /// Threads that found no free block and are not sampled.
    pub threads_without_block: AtomicU32,
    /// Processes that found no free block and are not sampled.
    pub processes_without_block: AtomicU32,
    /// Index of the block at which the next search for a free one begins.
    pub claim_hint: AtomicU32,
    /// Rung by processes when there is something for the recorder that cannot wait for its next pass. The recorder
    /// waits for it to change ([futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html)).
    pub bell: AtomicU32,
    /// Number of [openings](crate::openings) so far.
    pub openings: AtomicU32,
    /// The recorder rests: processes and threads that begin ring the bell. Else it finds them soon enough.
    pub resting: AtomicU32,
}

/// Header of a process block. What follows it is a map of its code ([`crate::code_map`]), or a log of what it has freed
/// ([`crate::frees`]).
#[repr(C)]
pub struct ProcessBlock {
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent: u32,
    /// How the process image came to be: 0 exec (constructor), 1 fork.
    pub origin: u32,
    /// Next name id to assign; ids start at 1.
    pub next_name: AtomicU32,
    /// CLOCK_MONOTONIC time of the claim, in ns.
    pub start_time: u64,
    /// Threads whose timer could not be created (RLIMIT_SIGPENDING).
    pub timers_failed: AtomicU32,
    /// Samples dropped because the thread was already inside a walk.
    pub nested: AtomicU32,
    /// Samples left out because a handler of the program ran on an alternate stack too small for both.
    pub small_stack: AtomicU32,
    /// Memory faults that a walk survived by its recovery point.
    pub faults_contained: AtomicU32,
    /// Frames emitted without a name because the ring was full, or the name's text could not be read.
    pub names_lost: AtomicU32,
    /// Objects that the process's table had no room for: no cached rules, no records.
    pub objects_full: AtomicU32,
    /// Why the process stopped recording for good, a number like errno; 0 while it records.
    pub disabled: AtomicU32,
    /// Names of the opened plugins by index, NUL-padded. Index 0 is never used.
    pub plugins: [[u8; 16]; PLUGIN_INDICES],
    /// CPU time used by threads that have ended, in ns (CLOCK_THREAD_CPUTIME_ID at their end).
    pub cpu_ended: AtomicU64,
    /// Calls of each plugin that failed and were abandoned, by index (index 0: functions of windows).
    pub plugin_failures: [AtomicU32; PLUGIN_INDICES],
    /// Frames of all samples.
    pub frames_emitted: AtomicU64,
    /// Frames of all samples that were replayed from the thread's previous sample.
    pub frames_reused: AtomicU64,
    /// Reason of each plugin's last failure, a `uunwind_core::stop_reason::StopReason` number, with [`PLUGIN_OFF`].
    pub plugin_reasons: [AtomicU32; PLUGIN_INDICES],
    /// Frames whose unwind information was interpreted in place, for lack of the object's rule table.
    pub interpreted: AtomicU64,
    /// Functions with unwind data registered by a JIT that got no window: damaged, overlapping, or no memory.
    pub frames_lost: AtomicU32,
    /// Samples of events that are in no ring.
    pub events_lost: AtomicU64,
    /// Bytes of these allocations, or ns of these waits.
    pub events_lost_size: AtomicU64,
    /// Sampled allocations whose free is not seen: the table of live ones was full.
    pub untracked: AtomicU64,
    /// Frees of sampled allocations that found no room in the log: these seem to live.
    pub frees_lost: AtomicU64,
    /// Number of frees that have begun to be written to the log.
    pub frees_head: AtomicU64,
    /// Number of frees that the recorder has read.
    pub frees_tail: AtomicU64,
    /// Sampling periods in which it was paused.
    pub paused_periods: AtomicU64,
    /// Bit 0: it is paused. The bits above it: how many switches of the recorder it had seen then ([`crate::facts`]).
    pub pause: AtomicU64,
    /// Sampled allocations whose address was given out again before a free of it was seen.
    pub frees_unseen: AtomicU64,
}

/// Header of a thread block. The ring fills the rest of the block.
#[repr(C)]
pub struct ThreadBlock {
    /// Thread id where the recorder lives. 0: the recorder finds it by `own_tid`.
    pub tid: u32,
    /// Index of the process's block.
    pub process: u32,
    /// Pid of the process, to check `process` against.
    pub pid: u32,
    /// The thread's id in its own pid namespace, where that may be another one than the recorder's. Otherwise 0.
    pub own_tid: u32,
    /// Bytes written since the start. The next record begins at `head % RING_BYTES`. Stored by the thread with release
    /// order.
    pub head: AtomicU64,
    /// Bytes consumed since the start. Stored by the recorder with release order.
    pub tail: AtomicU64,
    /// Samples lost because the ring was full.
    pub lost: AtomicU64,
    /// Weight of the lost samples, in periods.
    pub lost_weight: AtomicU64,
    /// Other records (objects) that found the ring full; they are sent again later.
    pub lost_other: AtomicU64,
    /// Number of samples taken, lost ones included.
    pub sequence: AtomicU32,
    /// Periods that the next sample is to stand for besides its own. Lost if there is none.
    pub carried: AtomicU32,
    /// CPU time that the thread had used when its timer was armed, in ns (CLOCK_THREAD_CPUTIME_ID): since it began,
    /// also as another program before an exec. 0: the timer is not armed.
    pub cpu_before: AtomicU64,
    /// CLOCK_MONOTONIC time of the claim, in ns.
    pub began: u64,
    /// The same of the thread's end; 0 without one that it has seen itself. Stored before its state.
    pub ended: AtomicU64,
    /// CPU time that it had used by then, in ns.
    pub cpu_at_end: AtomicU64,
}

impl ThreadBlock {
    /// Number of the next sample, from 1. Called by the thread's own handler only.
    pub fn next_sequence(&self) -> u32 {
        let next = self.sequence.load(core::sync::atomic::Ordering::Relaxed).wrapping_add(1);
        self.sequence.store(next, core::sync::atomic::Ordering::Relaxed);
        next
    }
}

const _: () = {
    assert!(core::mem::size_of::<SessionHeader>() <= OPENINGS_OFFSET && FIRST_PAGE <= STATES_OFFSET);
    assert!(OPENINGS_OFFSET + crate::openings::BYTES <= OTHER_VERSION_OFFSET);
    assert!(core::mem::offset_of!(SessionHeader, version) == 8);
    assert!(core::mem::size_of::<ProcessBlock>() <= BLOCK_HEADER);
    assert!(core::mem::size_of::<ThreadBlock>() <= BLOCK_HEADER);
    assert!(DATA_OFFSET.is_multiple_of(4096) && BLOCK_BYTES.is_multiple_of(4096) && RING_BYTES.is_multiple_of(8));
    assert!(RING_BYTES >= 3 * crate::samples::LARGEST);
};
