//! The registry of windows beside libgcc's frame registration, in one process.
//!
//! `uunwind-bench-windows LIBRARY [ROUNDS [PART]]`: lookups among loaded objects, and among 10 to 100,000 windows;
//! registering and unlinking one among 100,000; the wait for walks, apart and shared by a ticket; captures on one
//! thread while another changes windows as fast as it can; two threads that capture at once. All take turns inside each
//! round; a ratio is that of one round, and the median over the rounds is printed. PART is one of `objects`, `lookups`,
//! `changes`, `captures`; all, when none is named. Gates nothing.

mod captures;
mod changes;
mod libgcc;
mod lookups;
mod objects;

use uunwind_core::syscall::thread_cpu_ns;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let libuunwind = arguments.next().expect("usage: uunwind-bench-windows LIBRARY [ROUNDS]");
    let rounds = arguments.next().map_or(11, |n| n.parse().expect("ROUNDS is a number"));
    let part = arguments.next();
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("objects") {
        objects::print(rounds);
    }
    if wanted("lookups") {
        lookups::print(rounds);
    }
    if wanted("changes") {
        changes::print(rounds);
    }
    if wanted("captures") {
        let uu = captures::Uu::open(&libuunwind);
        captures::print_under_changes(&uu, rounds);
        captures::print_two_threads(&uu, rounds);
    }
}

/// The median; NaN when there is nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds of CPU time that one of `count` calls of `f` takes on this thread: what else runs on the machine counts
/// only where it shares caches.
fn each(count: usize, mut f: impl FnMut(usize)) -> f64 {
    let begun = thread_cpu_ns();
    for i in 0..count {
        f(i);
    }
    thread_cpu_ns().saturating_sub(begun) as f64 / count as f64
}

/// Bytes between windows, and bytes of a window: as functions of a JIT that registers each one.
const STRIDE: u64 = 512;
const LEN: u64 = 480;
/// First address of the windows: nothing is mapped there, and nothing read.
const BASE: u64 = 0x1000_0000_0000;
