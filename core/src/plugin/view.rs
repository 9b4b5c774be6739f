//! The current frame as a plugin sees it, and the functions that the plugin may call.

use super::{Description, ABI};
use crate::cache::last_walk::PointState;
use crate::memory::{ANSWER, KEY};
use crate::regs::COUNT;
use core::ffi::c_void;

/// The current frame as a plugin sees it. Valid during the call only. `repr(C)`: the same as `struct uu_view`. The host
/// may be newer and its view longer.
#[repr(C)]
pub struct View {
    /// `size_of::<View>()` at the time the host was built.
    pub size: u32,
    /// 1 if `pc` is the interrupted instruction (leaf, or caller of a signal frame), 0 if it is a return address.
    pub exact: u32,
    /// Instruction pointer of the current frame (process address).
    pub pc: u64,
    /// Stack pointer of the current frame (process address).
    pub sp: u64,
    /// Canonical frame address of the current frame: the stack pointer before the call that made it. The frame is
    /// `[sp, cfa)`. 0 in `step` and `rule`: not computed yet.
    pub cfa: u64,
    /// First address of the function's unwind range (its FDE); 0 if not available, and in `step` and `rule`.
    pub function_start: u64,
    /// End of that range, exclusive.
    pub function_end: u64,
    /// General registers in DWARF order (rax rdx rcx rbx rsi rdi rbp rsp r8..r15), as far as `known` says.
    pub registers: [u64; COUNT],
    /// Bit n set: `registers[n]` holds the register's value in this frame.
    pub known: u32,
    /// Index of this plugin; opaque to it.
    pub plugin: u32,
    /// What the plugin's analyse half found in this object. Read-only, shared; the bytes are as the
    /// recorder wrote them, and contain their own size and version. Null for a window's function.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
    /// Load bias of the object: process address minus file address. 0 for a window.
    pub bias: u64,
    /// [`super::SCRATCH_BYTES`] bytes for this plugin in this walk, 16-aligned, zeroed before its first call in the
    /// walk. Null if the walk has none (only for windows' functions).
    pub scratch: *mut u8,
    /// Thread pointer (`%fs:0` on x86-64) of the walked thread.
    pub thread_pointer: u64,
    /// Where this process keeps the first block of pthread-specific values: offset in bytes of `{seq, data}[32]` from
    /// the thread pointer, found and tested at start; 0 if it was not found.
    pub tsd_offset: u64,
    /// The functions that the plugin may call during this call.
    pub host: *const Host,
    /// First argument of the host functions.
    pub walk: *mut c_void,
    /// Text range of the object or window that covers `pc`: first address.
    pub range_start: u64,
    /// End of that range, exclusive.
    pub range_end: u64,
    /// Distinguishes the object or window from every other one that was or will be at the same place.
    pub generation: u64,
    /// The user pointer of the window; null for objects.
    pub user: *mut c_void,
    /// The caller's frame, which `step` fills; null in other calls. It holds this frame's registers, so registers that
    /// a step leaves alone keep their values.
    pub caller: *mut Caller,
    /// Set by the plugin: bit n: it read `registers[n]`, so its answer may depend on it. The host sets all bits, so a
    /// plugin may leave this alone. The fewer bits there are, the more often the rest of a walk can be reused from the
    /// thread's last walk. The stack pointer's bit has no meaning.
    pub used: u32,
    /// Set by the plugin in `step`: bit n: `caller.registers[n]` depends on no register of this frame but those in
    /// `used`: it was read from memory, or has no known value. The host sets no bit.
    pub restored: u32,
    /// A sum of [`WANT_AWAITING`] and [`STACK_CUT`].
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// In `lock`: the sample's innermost native frames, leaf first: of each the address to look its function up by
    /// (process address), which is the interrupted instruction, or the last byte of the call before a return address.
    /// Null in other calls.
    pub stack: *const u64,
    /// Number of addresses in `stack`, at most [`STACK_FRAMES`].
    pub stack_len: usize,
}

/// Limit of the addresses in [`View::stack`].
pub const STACK_FRAMES: usize = 16;

/// In [`View::flags`], in `lock`: the walk could not go on after the last frame in [`View::stack`].
pub const STACK_CUT: u32 = 2;

/// In [`View::flags`]: the walk takes frames that await those of the stack, too: see [`AWAITING`].
pub const WANT_AWAITING: u32 = 1;

