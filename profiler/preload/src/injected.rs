//! The sampler in a process that ran before: `uu` has mapped it there (`profiler/inject/`), and calls it.
//!
//! It shares the handler and the ring with a recording from the beginning, and does without its interposers. So it
//! takes over no signal of the program's: reads are probed instead of guarded, and only plugins that raise no faults
//! are called. It uses system calls only, and never libc's functions: it may be called at any instruction of the
//! program.
//!
//! Where allocations or waits for locks are sampled, there is no handler and no timer: the process's calls of its
//! allocator, or of what waits, are led through a gate to hooks of the sampler (`uunwind_ring::gate`), and a thread
//! gets its slot by the first that is due.
//!
//! Otherwise a thread gets its slot by its own first tick. Its timer was made by whichever thread `uu` has borrowed:
//! the kernel lets each thread of a process make timers for the others, and that ends none of their system calls.

use crate::client::ring;
use crate::events;
use crate::handler::{self, Origin};
use crate::process::{self, Outer, Path, Process};
use crate::program::RECORDER;
use crate::session::{Session, Setting};
use crate::signals::altstack::OF_GOROUTINES;
use crate::signals::{bit, field, handler_mask, returned, sampling};
use crate::slots::{self, Slot};
use crate::{ending, plugins, signals, threads};
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::library::Library;
use uunwind_core::plugin::Entry;
use uunwind_core::syscall::{self, nr};
use uunwind_ring::code_rules::CodeRulesView;
use uunwind_ring::facts::{tables_in, FactsView, CODE_RULES_OFFSET, TABLES_OFFSET};
use uunwind_ring::gate::{self, Called, Frame, Hooks};
use uunwind_ring::injected::{
    Control, Region, ALTERNATE_STACK, ARM, BEGUN, FAILED_CALL, NO_ROOM, OVER, REGIONS, SIGNAL_TAKEN,
};
use uunwind_ring::layout::{blocks_in, SESSION_MAGIC, SESSION_VERSION};
use uunwind_ring::names::{self, NameEntry};
use uunwind_ring::tables::TablesView;
use uunwind_ring::TICK_COOKIE;

/// The control memory; null in a sampler that was there from the beginning.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
/// Timers by thread: the thread's id in the upper half, the timer's in the lower one, plus 1; 0: free.
static TIMERS: [AtomicU64; slots::THREADS] = [const { AtomicU64::new(0) }; slots::THREADS];
/// Ids of threads where `uu` lives in another pid namespace: the thread's id in the upper
/// half, the one that it has there in the lower half; 0: free.
static IDS: [AtomicU64; slots::THREADS] = [const { AtomicU64::new(0) }; slots::THREADS];
/// Time from one search for slots of threads that have ended to the next, in ns.
const SWEEP: u64 = 100_000_000;

/// Whether this sampler was put into a running process.
pub fn is_so() -> bool {
    !CONTROL.load(Ordering::Relaxed).is_null()
}

fn control() -> Option<&'static Control> {
    // SAFETY: null, or the control memory, which stays mapped for as long as this code.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Notes a new mapping, so that it is unmapped in the end, and keeps it out of children. False: there is no room.
pub fn keeps(at: usize, bytes: usize) -> bool {
    const MADV_DONTFORK: usize = 10;
    let Some(control) = control() else { return true };
    let index = control.region_count.fetch_add(1, Ordering::Relaxed) as usize;
    if index >= REGIONS {
        return false;
    }
    let (start, len) = region(index);
    start.store(at as u64, Ordering::Relaxed);
    len.store(bytes as u64, Ordering::Relaxed);
    // SAFETY: advice about a new mapping.
    unsafe { syscall::call(nr::MADVISE, [at, bytes, MADV_DONTFORK, 0, 0, 0]) };
    true
}

/// Takes the note of a mapping back, before that is unmapped: later, the program may have memory at that address.
pub fn forgets(at: usize) {
    if !is_so() {
        return;
    }
    for index in 0..REGIONS {
        let (start, len) = region(index);
        if start.load(Ordering::Relaxed) == at as u64 && len.swap(0, Ordering::Relaxed) != 0 {
            return;
        }
    }
}

