//! Layout of the gate: the few pages through which a running process's calls of its allocator are led while uu records
//! them (docs/design/allocations.md).
//!
//! Entries of the process's global offset tables are made to lead to stubs in the gate. A stub calls what the entry
//! held before, and a hook of the sampler before or after it, as long as there is one. The sampler is taken out again;
//! the gate stays, because the program may have copied the address of a stub. It is found again by its name, and used
//! by the next recording.
//!
//! ```text
//! offset 0       code: a stub for each function and each value that its entries held; then what all stubs share
//! CALLED         a page: what each stub calls, and addresses for the sampler ([`Called`])
//! HOOKS          a page: the sampler's hooks ([`Hooks`]); zero in the child of a fork, which has no sampler
//! INSIDE         a page: the threads inside a hook, counted by their thread pointers; zero in the child of a fork
//! ```

use core::ffi::CStr;
use core::sync::atomic::AtomicU64;

/// Name of its memfd; in `/proc/PID/maps` as `/memfd:uu-gate-injected (deleted)`.
pub const NAME: &CStr = c"uu-gate-injected";
/// First word of [`Called`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"uu-gate1");
/// Bytes of a page, and of the code at most.
pub const PAGE: usize = 4096;
/// Offset of [`Called`].
pub const CALLED: usize = PAGE;
/// Offset of [`Hooks`].
pub const HOOKS: usize = 2 * PAGE;
/// Offset of the counters.
pub const INSIDE: usize = 3 * PAGE;
/// Bytes of all of it.
pub const BYTES: usize = 4 * PAGE;

/// Different values of one function's entries that can be called on.
pub const VARIANTS: usize = 8;
/// Bytes from a stub to the next.
pub const STUB: usize = 16;
/// Counters of [`INSIDE`], and the bytes from one to the next.
pub const COUNTERS: usize = 64;
/// See `COUNTERS`.
pub const COUNTER: usize = 64;

/// The functions, in the order of their stubs: first those with a hook after them, then those with one before and
/// after them, then those with one before them, to which a stub jumps.
pub const FUNCTIONS: [&CStr; 18] = [
    c"malloc",
    c"calloc",
    c"aligned_alloc",
    c"posix_memalign",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"realloc",
    c"mmap",
    c"mmap64",
    c"munmap",
    c"mremap",
    c"free",
    c"dlopen",
    c"dlmopen",
    c"dlsym",
    c"dlvsym",
    c"dlclose",
];
/// Number of the functions with a hook after them only.
pub const AFTER: usize = 7;
/// Number of those with two hooks.
pub const AROUND: usize = 5;
/// Number of those with a hook before them only.
pub const BEFORE: usize = FUNCTIONS.len() - AFTER - AROUND;
/// Indices of the functions.
pub const MALLOC: usize = 0;
/// See `MALLOC`.
pub const CALLOC: usize = 1;
/// See `MALLOC`.
pub const ALIGNED_ALLOC: usize = 2;
/// See `MALLOC`.
pub const POSIX_MEMALIGN: usize = 3;
/// See `MALLOC`.
pub const MEMALIGN: usize = 4;
/// See `MALLOC`.
pub const VALLOC: usize = 5;
/// See `MALLOC`.
pub const PVALLOC: usize = 6;
/// See `MALLOC`.
pub const REALLOC: usize = 7;
/// See `MALLOC`.
pub const MMAP: usize = 8;
/// See `MALLOC`.
pub const MMAP64: usize = 9;
/// See `MALLOC`.
pub const MUNMAP: usize = 10;
/// See `MALLOC`.
pub const MREMAP: usize = 11;
/// See `MALLOC`.
pub const FREE: usize = 12;
/// See `MALLOC`. It and what follows are functions of the dynamic loader: before them, objects are looked for that were
/// loaded since.
pub const DLOPEN: usize = 13;

/// Whether the function with this index maps or unmaps memory.
pub fn is_mapping(function: usize) -> bool {
    (MMAP..=MREMAP).contains(&function)
}

/// The function with this name.
pub fn index_of(name: &[u8]) -> Option<usize> {
    FUNCTIONS.iter().position(|function| function.to_bytes() == name)
}

/// What stubs call, and addresses for the sampler. A forked child has a copy.
#[repr(C)]
pub struct Called {
    /// [`MAGIC`].
    pub magic: u64,
    /// The values that entries held, by function and variant; 0: not used. The first of each function is what the
    /// program's scope has for its name.
    pub values: [[AtomicU64; VARIANTS]; FUNCTIONS.len()],
    /// Of functions whose address a program without position-independent code defines as that of its own stub in the
    /// procedure linkage table: that address, else 0. Entries with it stay: they lead to another entry.
    pub canonical: [AtomicU64; FUNCTIONS.len()],
    /// Address of dl_iterate_phdr(3).
    pub iterate: AtomicU64,
    /// Number of entries that were left as they are, because there was no room or their value was not understood.
    pub left: AtomicU64,
}

/// The sampler's hooks: addresses of `extern "C" fn(*mut Frame)`, or 0.
#[repr(C)]
pub struct Hooks {
    /// Before the call.
    pub before: AtomicU64,
    /// After it.
    pub after: AtomicU64,
}

/// What a stub leaves on the stack for the hooks.
#[repr(C)]
pub struct Frame {
    /// Function, and variant: its index times [`VARIANTS`], plus the variant.
    pub index: u64,
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub arguments: [u64; 6],
    /// What the function has returned.
    pub result: u64,
    /// What the hook before it keeps for the one after it.
    pub kept: [u64; 2],
    /// rbx, r12, r13, r14, r15 of the caller.
    pub saved: [u64; 5],
    /// Address of the counter of this thread.
    pub counter: u64,
    /// rbp of the caller.
    pub rbp: u64,
    /// The return address. After it lies the caller's frame.
    pub return_address: u64,
}

/// Bytes of a frame below the caller's rbp.
pub const FRAME: usize = core::mem::offset_of!(Frame, rbp);

const _: () = {
    assert!(core::mem::size_of::<Called>() <= PAGE && FRAME == 128);
    assert!(FUNCTIONS.len() * VARIANTS * STUB + 1024 <= PAGE && COUNTERS * COUNTER == PAGE);
    assert!(AFTER == REALLOC && AFTER + AROUND == FREE);
};
