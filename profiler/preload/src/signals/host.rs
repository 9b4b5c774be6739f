//! The program's own dispositions of the virtual signals, and of those that it handles on alternate stacks.

use super::VIRTUAL;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// SIG_DFL (0), SIG_IGN (1) or a function.
    pub handler: usize,
    /// `SA_*`.
    pub flags: c_int,
    /// Signals blocked while it runs.
    pub mask: u64,
    /// `sa_restorer`, passed back as it was given.
    pub restorer: usize,
}

/// One signal's disposition. Written under a sequence count, so that a handler reads a whole one.
struct Entry {
    sequence: AtomicUsize,
    handler: AtomicUsize,
    flags: AtomicUsize,
    mask: AtomicU64,
    restorer: AtomicUsize,
}

static TABLE: [Entry; 65] = [const {
    Entry {
        sequence: AtomicUsize::new(0),
        handler: AtomicUsize::new(0),
        flags: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
    }
}; 65];

/// Whether the kernel's disposition of this signal is ours while recording.
pub fn is_virtual(signal: c_int) -> bool {
    VIRTUAL.contains(&signal)
}

/// The program's disposition. Async-signal-safe: at most a few tries while a writer is at it on another thread, and what
/// was read last when the writer is the very thread that we interrupted.
pub fn get(signal: c_int) -> Disposition {
    let entry = entry(signal);
    let mut disposition = read(entry);
    for _ in 0..100 {
        let before = entry.sequence.load(Ordering::Acquire);
        disposition = read(entry);
        core::sync::atomic::fence(Ordering::Acquire);
        if before & 1 == 0 && entry.sequence.load(Ordering::Relaxed) == before {
            break;
        }
        core::hint::spin_loop();
    }
    disposition
}

fn entry(signal: c_int) -> &'static Entry {
    TABLE.get(signal as usize).unwrap_or(&TABLE[0])
}

fn read(entry: &Entry) -> Disposition {
    Disposition {
        handler: entry.handler.load(Ordering::Relaxed),
        flags: entry.flags.load(Ordering::Relaxed) as c_int,
        mask: entry.mask.load(Ordering::Relaxed),
        restorer: entry.restorer.load(Ordering::Relaxed),
    }
}

/// Changes the program's disposition. Usable in the program's handlers, as sigaction(2) is.
pub fn set(signal: c_int, disposition: Disposition) {
    let entry = entry(signal);
    entry.sequence.fetch_add(1, Ordering::Acquire);
    entry.handler.store(disposition.handler, Ordering::Relaxed);
    entry.flags.store(disposition.flags as usize, Ordering::Relaxed);
    entry.mask.store(disposition.mask, Ordering::Relaxed);
    entry.restorer.store(disposition.restorer, Ordering::Relaxed);
    entry.sequence.fetch_add(1, Ordering::Release);
}

impl Disposition {
    /// From the structure of sigaction(2).
    pub fn from_c(action: &libc::sigaction) -> Disposition {
        Disposition {
            handler: action.sa_sigaction,
            flags: action.sa_flags,
            mask: super::mask_of(&action.sa_mask),
            restorer: action.sa_restorer.map_or(0, |f| f as usize),
        }
    }

    /// To the structure of sigaction(2).
    pub fn to_c(self) -> libc::sigaction {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = self.handler;
        action.sa_flags = self.flags;
        action.sa_mask = super::set_of(self.mask);
        if self.restorer != 0 {
            // SAFETY: the value came from a structure of this type.
            action.sa_restorer = Some(unsafe { core::mem::transmute::<usize, extern "C" fn()>(self.restorer) });
        }
        action
    }
}
