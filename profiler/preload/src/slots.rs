//! The sampler's state of each thread, found by the thread pointer, in memory private to the process.
//!
//! Nothing that a handler relies on lies in the session, which other processes may write to. A slot consists of the
//! thread's state and the buffers of its walks. Slots lie in groups, which are mapped when the first thread needs them;
//! in a forked child the buffers are zero.
//!
//! ```text
//! group   Slot[64], SLOT_BYTES each    | buffers of slot 0 | of slot 1 | ...
//! buffers frames | scratch | last walk ...  | working memory (`Request::room`) | past samples | copies
//! ```

use crate::budget::Budget;
use crate::events::Countdown;
use crate::first_tick::FirstTick;
use crate::injected;
use crate::labels::Labels;
use crate::locked_memory;
use crate::signals::VIRTUAL_SIGNALS;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::syscall::{self, nr};
use uunwind_core::walk::{DEEP_WORDS, SCRATCH};
use uunwind_ring::layout::ThreadBlock;
use uunwind_ring::samples::{Past, PAST_BYTES};

/// At most this number of threads are sampled at once.
pub const THREADS: usize = 2048;
/// Size of the kernel's siginfo, in 64-bit words.
pub const SIGINFO_WORDS: usize = 16;
/// The value of `Slot::timer` for a thread without a timer.
pub const NO_TIMER: u32 = u32::MAX;

/// Entries of the table of thread pointers: twice the number of threads, so that probe sequences are short.
const KEYS: usize = 2 * THREADS;
const PROBES: usize = 64;
/// Slots of a group: the number of bits of a word.
const GROUP: usize = 64;
const GROUPS: usize = THREADS / GROUP;
const SLOT_BYTES: usize = 2048;

const SCRATCH_OFFSET: usize = DEEP_WORDS * 8;
const LAST_WALK_OFFSET: usize = SCRATCH_OFFSET + SCRATCH;
/// Bytes for the last whole walk (`uunwind_core::cache::last_walk::LastWalk`), and for a walk's working memory.
const LAST_WALK_ROOM: usize =
    (uunwind_core::cache::last_walk::LAST_WALK_BYTES + uunwind_core::library::WALK_ROOM).next_multiple_of(4096);
/// A walk's working memory (`uunwind_core::library::Request::room`) lies at the end of these bytes.
const ROOM_OFFSET: usize = LAST_WALK_OFFSET + LAST_WALK_ROOM - uunwind_core::library::WALK_ROOM;
const PAST_OFFSET: usize = LAST_WALK_OFFSET + LAST_WALK_ROOM;
const COPY_OFFSET: usize = (PAST_OFFSET + PAST_BYTES).next_multiple_of(64);
const BUFFER_BYTES: usize = (COPY_OFFSET + uunwind_core::library::COPY_MEMORY).next_multiple_of(4096);
const BUFFERS_OFFSET: usize = GROUP * SLOT_BYTES;
const GROUP_BYTES: usize = BUFFERS_OFFSET + GROUP * BUFFER_BYTES;

const _: () = assert!(core::mem::size_of::<Slot>() <= SLOT_BYTES && core::mem::align_of::<Slot>() <= SLOT_BYTES);
const _: () = assert!(BUFFERS_OFFSET.is_multiple_of(4096) && BUFFER_BYTES.is_multiple_of(4096));
const _: () = assert!(PAST_OFFSET.is_multiple_of(core::mem::align_of::<Past>()));
const _: () = assert!(ROOM_OFFSET.is_multiple_of(64));

