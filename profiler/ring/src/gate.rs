//! Layout of the gate: the few pages through which a running process's calls of its allocator, or of the functions that
//! wait for locks, are led while uu records them (docs/design/allocations.md).
//!
//! Entries of the process's global offset tables are made to lead to stubs in the gate. A stub calls what the entry
//! held before, and a hook of the sampler before or after it, as long as there is one. The sampler is taken out again;
//! the gate stays, because the program may have copied the address of a stub. It is found again by its name, and used
//! by the next recording.
//!
//! ```text
//! offset 0       code: a stub for each function and each value that its entries held, and for each question; then what
//!                all stubs share
//! CALLED         what each stub calls, and addresses for the sampler ([`Called`])
//! HOOKS          a page: the sampler's hooks ([`Hooks`]); zero in the child of a fork, which has no sampler
//! INSIDE         a page: the threads inside a hook, counted by their thread pointers; zero in the child of a fork
//! ```

use crate::{FLAG_ALLOC, FLAG_LOCK, FLAG_MAPPINGS};
use core::ffi::CStr;
use core::sync::atomic::AtomicU64;

/// Name of its memfd; in `/proc/PID/maps` as `/memfd:uu-gate-injected (deleted)`.
pub const NAME: &CStr = c"uu-gate-injected";
/// First word of [`Called`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"uu-gate4");
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of the code at most.
pub const CODE: usize = 3 * PAGE;
/// Offset of [`Called`].
pub const CALLED: usize = CODE;
/// Offset of [`Hooks`].
pub const HOOKS: usize = CALLED + 2 * PAGE;
/// Offset of the counters.
pub const INSIDE: usize = HOOKS + PAGE;
/// Bytes of all of it.
pub const BYTES: usize = INSIDE + PAGE;

/// Different values of one function's entries that can be called on.
pub const VARIANTS: usize = 8;
/// Bytes from a stub to the next.
pub const STUB: usize = 16;
/// Number of the counters from [`INSIDE`] on.
pub const COUNTERS: usize = 64;
/// Bytes from a counter to the next.
pub const COUNTER: usize = 64;

