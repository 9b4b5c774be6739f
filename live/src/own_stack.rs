//! Whether a frame lies on the stack that its thread was started on, where no program begins a stack of its own: a
//! null return address there was overwritten.

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::memory::Reader;
use uunwind_core::syscall;

/// An address at the end of the main thread's stack; 0: not known.
static MAIN_STACK: AtomicU64 = AtomicU64::new(0);
/// Bytes below it in which nothing else is mapped: the kernel leaves a gap of at least 128 MiB (`mmap_base` in
/// [arch/x86/mm/mmap.c](https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/arch/x86/mm/mmap.c)).
const MAIN_SIZE: u64 = 128 << 20;
const PAGE: u64 = 4096;
/// Pages that are looked at, as each walk of a coroutine's stack does.
const PAGES: u64 = 32;

/// Keeps where the main thread's stack ends: above `address`, which lies in it.
pub fn main_stack_is_below(address: u64) {
    MAIN_STACK.store(address, Ordering::Relaxed);
}

/// Whether this thread was started on the stack that `sp` lies in. False: it was not, or `sp` is too far from the
/// stack's end to say. glibc and musl place a thread's TCB at the end of its stack, and a guard page below that, so all
/// pages between `sp` and the TCB of the same stack are readable. (The main thread's TCB lies elsewhere, and stacks
/// that it allocates may lie just below.) Async-signal-safe; at most `PAGES` reads.
#[cold]
#[inline(never)]
pub fn holds(sp: u64, thread_pointer: u64, reader: &mut Reader<'_>) -> bool {
    if MAIN_STACK.load(Ordering::Relaxed).wrapping_sub(sp) < MAIN_SIZE {
        return true;
    }
    let pages = (thread_pointer / PAGE).wrapping_sub(sp / PAGE);
    if thread_pointer <= sp || pages > PAGES || syscall::gettid() == syscall::getpid() {
        return false;
    }
    let was = reader.pause(true);
    let is_one = (1..=pages).all(|page| reader.u8((sp / PAGE + page) * PAGE).is_some());
    reader.pause(was);
    is_one
}
