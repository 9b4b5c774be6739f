//! The state of a recorded process, and how the child of a fork takes it over.

use crate::elsewhere::Socket;
use crate::plugins;
use crate::session::{Session, Setting};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use uunwind_core::library::Library;
use uunwind_core::syscall::{self, nr};
use uunwind_core::walk::PLUGIN_INDICES;
use uunwind_ring::code_rules::CodeRulesView;
use uunwind_ring::facts::FactsView;
use uunwind_ring::layout::{ProcessBlock, FORKED, LIVE_PROCESS};
use uunwind_ring::names::{self, NameEntry, Names};
use uunwind_ring::tables::TablesView;
use uunwind_ring::FLAG_NO_CHILDREN;

/// The state of the process. The constructor writes it once, before `RECORDING` is set; it is read-only afterwards.
pub struct Process {
    /// The mapped session.
    pub session: Session,
    /// Facts that the recorder has published, and its word that says whether the recording is over.
    pub facts: FactsView,
    /// The published rule tables, the last part of the mapping with the facts.
    pub tables: TablesView,
    /// The rules made from code of JITs, mapped after the facts.
    pub code_rules: CodeRulesView,
    /// Memory for the table of name ids; all zero in a forked child.
    pub names: *mut NameEntry,
    /// Paths of libuunwind and of the plugins, between colons.
    pub objects: Path,
    /// The settings that the recorder passed in the environment.
    pub setting: Setting,
    /// How the recorder is asked what it sees a process as.
    pub socket: Option<Socket>,
    /// Function table of libuunwind.
    pub library: &'static Library,
    /// Largest signal frame that the kernel pushes on this CPU, in bytes: AT_MINSIGSTKSZ of
    /// [getauxval](https://man7.org/linux/man-pages/man3/getauxval.3.html).
    pub signal_frame: u64,
    /// Path of the program, from `/proc/thread-self/exe`: the loader's link map of the program has an empty name.
    pub exe: Path,
    /// What the recorder says of the process as it began; `None`: nothing, and they are in one pid namespace.
    pub outer: Option<Outer>,
}

/// A process as the recorder sees it.
#[derive(Clone, Copy)]
pub struct Outer {
    /// Its id where the recorder lives.
    pub pid: u32,
    /// Its parent's id there.
    pub parent: u32,
    /// How it has begun: see `ProcessBlock::origin`.
    pub origin: u32,
}

/// A path, or several, at most as long as the buffer.
pub struct Path {
    bytes: [u8; 1024],
    len: usize,
}

impl Path {
    /// Reads [`/proc/thread-self/exe`](https://man7.org/linux/man-pages/man5/proc_pid_exe.5.html): the main thread may
    /// have ended. Empty if that fails.
    pub fn of_program() -> Path {
        let mut path = Path { bytes: [0; 1024], len: 0 };
        let (name, room) = (c"/proc/thread-self/exe".as_ptr() as usize, path.bytes.as_mut_ptr() as usize);
        let arguments = [libc::AT_FDCWD as usize, name, room, path.bytes.len(), 0, 0];
        // SAFETY: a NUL-terminated path and a buffer of that length.
        let read = unsafe { syscall::call(nr::READLINKAT, arguments) };
        path.len = usize::try_from(read).unwrap_or(0);
        path
    }

    /// A copy of a path or of a list of paths; empty if it is too long.
    pub fn copy(path: &[u8]) -> Path {
        let mut copy = Path { bytes: [0; 1024], len: 0 };
        if let Some(bytes) = copy.bytes.get_mut(..path.len()) {
            bytes.copy_from_slice(path);
            copy.len = path.len();
        }
        copy
    }

