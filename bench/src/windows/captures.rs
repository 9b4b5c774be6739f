//! Captures beside changes on another thread, and on two threads at once.

use crate::libgcc::{backtrace, Registered};
use crate::{each, median, BASE, LEN, STRIDE};
use std::ffi::{c_int, c_void, CString};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uunwind_core::registry::c_window::CWindow;

type Capture = unsafe extern "C" fn(*mut u64, usize, *const c_void, *mut u16) -> usize;
type Register = unsafe extern "C" fn(*const CWindow) -> c_int;
type Unlink = unsafe extern "C" fn(*const c_void, *mut u64) -> c_int;

/// The library, by its C interface.
pub struct Uu {
    capture: Capture,
    register: Register,
    unlink: Unlink,
}

impl Uu {
    /// Opens it, and lets it handle faults, as the sampler does.
    pub fn open(path: &str) -> Uu {
        let path = CString::new(path).expect("no NUL");
        // SAFETY: the library's constructors are trusted; the types are those of uu.h.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "{path:?} cannot be opened");
            let symbol = |name: &std::ffi::CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "{path:?} has no {name:?}");
                found
            };
            let handle = std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol(c"uu_handle_faults"));
            assert_eq!(handle(), 0, "uu_handle_faults");
            Uu {
                capture: std::mem::transmute::<*mut c_void, Capture>(symbol(c"uu_capture")),
                register: std::mem::transmute::<*mut c_void, Register>(symbol(c"uu_register_window")),
                unlink: std::mem::transmute::<*mut c_void, Unlink>(symbol(c"uu_unlink_window")),
            }
        }
    }

    #[inline(never)]
    fn capture(&self) -> usize {
        let mut frames = [0u64; 128];
        // SAFETY: the buffer has the capacity that the call names.
        black_box(unsafe { (self.capture)(frames.as_mut_ptr(), frames.len(), std::ptr::null(), std::ptr::null_mut()) })
    }

    /// Runs `f` on a thread whose last stack is not cached, since those of [`CHAINS`] other threads are: each capture
    /// walks in full.
    fn without_chain(&self, f: impl FnOnce() + Send) {
        let done = std::sync::Barrier::new(CHAINS + 1);
        std::thread::scope(|scope| {
            for _ in 0..CHAINS {
                let captured = std::sync::mpsc::channel();
                let done = &done;
                scope.spawn(move || {
                    self.capture();
                    captured.0.send(()).expect("waited for");
                    done.wait();
                });
                captured.1.recv().expect("a thread captures");
            }
            scope.spawn(f).join().expect("measured");
            done.wait();
        });
    }

    /// Registers and unregisters one window among others.
    fn change(&self, i: u64) {
        let start = BASE + i % 1024 * STRIDE;
        // SAFETY: all-zero is a window without anything; nothing of the window is ever read.
        unsafe {
            let mut window: CWindow = std::mem::zeroed();
            (window.size, window.kind) = (size_of::<CWindow>() as u32, 2);
            (window.text, window.text_len) = (start as *const c_void, LEN as usize);
            let mut ticket = 0;
            // -EBUSY is no error here: a walk on the other thread pins the slot.
            if (self.register)(&window) == 0 {
                assert_eq!((self.unlink)(window.text, &mut ticket), 0);
            }
        }
    }
}

/// Number of threads whose last stack is cached (live/src/step_caches.rs).
const CHAINS: usize = 128;

/// A frame-pointer walk of the calling thread: this crate is built with frame pointers (bench/.cargo/config.toml).
#[inline(never)]
fn framed() -> usize {
    let (mut frame, mut count): (*const *const u8, usize);
    // SAFETY: reads rbp; every function up to the start of the thread keeps it, or the chain is left by the checks.
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
        count = 0;
        while !frame.is_null() && (*frame).cast::<*const u8>() > frame && count < 64 {
            count += 1;
            black_box(*frame.add(1));
            frame = (*frame).cast();
        }
    }
    count
}

/// Calls `f` below `depth` frames.
#[inline(never)]
fn deep(depth: usize, f: &mut dyn FnMut()) {
    match depth {
        0 => f(),
        _ => deep(black_box(depth - 1), f),
    }
    black_box(depth);
}

/// Signals between the two threads. In cache lines of its own: on the stack it would share them with words that
/// captures read.
#[repr(align(128))]
struct Signals {
    stop: AtomicBool,
    begun: AtomicBool,
    done: AtomicU64,
}