/// Added to a name in [`Host::emit_all`]: the frame is none of the stack. It waits for the frames that were emitted
/// before it to end, and was found in the runtime's memory: a coroutine that awaits the task that runs. For walks with
/// [`WANT_AWAITING`] only.
pub const AWAITING: u64 = 1 << 63;

impl View {
    /// An empty view, to be filled in.
    pub const fn new() -> View {
        View {
            size: core::mem::size_of::<View>() as u32,
            exact: 0,
            pc: 0,
            sp: 0,
            cfa: 0,
            function_start: 0,
            function_end: 0,
            registers: [0; COUNT],
            known: 0,
            plugin: 0,
            facts: core::ptr::null(),
            facts_len: 0,
            bias: 0,
            scratch: core::ptr::null_mut(),
            thread_pointer: 0,
            tsd_offset: 0,
            host: core::ptr::null(),
            walk: core::ptr::null_mut(),
            range_start: 0,
            range_end: 0,
            generation: 0,
            user: core::ptr::null_mut(),
            caller: core::ptr::null_mut(),
            used: u32::MAX,
            restored: 0,
            flags: 0,
            reserved: 0,
            stack: core::ptr::null(),
            stack_len: 0,
        }
    }
}

impl Default for View {
    fn default() -> Self {
        View::new()
    }
}

/// A frame as a step leaves it, and as [`Host::native_step`] takes and returns it. `repr(C)`: the same as `struct
/// uu_caller`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The caller's instruction pointer (process address): a return address, or see `exact`.
    pub pc: u64,
    /// General registers in DWARF order; the stack pointer is `registers[7]` (AArch64: `registers[31]`).
    pub registers: [u64; COUNT],
    /// Bit n set: `registers[n]` holds the register's value. A plugin that cannot determine a register must clear its
    /// bit. The stack pointer's must be set.
    pub known: u32,
    /// 1: `pc` is an interrupted instruction; 0: a return address.
    pub exact: u32,
}

/// What covers an address, the result of [`Host::lookup`]. `repr(C)`: the same as `struct uu_owner`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// First process address of its text.
    pub start: u64,
    /// End of its text, exclusive.
    pub end: u64,
    /// Load bias of an object; 0 for a window.
    pub bias: u64,
    /// Distinguishes it from every other one that was or will be at the same place.
    pub generation: u64,
    /// [`OWNER_NONE`], [`OWNER_OBJECT`] or [`OWNER_WINDOW`].
    pub kind: u32,
    /// Index of the plugin that claims it; 0: none.
    pub plugin: u32,
    /// What that plugin's analyse half found in it; null if there is nothing.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
}

impl Owner {
    /// The owner of an unowned address.
    pub const NONE: Owner = Owner {
        start: 0,
        end: 0,
        bias: 0,
        generation: 0,
        kind: OWNER_NONE,
        plugin: 0,
        facts: core::ptr::null(),
        facts_len: 0,
    };
}

/// [`Owner::kind`]: no object and no window covers the address.
pub const OWNER_NONE: u32 = 0;
/// [`Owner::kind`]: a loaded object.
pub const OWNER_OBJECT: u32 = 1;
/// [`Owner::kind`]: a registered window.
pub const OWNER_WINDOW: u32 = 2;

