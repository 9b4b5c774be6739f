//! Layout of the control memory between `uu` and the sampler that it has put into a running process.
//!
//! One memfd named [`CONTROL`], of [`CONTROL_BYTES`] and the sampler's image after that; the process has the first part
//! mapped shared. `uu` writes arguments there before each call, and the call its results. A later `uu` finds it by its
//! name in `/proc/PID/maps`, and takes out what an earlier one has left: so the fields up to [`Control::end`] have the
//! same places in all versions.
//!
//! The process can write to all of it: `uu` believes nothing of it beyond what the process could do to itself.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the memfd; in `/proc/PID/maps` as `/memfd:uu-control-injected (deleted)`.
pub const CONTROL: &core::ffi::CStr = c"uu-control-injected";
/// Name of the session's memfd.
pub const SESSION: &core::ffi::CStr = c"uu-session-injected";
/// Name of the memfd with the facts.
pub const FACTS: &core::ffi::CStr = c"uu-facts-injected";
/// First word of the control memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uu-injec");
/// Version of what follows [`Control::end`].
pub const VERSION: u32 = 6;
/// Bytes of the control memory: whole pages.
pub const CONTROL_BYTES: usize = 16 * 1024;
/// At most this number of mappings is kept.
pub const REGIONS: usize = 128;
/// At most this number of threads is given with one call.
pub const BATCH: usize = 512;

/// [`Control::state`]: nothing is installed.
pub const NEW: u32 = 0;
/// [`Control::state`]: the handler is installed.
pub const BEGUN: u32 = 1;
/// [`Control::state`]: timers and handler are gone, and nothing of ours begins to run any more.
pub const OVER: u32 = 2;

/// [`Control::refusal`]: there is no reason.
pub const NO_REFUSAL: u32 = 0;
/// [`Control::refusal`]: the program handles or ignores the sampling signal.
pub const SIGNAL_TAKEN: u32 = 1;
/// [`Control::refusal`]: the program handles the signal of [`Control::detail`] on an alternate stack.
pub const ALTERNATE_STACK: u32 = 2;
/// [`Control::refusal`]: the sampler could not set itself up.
pub const NO_ROOM: u32 = 3;
/// [`Control::refusal`]: a system call that it needs failed, with the error of [`Control::detail`].
pub const FAILED_CALL: u32 = 4;

/// [`Request::what`]: give the thread a timer; where events are sampled, note its ids.
pub const ARM: u32 = 1;
/// [`Request::what`]: the thread has ended: delete its timer.
pub const FORGET: u32 = 2;

/// A range of process addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Length in bytes; 0: there is none.
    pub len: u64,
}

/// What to do about a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// [`ARM`] or [`FORGET`].
    pub what: u32,
    /// The thread's id in the process's own pid namespace.
    pub inner: u32,
    /// The thread's id where `uu` lives.
    pub outer: u32,
    /// Out: 0, or the error.
    pub error: u32,
}

/// The control memory.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Pid of the `uu` that has put the sampler in.
    pub recorder: u32,
    /// Its start time in ticks since boot, which distinguishes it from a later process with this pid.
    pub recorder_began: u64,
    /// Number of handlers of ours that run now.
    pub inside: AtomicU32,
    /// [`NEW`], [`BEGUN`] or [`OVER`].
    pub state: AtomicU32,
    /// The sampler's code.
    pub text: Region,
    /// Address of the function that takes the sampler's timers and handler away: `extern "C" fn(*mut Control)`. 0:
    /// nothing was installed yet.
    pub end: AtomicU64,
    /// Number of regions that were ever used.
    pub region_count: AtomicU32,
    /// Always zero.
    pub reserved: u32,
    /// What is to be unmapped, but for this memory.
    pub regions: [Region; REGIONS],
    /// For the beginning: where the session, and the facts, are mapped.
    pub session: u64,
    /// See `session`.
    pub facts: u64,
    /// Bytes of both: see `layout::blocks_in` and `facts::tables_in`.
    pub session_bytes: u64,
    /// See `session_bytes`.
    pub facts_bytes: u64,
    /// Address of the loader's `_dl_find_object`; 0: it has none.
    pub find_object: u64,
    /// The loader's `_rtld_global`; empty: not known.
    pub loader: Region,
    /// The extent of the program's image.
    pub program: Region,
    /// Where a thread keeps its first block of specific values, from its thread pointer on; 0: not known.
    pub tsd_offset: u64,
    /// The process's id where `uu` lives.
    pub pid: u32,
    /// Its parent's id there.
    pub parent: u32,
    /// How it has begun, as `ProcessBlock::origin` has it.
    pub origin: u32,
    /// Sampling rate in Hz; of allocations, bytes, of waits, ns.
    pub rate: u32,
    /// `FLAG_*` of the session.
    pub flags: u32,
    /// Out: why nothing was installed, one of the reasons above.
    pub refusal: u32,
    /// Out: more about the refusal.
    pub detail: u32,
    /// For requests: their number.
    pub count: u32,
    /// Address of the gate (`crate::gate`), through which its calls are led; 0: it has none.
    pub gate: u64,
    /// What to do about threads.
    pub requests: [Request; BATCH],
}

const _: () = {
    assert!(core::mem::size_of::<Control>() <= CONTROL_BYTES && CONTROL_BYTES.is_multiple_of(4096));
    assert!(core::mem::offset_of!(Control, regions) == 64);
};
