//! The stack that the calling thread was started on: where it ends, and how much of it may be read without a question.
//!
//! It exists as long as its thread runs on it: what lies between the stack pointer and the end are the frames that the
//! thread will return through. So the kernel is asked for each of its pages once, and what it has answered is believed
//! from the thread's current stack pointer on. Of any other stack (a coroutine's, an alternate one, that of a task that
//! shares its parent's thread pointer) nobody knows its end, and it may be freed and another one put in its place while
//! its thread lives: nothing is believed of it.

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::memory::{OwnStack, Reader};
use uunwind_core::slots::Slot;
use uunwind_core::span::Span;
use uunwind_core::syscall;

/// An address at the end of the main thread's stack; 0: not known.
static MAIN_STACK: AtomicU64 = AtomicU64::new(0);
/// Thread pointer of the main thread; 0: not known.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);
/// Bytes below it in which nothing else is mapped: the kernel leaves a gap of at least 128 MiB (`mmap_base` in
/// [arch/x86/mm/mmap.c](https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/arch/x86/mm/mmap.c)).
const MAIN_SIZE: u64 = 128 << 20;
const PAGE: u64 = 4096;
/// Pages that are looked at, as each walk of a coroutine's stack does.
const PAGES: u64 = 32;
/// Pages that one walk asks for, to extend what was asked before.
const AT_ONCE: u64 = 64;
/// Bytes from a stack pointer to a thread pointer beyond which they do not lie on one stack.
const LARGEST: u64 = 1 << 32;

/// Keeps where the main thread's stack ends: above `address`, which lies in it. To be called when the library is
/// loaded.
pub fn main_stack_is_below(address: u64) {
    MAIN_STACK.store(address, Ordering::Relaxed);
    if syscall::gettid() == syscall::getpid() {
        MAIN_THREAD.store(syscall::thread_pointer(), Ordering::Relaxed);
    }
}

/// Whether the thread with this thread pointer is the one that the process began with. In the child of a fork it is the
/// same one only if that was the one that forked.
fn is_main(thread_pointer: u64) -> bool {
    match MAIN_THREAD.load(Ordering::Relaxed) {
        0 => syscall::gettid() == syscall::getpid(),
        main => thread_pointer == main,
    }
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
    thread_pointer > sp && !is_main(thread_pointer) && reaches(sp, thread_pointer, reader)
}

/// Whether all pages from that of `sp` on to that of `end` can be read, so that no guard page lies between them. False:
/// one cannot, or they are too far from each other to say. Async-signal-safe; at most `PAGES` reads.
#[cold]
#[inline(never)]
pub fn reaches(sp: u64, end: u64, reader: &mut Reader<'_>) -> bool {
    let pages = (end / PAGE).wrapping_sub(sp / PAGE);
    if pages > PAGES {
        return false;
    }
    let was = reader.pause(true);
    let is_one = (1..=pages).all(|page| reader.u8((sp / PAGE + page) * PAGE).is_some());
    reader.pause(was);
    is_one
}

/// The part of the calling thread's own stack that its walk may read without a question: the pages from `sp` on, the
/// stack pointer with which the walk begins. None of it, if that lies on another stack, or if the kernel was not asked
/// for too many of these pages before. `slot`: the thread's. Async-signal-safe.
///
/// # Safety
/// `sp` must be the thread's stack pointer, or that of code which a signal has interrupted on this thread.
#[inline(always)]
pub unsafe fn believed(slot: &Slot, sp: u64) -> OwnStack {
    // SAFETY: passed on.
    unsafe { asked_before(slot, sp) }.unwrap_or_else(|| ask(slot, sp))
}

/// As [`believed`], without a question.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn asked_before(slot: &Slot, sp: u64) -> Option<OwnStack> {
    let asked = slot.asked_stack.get();
    // SAFETY: each of these pages was readable when it was asked for, and they are the thread's own stack, on which it
    // runs.
    asked.contains(sp).then(|| unsafe { OwnStack::new(Span::new(sp & !(PAGE - 1), asked.end)) })
}

/// As [`believed`], with a look at pages that were not asked for before: at most [`AT_ONCE`], from those that were
/// asked for down to that of `sp`.
#[cold]
#[inline(never)]
fn ask(slot: &Slot, sp: u64) -> OwnStack {
    let Some(end) = end_of_stack(sp) else { return OwnStack::NONE };
    let asked = slot.asked_stack.get();
    let first = sp & !(PAGE - 1);
    let mut start = if asked.end == end { asked.start } else { end };
    let mut reader = Reader::probed();
    for _ in 0..AT_ONCE {
        let below = start.wrapping_sub(PAGE);
        if start <= first || reader.u8(below).is_none() {
            break;
        }
        start = below;
    }
    slot.asked_stack.set(Span { start, end });
    if start > first {
        return OwnStack::NONE;
    }
    // SAFETY: as in `believed`.
    unsafe { OwnStack::new(Span::new(first, end)) }
}

/// The end of the pages of the stack that the calling thread was started on, if `sp` may lie on that.
fn end_of_stack(sp: u64) -> Option<u64> {
    let thread_pointer = syscall::thread_pointer();
    let (last, size) = if is_main(thread_pointer) {
        (MAIN_STACK.load(Ordering::Relaxed), MAIN_SIZE)
    } else {
        (thread_pointer, LARGEST)
    };
    (last.wrapping_sub(sp) < size).then_some((last | (PAGE - 1)).wrapping_add(1))
}
