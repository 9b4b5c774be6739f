//! When what walks read may be freed.

use crate::{library, stack, Error};
use std::time::Duration;

/// All walks that were under way at one moment. Once they have ended, what was taken away from walks before, as by
/// [`Window::retire`](crate::Window::retire) or in the data of an [`Unwinder`](crate::Unwinder), may be freed.
///
/// ```
/// let ticket = uunwind::Ticket::now()?;
/// ticket.synchronize(std::time::Duration::from_secs(1))?;
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// A ticket for all walks that are under way now. Async-signal-safe once [`load`](crate::load) has succeeded.
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    pub fn now() -> Result<Ticket, Error> {
        // SAFETY: the function has no preconditions.
        Ok(Ticket(unsafe { (library::get()?.ticket)() }))
    }

    /// Waits until those walks have ended, at most `limit`; zero only asks. One call serves all earlier tickets, too.
    /// Not async-signal-safe.
    ///
    /// # Errors
    /// [`Error::Os`] with `ETIMEDOUT`: one has not ended, and this may be asked again; `EDEADLK`: called inside a walk,
    /// or in a handler that interrupted one.
    pub fn synchronize(self, limit: Duration) -> Result<(), Error> {
        let limit = stack::nanoseconds(limit);
        // SAFETY: the function has no preconditions.
        Error::check("uu_synchronize", unsafe { (library::get()?.synchronize)(self.0, limit) })
    }
}
