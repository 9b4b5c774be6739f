//! What uu was started with, for the program that it starts: which of the three standard files were closed, and which
//! signals were ignored. The standard library changes both before `main`, so they are read before that: it opens
//! /dev/null in place of closed files, and ignores SIGPIPE. uu itself handles SIGTERM although it was ignored.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Signals that uu treats in another way than it was started with.
const CHANGED: [i32; 2] = [libc::SIGPIPE, libc::SIGTERM];
/// Number of standard files.
const FILES: i32 = 3;

/// A bit for each standard file that was closed, then one for each signal of [`CHANGED`] that was ignored.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Called by the dynamic loader.
#[used]
#[link_section = ".init_array"]
static READ: extern "C" fn() = read;

extern "C" fn read() {
    let mut state = 0;
    for file in 0..FILES {
        // SAFETY: asks for the flags of a file that may be closed.
        if unsafe { libc::fcntl(file, libc::F_GETFD) } < 0 {
            state |= 1 << file;
        }
    }
    for (index, signal) in CHANGED.iter().enumerate() {
        if is_ignored(*signal) {
            state |= 1 << (FILES as usize + index);
        }
    }
    STATE.store(state, Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction, which the call fills.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// What uu was started with.
#[derive(Clone, Copy)]
pub struct Inherited(u32);

impl Inherited {
    /// That of this process.
    pub fn of_uu() -> Inherited {
        // The reference keeps the reader in the executable.
        std::hint::black_box(&READ);
        Inherited(STATE.load(Ordering::Relaxed))
    }

    /// The standard files that were closed.
    pub fn closed(self) -> impl Iterator<Item = i32> {
        (0..FILES).filter(move |file| self.0 >> file & 1 != 0)
    }

    /// Those signals of which uu has changed that they are ignored.
    pub fn ignored(self) -> impl Iterator<Item = i32> {
        let signals = CHANGED.into_iter().enumerate();
        signals.filter(move |(index, _)| self.0 >> (FILES as usize + index) & 1 != 0).map(|(_, signal)| signal)
    }
}

/// Gives a command's program what uu was started with.
pub fn restore_for(command: &mut Command) {
    let inherited = Inherited::of_uu();
    // SAFETY: the closure runs right before exec, and makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(move || {
            inherited.ignored().for_each(|signal| {
                libc::signal(signal, libc::SIG_IGN);
            });
            inherited.closed().for_each(|file| {
                libc::close(file);
            });
            Ok(())
        });
    }
}