/// Start and length of a note: other threads write theirs at the same time. There must be a control memory, and the
/// index be below [`REGIONS`].
fn region(index: usize) -> (&'static AtomicU64, &'static AtomicU64) {
    // SAFETY: inside the control memory, which stays mapped for as long as this code; aligned words, which this code
    // looks at through atomics only.
    unsafe {
        let region = (&raw mut (*CONTROL.load(Ordering::Acquire)).regions).cast::<Region>().add(index);
        (AtomicU64::from_ptr(&raw mut (*region).start), AtomicU64::from_ptr(&raw mut (*region).len))
    }
}

/// Takes the sampling signal over. The results are in the control memory.
///
/// # Safety
/// `control` must be the control memory with its arguments, and what they name mapped; called once, on any thread.
pub unsafe fn begin(control: *mut Control, library: &'static Library, entries: &[(u32, Entry)]) {
    CONTROL.store(control, Ordering::Release);
    // SAFETY: as the caller says; `uu` waits for this call.
    let refusal = unsafe { install(control, library, entries) };
    // SAFETY: as above.
    unsafe {
        match refusal {
            Ok(()) => (*control).state.store(BEGUN, Ordering::SeqCst),
            Err((reason, detail)) => ((*control).refusal, (*control).detail) = (reason, detail),
        }
    }
}

/// # Safety
/// As [`begin`].
unsafe fn install(
    control: *mut Control,
    library: &'static Library,
    entries: &[(u32, Entry)],
) -> Result<(), (u32, u32)> {
    // SAFETY: as the caller says.
    let are_events = events::are_sampled(unsafe { (*control).flags });
    if !are_events {
        check_dispositions()?;
    }
    // SAFETY: entries of plugins that are linked with this code.
    unsafe { plugins::add_all(library, entries) };
    let no_room = (NO_ROOM, 0);
    // SAFETY: both are mapped, and stay so for as long as this code.
    let (session, facts, tables, code_rules) = unsafe {
        let base = (*control).facts as *const u8;
        let facts = FactsView::new(base).ok_or(no_room)?;
        let code_rules = CodeRulesView::new(base.add(CODE_RULES_OFFSET));
        let blocks = blocks_in((*control).session_bytes).ok_or(no_room)?;
        let tables = TablesView::new(base.add(TABLES_OFFSET), tables_in((*control).facts_bytes).ok_or(no_room)?);
        (Session::at((*control).session as *mut u8, blocks), facts, tables, code_rules)
    };
    // SAFETY: as the caller says. By the fields: handlers use others of them at the same time, so there is no
    // reference to the whole.
    let (recorder, rate, flags, outer) = unsafe {
        let outer = Outer { pid: (*control).pid, parent: (*control).parent, origin: (*control).origin };
        ((*control).recorder, (*control).rate, (*control).flags, outer)
    };
    let header = session.header();
    if header.magic != SESSION_MAGIC || header.version != SESSION_VERSION || facts.is_over() {
        return Err(no_room);
    }
    let (_, names) = slots::map_first(0, core::mem::size_of::<NameEntry>() * names::ENTRIES).ok_or(no_room)?;
    let process = Process {
        session,
        facts,
        tables,
        code_rules,
        names: names.cast(),
        objects: Path::copy(&[]),
        setting: Setting { recorder, session_fd: 0, facts_fd: 0, rate: rate.max(1), flags },
        library,
        signal_frame: 0,
        exe: Path::of_program(),
        socket: None,
        outer: Some(outer),
    };
    if !process::begin(process) {
        return Err(no_room);
    }
    if are_events {
        process::process().into_iter().for_each(events::begin);
        return Ok(());
    }
    let entry = uu_injected_entry as *const () as usize;
    let taken = returned::take_over(sampling(), entry, uu_injected_restorer as *const () as usize, handler_mask());
    if taken != 0 {
        process::stop();
        return Err((FAILED_CALL, taken));
    }
    Ok(())
}