/// The functions, in the order of their stubs, by what a stub does: [`AFTER`], [`AROUND`], [`WAITS`], [`CALLS`],
/// [`BEFORE`].
pub const FUNCTIONS: [&CStr; 64] = [
    c"malloc",
    c"calloc",
    c"aligned_alloc",
    c"posix_memalign",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"realloc",
    c"reallocarray",
    c"mmap",
    c"mmap64",
    c"munmap",
    c"mremap",
    c"_Znwm",
    c"_Znam",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"pthread_mutex_lock",
    c"pthread_mutex_timedlock",
    c"pthread_mutex_clocklock",
    c"pthread_rwlock_rdlock",
    c"pthread_rwlock_timedrdlock",
    c"pthread_rwlock_clockrdlock",
    c"pthread_rwlock_wrlock",
    c"pthread_rwlock_timedwrlock",
    c"pthread_rwlock_clockwrlock",
    c"mtx_lock",
    c"mtx_timedlock",
    c"pthread_barrier_wait",
    c"pthread_cond_wait",
    c"pthread_cond_timedwait",
    c"pthread_cond_clockwait",
    c"cnd_wait",
    c"cnd_timedwait",
    c"sem_wait",
    c"sem_timedwait",
    c"sem_clockwait",
    c"pthread_join",
    c"pthread_timedjoin_np",
    c"pthread_clockjoin_np",
    c"thrd_join",
    c"syscall",
    c"free",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    c"dlopen",
    c"dlmopen",
    c"dlsym",
    c"dlvsym",
    c"dlclose",
];
/// Number of the functions with a hook after them only.
pub const AFTER: usize = 11;
/// Number of those with two hooks.
pub const AROUND: usize = 6;
/// Number of those with two hooks, of which the first one says how it goes on ([`Frame::kept`]).
pub const WAITS: usize = 28;
/// Number of those that are the same for the system call futex(2) alone, and are passed on otherwise: syscall(2).
pub const CALLS: usize = 1;
/// Number of those with a hook before them only, to which a stub jumps.
pub const BEFORE: usize = FUNCTIONS.len() - AFTER - AROUND - WAITS - CALLS;
/// Index of `malloc` in [`FUNCTIONS`].
pub const MALLOC: usize = 0;
/// Index of `calloc` in [`FUNCTIONS`].
pub const CALLOC: usize = 1;
/// Index of `aligned_alloc` in [`FUNCTIONS`].
pub const ALIGNED_ALLOC: usize = 2;
/// Index of `posix_memalign` in [`FUNCTIONS`].
pub const POSIX_MEMALIGN: usize = 3;
/// Index of `memalign` in [`FUNCTIONS`].
pub const MEMALIGN: usize = 4;
/// Index of `valloc` in [`FUNCTIONS`].
pub const VALLOC: usize = 5;
/// Index of `pvalloc` in [`FUNCTIONS`].
pub const PVALLOC: usize = 6;
/// Index of `_ZnwmRKSt9nothrow_t` in [`FUNCTIONS`]. It and the three that follow are operators new of C++ that return
/// null where there is no memory.
pub const NEW_OR_NULL: usize = 7;
/// Index of `_ZnamSt11align_val_tRKSt9nothrow_t` in [`FUNCTIONS`]. The last of these.
pub const LAST_OR_NULL: usize = 10;
/// Index of `realloc` in [`FUNCTIONS`].
pub const REALLOC: usize = 11;
/// Index of `reallocarray` in [`FUNCTIONS`].
pub const REALLOCARRAY: usize = 12;
/// Index of `mmap` in [`FUNCTIONS`].
pub const MMAP: usize = 13;
/// Index of `mmap64` in [`FUNCTIONS`].
pub const MMAP64: usize = 14;
/// Index of `munmap` in [`FUNCTIONS`].
pub const MUNMAP: usize = 15;
/// Index of `mremap` in [`FUNCTIONS`].
pub const MREMAP: usize = 16;
/// Index of `_Znwm` in [`FUNCTIONS`]. It and the three that follow are operators new that throw. An exception does not
/// pass the gate: so the hook before them calls the one of [`HELPERS`] that does not, and they themselves are jumped to
/// where that has failed.
pub const NEW: usize = 17;
/// Index of `_ZnamSt11align_val_t` in [`FUNCTIONS`]. The last of these.
pub const LAST_NEW: usize = 20;
/// Index of `pthread_mutex_lock` in [`FUNCTIONS`]. It and the two that follow are for mutexes.
pub const MUTEX_LOCK: usize = 21;
/// Index of `pthread_cond_wait` in [`FUNCTIONS`]. The first of those that wait at a point where a thread may be
/// cancelled (pthreads(7)).
pub const COND_WAIT: usize = 33;
/// Index of `syscall` in [`FUNCTIONS`].
pub const SYSCALL: usize = 45;
/// Number of functions from `MUTEX_LOCK` up to `SYSCALL`.
pub const WAITING: usize = SYSCALL - MUTEX_LOCK;
/// Index of `free` in [`FUNCTIONS`].
pub const FREE: usize = 46;
/// Index of `_ZdlPv` in [`FUNCTIONS`]. It and what follows up to `DLOPEN` are operators delete.
pub const DELETE: usize = 47;
/// Index of `dlopen` in [`FUNCTIONS`]. It and what follows are functions of the dynamic loader: before them, objects
/// are looked for that were loaded since.
pub const DLOPEN: usize = 59;

/// [`Frame::kept`], second: after the first hook of one that waits, nothing is called any more: the result is there.
pub const DONE: u64 = 1;
/// [`Frame::kept`], second: the function is jumped to, as if there was no gate. Any other value: it is called, and the
/// hook after it.
pub const JUMP: u64 = 2;

