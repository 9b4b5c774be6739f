//! What a plugin sees of the frame in hand, and the functions that it may call.

use super::{Description, ABI};
use crate::memory::{ANSWER, KEY};
use crate::regs::COUNT;
use crate::reuse::PointState;
use core::ffi::c_void;

/// What a plugin sees of the frame in hand. Valid during the call only. `repr(C)`: the same as `struct uu_view`. The host may
/// be newer and its view longer.
#[repr(C)]
pub struct View {
    /// `size_of::<View>()` as the host was built.
    pub size: u32,
    /// 1 if `pc` is the interrupted instruction (leaf, or below a signal frame), 0 if it is a return address.
    pub exact: u32,
    /// Instruction pointer of the frame in hand.
    pub pc: u64,
    /// Stack pointer of the frame in hand.
    pub sp: u64,
    /// Canonical frame address of the frame in hand: the stack pointer before the call that made it. The frame is
    /// `[sp, cfa)`. 0 in `step` and `rule`: not known.
    pub cfa: u64,
    /// First address of the function's unwind range (its FDE); 0 when unknown, and in `step` and `rule`.
    pub function_start: u64,
    /// End of that range, exclusive.
    pub function_end: u64,
    /// General registers in DWARF order (rax rdx rcx rbx rsi rdi rbp rsp r8..r15), where known.
    pub registers: [u64; COUNT],
    /// Bit n set: `registers[n]` is known here.
    pub known: u32,
    /// Index of this plugin; opaque to it.
    pub plugin: u32,
    /// What the plugin's analyse half found in this object. Read-only, shared; the bytes are trusted to be as the
    /// recorder wrote them, but carry their own size and version. Null for a window's function.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
    /// Load bias of the object: address in the process minus address in the file. 0 for a window.
    pub bias: u64,
    /// [`super::SCRATCH_BYTES`] bytes for this plugin in this walk, 16-aligned, zeroed when it is first called in the walk. Null
    /// when the walk has none (only for windows' functions).
    pub scratch: *mut u8,
    /// Thread pointer (`%fs:0` on x86-64) of the walked thread.
    pub thread_pointer: u64,
    /// Where this process keeps the first block of pthread-specific values: offset of `{seq, data}[32]` from the thread
    /// pointer, found and self-tested at start; 0 when it could not be found.
    pub tsd_offset: u64,
    /// The walk's functions.
    pub host: *const Host,
    /// First argument of the host functions.
    pub walk: *mut c_void,
    /// Text range of the object or window that covers `pc`: first address.
    pub range_start: u64,
    /// End of that range, exclusive.
    pub range_end: u64,
    /// Tells the object or window from every other one that was or will be in the same place.
    pub generation: u64,
    /// The user pointer of the window; null for objects.
    pub user: *mut c_void,
    /// The caller's frame, for `step` to fill; null in other calls. It holds this frame's registers, so that what a step
    /// leaves alone stays as it was.
    pub caller: *mut Caller,
    /// Set by the plugin: bit n: it looked at `registers[n]`, so that its answer may depend on it. The host sets all bits, so that a
    /// plugin may say nothing. The fewer there are, the more often a walk's rest is that of the thread's last walk. The stack
    /// pointer's bit has no meaning.
    pub used: u32,
    /// Set by the plugin, in `step`: bit n: `caller.registers[n]` does not depend on this frame's registers but for those in `used`:
    /// it was read from memory, or is not known. The host sets no bit.
    pub restored: u32,
}

impl View {
    /// A view of nothing, to be filled in.
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
        }
    }
}

impl Default for View {
    fn default() -> Self {
        View::new()
    }
}

/// A frame as a step leaves it, and as [`Host::native_step`] takes and gives it. `repr(C)`: the same as `struct uu_caller`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Instruction pointer.
    pub pc: u64,
    /// General registers in DWARF order; the stack pointer is `registers[7]` (AArch64: `registers[31]`).
    pub registers: [u64; COUNT],
    /// Bit n set: `registers[n]` is known. Honest bits: a plugin that cannot tell a register clears its bit. The stack
    /// pointer's must be set.
    pub known: u32,
    /// 1: `pc` is an interrupted instruction; 0: a return address.
    pub exact: u32,
}

/// What covers an address, as [`Host::lookup`] tells. `repr(C)`: the same as `struct uu_owner`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Start of the text range.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// Load bias of an object; 0 for a window.
    pub bias: u64,
    /// Tells it from every other one that was or will be in the same place.
    pub generation: u64,
    /// [`OWNER_NOBODY`], [`OWNER_OBJECT`] or [`OWNER_WINDOW`].
    pub kind: u32,
    /// Index of the plugin that claims it; 0 = none.
    pub plugin: u32,
    /// What that plugin's analyse half found in it; null when there is nothing.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
}