    /// The path without a terminating NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

struct ProcessCell(UnsafeCell<MaybeUninit<Process>>);
// SAFETY: written once before RECORDING is set (release), read after it was seen (acquire).
unsafe impl Sync for ProcessCell {}

static PROCESS: ProcessCell = ProcessCell(UnsafeCell::new(MaybeUninit::uninit()));
static RECORDING: AtomicBool = AtomicBool::new(false);
static PID: AtomicU32 = AtomicU32::new(0);
/// The process's id where the recorder lives, if the recorder has said it; 0: it is [`PID`].
static OUTER_PID: AtomicU32 = AtomicU32::new(0);
/// Number of this process's recording: 1 after exec, one more in each forked child. Objects and names that were
/// recorded under an earlier number must be recorded again.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static BLOCK: AtomicPtr<ProcessBlock> = AtomicPtr::new(core::ptr::null_mut());
static BLOCK_INDEX: AtomicU32 = AtomicU32::new(0);

/// The state of the process, if it records or has recorded. Async-signal-safe.
pub fn process() -> Option<&'static Process> {
    // SAFETY: RECORDING is set after PROCESS was written, once.
    RECORDING.load(Ordering::Acquire).then(|| unsafe { (*PROCESS.0.get()).assume_init_ref() })
}

/// Whether the caller runs in the process that records. False in a vfork child, which shares our memory, and in a child
/// of a raw clone call.
pub fn is_own() -> bool {
    PID.load(Ordering::Relaxed) == syscall::getpid()
}

/// Process id of the recording process.
pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Its id where the recorder lives.
pub fn outer_pid() -> u32 {
    match OUTER_PID.load(Ordering::Relaxed) {
        0 => pid(),
        outer => outer,
    }
}

/// Whether the recorder may live in another pid namespace.
pub fn is_elsewhere() -> bool {
    OUTER_PID.load(Ordering::Relaxed) != 0
}

/// Number of this process's recording: 1 after exec, one more in each forked child.
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// The block of this process in the session; `None` while nothing is recorded.
pub fn block() -> Option<&'static ProcessBlock> {
    // SAFETY: null, or a block that stays mapped for ever.
    unsafe { BLOCK.load(Ordering::Acquire).as_ref() }
}

/// Index of the process's block in the session.
pub fn block_index() -> u32 {
    BLOCK_INDEX.load(Ordering::Relaxed)
}

/// The table of name ids that are recorded already.
pub fn names() -> Option<Names<'static>> {
    let process = process()?;
    // SAFETY: private memory for this many entries, which stays mapped; entries are atomics, all-zero is a free entry.
    Some(Names::new(unsafe { core::slice::from_raw_parts(process.names, names::ENTRIES) }))
}

/// Begins to record: stores the state and claims a block. False when no block is free.
pub fn begin(process: Process) -> bool {
    if !claim_block(&process.session, 0, process.outer) {
        return false;
    }
    // SAFETY: called once, by the constructor, before RECORDING is set.
    unsafe { (*PROCESS.0.get()).write(process) };
    RECORDING.store(true, Ordering::Release);
    true
}

/// Marks this process as no longer recording. The recorder ignores what is still written to its blocks.
pub fn stop() {
    BLOCK.store(core::ptr::null_mut(), Ordering::Release);
}

/// Names the plugins that this process has opened since its block was claimed.
pub fn name_plugins(names: &[[u8; 16]; PLUGIN_INDICES]) {
    let block = BLOCK.load(Ordering::Acquire);
    if !block.is_null() {
        // SAFETY: the process's own block, which stays mapped; the recorder copies it as bytes.
        unsafe { (&raw mut (*block).plugins).write_volatile(*names) };
    }
}

fn claim_block(session: &Session, origin: u32, outer: Option<Outer>) -> bool {
    let Some(index) = session.claim() else {
        session.header().processes_without_block.fetch_add(1, Ordering::Relaxed);
        return false;
    };
    let block = session.block(index).cast::<ProcessBlock>();
    let pid = syscall::getpid();
    // SAFETY: takes nothing, always succeeds.
    let own = || Outer { pid, parent: unsafe { syscall::call(nr::GETPPID, [0; 6]) } as u32, origin };
    let Outer { pid: outer_pid, parent, origin } = outer.unwrap_or_else(own);
    // SAFETY: a claimed block is ours alone, all-zero, and stays mapped.
    unsafe {
        ((*block).pid, (*block).parent, (*block).origin) = (outer_pid, parent, origin);
        (*block).next_name = AtomicU32::new(1);
        (*block).start_time = syscall::monotonic_ns();
        (*block).plugins = plugins::names();
    }
    PID.store(pid, Ordering::Relaxed);
    OUTER_PID.store(outer.map_or(0, |outer| outer.pid), Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::Relaxed);
    BLOCK_INDEX.store(index as u32, Ordering::Relaxed);
    BLOCK.store(block, Ordering::Release);
    if let Some(state) = session.state(index) {
        state.store(LIVE_PROCESS, Ordering::Release);
    }
    true
}

