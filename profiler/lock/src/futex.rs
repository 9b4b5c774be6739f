//! [syscall(2)](https://man7.org/linux/man-pages/man2/syscall.2.html), the C library's function that makes system calls
//! by their numbers, and by it [futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html): so wait the locks that are
//! not the C library's own, such as those of Rust's standard library and parking_lot, and `std::atomic::wait` of C++.
//!
//! Every other system call passes by: the entry jumps to the real function, and leaves arguments and stack to it. So it
//! may be one that returns twice, or that a handler makes.

use crate::{cpu, layout};
use core::ffi::{c_long, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::syscall;
use uunwind_preload::events::{self, Subject, Wait, WaitKind};

/// The real function; null: it is not found yet, or there is none.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// It is looked for here, as the search is none for handlers. Constructors that run before this one are served by
/// [`plain`].
#[cfg(panic = "abort")]
#[used]
#[link_section = ".init_array"]
static FIND: extern "C" fn() = find;

#[cfg(panic = "abort")]
extern "C" fn find() {
    NEXT.store(uunwind_preload::events::address_of_next(c"syscall"), Ordering::Release);
}

/// The interposed function.
///
/// # Safety
/// As the real one.
#[cfg_attr(panic = "abort", no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    cpu::enter!(futex, NEXT, plain)
}

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// What the C library's function does, where it is not found yet.
unsafe extern "C" fn plain(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the program's own system call.
    let result = unsafe { syscall::call(number as usize, [a, b, c, d, e, f]) };
    if (-4095..0).contains(&result) {
        // SAFETY: the calling thread's.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result as c_long
}

/// futex(2): the word, the operation, and four arguments. Those that the caller did not pass are any words, which the
/// kernel ignores.
unsafe extern "C" fn futex(
    number: c_long,
    word: usize,
    operation: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let next = NEXT.load(Ordering::Acquire);
    // SAFETY: the function of this name has this type: it reads as many arguments as any system call has.
    let real = if next.is_null() { plain } else { unsafe { core::mem::transmute::<*mut c_void, Syscall>(next) } };
    if !layout::waits(operation as u32) || !events::is_on() {
        // SAFETY: the program's own arguments.
        return unsafe { real(number, word, operation, c, d, e, f) };
    }
    let begin = events::now();
    // SAFETY: as above.
    let result = unsafe { real(number, word, operation, c, d, e, f) };
    let duration = events::now().saturating_sub(begin);
    // SAFETY: the calling thread's errno.
    let has_waited = result == 0 || layout::has_waited(unsafe { *libc::__errno_location() });
    if duration >= crate::LEAST && has_waited {
        let wait = Wait { kind: WaitKind::Futex, lock: word as u64, holder: 0, duration };
        events::count(duration, None, || Subject::Wait(wait));
    }
    result
}
