//! One crash.
//!
//! Whoever handled the signal before is asked first, with the same siginfo and context, since not each fault is a
//! crash: runtimes mend pages, skip instructions, throw exceptions. It may
//!
//! * return, and the program continues, as without this library. Nothing is reported;
//! * give up: it put another disposition in our place, or sent the signal again, which stays blocked meanwhile, unless
//!   it asked for SA_NODEFER. Then the report is written, and what it wanted happens;
//! * end the process (with SA_NODEFER also by sending the signal again, whose disposition it made the default one) or
//!   leave by siglongjmp: nothing is reported, unless by SIGABRT. For such handlers there is a flag by which the report
//!   comes first.
//!
//! Where there was none, the report is written, and the default action taken by sending the signal again with its
//! siginfo: it arrives when this handler returns, in the context of the crash, so that a core dump has that.
//!
//! A handler that was installed after ours comes first, and calls ours, or restores it and repeats the signal. While it
//! is installed, it would get the faults of guarded reads, so the report's reads are probed. When the
//! program takes crash reports once more, another entry of ours is installed, which calls that handler; a mark in the
//! siginfo ends a circle of handlers that call each other.

use super::install::LEVELS;
use super::{flags, init, install, native, stacks, write};
use crate::signals::{self, Action, Handler, SigInfo, DEFAULT, IGNORE, SA_NODEFER, SA_ONSTACK, SA_RESETHAND};
use crate::system;
use crate::threads::Deadline;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_core::recovery::{self, Call, Recovery};
use uunwind_core::regs::UCONTEXT_SIGMASK;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_live::state::SLOTS;

/// Standard signals that do not report crashes. Real-time ones stay as they are: by one of them a thread is asked for
/// its stack, also while it waits here.
const OTHERS: u64 = 0x7fff_ffff & !signals::FAULTS;
/// SIGPIPE and SIGXFSZ, which writing may raise.
const WRITING: u64 = signals::bit(13) | signals::bit(25);
/// Longest time that a thread waits for another one's report, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
/// What an instruction raises that fails.
const RAISED: [c_int; 4] = [signals::SIGSEGV, signals::SIGBUS, signals::SIGFPE, signals::SIGILL];
/// Reports of a process, so that a fault that comes again and again does not fill a disk.
const MOST: u32 = 16;

/// Process whose memory this is (`Slots::pid`) and thread id of the one whose report is being written, or who dies; 0:
/// none.
static OWNER: AtomicU64 = AtomicU64::new(0);
/// Changes when `OWNER` becomes 0.
static TURN: AtomicU32 = AtomicU32::new(0);
static REPORTS: AtomicU32 = AtomicU32::new(0);
/// Where the owner's report goes on after a fault in it.
static RECOVERY: Recovery = Recovery::new();

/// A crash, as the kernel hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// Number of the signal that would end the program.
    pub signal: c_int,
    /// Who or what sent it: the handler's second argument, copied.
    pub info: SigInfo,
    /// The interrupted context.
    pub ucontext: *mut u8,
}

/// Our handlers of a signal, one for each time that it is taken: where a program has put a handler of its own before
/// one of ours, the next one calls that. It may call or restore the one that it replaced, whose turn ends there.
static ENTRIES: [Handler; LEVELS] =
    [entry::<0>, entry::<1>, entry::<2>, entry::<3>, entry::<4>, entry::<5>, entry::<6>, entry::<7>];

/// The disposition that our handler of this level needs.
pub fn action(level: usize) -> Option<Action> {
    ENTRIES.get(level).map(|entry| Action::new(*entry, OTHERS, SA_NODEFER | SA_ONSTACK))
}

/// The level of a handler, if it is one of ours.
pub fn level_of(handler: usize) -> Option<usize> {
    ENTRIES.iter().position(|entry| *entry as usize == handler)
}

/// Whether it is one of our handlers.
fn is_ours(action: &Action) -> bool {
    level_of(action.handler).is_some()
}

fn own() -> u64 {
    u64::from(SLOTS.pid()) << 32 | u64::from(syscall::gettid())
}