/// The state of a sampled thread.
#[repr(C)]
pub struct Slot {
    /// The thread pointer (base address of its TCB).
    pub thread_pointer: AtomicU64,
    /// The thread's block of the session.
    pub block: AtomicPtr<ThreadBlock>,
    /// Index of the thread's block.
    pub block_index: AtomicU32,
    /// Thread id (gettid).
    pub tid: AtomicU32,
    /// Non-zero: the handler is inside a walk on this thread.
    pub busy: AtomicU32,
    /// Kernel timer id of the thread's timer, or [`NO_TIMER`].
    pub timer: AtomicU32,
    /// Non-zero: the program believes that the sampling signal is blocked on this thread.
    pub masked: AtomicU32,
    /// Non-zero: the buffers may hold data of the slot's previous thread.
    used: AtomicU32,
    /// Lowest address of the alternate signal stack that the thread last set, 0 if none.
    pub alternate_low: AtomicU64,
    /// Bytes of that stack.
    pub alternate_size: AtomicU64,
    /// Time at which a handler of the program that blocks the sampling signal was last entered since the last tick
    /// (CLOCK_MONOTONIC, ns); 0: none was.
    pub held: AtomicU64,
    /// Limits what walks of deep stacks cost the thread.
    pub budget: Budget,
    /// Whether the thread has met a tick.
    pub first: FirstTick,
    /// When a perf event of the recorder's last came (CLOCK_MONOTONIC, ns), so that the recorder knows the weight of
    /// each sample; 0: none has.
    pub events: AtomicU64,
    /// When the thread's next event is sampled.
    pub countdown: Countdown,
    /// The thread's labels.
    pub labels: Labels,
    /// Signals for the program (a bit each) that arrived during a walk and will be sent again after it.
    pub deferred: AtomicU64,
    /// The siginfo of each deferred signal, in the order of `signals::virtual_signals`.
    pub deferred_info: [[AtomicU64; SIGINFO_WORDS]; VIRTUAL_SIGNALS],
}

/// The memory of a thread's walks.
pub struct Buffers {
    /// [`DEEP_WORDS`] words for the frames.
    pub frames: *mut u64,
    /// [`SCRATCH`] bytes for plugins.
    pub scratch: *mut u8,
    /// The last whole walk.
    pub last_walk: *mut u8,
    /// The walk's working memory.
    pub room: *mut u8,
    /// What the thread has written into its ring.
    pub past: *mut Past,
    /// Memory for copies of its stack.
    pub copy: *mut u8,
}

/// An entry of the table from thread pointers to slots.
struct Key {
    thread_pointer: AtomicU64,
    slot: AtomicPtr<Slot>,
}

/// The table of thread pointers, [`KEYS`] entries; null until the first group is mapped, zeroed memory is free entries.
/// Like other large tables it is no static: those lie between the small statics, and each page that these are spread
/// over costs a short program a page fault.
static TABLE: AtomicPtr<Key> = AtomicPtr::new(core::ptr::null_mut());
/// A bit for each slot that is in use.
static TAKEN: [AtomicU64; GROUPS] = [const { AtomicU64::new(0) }; GROUPS];
static MAPPED: [AtomicPtr<u8>; GROUPS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; GROUPS];

fn probes(thread_pointer: u64) -> impl Iterator<Item = &'static Key> {
    let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
    let table = TABLE.load(Ordering::Acquire);
    let probes = if table.is_null() { 0 } else { PROBES };
    // SAFETY: KEYS entries, which stay mapped; their fields are atomic.
    (0..probes).map(move |i| unsafe { &*table.add(first.wrapping_add(i) % KEYS) })
}

fn key_of(thread_pointer: u64) -> Option<&'static Key> {
    probes(thread_pointer).find(|key| key.thread_pointer.load(Ordering::Relaxed) == thread_pointer)
}

/// The slot of the calling thread. Async-signal-safe.
pub fn own() -> Option<&'static Slot> {
    let key = key_of(syscall::thread_pointer())?;
    // SAFETY: null, or a slot of a group, which stays mapped.
    unsafe { key.slot.load(Ordering::Acquire).as_ref() }
}

