//! Layout of the session memfd, version 1.
//!
//! ```text
//! 0        SessionHeader (one page)
//! 4096     block states: AtomicU32[BLOCKS]
//! DATA     block 0, block 1, ... of BLOCK_BYTES each
//! ```
//! A block begins with its header ([`ProcessBlock`] or [`ThreadBlock`], one page); what follows is the name table of a
//! process, or a thread's walk buffers and its ring. The memfd is sealed against shrinking, and sparse: untouched blocks cost nothing.
//!
//! Life of a block: `FREE` -> `CLAIMED` (by compare-and-swap in a target; the header is being written) -> `LIVE` ->
//! `ENDED` (thread ended, or never set when the process was killed) -> drained, zeroed and set `FREE` by the recorder.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the session header.
pub const SESSION_MAGIC: u64 = u64::from_le_bytes(*b"uu-ring1");
/// Version of this layout; a target that meets another one does not record.
pub const SESSION_VERSION: u32 = 3;
/// `ProcessBlock::plugin_reasons`: the plugin is off.
pub const PLUGIN_OFF: u32 = 1 << 31;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 576 * 1024;
/// Number of blocks.
pub const BLOCKS: usize = 2048;
/// Bytes of the header of a block.
pub const BLOCK_HEADER: usize = 4096;
/// Offset of the block states.
pub const STATES_OFFSET: usize = 4096;
/// Offset of block 0.
pub const DATA_OFFSET: usize = STATES_OFFSET + BLOCKS * 4;
/// Bytes of the whole session.
pub const SESSION_BYTES: usize = DATA_OFFSET + BLOCKS * BLOCK_BYTES;
/// Frame words that one walk may leave behind (4,096 frames of two words each).
pub const FRAME_WORDS: usize = 8192;
/// Offset, in a thread block, of the buffer in which a walk gathers its frame words before they become a record. Private
/// to the target; it lies here so that no further mapping is needed. The recorder never reads it.
pub const FRAMES_OFFSET: usize = BLOCK_HEADER;
/// Offset, in a thread block, of the plugins' scratch memory for one walk (one page). Private to the target as well.
pub const SCRATCH_OFFSET: usize = FRAMES_OFFSET + FRAME_WORDS * 8;
/// Offset, in a thread block, of what the last walk read (`uunwind_core::reuse::Trail`). Private to the target as well.
pub const TRAIL_OFFSET: usize = SCRATCH_OFFSET + 4096;
/// Room for it.
pub const TRAIL_ROOM: usize = 248 * 1024;
/// Offset, in a thread block, of a walk's other room (`uunwind_core::library::Request::room`): the end of the trail's.
pub const WALK_OFFSET: usize = TRAIL_OFFSET + TRAIL_ROOM - WALK_ROOM;
/// Bytes of that room.
pub const WALK_ROOM: usize = 2048;
/// Offset of the ring in a thread block.
pub const RING_OFFSET: usize = TRAIL_OFFSET + TRAIL_ROOM;
/// Bytes of a thread's ring. A record lies in one piece, so that up to one record's length is left unused where the ring
/// begins again: room for three of the largest takes two of them at any time.
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

/// First page of the session.
#[repr(C)]
pub struct SessionHeader {
    /// [`SESSION_MAGIC`].
    pub magic: u64,
    /// [`SESSION_VERSION`].
    pub version: u32,
    /// `BLOCK_BYTES`, checked by targets.
    pub block_bytes: u32,
    /// `BLOCKS`, checked by targets.
    pub blocks: u32,
    /// Pid of the recorder.
    pub recorder: u32,
    /// Non-zero: the recording is over. Handlers return at once and disarm their timer.
    pub stopped: AtomicU32,
    /// Threads that found no free block and are not sampled.
    pub threads_without_block: AtomicU32,
    /// Processes that found no free block and are not sampled.
    pub processes_without_block: AtomicU32,
    /// Where the search for a free block begins.
    pub claim_hint: AtomicU32,
}

