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
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{same_object, Answer};
use uunwind_core::plugin::{LockState, View, LOCK_UNKNOWN, LOCK_WAITING, READING_HOST, STACK_CUT, STACK_FRAMES};
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

    /// Notes that a walk met a runtime's object. True: it is new. Async-signal-safe.
    pub(crate) fn met(&self, generation: u64) -> bool {
        let is_same = |known: &AtomicU64| same_object(known.load(Ordering::Relaxed), generation);
        if self.generations.iter().any(is_same) {
            return false;
        }
        // Two threads may enter it twice, which is harmless.
        let place = self.next.fetch_add(1, Ordering::Relaxed) % KEPT;
        if let Some(place) = self.generations.get(place) {
            place.store(generation, Ordering::Relaxed);
        }
        true
    }

    /// The generations in the list after this one; 0: all of them.
    pub(crate) fn after(&self, generation: u64) -> impl Iterator<Item = u64> + '_ {
        let mut passed = generation == 0;
        let all = self.generations.iter().map(|known| known.load(Ordering::Relaxed)).filter(|known| *known != 0);
        all.filter(move |known| {
            let was = passed;
            passed |= *known == generation;
            was
        })
    }
}

impl Live<'_> {
    /// How the interrupted thread stands to the locks of all runtimes: one of `LOCK_*`, the largest of the plugins'
    /// answers. Call it after the walk, with its reader.
    pub fn lock(&mut self, thread: &Sampled, reader: &mut Reader<'_>) -> u32 {
        let mut lock = LOCK_UNKNOWN;
        for known in &RUNTIMES.generations {
            let generation = known.load(Ordering::Relaxed);
            if generation != 0 {
                lock = lock.max(self.lock_of(generation, thread, reader));
            }
        }
        lock
    }

    #[inline(never)]
    fn lock_of(&mut self, generation: u64, thread: &Sampled, reader: &mut Reader<'_>) -> u32 {
        // Without the loader's counters, no load is the one of the walk before.
        let Some(loaded) = OBJECTS.present(generation, &mut self.memo, reader) else { return LOCK_UNKNOWN };
        let index = loaded.object.claim.get().unwrap_or(Answer::NONE).plugin as u8;
        let Some(plugin) = PLUGINS.get(index).filter(|plugin| self.calls().may(plugin)) else { return LOCK_UNKNOWN };
        let Some(function) = plugin.lock else { return LOCK_UNKNOWN };
        let claim = self.claim_on(plugin, index, loaded.object, loaded.generation());
        match ask(function, &claim, thread, reader, self.protector(index)) {
            Ok(answer) => answer,
            Err(reason) => {
                self.failed(&claim, reason);
                LOCK_UNKNOWN
            }
        }
    }
}

/// A thread after the walk of its stack, as plugins are shown it.
pub struct Sampled {
    /// Its registers.
    cursor: Cursor,
    /// Its thread pointer, and where its first block of pthread-specific values lies from there (0: not known).
    pointer: u64,
    tsd_offset: u64,
    /// [`View::stack`].
    stack: [u64; STACK_FRAMES],
    len: usize,
    /// [`STACK_CUT`], or 0.
    cut: u32,
}

impl Sampled {
    /// `pointer`: its thread pointer, and where its first block of pthread-specific values lies from there. `words`:
    /// the frame words of the walk from `cursor`, which ended for the reason `stop`.
    pub fn new(cursor: Cursor, pointer: (u64, u64), words: &[u64], stop: StopReason) -> Sampled {
        let mut sampled = Sampled {
            cursor,
            pointer: pointer.0,
            tsd_offset: pointer.1,
            stack: [0; STACK_FRAMES],
            len: 0,
            cut: if stop.is_complete() { 0 } else { STACK_CUT },
        };
        for frame in frames(words) {
            let address = match frame {
                Frame::Native { address, exact, .. } | Frame::Window { address, exact, .. } => {
                    address.wrapping_sub(u64::from(!exact))
                }
                Frame::Semantic { .. } => continue,
                Frame::Omitted { .. } => break,
            };
            let Some(place) = sampled.stack.get_mut(sampled.len) else {
                sampled.cut = 0;
                break;
            };
            *place = address;
            sampled.len += 1;
        }
        sampled
    }

    /// The calling thread.
    pub fn this(cursor: Cursor, words: &[u64], stop: StopReason) -> Sampled {
        Sampled::new(cursor, (syscall::thread_pointer(), TSD_OFFSET.load(Ordering::Relaxed)), words, stop)
    }
}

/// How a thread stands to the lock of the runtime in a claimed object: one of `LOCK_*`.
///
/// # Errors
/// The call failed, or its answer is none ([`StopReason::PluginNonsense`]).
pub fn ask(
    function: LockState,
    claim: &Claim,
    thread: &Sampled,
    reader: &mut Reader<'_>,
    protector: Protector,
) -> Result<u32, StopReason> {
    let cursor = &thread.cursor;
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
    (view.thread_pointer, view.tsd_offset) = (thread.pointer, thread.tsd_offset);
    (view.stack, view.stack_len, view.flags) = (thread.stack.as_ptr(), thread.len, thread.cut);
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