/// Claims a slot for the thread with this thread pointer. [`own`] does not find it until [`publish`]. `None`: no slot
/// is free, or there is no memory.
pub fn claim(thread_pointer: u64) -> Option<&'static Slot> {
    let free = |key: &&Key| {
        key.thread_pointer.load(Ordering::Relaxed) == 0
            && key.thread_pointer.compare_exchange(0, thread_pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let key = probes(thread_pointer).find(free)?;
    let Some(slot) = claim_slot() else {
        key.thread_pointer.store(0, Ordering::Release);
        return None;
    };
    if slot.used.swap(1, Ordering::Relaxed) != 0 {
        // The previous thread ended by a raw exit call, without `release`.
        clear(slot);
    }
    slot.events.store(0, Ordering::Relaxed);
    for word in [&slot.busy, &slot.masked] {
        word.store(0, Ordering::Relaxed);
    }
    for word in [&slot.alternate_low, &slot.alternate_size, &slot.held, &slot.deferred] {
        word.store(0, Ordering::Relaxed);
    }
    slot.budget.reset();
    slot.first.reset();
    slot.countdown.reset();
    slot.labels.reset();
    slot.timer.store(NO_TIMER, Ordering::Relaxed);
    slot.thread_pointer.store(thread_pointer, Ordering::Relaxed);
    Some(slot)
}

/// Makes [`own`] find the slot.
pub fn publish(slot: &'static Slot) {
    if let Some(key) = key_of(slot.thread_pointer.load(Ordering::Relaxed)) {
        key.slot.store(core::ptr::from_ref(slot).cast_mut(), Ordering::Release);
    }
}

/// Frees the slot of a thread that ends, or that could not be begun. A signal that arrives later finds no slot.
pub fn release(slot: &'static Slot) {
    if let Some(key) = key_of(slot.thread_pointer.load(Ordering::Relaxed)) {
        key.slot.store(core::ptr::null_mut(), Ordering::Relaxed);
        key.thread_pointer.store(0, Ordering::Release);
    }
    clear(slot);
    let Some((group, bit)) = place_of(slot) else { return };
    if let Some(taken) = TAKEN.get(group) {
        taken.fetch_and(!(1 << bit), Ordering::Release);
    }
}

/// All slots in use. Async-signal-safe.
pub fn all() -> impl Iterator<Item = &'static Slot> {
    TAKEN.iter().zip(&MAPPED).flat_map(|(taken, base)| {
        let taken = taken.load(Ordering::Acquire);
        (0..GROUP).filter(move |bit| taken >> bit & 1 != 0).filter_map(|bit| slot_at(base, bit))
    })
}

/// In the child of a fork: frees all slots, since the parent's threads do not exist here.
pub fn forget_all() {
    for slot in all() {
        release_in_child(slot);
    }
    for taken in &TAKEN {
        taken.store(0, Ordering::Relaxed);
    }
}

fn release_in_child(slot: &'static Slot) {
    if let Some(key) = key_of(slot.thread_pointer.load(Ordering::Relaxed)) {
        key.slot.store(core::ptr::null_mut(), Ordering::Relaxed);
        key.thread_pointer.store(0, Ordering::Relaxed);
    }
}

impl Slot {
    /// The buffers of the thread's walks. `None` only for a slot outside all groups.
    pub fn buffers(&self) -> Option<Buffers> {
        let (group, bit) = place_of(self)?;
        let base = MAPPED.get(group)?.load(Ordering::Acquire);
        // SAFETY: the buffers of this slot lie inside its group, which is mapped.
        unsafe {
            let first = base.add(BUFFERS_OFFSET + bit * BUFFER_BYTES);
            Some(Buffers {
                frames: first.cast(),
                scratch: first.add(SCRATCH_OFFSET),
                last_walk: first.add(LAST_WALK_OFFSET),
                room: first.add(ROOM_OFFSET),
                past: first.add(PAST_OFFSET).cast(),
                copy: first.add(COPY_OFFSET),
            })
        }
    }

    /// The thread's block of the session, which stays mapped.
    pub fn block(&self) -> *mut ThreadBlock {
        self.block.load(Ordering::Relaxed)
    }
}

fn slot_at(base: &AtomicPtr<u8>, bit: usize) -> Option<&'static Slot> {
    let base = base.load(Ordering::Acquire);
    // SAFETY: null, or a group, which stays mapped and has GROUP slots; all their fields are atomic.
    (!base.is_null()).then(|| unsafe { &*base.add(bit * SLOT_BYTES).cast::<Slot>() })
}

/// Number of a slot's group, and its index in the group.
fn place_of(slot: &Slot) -> Option<(usize, usize)> {
    let address = core::ptr::from_ref(slot) as usize;
    let distance = |base: &AtomicPtr<u8>| address.checked_sub(base.load(Ordering::Relaxed) as usize);
    let group = MAPPED.iter().position(|base| distance(base).is_some_and(|distance| distance < BUFFERS_OFFSET))?;
    Some((group, distance(MAPPED.get(group)?)? / SLOT_BYTES))
}

