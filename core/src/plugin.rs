//! The contract between the walk and an unwinder in a DSO (private version 0).
//!
//! A plugin is a shared object that exports one function, [`ENTRY_SYMBOL`], of type [`Entry`]. It gets the host's ABI
//! number and returns its table, or null when it cannot serve that ABI. The table is plain data, and the same layout
//! serves C.
//!
//! A plugin has two halves. The *analyse* half runs in the recorder or in a setup call and turns an ELF file into
//! *facts*: plain bytes, whose layout only the plugin knows. The half described here is signal code: it is called from
//! the walk, inside a handler, with the facts of the object in whose text the frame lies. It must not allocate, lock,
//! use thread-locals or call anything but the [`Host`] functions, and it reads foreign memory only through them.

use core::ffi::c_void;

/// The ABI described by this file. Version 0 is private: plugin and host come from one build.
pub const ABI: u32 = 0;

/// Name of the function that a plugin exports.
pub const ENTRY_SYMBOL: &core::ffi::CStr = c"uu_plugin";

/// Type of [`ENTRY_SYMBOL`]: `const struct uu_plugin *uu_plugin(uint32_t host_abi)`.
pub type Entry = unsafe extern "C" fn(host_abi: u32) -> *const Plugin;

/// Bytes of scratch memory that one walk keeps for each plugin, zeroed when the walk begins.
pub const SCRATCH_BYTES: usize = 512;

/// A plugin's table. Lives as long as the process (plugins are never unloaded).
#[repr(C)]
pub struct Plugin {
    /// `size_of::<Plugin>()` as the plugin was built.
    pub size: u32,
    /// The ABI that the plugin was built for; must be equal to [`ABI`].
    pub abi: u32,
    /// Short name, NUL-padded: it labels frames ("python"), faults and facts.
    pub name: [u8; 16],
    /// Called for each native frame inside an object that the plugin claims by facts.
    pub overlay: Option<unsafe extern "C" fn(view: *mut View) -> u32>,
}

// SAFETY: a table is immutable data and function pointers.
unsafe impl Sync for Plugin {}

/// Answer of [`Plugin::overlay`]: the frame is not an activation of this interpreter.
pub const OVERLAY_NONE: u32 = 0;
/// Answer: the native frame belongs to the interpreter and may be hidden (its semantic frames, if any, were emitted).
pub const OVERLAY_INTERPRETER: u32 = 1;
/// Flag that may be added to an answer: semantic frames are missing or doubtful here. Counted, and shown.
pub const OVERLAY_DESYNC: u32 = 2;

/// What a plugin sees of the frame in hand. Valid during the call only.
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
    /// `[sp, cfa)`.
    pub cfa: u64,
    /// First address of the function's unwind range (its FDE); 0 when unknown.
    pub function_start: u64,
    /// End of that range, exclusive.
    pub function_end: u64,
    /// General registers in DWARF order (rax rdx rcx rbx rsi rdi rbp rsp r8..r15), where known.
    pub registers: [u64; 16],
    /// Bit n set: `registers[n]` is known here.
    pub known: u32,
    /// Index of this plugin; opaque to it.
    pub plugin: u32,
    /// What the plugin's analyse half found in this object. Read-only, shared; the bytes are trusted to be as the
    /// recorder wrote them, but carry their own size and version.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
    /// Load bias of the object: address in the process minus address in the file.
    pub bias: u64,
    /// [`SCRATCH_BYTES`] bytes for this plugin in this walk, 16-aligned, zeroed at the walk's start.
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
}

/// The functions that a plugin may call, with `View::walk` as first argument. All are async-signal-safe and bounded.
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
    /// Emits one semantic frame, leaf first. Returns false when the stack is full; the plugin then returns.
    pub emit: unsafe extern "C" fn(walk: *mut c_void, name: u32, position: u64) -> bool,
    /// The plugin learned something that changes its answers for the same inputs (a constant, a range).
    pub learned: unsafe extern "C" fn(walk: *mut c_void),
}

/// A text in the foreign process: the host copies it, the report decodes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes; the host copies at most [`TEXT_LIMIT`].
    pub len: u32,
    /// Bytes per character: 1 (ASCII or Latin-1 unless `utf8`), 2 (UCS-2) or 4 (UCS-4).
    pub width: u16,
    /// 1: the bytes are UTF-8.
    pub utf8: u16,
}

/// At most so many bytes of a name or file name are copied; the rest is cut.
pub const TEXT_LIMIT: u32 = 1024;
/// At most so many bytes of a line table are copied; a longer one is left out, and lines show as the first line.
pub const TABLE_LIMIT: u32 = 48 * 1024;

/// What names a code object.
#[repr(C)]
pub struct Description {
    /// Address of the code object.
    pub code: u64,
    /// Fingerprint of the words that name it, as given to `find_name`.
    pub fingerprint: u64,
    /// Function name, qualified if the runtime has it.
    pub name: Text,
    /// Source file.
    pub file: Text,
    /// Line table.
    pub table: Text,
    /// First line of the code object.
    pub first_line: u32,
    /// How the report decodes `table`; one of the `TABLE_*` numbers.
    pub table_kind: u32,
}

/// There is no line table; the position is the line.
pub const TABLE_NONE: u32 = 0;
/// CPython 3.11 and later: location table (Objects/locations.md in CPython's source).
pub const TABLE_PYTHON_311: u32 = 1;

/// Why a plugin cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The entry function returned null: the plugin cannot serve this host.
    Declined,
    /// The table says another ABI.
    Abi(u32),
    /// The table is smaller than this ABI's.
    Size(u32),
}

/// Asks a plugin's entry function for its table and checks it. The one version check, for every loader.
///
/// # Safety
/// `entry` must be the [`ENTRY_SYMBOL`] of a shared object that stays loaded.
pub unsafe fn negotiate(entry: Entry) -> Result<&'static Plugin, Refusal> {
    // SAFETY: the caller vouches for `entry`; a non-null answer points to a table that lives as long as the process.
    let table = unsafe { entry(ABI).as_ref() }.ok_or(Refusal::Declined)?;
    if table.abi != ABI {
        return Err(Refusal::Abi(table.abi));
    }
    if (table.size as usize) < core::mem::size_of::<Plugin>() {
        return Err(Refusal::Size(table.size));
    }
    Ok(table)
}

/// The name in a NUL-padded field.
pub fn trimmed(name: &[u8; 16]) -> &[u8] {
    let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    name.get(..len).unwrap_or(name)
}