/// Turns alignment checks off (AC of RFLAGS): the kernel leaves them on in a handler if the program has turned them on,
/// and compilers count on them being off. The return of the handler restores them.
#[inline(always)]
fn without_alignment_checks() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes that flag only.
    unsafe {
        core::arch::asm!("pushfq", "and dword ptr [rsp], 0xfffbffff", "popfq");
    }
}

unsafe extern "C" fn entry<const LEVEL: usize>(signal: c_int, info: *mut SigInfo, ucontext: *mut c_void) {
    without_alignment_checks();
    // SAFETY: passed on.
    unsafe { handler(LEVEL, signal, info, ucontext) };
}

#[inline(never)]
unsafe fn handler(level: usize, signal: c_int, info: *mut SigInfo, ucontext: *mut c_void) {
    // SAFETY: the kernel's siginfo.
    let mut crash = Crash { signal, info: unsafe { *info }, ucontext: ucontext.cast() };
    // Handlers of ours inside which this one is called, by the program's.
    let outer = crash.info.marks();
    crash.info.mark(0);
    let sent = crash.info.code <= 0;
    // SAFETY: the context of a fault in this thread.
    if !sent && RAISED.contains(&signal) && crate::host().is_some_and(|host| unsafe { (host.mend)(ucontext.cast()) }) {
        return;
    }
    if OWNER.load(Ordering::Acquire) == own() {
        in_report(&crash);
        return;
    }
    // Once more at the same level: the program's handlers call ours in a circle, which ends here.
    let before = if outer & 1 << level == 0 { install::before(signal, level) } else { Action::DEFAULT };
    let first = install::flags() & flags::FIRST != 0;
    let reported = first && outer != 0;
    let chained = crate::host().and_then(|host| (host.chained)(signal, before.handler));
    match chained.unwrap_or(before.handler) {
        IGNORE if sent => {}
        // Without us the kernel would not deliver it. abort(3) ends the process in another way afterwards.
        DEFAULT if sent && init::is_init() => {
            if signal == signals::SIGABRT {
                report(&crash);
                release();
            }
        }
        DEFAULT | IGNORE => {
            if !reported {
                report(&crash);
            }
            die(&crash);
        }
        _ => {
            if first && !reported {
                report(&crash);
                release();
            }
            let installed = signals::action(signal).map_or(DEFAULT, |now| now.handler);
            // SAFETY: the kernel's arguments.
            let gave_up = unsafe { ask(&before, (level, outer), installed, &crash, info) };
            if OWNER.load(Ordering::Acquire) == own() {
                // It called an earlier handler of ours, which has reported the crash.
                die(&crash);
                return;
            }
            let now = gave_up.then(|| signals::action(signal)).flatten();
            // An earlier handler of ours, which it restored, makes the report itself.
            let restored = now.is_some_and(|now| now.handler != installed && is_ours(&now));
            if gave_up && !first && !restored {
                report(&crash);
            }
            match now {
                // What it put in our place comes next.
                Some(now) if now.handler > IGNORE && now.handler != installed => {
                    release();
                    repeat(&crash);
                }
                Some(_) => die(&crash),
                None => {}
            }
        }
    }
}