/// Refuses programs in which the sampling handler would take the program's signal, or run on stacks that have no space
/// for it: those of goroutines, by the signals that Go's runtime handles on alternate stacks.
fn check_dispositions() -> Result<(), (u32, u32)> {
    for signal in 1..=64 {
        let (handler, flags) = returned::disposition(signal);
        if signal == sampling() {
            // In the child of a recorded process, a handler may be left whose code is gone. What lies there now may be
            // this very code: the child's free addresses are the parent's.
            let is_left = || is_of_sampler(handler) || !is_mapped(handler);
            if handler == libc::SIG_IGN || handler != libc::SIG_DFL && !is_left() {
                return Err((SIGNAL_TAKEN, signal as u32));
            }
        } else if handler != libc::SIG_DFL
            && handler != libc::SIG_IGN
            && flags & libc::SA_ONSTACK as usize != 0
            && OF_GOROUTINES.contains(&signal)
        {
            return Err((ALTERNATE_STACK, signal as u32));
        }
    }
    Ok(())
}

/// Whether an address lies in what was mapped for this sampler.
fn is_of_sampler(address: usize) -> bool {
    let Some(control) = control() else { return false };
    let count = (control.region_count.load(Ordering::Relaxed) as usize).min(REGIONS);
    (0..count).any(|index| {
        let (start, len) = region(index);
        (address as u64).wrapping_sub(start.load(Ordering::Relaxed)) < len.load(Ordering::Relaxed)
    })
}

fn is_mapped(address: usize) -> bool {
    uunwind_core::memory::Reader::probed().word(address as u64 & !7).is_some()
}

/// Arms and deletes timers, as the control memory says.
///
/// # Safety
/// As [`begin`], after it.
pub unsafe fn change(control: *mut Control) {
    let Some(process) = process::process() else { return };
    // SAFETY: as the caller says; `uu` waits for this call. By the fields: handlers use others of them at the same
    // time.
    let (count, requests) = unsafe { ((*control).count as usize, &mut (*control).requests) };
    let are_events = events::are_sampled(process.setting.flags);
    for request in requests.iter_mut().take(count) {
        note_ids(request.inner, if request.what == ARM { request.outer } else { 0 });
        request.error = if are_events {
            0
        } else if request.what == ARM {
            arm(process, request.inner, request.outer)
        } else {
            delete_timers(|thread| thread == request.inner);
            0
        };
    }
}

/// Ends the recording here, unless threads are inside a walk: then the last of them does. See [`Control::state`].
pub fn end() {
    if let Some(process) = process::process() {
        ending::end(process);
    }
}

/// Gives the sampling signal back, when the last walk is over. Called once.
pub fn give_back() {
    let are_events = process::process().is_some_and(|process| events::are_sampled(process.setting.flags));
    take_hooks_away();
    if !are_events {
        give_signal_back();
    }
    if let Some(control) = control() {
        control.state.store(OVER, Ordering::SeqCst);
    }
}

/// From now on, the gate calls no hook. Threads may still be inside one.
fn take_hooks_away() {
    let Some(control) = control() else { return };
    if control.gate != 0 {
        // SAFETY: the gate stays mapped for as long as the process lives.
        let hooks = unsafe { &*((control.gate as usize + gate::HOOKS) as *const Hooks) };
        hooks.before.store(0, Ordering::SeqCst);
        hooks.after.store(0, Ordering::SeqCst);
    }
}

fn give_signal_back() {
    delete_timers(|_| true);
    // A pending tick would end the process: setting SIG_IGN discards what is pending on all threads
    // (https://man7.org/linux/man-pages/man2/sigaction.2.html).
    returned::take_over(sampling(), libc::SIG_IGN, 0, 0);
    returned::take_over(sampling(), libc::SIG_DFL, 0, 0);
}

/// What the gate's stubs call (`uunwind_ring::gate`), and the gate's address.
pub fn gate() -> Option<(&'static Called, u64)> {
    let at = control().map(|control| control.gate).filter(|gate| *gate != 0)?;
    // SAFETY: the gate stays mapped for as long as the process lives.
    Some((unsafe { &*((at as usize + gate::CALLED) as *const Called) }, at))
}

/// Notes that the thread with this id has this one where `uu` lives; 0: it has ended.
fn note_ids(inner: u32, outer: u32) {
    let is_of = |place: &&AtomicU64| place.load(Ordering::Relaxed) >> 32 == u64::from(inner);
    let place = IDS.iter().find(is_of).or_else(|| IDS.iter().find(|place| place.load(Ordering::Relaxed) == 0));
    if let Some(place) = place {
        place.store(if outer == 0 { 0 } else { u64::from(inner) << 32 | u64::from(outer) }, Ordering::Relaxed);
    }
}

