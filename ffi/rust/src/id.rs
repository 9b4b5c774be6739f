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
    /// The id of the stack that these words are, as from [`native`](crate::native); `None`: the table is full
    /// ([`ids_lost`] counts it), or there are no words, or more than 16,384. Lock-free, and async-signal-safe once
    /// [`load`](crate::load) has succeeded.
    ///
    /// ```
    /// uunwind::load()?;
    /// let mut words = [0; 64];
    /// let captured = uunwind::native(&mut words).expect("it is loaded");
    /// let id = uunwind::StackId::of(&words[..captured.words])?.expect("there is room");
    /// let mut again = [0; 64];
    /// assert_eq!(id.words(&mut again)?, captured.words);
    /// assert_eq!(words, again);
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    pub fn of(words: &[u64]) -> Result<Option<StackId>, Error> {
        // SAFETY: that number of words.
        let id = unsafe { (library::get()?.stack_id)(words.as_ptr(), words.len()) };
        Ok(NonZeroU32::new(id).map(StackId))
    }

    /// Copies the stack's words, as many as there is room for, and returns how many it has. Async-signal-safe.
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    pub fn words(self, words: &mut [u64]) -> Result<usize, Error> {
        // SAFETY: a buffer of that length.
        Ok(unsafe { (library::get()?.stack_frames)(self.get(), words.as_mut_ptr(), words.len()) })
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
        let mut words = vec![0; self.words(&mut [])?];
        self.words(&mut words)?;
        Stack::from_words(&words).ok_or(Error::Os { call: "uu_stack_frames", errno: libc::EINVAL })
    }
}

/// How many stacks found no room in the table.
///
/// ```
/// assert_eq!(uunwind::ids_lost()?, 0);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load).
pub fn ids_lost() -> Result<u64, Error> {
    // SAFETY: the function has no preconditions.
    Ok(unsafe { (library::get()?.stack_ids_lost)() })
}
