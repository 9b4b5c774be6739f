//! The private interface between `libuunwind.so` and the preloaded object of the same build: two tables of functions.
//!
//! The registry has one home in a process, `libuunwind.so`; the sampler is another object, so that a program that
//! merely links the library gets no interposers. The sampler finds [`Library`] by [`LIBRARY_SYMBOL`] and hands a
//! [`Client`] to each walk. Both check `size` and `build`.

use crate::cache::last_walk::LastWalk;
use crate::caller::Caller;
use crate::objects::Object;
use crate::plugin::{Description, Entry};
use crate::setup_wakeup::Due;
use crate::steps::{Step, Steps, WholeSteps};
use core::ffi::c_void;
use core::sync::atomic::AtomicU64;

/// Symbol under which `libuunwind.so` exports its [`Library`] table. Versioned by name: an object of another version
/// does not find it.
pub const LIBRARY_SYMBOL: &core::ffi::CStr = c"uu_private_library_0";

/// Distinguishes builds: raised with every change of this file, and different where the structures that cross it are.
pub const BUILD: u32 =
    (16 << 24) | ((core::mem::size_of::<Object>() as u32) << 12) | core::mem::size_of::<Request>() as u32;

/// What a walk with semantic frames asks of whoever keeps its names and facts: the sampler (`profiler/preload`) for
/// samples, `ffi/stacks` for `uu_walk`. All are called inside handlers.
#[repr(C)]
pub struct Client {
    /// An object was met: for the first time in this recording epoch, or since another one was in its place, or at an
    /// earlier time than it was reported with. False: it could not be reported.
    pub object_seen: unsafe extern "C" fn(context: *mut c_void, object: *const Object) -> bool,
    /// Number of facts published so far; what was not found is looked for again when it moves.
    pub facts_count: unsafe extern "C" fn(context: *mut c_void) -> u32,
    /// Facts for a key: -1 not known yet, 0 no plugin claims the object, else the plugin's index, with `*bytes`,
    /// `*len`.
    pub facts: unsafe extern "C" fn(context: *mut c_void, key: u64, bytes: *mut *const u8, len: *mut usize) -> i32,
    /// The rule table for a key: false if there is none (yet), else `*bytes`, 8-aligned, and `*len`, which never
    /// change.
    pub table: unsafe extern "C" fn(context: *mut c_void, key: u64, bytes: *mut *const u8, len: *mut usize) -> bool,
    /// The rule for the process address `lookup`, made from the machine code of a JIT: false if there is none, else
    /// `*rule`, the words of a [`crate::rule::Packed`]. It counts only if `same(reader, address, copy, len)` says that
    /// the `len` bytes at a process address are those that it was made from; the copy may change meanwhile.
    pub code_rule: unsafe extern "C" fn(
        context: *mut c_void,
        lookup: u64,
        same: unsafe extern "C" fn(reader: *mut c_void, address: u64, copy: *const AtomicU64, len: usize) -> bool,
        reader: *mut c_void,
        rule: *mut [u64; 3],
    ) -> bool,
    /// As [`crate::walk::Names::find_name`].
    pub find_name: unsafe extern "C" fn(context: *mut c_void, code: u64, fingerprint: u64) -> u32,
    /// As [`crate::walk::Names::describe`]; bytes are read by `read(reader, address, out, len)`.
    pub describe: unsafe extern "C" fn(
        context: *mut c_void,
        plugin: u32,
        description: *const Description,
        read: unsafe extern "C" fn(reader: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool,
        reader: *mut c_void,
    ) -> u32,
    /// Code that is not uu's is about to be called, the first time in this walk: from here on ticks must come.
    pub foreign_code: unsafe extern "C" fn(context: *mut c_void),
    /// A call of this plugin failed, for this reason (a `StopReason` number), and was abandoned. `off`: it is not
    /// called again.
    pub plugin_failed: unsafe extern "C" fn(context: *mut c_void, plugin: u32, reason: u32, off: bool),
}

/// [`Request::flags`]: reads are probed instead of guarded, and no plugin is called.
pub const PROBED: u32 = 1;

/// [`Request::flags`]: `Request::code` is wanted.
pub const WANT_CODE: u32 = 2;

/// [`Request::result`]: a plugin reported missing or doubtful frames.
pub const RESULT_DESYNC: u32 = 1;
/// [`Request::result`]: facts for an object in the stack have not arrived yet.
pub const RESULT_FACTS_PENDING: u32 = 2;
/// [`Request::result`]: the table of objects is full; what it does not hold is looked up at each walk.
pub const RESULT_OBJECTS_FULL: u32 = 8;
/// [`Request::result`]: there was no space to report an object in the stack, so the stack could be named wrongly.
pub const RESULT_UNREPORTED: u32 = 16;

/// [`Request::result`]: a plugin that claims code in the stack was not called, because its faults would not have been
/// contained.
pub const RESULT_PLUGIN_NOT_CALLED: u32 = 32;

/// `UU_SETUP_BY_ITSELF` of `uu.h`.
pub const BY_ITSELF: u32 = 1;

/// Bytes of [`Request::room`].
pub const WALK_ROOM: usize = if cfg!(target_arch = "aarch64") { 4096 } else { 2048 };

/// [`Request::flags`]: frames that await those of the stack are wanted ([`crate::plugin::AWAITING`]).
pub const REQUEST_AWAITING: u32 = 4;

/// [`Request::flags`]: reads are probed instead of guarded, and only plugins that raise no faults are called.
pub const CHECKED: u32 = 8;

/// Instead of a recording epoch: the walk is not for a recording, so objects are not reported.
pub const UNRECORDED: u32 = 0;

/// One walk of the calling thread.
#[repr(C)]
pub struct Request {
    /// The interrupted context: a `ucontext_t`, as the kernel passes it to a handler.
    pub ucontext: *const u8,
    /// Buffer for frame words, `capacity` of them, 8-aligned.
    pub frames: *mut u64,
    /// The buffer's size in 64-bit words.
    pub capacity: usize,
    /// [`crate::walk::SCRATCH`] bytes.
    pub scratch: *mut u8,
    /// The thread's last walk, to be reused and replaced; or null.
    pub last_walk: *mut LastWalk,
    /// [`WALK_ROOM`] bytes, 64-aligned, used by nothing else during the walk: what would else lie on the stack.
    pub room: *mut u8,
    /// The sampler's functions, called during the walk.
    pub client: *const Client,
    /// The first argument of the functions of `client`.
    pub context: *mut c_void,
    /// Recording epoch, not 0; a new one in the child of a fork.
    pub epoch: u32,
    /// [`PROBED`], [`WANT_CODE`], [`REQUEST_AWAITING`], [`CHECKED`].
    pub flags: u32,
    /// Time of the sample (CLOCK_MONOTONIC, ns).
    pub time: u64,
    /// Out: words written. Kept up to date frame by frame.
    pub words: usize,
    /// Out, with [`WANT_CODE`]: the 8 bytes of code before the interrupted pc; 0 when they cannot be read.
    pub code: u64,
    /// Out: `StopReason` number.
    pub stop: u32,
    /// Out: `RESULT_*`, or-ed.
    pub result: u32,
    /// Out: number of frames, those of a replayed part among them.
    pub frames_emitted: u32,
    /// Out: of `frames_emitted`, those that were taken over from the last walk.
    pub reused: u32,
    /// Out: frames whose unwind information was interpreted in place, for want of their object's rule table.
    pub interpreted: u32,
    /// Out: one of `LOCK_*` of [`crate::plugin`], by the plugins of all runtimes that are loaded: the largest of their
    /// answers.
    pub lock: u32,
}

/// Bytes of [`CopyRequest::memory`].
pub const COPY_MEMORY: usize = 48 * 1024;

/// One copy of the calling thread's stack.
#[repr(C)]
pub struct CopyRequest {
    /// What it shares with a walk: context, client, epoch, time, flags, `room`. `frames`: where the coded copy goes,
    /// `capacity` bytes; the frame words, capacity and the memory of walks have no meaning. Out: `words`, the number of
    /// bytes, 0 if there is no copy; `stop`, why not; `code`, `result`.
    pub request: Request,
    /// [`COPY_MEMORY`] bytes, 16-aligned, used by nothing else during the copy.
    pub memory: *mut u8,
    /// Where stacks of this thread can end (process addresses), exclusive; 0: none.
    pub ends: [u64; 2],
    /// The thread's alternate signal stack: lowest address, size in bytes; size 0: it has none.
    pub alternate: [u64; 2],
    /// The process's block in the session, with the recorder's map of executable memory; or null.
    pub block: *const u8,
    /// Out: number of stack words that were read.
    pub read: u64,
}

/// [`Library::sample`]: done, the outcome is in the request.
pub const SAMPLED: u32 = 0;
/// [`Library::sample`]: this thread is inside a walk.
pub const NESTED: u32 = 1;
/// [`Library::sample`]: no slot is free.
pub const NO_SLOT: u32 = 2;

/// What a program may ask of the sampler that records it. All are async-signal-safe, and return 0 or a negative errno.
#[repr(C)]
pub struct Recorder {
    /// Pauses the recording of this process, or resumes it.
    pub switch: extern "C" fn(paused: bool) -> i32,
    /// Sets a label of the calling thread; a value that is null takes it away.
    pub label: unsafe extern "C" fn(key: *const u8, key_len: usize, value: *const u8, value_len: usize) -> i32,
}

/// `libuunwind.so`'s functions.
#[repr(C)]
pub struct Library {
    /// `size_of::<Library>()` when the library was built, in bytes.
    pub size: u32,
    /// [`BUILD`] of the library: sampler and library must have the same.
    pub build: u32,
    /// Installs a plugin under an index, from 1 on and below [`EMBEDDER`](crate::walk::EMBEDDER). 0, or a negative
    /// errno. Not for handlers.
    pub add_plugin: unsafe extern "C" fn(index: u32, entry: Entry) -> i32,
    /// Makes the initial objects permanent, and reports each object that is loaded now. Not for handlers; faults must
    /// reach `on_fault` already.
    pub add_initial_objects:
        unsafe extern "C" fn(context: *mut c_void, seen: unsafe extern "C" fn(*mut c_void, *const Object)),
    /// The table of the copy of the library that is this process's: this one, or that of a copy that was there first.
    pub home: unsafe extern "C" fn() -> *const Library,
    /// Whether loaded objects can be found. Prepares the library, if its constructor comes later
    /// than the caller's. Not for handlers.
    pub ready: unsafe extern "C" fn() -> bool,
    /// Walks the calling thread; never from inside another call of this function. Async-signal-safe; faults and loops
    /// in it are contained if `on_fault` and `on_tick` are called by the signal handlers.
    pub sample: unsafe extern "C" fn(request: *mut Request) -> u32,
    /// Copies the calling thread's stack. In the same places as [`Library::sample`], and with the same results.
    pub copy: unsafe extern "C" fn(request: *mut CopyRequest) -> u32,
    /// To be called first by the handler of SEGV, BUS, FPE and ILL. `in_sample`: the signal interrupted a call of
    /// `sample`. True: the context was repaired; return from the handler.
    pub on_fault: unsafe extern "C" fn(ucontext: *mut u8, in_sample: bool) -> bool,
    /// To be called by a sampling signal that met a walk on its own thread; ends the walk after several.
    pub on_tick: unsafe extern "C" fn(ucontext: *mut u8),
    /// A call of `sample` was left without its exit (a handler of the program that ran on top of it called siglongjmp):
    /// its marks go. To be called before the next one, while no sampling signal can take the thread for being inside
    /// one.
    pub forget: unsafe extern "C" fn(),
    /// The calling thread ends: its slot is free. Not from inside a walk.
    pub thread_ended: unsafe extern "C" fn(),
    /// To be called in the child of a fork, before its first walk.
    pub after_fork: unsafe extern "C" fn(),
    /// Hands over a rule table for the objects with this key; its bytes are 8-aligned and stay for ever. 0, or a
    /// negative errno. Not for handlers.
    pub add_table: unsafe extern "C" fn(key: u64, bytes: *const u8, len: usize) -> i32,
    /// Says that the objects with this key belong to the plugin with this index, with these facts, whose bytes are
    /// 8-aligned and stay for ever; an index of 0: to none. For walks of the program's own (`uu_walk`). 0, or a
    /// negative errno. Not for handlers.
    pub add_facts: unsafe extern "C" fn(key: u64, plugin: u32, bytes: *const u8, len: usize) -> i32,
    /// The index of the plugin with this name, NUL-padded; 0: it is not installed. Not for handlers.
    pub plugin_index: unsafe extern "C" fn(name: *const [u8; 16]) -> u32,
    /// The program registered unwind data at `begin` by the compilers' interface; `shape`: 0 a list of CIEs and FDEs
    /// that a length of 0 ends, 1 one FDE, 2 an array of lists that a null ends. It becomes windows. Returns how many
    /// functions got none. Not for handlers.
    pub frames_registered: unsafe extern "C" fn(begin: u64, shape: u32) -> u32,
    /// The latest registration at `begin` goes; returns when no walk reads it, or after a bounded time. Not for
    /// handlers.
    pub frames_deregistered: unsafe extern "C" fn(begin: u64),
    /// Where walks say that the set-up is due, which stays for ever.
    pub due: *const Due,
    /// Names the program that adds names and lines to crash reports, by a path of this length. 0, or a negative errno.
    /// Not for handlers.
    pub name_crashes: unsafe extern "C" fn(program: *const u8, len: usize) -> i32,
    /// As `uu_capture` without a ucontext, where the first frame is the one with these registers: that of a caller
    /// whose entry stored them, and is still active. Async-signal-safe.
    pub capture_for:
        unsafe extern "C" fn(frames: *mut u64, capacity: usize, stop: *mut u16, caller: *const Caller) -> usize,
    /// The next frames of the calling thread's stack, or of one that does not run. Machine frames only, as those of a
    /// capture. Async-signal-safe.
    pub steps: unsafe extern "C" fn(request: *mut Steps),
    /// The next frames of the calling thread's stack, with those of languages. Async-signal-safe.
    pub whole_steps: unsafe extern "C" fn(request: *mut WholeSteps),
    /// Writes what a step that is no machine frame is, such as `function (file:line)`: UTF-8, at most `room` bytes,
    /// without a NUL. Returns how long the text is. One that is longer than `room` was cut at a character, and NULs
    /// stand in place of the rest of that. Async-signal-safe.
    pub step_text: unsafe extern "C" fn(step: *const Step, text: *mut u8, room: usize) -> usize,
    /// `uu_setup_with` of `uu.h`.
    pub setup_with: extern "C" fn(flags: u32) -> i32,
    /// From now on, the program's requests go to this sampler, which stays. Not for handlers.
    pub set_recorder: extern "C" fn(recorder: &'static Recorder),
}

// SAFETY: a table of function pointers, and a pointer to atomics.
unsafe impl Sync for Library {}
// SAFETY: a table of function pointers.
unsafe impl Sync for Client {}
