//! The program's own dispositions of the virtual signals, and of those whose entry is noted ([`super::noted`]).

use super::virtual_signals;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A signal's disposition, as the program has set it
/// ([sigaction(2)](https://man7.org/linux/man-pages/man2/sigaction.2.html)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// SIG_DFL (0), SIG_IGN (1) or a function.
    pub handler: usize,
    /// Flags of sigaction(2), `SA_*`.
    pub flags: c_int,
    /// Signals blocked while it runs.
    pub mask: u64,
    /// `sa_restorer`, returned to the program unchanged.
    pub restorer: usize,
}

/// One signal's disposition, protected by a sequence count, so that a handler reads a consistent one.
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

/// Whether the kernel delivers this signal to us during the recording.
pub fn is_virtual(signal: c_int) -> bool {
    virtual_signals().contains(&signal)
}

/// The program's disposition. Async-signal-safe: retries a bounded number of times while another thread writes it. If
/// the writer is the interrupted thread itself, the retries run out, and the last value read is returned.
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

/// The sequence count of the program's disposition, which grows by 2 with each change.
pub fn changes(signal: c_int) -> usize {
    entry(signal).sequence.load(Ordering::SeqCst)
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

/// Changes the program's disposition. Async-signal-safe, as sigaction(2) is.
pub fn set(signal: c_int, disposition: Disposition) {
    let entry = entry(signal);
    entry.sequence.fetch_add(1, Ordering::Acquire);
    entry.handler.store(disposition.handler, Ordering::Relaxed);
    entry.flags.store(disposition.flags as usize, Ordering::Relaxed);
    entry.mask.store(disposition.mask, Ordering::Relaxed);
    entry.restorer.store(disposition.restorer, Ordering::Relaxed);
    entry.sequence.fetch_add(1, Ordering::SeqCst);
}

impl Disposition {
    /// Converts from glibc's structure.
    pub fn from_c(action: &libc::sigaction) -> Disposition {
        Disposition {
            handler: action.sa_sigaction,
            flags: action.sa_flags,
            mask: super::mask_of(&action.sa_mask),
            restorer: action.sa_restorer.map_or(0, |f| f as usize),
        }
    }

    /// Converts to glibc's structure.
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