/// A thread's id where `uu` lives, by its own here. `None`: that is another pid namespace, and `uu` has not seen the
/// thread yet.
pub fn outer_id(process: &Process, inner: u32) -> Option<u32> {
    let outer = process.outer?;
    match inner {
        _ if outer.pid == process::pid() => Some(inner),
        _ if inner == process::pid() => Some(outer.pid),
        _ => IDS
            .iter()
            .map(|place| place.load(Ordering::Relaxed))
            .find(|ids| ids >> 32 == u64::from(inner))
            .map(|ids| ids as u32),
    }
}

/// Begins to sample the calling thread, which has met an event. `None`: no slot or block is free, or the recording is
/// over.
pub fn begin_thread(process: &'static Process) -> Option<&'static Slot> {
    if process.facts.is_over() || process::block().is_none() || !process::is_own() {
        return None;
    }
    let tid = outer_id(process, syscall::gettid())?;
    adopt(process, tid).or_else(|| {
        sweep(process);
        adopt(process, tid)
    })
}

/// The calling thread's slot, which it claims if it has none. Not in the sampler's handler: a tick that came meanwhile
/// would claim another one.
pub fn slot_of_thread(process: &'static Process) -> Option<&'static Slot> {
    const SIG_BLOCK: usize = 0;
    if !is_current() {
        let (blocked, mut before) = (handler_mask() | bit(sampling()), 0u64);
        // SAFETY: rt_sigprocmask reads and writes one 8-byte set.
        unsafe {
            let sets = [SIG_BLOCK, (&raw const blocked) as usize, (&raw mut before) as usize, 8, 0, 0];
            syscall::call(nr::RT_SIGPROCMASK, sets);
        }
        begin_thread(process);
        signals::set_thread_mask(before);
    }
    slots::own()
}

/// Answers a question of the program's ([`gate::RECORDER`]).
///
/// # Safety
/// `frame` must be that of a stub for questions, with the arguments of this one.
pub unsafe fn answer(frame: &mut Frame) {
    let [key, key_len, value, value_len, ..] = frame.arguments;
    let result = match frame.variant() {
        gate::SWITCH => (RECORDER.switch)(key as u8 != 0),
        // SAFETY: as the caller says.
        gate::LABEL => unsafe {
            (RECORDER.label)(key as *const u8, key_len as usize, value as *const u8, value_len as usize)
        },
        _ => return,
    };
    frame.result = i64::from(result) as u64;
}

/// Whether the calling thread's slot is its own.
pub fn is_current() -> bool {
    let id = process::process().and_then(|process| outer_id(process, syscall::gettid()));
    slots::own().is_some_and(|slot| Some(slot.tid.load(Ordering::Relaxed)) == id)
}

/// Frees the slots of threads that have ended, which nobody reports: now and then.
fn sweep(process: &Process) {
    const ESRCH: i64 = -3;
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (last, now) = (LAST.load(Ordering::Relaxed), crate::clock::monotonic_ns());
    let is_here = process.outer.is_some_and(|outer| outer.pid == process::pid());
    if !is_here
        || now.saturating_sub(last) < SWEEP
        || LAST.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    for slot in slots::all() {
        let tid = slot.tid.load(Ordering::Relaxed);
        // SAFETY: signal 0 is sent to nobody.
        let sent = unsafe { syscall::call(nr::TGKILL, [process::pid() as usize, tid as usize, 0, 0, 0, 0]) };
        if tid != 0 && sent as i64 == ESRCH {
            release(slot, tid);
        }
    }
}

/// Frees the slot of a thread that has ended, which had this id: one of those who come to do so.
fn release(slot: &'static Slot, tid: u32) {
    if slot.tid.compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        slots::release(slot);
    }
}

/// Lowest address, flags and size of the calling thread's alternate signal stack
/// ([sigaltstack(2)](https://man7.org/linux/man-pages/man2/sigaltstack.2.html)), as a ucontext has them.
pub fn alternate_stack() -> [u64; 3] {
    let mut stack = [0u64; 3];
    // SAFETY: the call writes a stack_t, which has three words.
    unsafe { syscall::call(nr::SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    stack
}

/// Creates and starts a thread's CPU timer; 0, or the error. The lower half of its `si_value` is the thread's id.
fn arm(process: &Process, inner: u32, outer: u32) -> u32 {
    const EAGAIN: u32 = 11;
    // The CPU clock of one thread (posix-timers_types.h, CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED).
    let clock = (!(inner as i32) << 3 | 6) as isize as usize;
    let timer = match threads::create_timer(clock, TICK_COOKIE << 32 | u64::from(outer), inner) {
        Ok(timer) => timer,
        Err(error) => return error,
    };
    let entry = u64::from(inner) << 32 | (u64::from(timer) + 1);
    let free = |place: &&AtomicU64| place.compare_exchange(0, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if TIMERS.iter().find(free).is_none() {
        threads::delete_timer(timer);
        return EAGAIN;
    }
    if ending::has_begun() {
        // Whoever ends the recording may have looked at the table before.
        delete_timers(|_| true);
        return 0;
    }
    let period = process.setting.period();
    threads::start_timer(timer, 1 + threads::random(inner) % period.max(1), period);
    0
}

/// Deletes the timers of these threads. Async-signal-safe.
pub fn delete_timers(of: impl Fn(u32) -> bool) {
    for place in &TIMERS {
        let entry = place.load(Ordering::SeqCst);
        if entry != 0
            && of((entry >> 32) as u32)
            && place.compare_exchange(entry, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            threads::delete_timer((entry as u32).wrapping_sub(1));
        }
    }
}

/// The slot of the calling thread, whose id this is where `uu` lives; claimed by its first tick.
fn adopt(process: &'static Process, tid: u32) -> Option<&'static Slot> {
    if let Some(slot) = slots::own() {
        if slot.tid.load(Ordering::Relaxed) == tid {
            return Some(slot);
        }
        // That of a thread that has ended, and had its TCB at the same place.
        release(slot, slot.tid.load(Ordering::Relaxed));
    }
    let slot = threads::claim(process, tid, false)?;
    if process.outer.is_some_and(|outer| outer.pid == tid) {
        // SAFETY: the thread's own block, inside its handler.
        crate::sample::name_thread(&unsafe { ring(slot.block()) });
    }
    Some(slot)
}

unsafe extern "C" fn on_tick(signal: c_int, info: *const u8, ucontext: *mut u8) {
    let Some(control) = control() else { return };
    control.inside.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the handler's own arguments.
    unsafe { sample(signal, info, ucontext) };
    control.inside.fetch_sub(1, Ordering::SeqCst);
}

/// # Safety
/// The arguments of the running handler.
unsafe fn sample(signal: c_int, info: *const u8, ucontext: *mut u8) {
    // SAFETY: the kernel's siginfo.
    let (value, origin) = unsafe { (field::<u64>(info, handler::SI_VALUE), Origin::of_timer(info)) };
    let Some(origin) = origin.filter(|_| value >> 32 == TICK_COOKIE) else {
        die(signal);
        return;
    };
    let Some(process) = process::process().filter(|_| process::is_own()) else { return };
    if process.facts.is_over() || ending::has_begun() {
        ending::end(process);
    } else if adopt(process, value as u32).is_some() {
        // SAFETY: the handler's own ucontext.
        unsafe { handler::on_own_sample(origin, ucontext) };
    }
}

/// Another process has sent the sampling signal. The program's disposition of it is the default action, which ends the
/// process.
fn die(signal: c_int) {
    returned::take_over(signal, libc::SIG_DFL, 0, 0);
    let (process, thread) = (syscall::getpid() as usize, syscall::gettid() as usize);
    // SAFETY: sends the signal to this thread; it is delivered when this handler returns.
    unsafe { syscall::call(nr::TGKILL, [process, thread, signal as usize, 0, 0, 0]) };
}

crate::cpu::injected_entry!(uu_injected_entry, uu_injected_restorer, on_tick);

extern "C" {
    fn uu_injected_entry(signal: c_int, info: *const u8, ucontext: *mut u8);
    fn uu_injected_restorer();
}

const _: () = assert!(bit(libc::SIGSTKFLT) != 0 && core::mem::size_of::<AtomicU32>() == 4);
