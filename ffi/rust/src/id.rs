//! Numbers for stacks: what a profiler of allocations, locks and the like keeps with each of many things.

use crate::{library, Error, Stack};
use std::num::NonZeroU32;

/// A stack in the library's own table, as long as the process lives. Equal stacks have equal ids.
///
/// ```
/// fn here() -> Result<uunwind::Stack, uunwind::Error> { uunwind::Stack::capture() }
/// let mut ids = Vec::new();
/// for _ in 0..2 {
///     ids.extend(here()?.id()?); // the same line, so the same stack
/// }
/// assert_eq!(ids[0], ids[1]);
/// assert_eq!(ids[0].stack()?.len(), here()?.len());
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(NonZeroU32);

impl StackId {
    pub(crate) fn of(words: &[u64]) -> Result<Option<StackId>, Error> {
        // SAFETY: that number of words.
        let id = unsafe { (library::get()?.stack_id)(words.as_ptr(), words.len()) };
        Ok(NonZeroU32::new(id).map(StackId))
    }

    /// The number, from 1.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The stack. Why its walk ended is not kept.
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    pub fn stack(self) -> Result<Stack, Error> {
        let api = library::get()?;
        // SAFETY: null, with room for nothing: asks for the number.
        let count = unsafe { (api.stack_frames)(self.get(), std::ptr::null_mut(), 0) };
        let mut words = vec![0; count];
        // SAFETY: a buffer of that length.
        unsafe { (api.stack_frames)(self.get(), words.as_mut_ptr(), words.len()) };
        Stack::from_words(&words).ok_or(Error::Os { call: "uu_stack_frames", errno: libc::EINVAL })
    }
}

/// How many stacks found no room in the table.
///
/// # Errors
/// Those of [`load`](crate::load).
pub fn ids_lost() -> Result<u64, Error> {
    // SAFETY: the function has no preconditions.
    Ok(unsafe { (library::get()?.stack_ids_lost)() })
}