/// Header of a process block. The name table ([`crate::names`]) fills the rest of the block.
#[repr(C)]
pub struct ProcessBlock {
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent: u32,
    /// How it began: 0 exec (constructor), 1 fork.
    pub origin: u32,
    /// Next name id to give out; ids start at 1.
    pub next_name: AtomicU32,
    /// CLOCK_MONOTONIC time of the claim, in ns.
    pub start_time: u64,
    /// Threads whose timer could not be created (RLIMIT_SIGPENDING).
    pub timers_failed: AtomicU32,
    /// Samples dropped because the thread was already inside a walk.
    pub nested: AtomicU32,
    /// Signals left aside because a host handler ran on an alternate stack too small for both.
    pub small_stack: AtomicU32,
    /// Faults contained by the walk's recovery point.
    pub faults_contained: AtomicU32,
    /// Frames emitted without a name because the ring had no room for it, or its text could not be read.
    pub names_lost: AtomicU32,
    /// Overlay calls that ended in desync.
    pub desync: AtomicU32,
    /// Object table of the process was full: objects without cached rules or records.
    pub objects_full: AtomicU32,
    /// Set by the process when it stops recording for good, with an errno-like reason; 0 while recording.
    pub disabled: AtomicU32,
    /// Plugins opened, in order of their index; NUL-padded names. Index 0 is never used.
    pub plugins: [[u8; 16]; 8],
    /// CPU time used by threads that have ended, in ns (CLOCK_THREAD_CPUTIME_ID at their end).
    pub cpu_ended: AtomicU64,
    /// Calls of each plugin, by index, that failed and were left behind (0: of windows' functions).
    pub plugin_failures: [AtomicU32; 8],
    /// Frames of all samples, and those of them that were taken over from the thread's sample before.
    pub frames_told: AtomicU64,
    /// See `frames_told`.
    pub frames_reused: AtomicU64,
    /// The reason of each one's last failure, a `uunwind_core::stop_reason::StopReason` number; bit 31: it is off since.
    pub plugin_reasons: [AtomicU32; 8],
    /// Frames whose unwind information was interpreted in place, for want of their object's rule table.
    pub interpreted: AtomicU64,
    /// Functions that JITs registered unwind data for and that got no window: damaged, overlapping, no memory.
    pub frames_lost: AtomicU32,
}

/// Header of a thread block. Walk buffers and the ring fill the rest of the block.
#[repr(C)]
pub struct ThreadBlock {
    /// Thread id.
    pub tid: u32,
    /// Index of the block of its process.
    pub process: u32,
    /// pid of its process (to check `process` against).
    pub pid: u32,
    /// Non-zero: the handler is inside a walk on this thread.
    pub busy: AtomicU32,
    /// Bytes ever written. The next record begins at `head % RING_BYTES`. Written by the thread with release order.
    pub head: AtomicU64,
    /// Bytes ever consumed. Written by the recorder with release order.
    pub tail: AtomicU64,
    /// Samples lost because the ring was full.
    pub lost: AtomicU64,
    /// Weight of those samples.
    pub lost_weight: AtomicU64,
    /// Other records (objects) lost because the ring was full; they are sent again later.
    pub lost_other: AtomicU64,
    /// Samples taken so far, lost ones included.
    pub sequence: AtomicU32,
    /// Kernel timer id of the thread's timer, or -1.
    pub timer: AtomicU32,
    /// Thread pointer, to check that a signal meets the thread it was meant for.
    pub thread_pointer: u64,
    /// Lowest address of the thread's alternate signal stack as last set, 0 if none was seen. The thread's own, as all that
    /// follows.
    pub alternate_low: AtomicU64,
    /// Bytes of that stack.
    pub alternate_size: AtomicU64,
    /// Signals of the program's own that came during a walk, to be sent again behind it.
    pub put_off: AtomicU64,
    /// The siginfo of each of them, in the order in which the sampler lists those signals.
    pub put_off_info: [[AtomicU64; SIGINFO_WORDS]; PUT_OFF_SIGNALS],
    /// Non-zero: the program believes that the sampling signal is blocked on this thread.
    pub masked: AtomicU32,
}

/// Words of the kernel's siginfo.
pub const SIGINFO_WORDS: usize = 16;
/// Signals that may be put off: the sampling signal, and those of faults.
pub const PUT_OFF_SIGNALS: usize = 5;

impl ThreadBlock {
    /// Number of the next sample, from 1. Called by the thread's own handler only.
    pub fn next_sequence(&self) -> u32 {
        let next = self.sequence.load(core::sync::atomic::Ordering::Relaxed).wrapping_add(1);
        self.sequence.store(next, core::sync::atomic::Ordering::Relaxed);
        next
    }
}

const _: () = {
    assert!(core::mem::size_of::<SessionHeader>() <= STATES_OFFSET);
    assert!(core::mem::size_of::<ProcessBlock>() <= BLOCK_HEADER);
    assert!(core::mem::size_of::<ThreadBlock>() <= BLOCK_HEADER);
    assert!(DATA_OFFSET.is_multiple_of(4096) && BLOCK_BYTES.is_multiple_of(4096) && RING_BYTES.is_multiple_of(8));
    assert!(RING_BYTES >= 3 * (FRAME_WORDS * 8 + core::mem::size_of::<crate::record::SampleRecord>()));
};