/// The functions that a plugin may call, with `View::walk` as first argument, during the call only. All are
/// async-signal-safe and bounded. `repr(C)`: the same as `struct uu_host`.
#[repr(C)]
pub struct Host {
    /// `size_of::<Host>()` at the time the host was built.
    pub size: u32,
    /// [`ABI`] of the host: a plugin may use the fields and functions of this version.
    pub abi: u32,
    /// Reads one 64-bit word at any alignment. Returns false, and leaves `*out` alone, if it is unreadable.
    pub read_word: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut u64) -> bool,
    /// Reads `len` bytes. Returns false if any of them is unreadable (`out` may then be partly written).
    pub read: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool,
    /// Looks up the name id of a code object by identity (its address and a fingerprint of everything that names it).
    /// 0: it is not stored; the plugin then calls `describe`.
    pub find_name: unsafe extern "C" fn(walk: *mut c_void, code: u64, fingerprint: u64) -> u32,
    /// Copies the names of a code object out of the process, once. Returns the name id; 0 if it could not be stored for
    /// lack of space: the frame may be emitted with id 0 and is then shown as unnamed.
    pub describe: unsafe extern "C" fn(walk: *mut c_void, description: *const Description) -> u32,
    /// Emits one semantic frame, leaf first. Returns false if the stack is full; the plugin then returns. A call that
    /// continues to emit is abandoned.
    pub emit: unsafe extern "C" fn(walk: *mut c_void, name: u32, position: u64) -> bool,
    /// To be called when the plugin learned something that changes its answers for the same inputs (a constant, a
    /// range).
    pub learned: unsafe extern "C" fn(walk: *mut c_void),
    /// Determines what covers an address. Always fills `*out`.
    pub lookup: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut Owner),
    /// Steps `*frame` to its caller by the core's own sources. 0: done; 1: done, by a frame pointer that nothing
    /// guarantees; otherwise the negative number of the reason (`StopReason`), and `*frame` is unchanged.
    pub native_step: unsafe extern "C" fn(walk: *mut c_void, frame: *mut Caller) -> i32,
    /// Reads `count` 64-bit words of one structure: `out[i]` is the word at `address + offsets[i]`. Returns false if
    /// any of them is unreadable (`out` may then be partly written). Cheaper than `count` calls of `read_word`.
    pub read_words:
        unsafe extern "C" fn(walk: *mut c_void, address: u64, offsets: *const u32, count: usize, out: *mut u64) -> bool,
    /// The cached answer of this plugin for this key on this thread, if every word that was read for it is unchanged:
    /// true, and `*answer` is set. False: there is none; reads are then attributed to the answer, until `remember`.
    pub recall: unsafe extern "C" fn(walk: *mut c_void, key: *const [u64; KEY], answer: *mut [u64; ANSWER]) -> bool,
    /// Caches the answer for the key of the preceding `recall`, which returned false. The answer must follow from the
    /// key, from what was read since, and from nothing else: neither from earlier reads, nor from the frame or the
    /// scratch memory. It may contain name ids.
    pub remember: unsafe extern "C" fn(walk: *mut c_void, key: *const [u64; KEY], answer: *const [u64; ANSWER]),
    /// In `overlay` and `step`, between two frames: declares what the rest of the call depends on. What it still emits,
    /// its answer, the caller's frame and the scratch memory that it leaves must follow from these words, from what it
    /// reads from here on, from the scratch memory as it was before the call, and from facts, sp and CFA; neither from
    /// the pc and other registers nor from earlier reads. `order` decreases from call to call, in the same way on each
    /// walk. True: the thread's last walk was at the same point, and its rest is replayed; return at once, with any
    /// answer.
    pub rest_is_known: unsafe extern "C" fn(walk: *mut c_void, order: u64, state: *const PointState) -> bool,
    /// Emits `count` frames, leaf first, like `count` calls of `emit` with their two words, the name plus [`AWAITING`]
    /// where that holds. Returns false if the stack is full.
    pub emit_all: unsafe extern "C" fn(walk: *mut c_void, frames: *const [u64; 2], count: usize) -> bool,
    /// For plugins that are built from this crate: the walk's reader, if `layout` is its
    /// [`crate::memory::near::LAYOUT`]; otherwise null. While the reader is in use, no other host function may be
    /// called.
    pub lend_reader: unsafe extern "C" fn(walk: *mut c_void, layout: u64) -> *mut c_void,
    /// In `overlay` and `step`, for a plugin that has `left` more frames to emit in this call: the number of next
    /// frames that it must leave out. They count as frames, and the stack records how many were left out. 0 unless the
    /// stack has more frames than are kept. It need not be called at every frame; every 256th is often enough.
    pub omit: unsafe extern "C" fn(walk: *mut c_void, left: u32) -> u32,
    /// Hashes `len` bytes, and their number: `*out` is the same for the same bytes anywhere in this process, and 64
    /// bits wide, so that equal hashes may be taken for equal bytes. Returns false, and leaves `*out` alone, if any of
    /// them is unreadable. Everything that names a code object belongs into its fingerprint, byte by byte: after one
    /// died, another may have all its parts at the same addresses.
    pub hash: unsafe extern "C" fn(walk: *mut c_void, address: u64, len: usize, out: *mut u64) -> bool,
}

impl Host {
    /// The number that [`Host::abi`] holds.
    pub const ABI: u32 = ABI;
}
