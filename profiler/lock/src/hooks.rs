//! The hooks of a running process's gate (`uunwind_ring::gate`): what the interposed functions do before and after the
//! real one, whose call is the gate's.
//!
//! A wait is counted when it is over, if it has begun since the recording has: of others, the gate knows nothing, or an
//! earlier recording's sampler has noted when they began.

use crate::{layout, LEAST};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_preload::events::{self, Caller, Subject, Wait, WaitKind};
use uunwind_preload::injected;
use uunwind_ring::gate::{self, Called, Frame, DONE, ERRNO, MUTEX_LOCK, TRY_MUTEX, TRY_READ, TRY_WRITE, WAITING};

/// What is asked before the call: the helper of the gate that does not wait, and where in the lock its holder stands.
type Try = Option<(usize, usize)>;

/// What each function waits for, in the order of the gate from `MUTEX_LOCK` on.
const FUNCTIONS: [(WaitKind, Try); WAITING] = {
    const MUTEX: (WaitKind, Try) = (WaitKind::Mutex, Some((TRY_MUTEX, layout::OWNER)));
    const READ: (WaitKind, Try) = (WaitKind::Read, Some((TRY_READ, layout::WRITER)));
    const WRITE: (WaitKind, Try) = (WaitKind::Write, Some((TRY_WRITE, layout::WRITER)));
    const C11: (WaitKind, Try) = (WaitKind::Mutex, None);
    const CONDITION: (WaitKind, Try) = (WaitKind::Condition, None);
    const SEMAPHORE: (WaitKind, Try) = (WaitKind::Semaphore, None);
    const END: (WaitKind, Try) = (WaitKind::End, None);
    const BARRIER: (WaitKind, Try) = (WaitKind::Barrier, None);
    [
        MUTEX, MUTEX, MUTEX, READ, READ, READ, WRITE, WRITE, WRITE, C11, C11, BARRIER, CONDITION, CONDITION, CONDITION,
        CONDITION, CONDITION, SEMAPHORE, SEMAPHORE, SEMAPHORE, END, END, END, END,
    ]
};

/// What the function of a stub waits for; `None`: it is syscall(2).
fn waiting(frame: &Frame) -> Option<(WaitKind, Try)> {
    FUNCTIONS.get(frame.function().wrapping_sub(MUTEX_LOCK)).copied()
}

fn word(place: Option<&AtomicU64>) -> u64 {
    place.map_or(0, |place| place.load(Ordering::Relaxed))
}

/// Asks for a lock by the function that does not wait. Its result; EBUSY where there is no such function, as in
/// programs without libpthread before glibc 2.34.
fn tried(called: &Called, helper: usize, lock: u64) -> c_int {
    let function = word(called.helpers.get(helper)) as usize;
    if function == 0 {
        return libc::EBUSY;
    }
    // SAFETY: `uu` has found the function of this name there, which has this type; the program's own argument.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> c_int>(function)(lock as *mut c_void) }
}

/// Called before the function.
///
/// # Safety
/// `frame` must be a stub's, with the arguments of a call that is about to be made.
pub unsafe extern "C" fn before(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let frame = unsafe { &mut *frame };
    let Some((called, _)) = injected::gate().filter(|_| events::is_on() && events::is_own()) else { return };
    if gate::is_cancellable(frame.function()) && called.cancels.load(Ordering::Relaxed) != 0 {
        return;
    }
    let lock = frame.arguments[0];
    let holder = match waiting(frame) {
        Some((_, Some((helper, offset)))) => {
            let result = tried(called, helper, lock);
            if result != libc::EBUSY {
                (frame.result, frame.kept[1]) = (result as u64, DONE);
                return;
            }
            // SAFETY: inside the program's own lock, aligned; other threads change it.
            unsafe { ((lock as usize + offset) as *const u32).read_volatile() }
        }
        Some(_) => 0,
        None if layout::waits(frame.arguments[2] as u32) => 0,
        None => return,
    };
    // In the upper half, so that it says nothing else.
    frame.kept = [events::now(), u64::from(holder) << 32];
}

/// Called after the function, with its result.
///
/// # Safety
/// `frame` must be a stub's, as [`before`] has left it if it was called.
pub unsafe extern "C" fn after(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let frame = unsafe { &*frame };
    let [begin, holder] = frame.kept;
    if begin < events::began() || !events::is_on() {
        return;
    }
    let duration = events::now().saturating_sub(begin);
    let [first, second, ..] = frame.arguments;
    let (kind, lock, is_wait) = match waiting(frame) {
        Some((kind, asked)) => (kind, first, asked.is_some() || duration >= LEAST),
        None => (WaitKind::Futex, second, duration >= LEAST && has_waited(frame.result)),
    };
    if is_wait {
        let holder = || if holder == 0 { 0 } else { events::outer_id((holder >> 32) as u32) };
        events::count(duration, Some(&Caller::of_gate(frame)), || {
            Subject::Wait(Wait { kind, lock, holder: holder(), duration })
        });
    }
}

/// Whether a call of futex(2) with this result, which is the thread's last one, has waited.
fn has_waited(result: u64) -> bool {
    let errno = || {
        let (called, _) = injected::gate()?;
        let function = word(called.helpers.get(ERRNO)) as usize;
        // SAFETY: `uu` has found `__errno_location` there, which returns the address of the thread's own.
        (function != 0)
            .then(|| unsafe { *core::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_int>(function)() })
    };
    result == 0 || errno().is_some_and(layout::has_waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_wait_for_what_their_names_say() {
        for (name, (kind, asked)) in gate::FUNCTIONS[MUTEX_LOCK..].iter().zip(FUNCTIONS) {
            let name = name.to_str().expect("ASCII");
            let expected = match name {
                _ if name.contains("mutex") || name.starts_with("mtx") => WaitKind::Mutex,
                _ if name.ends_with("rdlock") => WaitKind::Read,
                _ if name.ends_with("wrlock") => WaitKind::Write,
                _ if name.contains("cond") || name.starts_with("cnd") => WaitKind::Condition,
                _ if name.starts_with("sem") => WaitKind::Semaphore,
                _ if name.contains("barrier") => WaitKind::Barrier,
                _ => WaitKind::End,
            };
            assert_eq!(kind, expected, "{name}");
            assert_eq!(asked.is_some(), name.starts_with("pthread_") && name.ends_with("lock"), "{name}");
            let function = gate::index_of(name.as_bytes()).expect("its index");
            let is_point = !matches!(kind, WaitKind::Mutex | WaitKind::Read | WaitKind::Write | WaitKind::Barrier);
            assert_eq!(gate::is_cancellable(function), is_point, "{name}");
        }
    }
}