impl Owner {
    /// Of an address that nobody owns.
    pub const NOBODY: Owner = Owner {
        start: 0,
        end: 0,
        bias: 0,
        generation: 0,
        kind: OWNER_NOBODY,
        plugin: 0,
        facts: core::ptr::null(),
        facts_len: 0,
    };
}

/// [`Owner::kind`]: no object and no window covers the address.
pub const OWNER_NOBODY: u32 = 0;
/// [`Owner::kind`]: a loaded object.
pub const OWNER_OBJECT: u32 = 1;
/// [`Owner::kind`]: a registered window.
pub const OWNER_WINDOW: u32 = 2;

/// The functions that a plugin may call, with `View::walk` as first argument, during the call only. All are
/// async-signal-safe and bounded. `repr(C)`: the same as `struct uu_host`.
#[repr(C)]
pub struct Host {
    /// `size_of::<Host>()` as the host was built.
    pub size: u32,
    /// [`ABI`].
    pub abi: u32,
    /// Reads one aligned or unaligned 64-bit word. Returns false, and leaves `*out` alone, when it cannot be read.
    pub read_word: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut u64) -> bool,
    /// Reads `len` bytes. Returns false when any of them cannot be read (`out` may then be partly written).
    pub read: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool,
    /// Looks up the name id of a code object by identity (its address and a fingerprint of the words that name it).
    /// 0: not seen before, or seen and not stored; the plugin then calls `describe`.
    pub find_name: unsafe extern "C" fn(walk: *mut c_void, code: u64, fingerprint: u64) -> u32,
    /// Copies what names a code object out of the process, once. Returns the name id; 0 if it could not be stored (no
    /// room): the frame may be emitted with id 0 and shows as unnamed.
    pub describe: unsafe extern "C" fn(walk: *mut c_void, description: *const Description) -> u32,
    /// Emits one semantic frame, leaf first. Returns false when the stack is full; the plugin then returns. One that goes
    /// on emitting is left behind.
    pub emit: unsafe extern "C" fn(walk: *mut c_void, name: u32, position: u64) -> bool,
    /// The plugin learned something that changes its answers for the same inputs (a constant, a range).
    pub learned: unsafe extern "C" fn(walk: *mut c_void),
    /// What covers an address. Fills `*out` always.
    pub lookup: unsafe extern "C" fn(walk: *mut c_void, address: u64, out: *mut Owner),
    /// Steps `*frame` to its caller by the core's own sources. 0: done; 1: done, by a frame pointer that nothing vouches for;
    /// otherwise the negative number of the reason why not (`StopReason`), and `*frame` is as it was.
    pub native_step: unsafe extern "C" fn(walk: *mut c_void, frame: *mut Caller) -> i32,
    /// Reads `count` 64-bit words of one structure: `out[i]` is the word at `address + offsets[i]`. Returns false when any of
    /// them cannot be read (`out` may then be partly written). Cheaper than as many calls of `read_word`.
    pub read_words:
        unsafe extern "C" fn(walk: *mut c_void, address: u64, offsets: *const u32, count: usize, out: *mut u64) -> bool,
    /// What this plugin has worked out for this key before, on this thread, if every word that it read for it still reads the same:
    /// true, and `*answer` is it. False: there is none; what is read from here on belongs to the answer, until `remember`.
    pub recall: unsafe extern "C" fn(walk: *mut c_void, key: *const [u64; KEY], answer: *mut [u64; ANSWER]) -> bool,
    /// Keeps the answer for a key, for which `recall`, called just before, had none. It must follow from the key, from what was read since, and
    /// from nothing else: neither from what was read before, nor from the frame or the scratch memory. It may hold name ids.
    pub remember: unsafe extern "C" fn(walk: *mut c_void, key: *const [u64; KEY], answer: *const [u64; ANSWER]),
    /// In `overlay` and `step`, between two frames: says what the rest of the call depends on. What it still emits, answers, makes of the caller's
    /// frame, and leaves in the scratch memory must follow from these words, from what it reads from here on, from the scratch memory as it was
    /// before the call, and from facts, sp and CFA; neither from the pc and other registers nor from what was read before. `order` becomes
    /// less from call to call, in the same way on each walk. True: the thread's last walk was told the same, and its rest is this one's; return at
    /// once, with any answer.
    pub rest_is_known: unsafe extern "C" fn(walk: *mut c_void, order: u64, state: *const PointState) -> bool,
    /// Emits `count` frames, leaf first: as many calls of `emit` with their two words. Returns false when the stack is full.
    pub emit_all: unsafe extern "C" fn(walk: *mut c_void, frames: *const [u64; 2], count: usize) -> bool,
    /// For plugins that are built from this crate: the walk's reader, if `layout` is its [`crate::memory::near::LAYOUT`]; else null. While it is in use, no
    /// other host function may be called.
    pub lend_reader: unsafe extern "C" fn(walk: *mut c_void, layout: u64) -> *mut c_void,
}

impl Host {
    /// The number that [`Host::abi`] holds.
    pub const ABI: u32 = ABI;
}
