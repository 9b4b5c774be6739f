//! An alternate signal stack for each thread: pthread_create and thrd_create are interposed, and a new thread begins in
//! a trampoline that asks the library for a stack and *jumps* to the program's function, so that no frame of ours
//! stays.

use crate::start::dl_iterate_phdr;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use uunwind_core::loaded;

/// Start function of a thread.
type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
type ThrdCreate = unsafe extern "C" fn(*mut c_void, Start, *mut c_void) -> c_int;

/// Threads that are created and have not begun. Threads above this number get no stack.
const ROOM: usize = 1024;

/// `uu_prepare_thread`; null: no crashes are reported.
static PREPARE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Start function and argument of a new thread, until it has taken them.
struct Waiting {
    /// 0: free.
    taken: AtomicU32,
    start: AtomicUsize,
    argument: AtomicUsize,
}
static WAITING: [Waiting; ROOM] =
    [const { Waiting { taken: AtomicU32::new(0), start: AtomicUsize::new(0), argument: AtomicUsize::new(0) } }; ROOM];

/// From now on threads get a stack by this function, which is `uu_prepare_thread`.
pub fn begin(prepare: *mut c_void) {
    PREPARE.store(prepare, Ordering::Release);
}

/// What a thread is to run, in the two registers of a result.
#[repr(C)]
struct Taken {
    start: usize,
    argument: usize,
}

unsafe extern "C" fn take(waiting: *const Waiting) -> Taken {
    // SAFETY: the argument of the trampoline is one of WAITING.
    let waiting = unsafe { &*waiting };
    let taken =
        Taken { start: waiting.start.load(Ordering::Acquire), argument: waiting.argument.load(Ordering::Relaxed) };
    waiting.taken.store(0, Ordering::Release);
    let prepare = PREPARE.load(Ordering::Acquire);
    if !prepare.is_null() {
        // SAFETY: a function of the library, which is never unloaded. Without memory the thread has no stack.
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(prepare)() };
    }
    taken
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn trampoline(waiting: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {take}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        take = sym take,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn trampoline(waiting: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x30, 8",
        "bl {take}",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x30",
        "mov x9, x0",
        "mov x0, x1",
        "br x9",
        ".cfi_endproc",
        take = sym take,
    )
}

/// Creates a thread by `create`, which gets what it is to run.
fn created(start: Start, argument: *mut c_void, create: impl FnOnce(Start, *mut c_void) -> c_int) -> c_int {
    // A new thread's descriptor is allocated, so that the program's allocator is ready.
    crate::start::set_up();
    let free = |waiting: &&Waiting| {
        waiting.taken.load(Ordering::Relaxed) == 0
            && waiting.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let waiting = WAITING.iter().filter(|_| !PREPARE.load(Ordering::Acquire).is_null()).find(free);
    let Some(waiting) = waiting else { return create(start, argument) };
    waiting.argument.store(argument as usize, Ordering::Relaxed);
    waiting.start.store(start as usize, Ordering::Release);
    let result = create(trampoline, core::ptr::from_ref(waiting).cast_mut().cast());
    if result != 0 {
        waiting.taken.store(0, Ordering::Release);
    }
    result
}

/// libc's function of this name; null: it has none.
fn next(found: &AtomicPtr<c_void>, name: &core::ffi::CStr) -> *mut c_void {
    let cached = found.load(Ordering::Relaxed);
    if !cached.is_null() {
        return cached;
    }
    // SAFETY: not a handler; libc's function.
    let next = unsafe { loaded::next(dl_iterate_phdr, next as *const () as u64, name) };
    let now = next.map_or(0, |symbol| symbol.address) as *mut c_void;
    found.store(now, Ordering::Relaxed);
    now
}

/// Interposed [pthread_create(3)](https://man7.org/linux/man-pages/man3/pthread_create.3.html).
///
/// # Safety
/// As pthread_create.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let real = next(&REAL, c"pthread_create");
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: libc's function, with the program's arguments; the trampoline runs `start(argument)`.
    created(start, argument, |start, argument| unsafe {
        core::mem::transmute::<*mut c_void, PthreadCreate>(real)(thread, attributes, start, argument)
    })
}

/// Interposed thrd_create of C11. Its start function returns an int, in the same register as a pointer.
///
/// # Safety
/// As thrd_create.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, start: Start, argument: *mut c_void) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    /// thrd_error of glibc's threads.h.
    const THRD_ERROR: c_int = 2;
    let real = next(&REAL, c"thrd_create");
    if real.is_null() {
        return THRD_ERROR;
    }
    // SAFETY: libc's function, with the program's arguments; the trampoline runs `start(argument)`.
    created(start, argument, |start, argument| unsafe {
        core::mem::transmute::<*mut c_void, ThrdCreate>(real)(thread, start, argument)
    })
}
