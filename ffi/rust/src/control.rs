//! What a program says about its own signals and jumps.

use crate::{library, Error};
use std::ffi::c_int;

/// Takes the real-time signal by which other threads' stacks are captured, crashes' other threads are stopped and
/// [`Client::trigger`](crate::Client::trigger) works. `None`: the one that is in use, or any; else the first call
/// that needs one takes the highest that has its default action. Returns its number. Async-signal-safe once
/// [`load`](crate::load) has succeeded.
///
/// ```
/// let signal = uunwind::thread_signal(None)?;
/// assert_eq!(uunwind::thread_signal(Some(signal))?, signal);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `EINVAL`: it is no real-time signal; `EBUSY`: none has its
/// default action, the program has replaced the library's handler for this one, or another thread is in this call;
/// `EIO`: the kernel refuses.
pub fn thread_signal(signal: Option<c_int>) -> Result<c_int, Error> {
    // 0 asks for any, and is no signal.
    let signal = match signal {
        Some(0) => return Err(Error::Os { call: "uu_thread_signal", errno: libc::EINVAL }),
        signal => signal.unwrap_or(0),
    };
    // SAFETY: the function checks the number.
    let taken = unsafe { (library::get()?.thread_signal)(signal) };
    Error::check("uu_thread_signal", taken).map(|()| taken)
}

/// Says that captures and walks of the calling thread that a handler interrupted were left, by siglongjmp(3) or in any
/// other way, and do not go on. To be called where siglongjmp(3) comes back to; else other threads'
/// [`Ticket::synchronize`](crate::Ticket::synchronize) may fail with `ETIMEDOUT`, and this thread's walks with
/// [`StopReason::Fault`](crate::StopReason::Fault). Does nothing if none was left, or the library is not loaded.
/// Async-signal-safe.
///
/// ```
/// // SAFETY: no handler runs in this thread, and no context was swapped out.
/// unsafe { uunwind::captures_abandoned() };
/// ```
///
/// # Safety
/// No capture of this thread may go on afterwards: this must not be called in a handler that has interrupted one, nor
/// while a context that a handler swapped out of one is suspended.
pub unsafe fn captures_abandoned() {
    if let Some(api) = library::found() {
        // SAFETY: the caller's.
        unsafe { (api.capture_abandoned)() };
    }
}