/// Calls who handled the signal before our handler of this level, which is called inside those of the levels `outer`.
/// `installed`: the handler that the kernel calls. True: it gave up. If it sent the signal again, that one is taken
/// back.
///
/// # Safety
/// The arguments must be the handler's.
unsafe fn ask(
    before: &Action,
    (level, outer): (usize, u8),
    installed: usize,
    crash: &Crash,
    info: *mut SigInfo,
) -> bool {
    let bit = signals::bit(crash.signal);
    // SAFETY: the kernel's context.
    let interrupted = unsafe { crash.ucontext.add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    if before.flags & SA_RESETHAND != 0 {
        install::spend(crash.signal, level);
    }
    let ours = signals::set_mask(before.blocks(crash.signal, interrupted));
    // SAFETY: the program's handler, with the kernel's arguments, which lie on this thread's stack.
    unsafe {
        (*info).mark(outer | 1 << level);
        before.call(crash.signal, info, crash.ucontext.cast());
        (*info).mark(outer);
    }
    let repeated = signals::pending() & bit != 0;
    let replaced = signals::action(crash.signal).is_none_or(|now| now.handler != installed);
    if repeated {
        signals::drop_pending(bit);
    }
    signals::set_mask(ours);
    repeated || replaced && crash.info.code > 0
}

/// A fault in the report of this thread, which ends it. A signal that was sent meanwhile is dropped: the process ends.
fn in_report(crash: &Crash) {
    if crash.info.code <= 0 && RECOVERY.is_armed() {
        return;
    }
    // SAFETY: as below, of the capture that this thread may be in.
    if unsafe { native::RECOVERY.redirect(crash.ucontext, u64::from(StopReason::Fault.number()), |_| false) } {
        return;
    }
    // SAFETY: the context of a fault in this thread, which is in the protected call if that is armed.
    if !unsafe { RECOVERY.redirect(crash.ucontext, u64::from(StopReason::Fault.number()), |_| false) } {
        die(crash);
    }
}

/// Takes the default action, when the handler returns. The owner stays, so that no other thread reports the same; but
/// the child of a vfork dies alone.
fn die(crash: &Crash) {
    signals::set_action(crash.signal, &Action::DEFAULT);
    if syscall::getpid() != SLOTS.pid() {
        release();
    }
    if crash.info.code > 0 && init::is_init() {
        init::raise_again(crash);
    }
    repeat(crash);
}

/// Sends the signal again: it arrives when the handler returns.
fn repeat(crash: &Crash) {
    signals::block(signals::bit(crash.signal));
    signals::send(syscall::gettid(), &crash.info);
}

/// Becomes the one who reports. False: another thread's report does not end.
fn acquire() -> bool {
    let (own, deadline) = (own(), Deadline::after(PATIENCE));
    loop {
        let turn = TURN.load(Ordering::Acquire);
        match OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(other) => {
                let is_left = other >> 32 != own >> 32 || !signals::shares_memory(other as u32);
                if is_left && OWNER.compare_exchange(other, own, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    return true;
                }
            }
        }
        let left = deadline.left();
        if left == 0 {
            return false;
        }
        // Its end is not announced if the process dies, or if the thread does.
        system::wait(&TURN, turn, left.min(100_000_000));
    }
}

fn release() {
    let own = own();
    if OWNER.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        TURN.fetch_add(1, Ordering::AcqRel);
        system::wake(&TURN);
    }
}

/// Writes the report, and remains the owner.
fn report(crash: &Crash) {
    if !acquire() || REPORTS.fetch_add(1, Ordering::AcqRel) >= MOST {
        return;
    }
    let mask = signals::set_mask(!signals::FAULTS);
    let pending = signals::pending() & WRITING;
    let mut crash = *crash;
    // SAFETY: the owner alone is here.
    unsafe { stacks::on_report_stack(protected, (&raw mut crash).cast()) };
    signals::drop_pending(WRITING & !pending);
    signals::set_mask(mask);
}

/// Whether faults in this thread reach our handler.
pub fn catches_faults() -> bool {
    RAISED.into_iter().all(|signal| signals::action(signal).is_some_and(|now| is_ours(&now)))
}

unsafe extern "C" fn protected(crash: *mut c_void) {
    let alternate = stacks::without_alternate();
    RECOVERY.disarm();
    let call = Call::new(written as *const () as usize, [crash as u64]);
    // SAFETY: `written` locks and allocates nothing, so it may be left; only the owner uses the recovery point.
    let ended = unsafe { recovery::call(&RECOVERY, &call) };
    if ended.is_err() {
        // SAFETY: as above.
        let _ = unsafe { recovery::call(&RECOVERY, &Call::new(cut as *const () as usize, [crash as u64])) };
    }
    // The program's handler may leave ours for good, by siglongjmp.
    stacks::with_alternate(&alternate);
}

unsafe extern "C" fn written(crash: *mut c_void) {
    // SAFETY: `report` passes its crash.
    write::report(unsafe { &*crash.cast::<Crash>() });
}

unsafe extern "C" fn cut(crash: *mut c_void) {
    // SAFETY: as above.
    write::cut(unsafe { &*crash.cast::<Crash>() });
}