fn claim_slot() -> Option<&'static Slot> {
    for (taken, base) in TAKEN.iter().zip(&MAPPED) {
        if base.load(Ordering::Acquire).is_null() && !map_group(base) {
            return None;
        }
        for _ in 0..GROUP {
            let bit = taken.load(Ordering::Relaxed).trailing_ones();
            if bit as usize >= GROUP {
                break;
            }
            if taken.fetch_or(1 << bit, Ordering::AcqRel) >> bit & 1 == 0 {
                return slot_at(base, bit as usize);
            }
        }
    }
    None
}

/// Maps the table of thread pointers, `kept` bytes, the first group, and `wiped` bytes, which are zero again in the
/// child of a fork; returns both. For the beginning of a recording: each mapping costs a short program a part of its
/// life.
pub fn map_first(kept: usize, wiped: usize) -> Option<(*mut u8, *mut u8)> {
    const TABLE_BYTES: usize = KEYS * core::mem::size_of::<Key>();
    let front = (TABLE_BYTES + kept).next_multiple_of(4096);
    let base = map_private(front + GROUP_BYTES + wiped, front + BUFFERS_OFFSET)?;
    // SAFETY: all three lie inside the mapping.
    let (kept, group, wiped) = unsafe { (base.add(TABLE_BYTES), base.add(front), base.add(front + GROUP_BYTES)) };
    MAPPED.first()?.store(group, Ordering::Release);
    TABLE.store(base.cast(), Ordering::Release);
    Some((kept, wiped))
}

/// Bytes that are mapped for slots, with one more group for threads to come.
pub fn reserved() -> usize {
    let mapped = MAPPED.iter().filter(|base| !base.load(Ordering::Relaxed).is_null()).count();
    KEYS * core::mem::size_of::<Key>() + (mapped + 1) * GROUP_BYTES
}

/// Writes to the calling thread's entry of the table, before anything reads it: a page that is read first costs two
/// faults. For the constructor.
pub fn touch() {
    if let Some(key) = probes(syscall::thread_pointer()).next() {
        key.slot.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Maps a group, unless another thread has mapped it in the meantime. False: no memory.
fn map_group(base: &AtomicPtr<u8>) -> bool {
    let Some(group) = map_private(GROUP_BYTES, BUFFERS_OFFSET) else { return false };
    if base.compare_exchange(core::ptr::null_mut(), group, Ordering::AcqRel, Ordering::Acquire).is_err() {
        injected::forgets(group as usize);
        // SAFETY: mapped above, and never published.
        unsafe { syscall::call(nr::MUNMAP, [group as usize, GROUP_BYTES, 0, 0, 0, 0]) };
    }
    true
}

/// Maps `bytes` of zeroed private memory. The part from offset `wiped` on is zero again in the child of a fork
/// ([MADV_WIPEONFORK](https://man7.org/linux/man-pages/man2/madvise.2.html)).
fn map_private(bytes: usize, wiped: usize) -> Option<*mut u8> {
    const MADV_DONTDUMP: usize = 16;
    const MADV_WIPEONFORK: usize = 18;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = usize::try_from(unsafe { locked_memory::map(0, bytes, libc::MAP_NORESERVE) }).ok()?;
    if !injected::keeps(at, bytes) {
        // SAFETY: mapped above, and nobody else has its address.
        unsafe { syscall::call(nr::MUNMAP, [at, bytes, 0, 0, 0, 0]) };
        return None;
    }
    locked_memory::is_ours(at, bytes);
    // SAFETY: advice about that mapping.
    unsafe {
        syscall::call(nr::MADVISE, [at, bytes, MADV_DONTDUMP, 0, 0, 0]);
        // Before Linux 4.14 this fails; then each thread clears its buffers when it begins.
        syscall::call(nr::MADVISE, [at + wiped, bytes - wiped, MADV_WIPEONFORK, 0, 0, 0]);
    }
    Some(at as *mut u8)
}

/// Zeroes a slot's buffers, and gives their memory back to the kernel.
fn clear(slot: &Slot) {
    if let Some(buffers) = slot.buffers() {
        const MADV_DONTNEED: usize = 4;
        // SAFETY: private memory of this slot, which no thread uses.
        unsafe { syscall::call(nr::MADVISE, [buffers.frames as usize, BUFFER_BYTES, MADV_DONTNEED, 0, 0, 0]) };
    }
    slot.used.store(0, Ordering::Relaxed);
}
