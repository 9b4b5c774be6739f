//! The clients of a process: a table of functions that get stacks.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use uunwind_core::errno::{Errno, EINVAL, ENOENT, ENOMEM, ETIMEDOUT};
use uunwind_core::slots::CLIENTS;
use uunwind_core::syscall;
use uunwind_crashes::threads::{handler, Deadline};
use uunwind_live::state::SLOTS;

/// `struct uu_delivery`.
#[repr(C)]
#[derive(Debug)]
pub struct Delivery {
    /// Size of the structure.
    pub size: u32,
    /// Thread id of the thread whose stack this is, the calling one.
    pub tid: u32,
    /// The cookie that the client got.
    pub cookie: u64,
    /// The frames, as `uu_walk` writes them; valid during the call.
    pub frames: *const u64,
    /// How many words.
    pub words: usize,
    /// How many frames.
    pub count: u32,
    /// Why the walk ended.
    pub stop: u16,
    /// What is missing or uncertain.
    pub doubt: u16,
}

/// The client's function.
pub type Deliver = unsafe extern "C" fn(*mut c_void, *const Delivery);

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const LIVE: u32 = 2;
const LEAVING: u32 = 3;

struct Client {
    state: AtomicU32,
    /// The client's [`Deliver`], called with `user` for each stack.
    deliver: AtomicPtr<c_void>,
    user: AtomicPtr<c_void>,
    /// Number of threads that call `deliver`.
    running: AtomicU32,
    /// How often this number was given to a client.
    generation: AtomicU32,
}

static TABLE: [Client; CLIENTS as usize] = [const {
    Client {
        state: AtomicU32::new(FREE),
        deliver: AtomicPtr::new(core::ptr::null_mut()),
        user: AtomicPtr::new(core::ptr::null_mut()),
        running: AtomicU32::new(0),
        generation: AtomicU32::new(0),
    }
}; CLIENTS as usize];

/// Adds a client; its number. Errors: `ENOMEM`: there are [`CLIENTS`]; `EBUSY`, `EIO`: there is no signal, as
/// `uu_thread_signal` says. Async-signal-safe.
pub fn register(deliver: Deliver, user: *mut c_void) -> Result<u32, Errno> {
    handler::prepare()?;
    handler::set_hook(crate::deliver::on_signal);
    for (number, client) in (0u32..).zip(&TABLE) {
        if client.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            client.generation.fetch_add(1, Ordering::Relaxed);
            client.user.store(user, Ordering::Relaxed);
            client.deliver.store(deliver as *mut c_void, Ordering::Relaxed);
            client.state.store(LIVE, Ordering::Release);
            return Ok(number);
        }
    }
    Err(ENOMEM)
}

/// Removes a client: it gets no stack any more when this returns `Ok`. Waits at most a second for stacks that it is
/// being given. Errors: `ENOENT`: there is no such client; `ETIMEDOUT`: it is being given one, and asking again is
/// allowed. Not for handlers.
pub fn unregister(number: i32) -> Result<(), Errno> {
    const STEP_NS: i64 = 1_000_000;
    let client = u32::try_from(number).ok().and_then(|number| TABLE.get(number as usize)).ok_or(EINVAL)?;
    if client.state.compare_exchange(LIVE, LEAVING, Ordering::SeqCst, Ordering::Relaxed) == Err(FREE) {
        return Err(ENOENT);
    }
    for slot in SLOTS.used() {
        slot.deferred.remove(number as u32);
    }
    let deadline = Deadline::after(1_000_000_000);
    // A step a millisecond, at least.
    for _ in 0..1100 {
        if client.running.load(Ordering::SeqCst) == 0 {
            // Only one of two callers frees it.
            let freed = client.state.compare_exchange(LEAVING, FREE, Ordering::AcqRel, Ordering::Relaxed);
            return freed.map(|_| ()).map_err(|_| ENOENT);
        }
        if deadline.left() == 0 {
            break;
        }
        let time = [0i64, STEP_NS];
        // SAFETY: a timespec.
        unsafe { syscall::call(syscall::nr::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
    Err(ETIMEDOUT)
}

/// Whether there is a client with this number.
#[inline]
pub fn exists(number: i32) -> bool {
    usize::try_from(number)
        .ok()
        .and_then(|number| TABLE.get(number))
        .is_some_and(|client| client.state.load(Ordering::Acquire) == LIVE)
}

/// Which client has this number: the number of times that it was given, 0 for none yet.
pub fn generation(number: u32) -> u32 {
    TABLE.get(number as usize).map_or(0, |client| client.generation.load(Ordering::Acquire))
}

/// Gives a client a stack, unless it is leaving. `is_waiting`: whether the client with this number waits for it.
///
/// # Safety
/// The delivery's frames must be readable.
pub unsafe fn give(number: u32, delivery: &Delivery, is_waiting: impl FnOnce() -> bool) {
    let Some(client) = TABLE.get(number as usize) else { return };
    // Whoever removes the client sees this, or this thread sees that it is leaving; or that it has left, and the
    // number's next owner has not asked.
    client.running.fetch_add(1, Ordering::SeqCst);
    if client.state.load(Ordering::SeqCst) == LIVE && is_waiting() {
        let deliver = client.deliver.load(Ordering::Acquire);
        if !deliver.is_null() {
            // SAFETY: `register` stored a function of this type, with its argument.
            unsafe {
                core::mem::transmute::<*mut c_void, Deliver>(deliver)(client.user.load(Ordering::Acquire), delivery);
            }
        }
    }
    client.running.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::errno::EBUSY;

    unsafe extern "C" fn count(user: *mut c_void, _: *const Delivery) {
        // SAFETY: the tests pass a counter.
        unsafe { (*user.cast::<AtomicU32>()).fetch_add(1, Ordering::Relaxed) };
    }

    #[test]
    fn the_number_of_clients_is_bounded_and_numbers_are_used_again() {
        let calls = AtomicU32::new(0);
        let user = (&raw const calls).cast_mut().cast::<c_void>();
        let numbers: Vec<u32> = (0..CLIENTS).map(|_| register(count, user).expect("room")).collect();
        assert_eq!(numbers, (0..CLIENTS).collect::<Vec<_>>());
        assert!(matches!(register(count, user), Err(ENOMEM | EBUSY)));
        let delivery = Delivery {
            size: size_of::<Delivery>() as u32,
            tid: 0,
            cookie: 1,
            frames: core::ptr::null(),
            words: 0,
            count: 0,
            stop: 0,
            doubt: 0,
        };
        // SAFETY: no frames.
        unsafe { give(3, &delivery, || true) };
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(unregister(3), Ok(()));
        // SAFETY: as above.
        unsafe { give(3, &delivery, || true) };
        assert_eq!(calls.load(Ordering::Relaxed), 1, "it has left");
        assert!(!exists(3) && exists(4) && !exists(-1) && !exists(16));
        assert_eq!((unregister(3), unregister(16), unregister(-1)), (Err(ENOENT), Err(EINVAL), Err(EINVAL)));
        assert_eq!(register(count, user), Ok(3));
        TABLE[5].running.store(1, Ordering::Relaxed);
        assert_eq!(unregister(5), Err(ETIMEDOUT));
        assert!(!exists(5), "it gets no more, but its number is not used again");
        TABLE[5].running.store(0, Ordering::Relaxed);
        assert_eq!(unregister(5), Ok(()));
    }
}
