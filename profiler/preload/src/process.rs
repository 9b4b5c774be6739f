//! What a process keeps while it records, and what the child of a fork does with it.

use crate::session::{Session, Setting};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use uunwind_core::library::Library;
use uunwind_core::syscall;
use uunwind_ring::facts::FactsView;
use uunwind_ring::layout::{ProcessBlock, BLOCK_HEADER, LIVE_PROCESS};
use uunwind_ring::names::{self, NameEntry, Names};
use uunwind_ring::tables::TablesView;
use uunwind_ring::FLAG_NO_CHILDREN;

/// Written once by the constructor, before [`recording`] is true; read-only afterwards.
pub struct Process {
    /// The session.
    pub session: Session,
    /// The facts, if they could be mapped.
    pub facts: Option<FactsView>,
    /// The rule tables behind them.
    pub tables: Option<TablesView>,
    /// What the environment said.
    pub setting: Setting,
    /// libuu's functions.
    pub library: &'static Library,
    /// AT_MINSIGSTKSZ: what the kernel needs for a signal frame.
    pub signal_frame: u64,
    /// Path of the program, as `/proc/self/exe` had it; the loader does not keep it.
    pub exe: Path,
}

/// A path, cut to what fits.
pub struct Path {
    bytes: [u8; 1024],
    len: usize,
}

impl Path {
    /// Reads `/proc/self/exe` (proc(5)). Empty if that fails.
    pub fn of_program() -> Path {
        let mut path = Path { bytes: [0; 1024], len: 0 };
        // SAFETY: a NUL-terminated path and a buffer of that length.
        let read =
            unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.bytes.as_mut_ptr().cast(), path.bytes.len()) };
        path.len = usize::try_from(read).unwrap_or(0);
        path
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

struct Place(UnsafeCell<MaybeUninit<Process>>);
// SAFETY: written once before RECORDING is set (release), read after it was seen (acquire).
unsafe impl Sync for Place {}

static PROCESS: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
static RECORDING: AtomicBool = AtomicBool::new(false);
static PID: AtomicU32 = AtomicU32::new(0);
/// Number of this process's recording: 1 after exec, one more in each forked child. What was told to the recorder in an
/// earlier one must be told again.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static BLOCK: AtomicPtr<ProcessBlock> = AtomicPtr::new(core::ptr::null_mut());
static BLOCK_INDEX: AtomicU32 = AtomicU32::new(0);

/// The process, if it records (or did, until it stopped). Async-signal-safe.
pub fn process() -> Option<&'static Process> {
    // SAFETY: RECORDING is set after PROCESS was written, once.
    RECORDING.load(Ordering::Acquire).then(|| unsafe { (*PROCESS.0.get()).assume_init_ref() })
}

/// Whether the caller runs in the very process that records: not in a vfork child, which shares our memory, nor in one
/// made by a raw clone.
pub fn is_own() -> bool {
    PID.load(Ordering::Relaxed) == syscall::getpid()
}

/// Process id of the recording process.
pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// See [`EPOCH`].
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// The block of this process.
pub fn block() -> Option<&'static ProcessBlock> {
    // SAFETY: null, or a block that stays mapped for ever.
    unsafe { BLOCK.load(Ordering::Acquire).as_ref() }
}

/// Index of that block.
pub fn block_index() -> u32 {
    BLOCK_INDEX.load(Ordering::Relaxed)
}

/// The table of names already sent.
pub fn names() -> Option<Names<'static>> {
    let block = BLOCK.load(Ordering::Acquire);
    if block.is_null() {
        return None;
    }
    // SAFETY: the table fills the block behind its header; entries are atomics, all-zero is a free entry.
    let entries = unsafe {
        core::slice::from_raw_parts(block.cast::<u8>().add(BLOCK_HEADER).cast::<NameEntry>(), names::ENTRIES)
    };
    Some(Names::new(entries))
}

/// Begins to record: stores what the process keeps and claims its block. False when no block is free.
pub fn begin(process: Process, plugins: &[[u8; 16]; 8]) -> bool {
    if !claim_block(&process.session, 0, plugins) {
        return false;
    }
    // SAFETY: called once, by the constructor, before anybody can see RECORDING.
    unsafe { (*PROCESS.0.get()).write(process) };
    RECORDING.store(true, Ordering::Release);
    true
}

/// Ends the recording of this process for good; interposers go on passing calls through to where they belong.
pub fn stop() {
    BLOCK.store(core::ptr::null_mut(), Ordering::Release);
}

fn claim_block(session: &Session, origin: u32, plugins: &[[u8; 16]; 8]) -> bool {
    let Some(index) = session.claim() else {
        session.header().processes_without_block.fetch_add(1, Ordering::Relaxed);
        return false;
    };
    let block = session.block(index).cast::<ProcessBlock>();
    let pid = syscall::getpid();
    // SAFETY: a claimed block is ours alone, all-zero, and stays mapped.
    unsafe {
        (*block).pid = pid;
        (*block).parent = libc::getppid() as u32;
        (*block).origin = origin;
        (*block).next_name = AtomicU32::new(1);
        (*block).start_time = syscall::monotonic_ns();
        (*block).plugins = *plugins;
    }
    PID.store(pid, Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::Relaxed);
    BLOCK_INDEX.store(index as u32, Ordering::Relaxed);
    BLOCK.store(block, Ordering::Release);
    if let Some(state) = session.state(index) {
        state.store(LIVE_PROCESS, Ordering::Release);
    }
    true
}

/// Whether this process has another pid than `/proc` has for it: it lives in another pid namespace, and its pid means
/// nothing to the recorder.
pub fn in_other_pid_namespace() -> bool {
    let mut text = [0u8; 16];
    // SAFETY: a NUL-terminated path and a buffer of that length.
    let read = unsafe { libc::readlink(c"/proc/self".as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    let digits = text.get(..usize::try_from(read).unwrap_or(0)).unwrap_or(&[]);
    let pid = digits.iter().fold(0u32, |n, d| n.wrapping_mul(10).wrapping_add(u32::from(d.wrapping_sub(b'0'))));
    pid != syscall::getpid()
}

/// In the child of a fork: claims blocks of its own. Only async-signal-safe work: other threads of the parent may have held any
/// lock.
pub extern "C" fn after_fork() {
    let Some(process) = process() else { return };
    // First of all, recorded or not: the virtual signals are this process's own from now on.
    PID.store(syscall::getpid(), Ordering::Relaxed);
    let Some(parent) = block() else { return };
    let masked = crate::threads::believes_masked();
    crate::threads::forget_all();
    // SAFETY: libuu's function.
    unsafe { (process.library.after_fork)() };
    if process.setting.flags & FLAG_NO_CHILDREN != 0
        || process.session.header().stopped.load(Ordering::Relaxed) != 0
        || in_other_pid_namespace()
        || !claim_block(&process.session, 1, &parent.plugins)
    {
        stop();
        return;
    }
    crate::threads::begin(process, masked, |_| {});
}
