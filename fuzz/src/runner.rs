//! Runs a target on one input, and keeps the input when the target fails.
//!
//! | failure | found by | then |
//! |---|---|---|
//! | panic | `catch_unwind` | returned to the caller |
//! | more than [`alloc::LIMIT`] bytes | the allocator refuses, Rust aborts | the input is written, the process dies |
//! | read or write outside, stack overflow, abort | the signal's handler | the same |
//! | longer than the limit | a watchdog thread | the same |

use crate::alloc;
use crate::corpus;
use crate::guarded::Guarded;
use crate::mutate::LONGEST;
use crate::targets::Target;
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

/// The current input, for the threads and handlers that must write it when its own thread cannot.
struct Current {
    at: AtomicPtr<u8>,
    len: AtomicUsize,
    /// Number of the input; 0 between inputs.
    number: AtomicU64,
    /// Where to write it.
    path: CString,
}

thread_local! {
    static CURRENT: Cell<*const Current> = const { Cell::new(std::ptr::null()) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs inputs of one target, on the thread that created the runner.
pub struct Runner {
    target: &'static Target,
    memory: Guarded,
    current: Arc<Current>,
    runs: u64,
}

impl Runner {
    /// A runner with this time limit for each input. Installs a panic hook and handlers for fatal signals.
    pub fn new(target: &'static Target, limit: Duration) -> Runner {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            std::panic::set_hook(Box::new(note_panic));
            for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
                handle(signal);
            }
        });
        let path = failures().join(format!("{}-fatal-{}", target.name, std::process::id()));
        let current = Arc::new(Current {
            at: AtomicPtr::default(),
            len: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            path: CString::new(path.as_os_str().as_bytes()).expect("a path without NUL"),
        });
        CURRENT.set(Arc::as_ptr(&current));
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || watch(&watched, limit));
        Runner { target, memory: Guarded::new(LONGEST), current, runs: 0 }
    }

    /// Runs one input. Whether the parser accepted it; or the panic's message and place.
    pub fn run(&mut self, data: &[u8]) -> Result<bool, String> {
        let target = self.target;
        let placed = self.memory.place(data);
        self.runs += 1;
        self.current.at.store(placed.as_ptr().cast_mut(), SeqCst);
        self.current.len.store(placed.len(), SeqCst);
        self.current.number.store(self.runs, SeqCst);
        let done = alloc::bounded(|| catch_unwind(AssertUnwindSafe(|| (target.run)(placed))));
        self.current.number.store(0, SeqCst);
        done.map_err(|_| PANIC.take())
    }

    /// Cuts parts off a failing input as long as it still fails.
    pub fn shrink(&mut self, input: &[u8]) -> Vec<u8> {
        let mut small = input.to_vec();
        let mut part = small.len() / 2;
        while part > 0 {
            let mut at = 0;
            while at < small.len() {
                let mut less = small.clone();
                less.drain(at..(at + part).min(less.len()));
                if self.run(&less).is_err() {
                    small = less;
                } else {
                    at += part;
                }
            }
            part /= 2;
        }
        small
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

/// The folder for inputs that failed; created if it is missing.
pub fn failures() -> PathBuf {
    let folder = corpus::home().join("failures");
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

/// Writes a failing input to a file. Returns a text that says how to run it again.
pub fn keep(target: &Target, input: &[u8]) -> String {
    let name = format!("{}-{:016x}", target.name, uunwind_core::object_key::key(input));
    let path = failures().join(name);
    fs::write(&path, input).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("input: {}\nagain: cargo run -p uunwind-fuzz -- {} {}", path.display(), target.name, path.display())
}

fn note_panic(info: &std::panic::PanicHookInfo<'_>) {
    // SAFETY: a runner, which clears it when it is dropped, keeps what it points to.
    let in_target = unsafe { CURRENT.get().as_ref() }.is_some_and(|current| current.number.load(SeqCst) != 0);
    if !in_target {
        // The panic is not the target's: it is for the person who runs this.
        eprintln!("{info}");
    } else {
        PANIC.set(info.to_string());
    }
}

fn watch(current: &Weak<Current>, limit: Duration) {
    let (mut number, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(limit / 20);
        let Some(current) = current.upgrade() else { return };
        let now = current.number.load(SeqCst);
        if now != number {
            (number, since) = (now, Instant::now());
        } else if number != 0 && since.elapsed() > limit {
            eprintln!("one input took more than {limit:?}");
            write_input(&current);
            std::process::abort();
        }
    }
}

/// Async-signal-safe.
fn write_input(current: &Current) {
    let (at, len) = (current.at.load(SeqCst), current.len.load(SeqCst));
    let print = |bytes: &[u8]| {
        // SAFETY: the bytes are readable; a failed write changes nothing.
        unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
    };
    // SAFETY: open, write and close of a path that ends with NUL and of the input, which stays mapped as long as its
    // runner; all three are async-signal-safe.
    let written = unsafe {
        let fd =
            libc::open(current.path.as_ptr(), libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY | libc::O_CLOEXEC, 0o644);
        let written = libc::write(fd, at.cast(), len);
        libc::close(fd);
        written
    };
    print(if written == len as isize { b"input: " } else { b"the input could not be written to " });
    print(current.path.as_bytes());
    print(b"\nagain: cargo run -p uunwind-fuzz -- TARGET <that file>\n");
}

fn handle(signal: i32) {
    // SAFETY: a zeroed sigaction is an empty one; the handler has the type that SA_SIGINFO asks for without it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fatal as *const () as usize;
        // On the alternate stack that std gives to its threads: a stack overflow is one of the failures.
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_fatal(signal: i32) {
    // SAFETY: set by the runner of this thread, which outlives the current input.
    if let Some(current) = unsafe { CURRENT.get().as_ref() } {
        if current.number.load(SeqCst) != 0 {
            write_input(current);
        }
    }
    // The default handler was restored: the process ends by this signal.
    // SAFETY: raise is async-signal-safe.
    unsafe { libc::raise(signal) };
}