/// Runs `f` while another thread runs `other` as fast as it can. Returns how often it ran.
fn beside(other: impl Fn(u64) + Sync, f: impl FnOnce()) -> u64 {
    let signals =
        Box::new(Signals { stop: AtomicBool::new(false), begun: AtomicBool::new(false), done: AtomicU64::new(0) });
    std::thread::scope(|scope| {
        let signals = &*signals;
        scope.spawn(|| {
            let mut i = 0;
            while !signals.stop.load(Ordering::Relaxed) {
                other(i);
                if i == 0 {
                    signals.begun.store(true, Ordering::Relaxed);
                }
                i += 1;
            }
            signals.done.store(i, Ordering::Relaxed);
        });
        while !signals.begun.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        f();
        signals.stop.store(true, Ordering::Relaxed);
    });
    signals.done.load(Ordering::Relaxed)
}

const CAPTURES: usize = 20_000;

/// Wall-clock nanoseconds of one of `count` calls: waiting for the other thread counts.
fn by_the_clock(count: usize, mut f: impl FnMut()) -> f64 {
    let begun = std::time::Instant::now();
    for _ in 0..count {
        f();
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// Captures next to a thread that only computes, and next to one that changes windows.
pub fn print_under_changes(uu: &Uu, rounds: usize) {
    println!("\n### Captures, 30 frames, beside another thread (median of {rounds} rounds)\n");
    println!("| | ns beside a thread that computes | beside one that changes windows flat out | ratio | its changes per ms |");
    println!("|---|---|---|---|---|");
    let compute = |_| {
        for i in 0..1000u64 {
            black_box(i);
        }
    };
    let theirs = |i: u64| drop(Registered::new(BASE + i % 1024 * STRIDE, LEN));
    let row = |name: &str, captures: usize, capture: &(dyn Fn() -> usize + Sync), change: &(dyn Fn(u64) + Sync)| {
        let (mut quiet, mut loud, mut ratios, mut rate) = (vec![], vec![], vec![], vec![]);
        deep(30, &mut || {
            assert!(capture() > 30, "{name}: the stack is cut");
            for _ in 0..rounds {
                let (mut q, mut l) = (0.0, 0.0);
                beside(compute, || q = by_the_clock(captures, || assert!(capture() > 30)));
                let changes = beside(change, || l = by_the_clock(captures, || assert!(capture() > 30)));
                quiet.push(q);
                loud.push(l);
                ratios.push(l / q);
                rate.push(changes as f64 / (l * captures as f64 / 1e6));
            }
        });
        let [quiet, loud, ratio, rate] = [quiet, loud, ratios, rate].map(median);
        println!("| {name} | {quiet:.0} | {loud:.0} | x{ratio:.2} | {rate:.0} |");
    };
    row("uu_capture, the same stack again", CAPTURES, &|| uu.capture(), &|i| uu.change(i));
    uu.without_chain(|| row("uu_capture, walked in full", CAPTURES, &|| uu.capture(), &|i| uu.change(i)));
    row("libgcc _Unwind_Backtrace", CAPTURES / 20, &backtrace, &theirs);
}

/// The time of one thread, compared with two at once.
pub fn print_two_threads(uu: &Uu, rounds: usize) {
    println!("\n### Two threads at once, 30 frames each (median of {rounds} rounds)\n");
    println!("| | captures per second of two threads, over twice those of one | relative to the frame-pointer walk |");
    println!("|---|---|---|");
    let scale = |capture: &(dyn Fn() -> usize + Sync), captures: usize| {
        let run = || {
            let mut ns = 0.0;
            deep(30, &mut || {
                ns = each(captures, |_| {
                    black_box(capture());
                })
            });
            ns
        };
        let alone = run();
        let barrier = std::sync::Barrier::new(2);
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                barrier.wait();
                run()
            });
            barrier.wait();
            let own = run();
            (own + other.join().expect("measured")) / 2.0
        });
        alone / both
    };
    let (mut floor, mut ours, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let f = scale(&framed, CAPTURES * 10);
        let u = scale(&|| uu.capture(), CAPTURES);
        floor.push(f);
        ours.push(u);
        ratios.push(u / f);
    }
    println!("| frame pointers | {:.2} | 1 |", median(floor));
    println!("| uu_capture | {:.2} | x{:.2} |", median(ours), median(ratios));
}