/// What stands for the index of a function in the stubs that answer the program's questions ([`RECORDER`]): the variant
/// says which.
pub const ASKED: usize = FUNCTIONS.len();
/// The variant of the question whether the recording is paused or resumed: `fn(paused: bool) -> i32`.
pub const SWITCH: usize = 0;
/// The variant of a label: `fn(key: *const u8, key_len: usize, value: *const u8, value_len: usize) -> i32`.
pub const LABEL: usize = 1;
/// What is answered where nothing records the process: -ENOTCONN.
pub const UNRECORDED: i64 = -107;
/// A word of libuunwind, the address of a table of these two functions in their order; null: nothing records the
/// process. The table of a process that is recorded by way of a gate is [`Called::recorder`].
pub const RECORDER: &CStr = c"uu_private_recorder_1";
/// What the file names of libuunwind begin with.
pub const LIBRARY: &[u8] = b"libuunwind.so";

/// Whether the function with this index maps or unmaps memory.
pub fn is_mapping(function: usize) -> bool {
    (MMAP..=MREMAP).contains(&function)
}

/// Whether its entries are redirected only where they lead to an allocator that is not the C library's: otherwise it
/// calls malloc and its relatives, which are counted.
pub fn is_of_other_allocators(function: usize) -> bool {
    matches!(function, NEW_OR_NULL..=LAST_OR_NULL | REALLOCARRAY | NEW..=LAST_NEW | DELETE..DLOPEN)
}

/// Whether it waits for other threads.
pub fn is_waiting(function: usize) -> bool {
    (MUTEX_LOCK..=SYSCALL).contains(&function)
}

/// Whether a thread may be cancelled in it.
pub fn is_cancellable(function: usize) -> bool {
    (COND_WAIT..SYSCALL).contains(&function)
}

/// Whether entries for the function with this index are redirected in a recording with these `FLAG_*`.
pub fn is_redirected(function: usize, flags: u32) -> bool {
    let flag = match function {
        DLOPEN.. => FLAG_ALLOC | FLAG_LOCK,
        _ if is_waiting(function) => FLAG_LOCK,
        _ if is_mapping(function) => FLAG_MAPPINGS,
        _ => FLAG_ALLOC,
    };
    flags & flag != 0
}

/// The functions by whose entries an object's calls are led through the gate, in a recording with these `FLAG_*`. What
/// an allocator that is not the C library's calls itself, and what any allocator maps, is counted as what it returns;
/// what functions of locks call themselves, as what they wait for. The rest says which functions the object defines.
pub fn wanted(flags: u32, allocates: bool, iterates: bool, locks: bool) -> impl Fn(usize) -> bool {
    move |function| {
        let is_inner = match function {
            _ if is_waiting(function) => locks,
            _ if is_mapping(function) => allocates,
            _ => allocates && !iterates,
        };
        !is_inner && is_redirected(function, flags)
    }
}

/// The function with this name.
pub fn index_of(name: &[u8]) -> Option<usize> {
    FUNCTIONS.iter().position(|function| function.to_bytes() == name)
}

/// Functions of the C library that the sampler calls itself.
pub const HELPERS: [&CStr; 9] = [
    c"dl_iterate_phdr",
    c"__errno_location",
    c"pthread_mutex_trylock",
    c"pthread_rwlock_tryrdlock",
    c"pthread_rwlock_trywrlock",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];