/// Whether the process's pid differs from the one that `/proc/self` shows: then it lives in another [pid
/// namespace](https://man7.org/linux/man-pages/man7/pid_namespaces.7.html), and the recorder cannot use its pid. So it
/// is where `/proc` is missing.
pub fn in_other_pid_namespace() -> bool {
    let mut text = [0u8; 16];
    let path = c"/proc/self".as_ptr() as usize;
    let arguments = [libc::AT_FDCWD as usize, path, text.as_mut_ptr() as usize, text.len(), 0, 0];
    // SAFETY: a NUL-terminated path and a buffer of that length.
    let read = unsafe { syscall::call(nr::READLINKAT, arguments) };
    let digits = text.get(..usize::try_from(read).unwrap_or(0)).unwrap_or(&[]);
    let pid = digits.iter().fold(0u32, |n, d| n.wrapping_mul(10).wrapping_add(u32::from(d.wrapping_sub(b'0'))));
    pid != syscall::getpid()
}

/// Whether the child of a fork lives in another pid namespace than its recording parent, whose pid is given: then the
/// recorder would take its pid for another process's. `/proc/self` does not show that, where a process of that
/// namespace, which raw clone(2) had made, has mounted a `/proc` of its own and then forks.
fn has_left_pid_namespace(parent: u32, setting: &Setting) -> bool {
    // SAFETY: takes nothing, always succeeds.
    if unsafe { syscall::call(nr::GETPPID, [0; 6]) } as u32 == parent {
        return false;
    }
    // The parent has ended, or was made by raw clone(2): the recorder itself must be here.
    setting.recorder_is_here() == Some(false)
}

/// Claims a block for the child of a fork of this process. False: none is free, or it is in another pid namespace than
/// the recorder, and that one does not say what it is there.
fn claim_forked(process: &Process, parent: u32) -> bool {
    if !is_elsewhere() && !in_other_pid_namespace() && !has_left_pid_namespace(parent, &process.setting) {
        return claim_block(&process.session, FORKED, None);
    }
    let outer = process.socket.as_ref().and_then(Socket::ask_for_ids);
    outer.is_some_and(|outer| claim_block(&process.session, FORKED, Some(Outer { origin: FORKED, ..outer })))
}

/// In the child of a fork: claims blocks for it. Does async-signal-safe work only, because other threads of the parent
/// may have held any lock.
pub extern "C" fn after_fork() {
    let Some(process) = process() else { return };
    // First, whether it is recorded or not: from now on `is_own` must hold here, so that the virtual dispositions are
    // this process's.
    let parent = PID.swap(syscall::getpid(), Ordering::Relaxed);
    if block().is_none() {
        crate::ending::finish_in_child(process);
        return;
    }
    let masked = crate::threads::believes_masked();
    let labels = crate::slots::own().map(|slot| slot.labels.copied());
    crate::threads::forget_all();
    plugins::after_fork();
    // SAFETY: libuu's function.
    unsafe { (process.library.after_fork)() };
    let is_recorded = process.setting.flags & FLAG_NO_CHILDREN == 0 && !process.facts.is_over();
    if !is_recorded || !claim_forked(process, parent) {
        crate::ending::end_at_once(process, masked);
        return;
    }
    crate::pause::begin(process);
    crate::threads::begin(process, masked, |_| {});
    if let Some((slot, labels)) = crate::slots::own().zip(labels) {
        slot.labels.begin_with(&labels);
    }
}
