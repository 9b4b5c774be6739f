//! A thread's labels, which the program sets (`uu_label_set()`), and which its samples have while they hold.
//!
//! They lie in the thread's slot. The first sample after a change writes them into the ring, before itself: a change
//! costs no system call, and many changes between two samples cost nothing in the ring.

use crate::client::{ring, HEADER};
use crate::process::Process;
use crate::signals;
use crate::slots::Slot;
use core::cell::UnsafeCell;
use core::sync::atomic::{compiler_fence, AtomicU32, AtomicU64, Ordering};
use uunwind_core::errno::{EBUSY, EILSEQ, EINVAL, ENAMETOOLONG, ENOSPC};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::labels::{self, Refused, TEXT_BYTES};
use uunwind_ring::layout::RING_BYTES;
use uunwind_ring::record::{padded, LabelsRecord, RecordType};
use uunwind_ring::writer::RingWriter;
use uunwind_ring::FLAG_WALL;

/// The labels of a thread. Only the thread itself uses them, its handlers included.
pub struct Labels {
    /// Odd: they are being changed.
    changes: AtomicU32,
    /// The value of `changes` at which the recorder was given them; 0: it knows of none.
    sent: AtomicU32,
    len: AtomicU32,
    /// When they were set, in ns of CLOCK_MONOTONIC.
    time: AtomicU64,
    text: UnsafeCell<[u8; TEXT_BYTES]>,
}

// SAFETY: the text is used by one thread, whose handlers keep off it while it is being changed.
unsafe impl Sync for Labels {}

/// A copy of a thread's labels.
pub struct Copied {
    text: [u8; TEXT_BYTES],
    len: usize,
    time: u64,
}

impl Labels {
    /// Forgets the slot's previous thread.
    pub fn reset(&self) {
        for word in [&self.changes, &self.sent, &self.len] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The text. Not in a handler that has interrupted its change.
    fn text(&self) -> &[u8] {
        let len = (self.len.load(Ordering::Relaxed) as usize).min(TEXT_BYTES);
        // SAFETY: only the calling thread writes to it, and not while this is used.
        let text = unsafe { &*self.text.get() };
        text.get(..len).unwrap_or(&[])
    }

    /// Changes a label; without a value, takes it away. Async-signal-safe, and needs 1.2 KiB of stack. Error: a
    /// positive errno.
    fn set(&self, key: &[u8], value: Option<&[u8]>, time: u64) -> Result<(), i32> {
        let before = self.changes.load(Ordering::Relaxed);
        if before & 1 != 0 {
            return Err(EBUSY.0);
        }
        self.changes.store(before | 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let changed = labels::with(self.text(), key, value);
        let after = match &changed {
            Ok((text, len)) => {
                // SAFETY: as in `text`; nothing else refers to it now.
                unsafe { (*self.text.get()).copy_from_slice(text) };
                self.len.store(*len as u32, Ordering::Relaxed);
                self.time.store(time, Ordering::Relaxed);
                // 0 stands for none.
                before.wrapping_add(2).max(2)
            }
            Err(_) => before,
        };
        compiler_fence(Ordering::SeqCst);
        self.changes.store(after, Ordering::Relaxed);
        changed.map(|_| ()).map_err(|refused| match refused {
            Refused::Empty => EINVAL.0,
            Refused::Long => ENAMETOOLONG.0,
            Refused::Encoding => EILSEQ.0,
            Refused::Full => ENOSPC.0,
        })
    }

    /// Writes them into the thread's ring, if the recorder does not have them yet. False: there was no room.
    pub fn report(&self, ring: &RingWriter<'_>) -> bool {
        let changes = self.changes.load(Ordering::Relaxed);
        // While they are being changed, the earlier ones hold.
        if changes == self.sent.load(Ordering::Relaxed) || changes & 1 != 0 {
            return true;
        }
        let text = self.text();
        let size = core::mem::size_of::<LabelsRecord>() + padded(text.len());
        let Some(mut record) = ring.reserve(RecordType::Labels, size) else { return false };
        let time = self.time.load(Ordering::Relaxed);
        record.fixed(LabelsRecord { header: HEADER, time, bytes: text.len() as u32, reserved: 0 });
        if !record.bytes(text) {
            return false;
        }
        record.commit();
        self.sent.store(changes, Ordering::Relaxed);
        true
    }

    /// A copy, for the child of a fork.
    pub fn copied(&self) -> Copied {
        let mut copy = Copied { text: [0; TEXT_BYTES], len: 0, time: self.time.load(Ordering::Relaxed) };
        // A handler that forks may have interrupted a change.
        if self.changes.load(Ordering::Relaxed) & 1 == 0 {
            let text = self.text();
            copy.len = text.len();
            copy.text.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        }
        copy
    }

    /// Begins with these.
    pub fn begin_with(&self, copy: &Copied) {
        if copy.len == 0 {
            return;
        }
        // SAFETY: as in `set`.
        unsafe { (*self.text.get()).copy_from_slice(&copy.text) };
        self.len.store(copy.len as u32, Ordering::Relaxed);
        self.time.store(copy.time, Ordering::Relaxed);
        self.changes.store(2, Ordering::Relaxed);
    }
}

/// Sets a label of the calling thread. Async-signal-safe. Error: a positive errno.
pub fn set(process: &Process, slot: &Slot, key: &[u8], value: Option<&[u8]>) -> Result<(), i32> {
    slot.labels.set(key, value, crate::clock::monotonic_ns())?;
    // Samples of a thread that waits are taken from outside, so that nothing else would write them.
    if process.setting.flags & FLAG_WALL != 0 {
        report_now(slot);
    }
    Ok(())
}

/// Writes the labels into the ring, unless that is half full: then the next sample does.
fn report_now(slot: &Slot) {
    const SIG_BLOCK: usize = 0;
    // SAFETY: blocks stay mapped.
    let Some(shared) = (unsafe { slot.block().as_ref() }) else { return };
    let used = shared.head.load(Ordering::Relaxed).wrapping_sub(shared.tail.load(Ordering::Acquire));
    if used > RING_BYTES as u64 / 2 {
        return;
    }
    let (all, mut before) = (u64::MAX, 0u64);
    let sets = [SIG_BLOCK, (&raw const all) as usize, (&raw mut before) as usize, 8, 0, 0];
    // SAFETY: rt_sigprocmask reads and writes one 8-byte set.
    if unsafe { syscall::call(nr::RT_SIGPROCMASK, sets) } != 0 {
        return;
    }
    // SAFETY: no handler of this thread runs meanwhile.
    slot.labels.report(&unsafe { ring(slot.block()) });
    signals::set_thread_mask(before);
}
