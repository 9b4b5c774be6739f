//! How a sampled thread stands to the locks that languages' runtimes run code under, such as an interpreter's global
//! lock: asked of the plugins once a sample, after its walk.
//!
//! It is no part of the walk: a stack is replayed while the words that it follows from are unchanged, and a lock is
//! taken and released without any of them. A thread that holds a lock need not have a frame in its runtime: an embedder
//! runs code of its own under it. So what is asked for is each runtime that walks of this process have met.

use crate::env::Live;
use crate::state::{OBJECTS, PLUGINS, RUNTIMES, TSD_OFFSET};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::objects::{same_object, Answer};
use uunwind_core::plugin::{LockState, View, LOCK_UNKNOWN, LOCK_WAITING, READING_HOST};
use uunwind_core::recovery::{Call, Protector};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{Claim, Env};

/// Number of runtimes that are kept; of more, the last ones.
const KEPT: usize = 4;

/// The objects of runtimes, each by the generation of one of its loads.
pub struct Runtimes {
    generations: [AtomicU64; KEPT],
    next: AtomicUsize,
}

impl Runtimes {
    /// An empty list.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Runtimes {
        Runtimes { generations: [const { AtomicU64::new(0) }; KEPT], next: AtomicUsize::new(0) }
    }

    /// Notes that a walk met a runtime's object. Async-signal-safe.
    pub(crate) fn met(&self, generation: u64) {
        let is_same = |known: &AtomicU64| same_object(known.load(Ordering::Relaxed), generation);
        if self.generations.iter().any(is_same) {
            return;
        }
        // Two threads may enter it twice, which is harmless.
        let place = self.next.fetch_add(1, Ordering::Relaxed) % KEPT;
        if let Some(place) = self.generations.get(place) {
            place.store(generation, Ordering::Relaxed);
        }
    }
}

impl Live<'_> {
    /// How the interrupted thread, whose registers `cursor` has, stands to the locks of all runtimes: one of `LOCK_*`,
    /// the largest of the plugins' answers. Call it after the walk, with its reader.
    pub fn lock(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> u32 {
        let mut lock = LOCK_UNKNOWN;
        for known in &RUNTIMES.generations {
            let generation = known.load(Ordering::Relaxed);
            if generation != 0 {
                lock = lock.max(self.lock_of(generation, cursor, reader));
            }
        }
        lock
    }

    #[inline(never)]
    fn lock_of(&mut self, generation: u64, cursor: &Cursor, reader: &mut Reader<'_>) -> u32 {
        // Without the loader's counters, no load is the one of the walk before.
        let Some(loaded) = OBJECTS.present(generation, &mut self.memo, reader) else { return LOCK_UNKNOWN };
        let index = loaded.object.claim.get().unwrap_or(Answer::NONE).plugin as u8;
        let Some(plugin) = PLUGINS.get(index).filter(|plugin| self.calls().may(plugin)) else { return LOCK_UNKNOWN };
        let Some(function) = plugin.lock else { return LOCK_UNKNOWN };
        let claim = self.claim_on(plugin, index, loaded.object, loaded.generation());
        let thread = (syscall::thread_pointer(), TSD_OFFSET.load(Ordering::Relaxed));
        match ask(function, &claim, cursor, thread, reader, self.protector(index)) {
            Ok(answer) => answer,
            Err(reason) => {
                self.failed(&claim, reason);
                LOCK_UNKNOWN
            }
        }
    }
}

/// How a thread, whose registers `cursor` has, stands to the lock of the runtime in a claimed object: one of `LOCK_*`.
/// `thread`: its thread pointer, and where its first block of pthread-specific values lies from there (0: not known).
///
/// # Errors
/// The call failed, or its answer is none ([`StopReason::PluginNonsense`]).
pub fn ask(
    function: LockState,
    claim: &Claim,
    cursor: &Cursor,
    thread: (u64, u64),
    reader: &mut Reader<'_>,
    protector: Protector,
) -> Result<u32, StopReason> {
    let mut view = View::new();
    view.exact = 1;
    view.pc = cursor.regs.pc;
    view.sp = cursor.regs.sp();
    view.registers = *cursor.regs.values();
    view.known = cursor.regs.known();
    view.plugin = u32::from(claim.index);
    (view.facts, view.facts_len, view.bias) = (claim.facts, claim.facts_len, claim.bias);
    (view.range_start, view.range_end) = (claim.range.start, claim.range.end);
    (view.generation, view.user) = (claim.generation, claim.user);
    (view.thread_pointer, view.tsd_offset) = thread;
    view.host = &READING_HOST;
    view.walk = core::ptr::from_mut(reader).cast();
    let call = Call::new(function as *const () as usize, [(&raw mut view) as u64]);
    // SAFETY: the plugin was installed with this function. It may be abandoned at any instruction, since it changes
    // nothing.
    let answer = unsafe { protector.call(&call) }? as u32;
    if answer > LOCK_WAITING {
        return Err(StopReason::PluginNonsense);
    }
    Ok(answer)
}