/// Index of `dl_iterate_phdr` in [`HELPERS`].
pub const ITERATE: usize = 0;
/// Index of `__errno_location` in [`HELPERS`].
pub const ERRNO: usize = 1;
/// Index of `pthread_mutex_trylock` in [`HELPERS`].
pub const TRY_MUTEX: usize = 2;
/// Index of `pthread_rwlock_tryrdlock` in [`HELPERS`].
pub const TRY_READ: usize = 3;
/// Index of `pthread_rwlock_trywrlock` in [`HELPERS`].
pub const TRY_WRITE: usize = 4;
/// Index of `_ZnwmRKSt9nothrow_t` in [`HELPERS`]. It and the three that follow are operators new that return null where
/// there is no memory, of an allocator that is not the C library's.
pub const NEW_HELPER: usize = 5;
/// By this function, threads are cancelled.
pub const CANCEL: &CStr = c"pthread_cancel";

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
    /// Addresses of [`HELPERS`]; 0: not known.
    pub helpers: [AtomicU64; HELPERS.len()],
    /// Addresses of the stubs [`SWITCH`] and [`LABEL`].
    pub recorder: [u64; 2],
    /// Number of entries that the sampler in the process has left as they are in this recording, because there was no
    /// room or their value was not understood.
    pub left: AtomicU64,
    /// Not 0: an object of the process calls [`CANCEL`]. A thread that is cancelled unwinds its stack, and nothing
    /// describes the gate: so what [`is_cancellable`] is jumped to.
    pub cancels: AtomicU64,
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
    /// What the hook before it keeps for the one after it. Of functions that wait, the second word says how the stub
    /// goes on: [`DONE`], [`JUMP`].
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

impl Frame {
    /// Index of the function that the stub is for.
    pub fn function(&self) -> usize {
        self.index as usize / VARIANTS
    }

    /// Its variant.
    pub fn variant(&self) -> usize {
        self.index as usize % VARIANTS
    }
}

/// Bytes of a frame below the caller's rbp.
pub const FRAME: usize = core::mem::offset_of!(Frame, rbp);

const _: () = {
    assert!(core::mem::size_of::<Called>() <= HOOKS - CALLED && FRAME == 128);
    assert!((FUNCTIONS.len() + 1) * VARIANTS * STUB + 1024 <= CODE && COUNTERS * COUNTER == PAGE);
    assert!(AFTER == REALLOC && AFTER + AROUND == NEW && LAST_NEW + 1 == MUTEX_LOCK);
    assert!(NEW + WAITS == SYSCALL && SYSCALL + CALLS == FREE);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_those_of_their_names() {
        for (index, name) in [
            (MALLOC, c"malloc"),
            (POSIX_MEMALIGN, c"posix_memalign"),
            (PVALLOC, c"pvalloc"),
            (NEW_OR_NULL, c"_ZnwmRKSt9nothrow_t"),
            (LAST_OR_NULL, c"_ZnamSt11align_val_tRKSt9nothrow_t"),
            (REALLOC, c"realloc"),
            (REALLOCARRAY, c"reallocarray"),
            (NEW, c"_Znwm"),
            (LAST_NEW, c"_ZnamSt11align_val_t"),
            (DELETE, c"_ZdlPv"),
            (MMAP, c"mmap"),
            (MREMAP, c"mremap"),
            (MUTEX_LOCK, c"pthread_mutex_lock"),
            (COND_WAIT, c"pthread_cond_wait"),
            (SYSCALL, c"syscall"),
            (FREE, c"free"),
            (DLOPEN, c"dlopen"),
        ] {
            assert_eq!(index_of(name.to_bytes()), Some(index), "{name:?}");
        }
        assert_eq!(index_of(b"mallo"), None);
    }

    #[test]
    fn each_mode_has_its_functions() {
        let of = |flags| FUNCTIONS.iter().enumerate().filter(move |(index, _)| is_redirected(*index, flags)).count();
        let loaders = FUNCTIONS.len() - DLOPEN;
        assert_eq!(of(0), 0);
        assert_eq!(of(FLAG_LOCK), loaders + WAITING + CALLS);
        assert_eq!(of(FLAG_ALLOC), FUNCTIONS.len() - WAITING - CALLS - (MREMAP - MMAP + 1));
        assert_eq!(of(FLAG_ALLOC | FLAG_MAPPINGS), FUNCTIONS.len() - WAITING - CALLS);
        for (function, helper) in (NEW..=LAST_NEW).zip(NEW_HELPER..HELPERS.len()) {
            let (name, other) = (FUNCTIONS[function].to_bytes(), HELPERS[helper].to_bytes());
            assert!(
                other.starts_with(name) && index_of(other).is_some_and(|at| (NEW_OR_NULL..=LAST_OR_NULL).contains(&at))
            );
        }
    }
}
