//! Stacks that are asked for now and taken at the thread's next safe point.

use crate::sys::{self, Api};
use crate::{library, Error, StopReason};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::num::NonZeroU64;

/// Identifies a stack that a client asked for: unique in the process, and given at most one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(NonZeroU64);

/// A stack, as a client is given it, in a signal handler.
#[derive(Clone, Copy)]
pub struct Delivery<'d>(&'d sys::Delivery);

/// One that asks for stacks, as a tracer. While it lives, at most 15 others can be registered.
///
/// A stack that is asked for by [`trigger`](Client::trigger) is taken where the thread receives the signal by which
/// other threads' stacks are taken, too: before the call returns, or, where the signal is blocked, as soon as it is
/// not. In a signal handler that blocks it, that is when the handler has returned. All clients that ask meanwhile get
/// the same stack, with the same cookie (`uu_trigger()` of `uu.h`).
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// static LAST: AtomicU64 = AtomicU64::new(0);
/// // SAFETY: a store is async-signal-safe.
/// let client = unsafe { uunwind::Client::register(|stack| LAST.store(stack.cookie().get(), Ordering::Relaxed))? };
/// let cookie = client.trigger().expect("the signal is not blocked, and can be sent");
/// assert_eq!(LAST.load(Ordering::Relaxed), cookie.get());
/// assert!(!cookie.is_pending());
/// # Ok::<(), uunwind::Error>(())
/// ```
pub struct Client {
    api: &'static Api,
    number: c_int,
    /// The function, in a box that `drop` frees.
    deliver: *mut c_void,
    free: unsafe fn(*mut c_void),
}

// SAFETY: the function is `Send` and `Sync`; the number may be used by any thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Registers a client. `deliver` is called with each stack, in the thread whose stack it is.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`]: `ENOMEM` (there are 16 clients), `EBUSY` (no real-time signal is
    /// free), `EIO`.
    ///
    /// # Safety
    /// `deliver` runs in a signal handler: it must be async-signal-safe (no allocation, no lock), must not walk, and
    /// must return. A panic in it ends the process.
    pub unsafe fn register<F: Fn(Delivery<'_>) + Send + Sync + 'static>(deliver: F) -> Result<Client, Error> {
        let api = library::get()?;
        let deliver = Box::into_raw(Box::new(deliver)).cast::<c_void>();
        // SAFETY: the function fits its argument, and is what the caller vouches for.
        let number = unsafe { (api.client_register)(Some(given::<F>), deliver) };
        let client = Client { api, number, deliver, free: free::<F> };
        Error::check("uu_client_register", number)?;
        Ok(client)
    }

    /// Asks for the calling thread's stack. `None`: refused, and counted by [`triggers_lost`]: the signal cannot be
    /// sent, or there is no memory for this thread's first request. Async-signal-safe; where a stack is pending
    /// already, it takes nanoseconds.
    #[inline(always)]
    pub fn trigger(&self) -> Option<Cookie> {
        // SAFETY: the client's own number.
        NonZeroU64::new(unsafe { (self.api.trigger)(self.number) }).map(Cookie)
    }
}

impl Drop for Client {
    /// Waits for calls of its function, at most a second; where one still runs, the function's memory is kept for ever.
    fn drop(&mut self) {
        // SAFETY: the client's own number; nobody can trigger for it any more. A negative one was refused.
        if self.number < 0 || unsafe { (self.api.client_unregister)(self.number) } == 0 {
            // SAFETY: made by `register`, of the same type; it does not run, and will not.
            unsafe { (self.free)(self.deliver) };
        }
    }
}

unsafe extern "C" fn given<F: Fn(Delivery<'_>)>(deliver: *mut c_void, delivery: *const sys::Delivery) {
    // SAFETY: what `register` passed, and the library's structure.
    unsafe { (*deliver.cast::<F>())(Delivery(&*delivery)) };
}

unsafe fn free<F>(deliver: *mut c_void) {
    // SAFETY: the caller's.
    drop(unsafe { Box::from_raw(deliver.cast::<F>()) });
}

impl Cookie {
    /// The number that the library gave.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// Whether its stack is still to come, or being delivered. A cookie whose thread has ended is void, and not
    /// pending. Async-signal-safe.
    pub fn is_pending(self) -> bool {
        // SAFETY: any number may be asked for.
        library::found().is_some_and(|api| unsafe { (api.cookie_is_pending)(self.get()) } == 1)
    }
}

impl<'d> Delivery<'d> {
    /// What [`Client::trigger`] returned to all that asked for this stack.
    pub fn cookie(&self) -> Cookie {
        // 0 is no cookie, so that is never used.
        Cookie(NonZeroU64::new(self.0.cookie).unwrap_or(NonZeroU64::MAX))
    }

    /// Thread id of the calling thread, whose stack this is.
    pub fn tid(&self) -> u32 {
        self.0.tid
    }

    /// The frame words, leaf first (`UU_FRAME_*` of `uu.h`): [`steps`](crate::steps) has the frames, and
    /// [`StackId::of`](crate::StackId::of) keeps them; [`Stack::from_words`](crate::Stack::from_words) reads a copy of
    /// them, later.
    pub fn words(&self) -> &'d [u64] {
        if self.0.words == 0 {
            return &[];
        }
        // SAFETY: as many words as the library says, readable during the call.
        unsafe { std::slice::from_raw_parts(self.0.frames, self.0.words) }
    }

    /// Why the walk ended; `None`: for a reason that this crate does not know.
    pub fn stop(&self) -> Option<StopReason> {
        StopReason::from_number(self.0.stop)
    }

    /// What is uncertain about the frames of interpreters: a sum of [`DOUBT_FRAMES`](crate::DOUBT_FRAMES) and others;
    /// 0: nothing.
    pub fn doubt(&self) -> u16 {
        self.0.doubt
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("cookie", &self.cookie()).field("stop", &self.stop()).finish_non_exhaustive()
    }
}

/// Makes the calling thread's pending cookie void, and takes its signal back; whether there was one. Before exec(2): a
/// signal that is pending stays, and ends the next program when that unblocks it. Async-signal-safe once
/// [`load`](crate::load) has succeeded.
///
/// ```
/// assert!(!uunwind::cancel_trigger(), "none was pending");
/// ```
pub fn cancel_trigger() -> bool {
    // SAFETY: the function has no preconditions.
    library::found().is_some_and(|api| unsafe { (api.trigger_cancel)() } == 1)
}

/// Number of requests that were refused, and of cookies that became void since their threads ended or forked.
///
/// ```
/// assert_eq!(uunwind::triggers_lost()?, 0);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load).
pub fn triggers_lost() -> Result<u64, Error> {
    // SAFETY: the function has no preconditions.
    Ok(unsafe { (library::get()?.triggers_lost)() })
}
