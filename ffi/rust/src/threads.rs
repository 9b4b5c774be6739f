//! The stacks of all threads.

use crate::stack::{nanoseconds, Stack, WORDS};
use crate::sys::{Request, Thread as Entry};
use crate::{library, Error, StopReason, Walk};
use std::time::Duration;

/// A thread of this process, of [`all_threads`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thread {
    /// Its thread id (gettid(2)).
    pub tid: u32,
    /// Its name (pthread_setname_np(3)), at most 15 bytes.
    pub name: String,
    /// Its whole stack; or why there is none: [`Error::Os`] with `ETIMEDOUT`, `ESRCH` (it has ended), `EAGAIN`.
    pub stack: Result<Stack, Error>,
    /// With `ETIMEDOUT`: why it did not answer.
    pub silent: Option<StopReason>,
}

/// Most threads whose stacks are captured. What there is of more is not listed.
const THREADS: usize = 4096;
/// Threads for which the first try has room.
const FEW: usize = 64;

/// Captures the whole stacks of all threads of this process, the calling one first: for watchdogs. 16 threads at a time
/// are interrupted by a real-time signal; all together are given `limit`. At most 4,096 threads are listed, and, of
/// their stacks, what fits in 256 MiB: those that follow end with [`StopReason::BufferFull`].
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`]: `EIO` (`/proc/self/task` cannot be read), `EBUSY` (no real-time
/// signal is free).
///
/// ```
/// uunwind::setup()?; // finds the interpreters of this process
/// let threads = uunwind::all_threads(std::time::Duration::from_secs(10))?;
/// for thread in &threads {
///     match &thread.stack {
///         Ok(stack) => println!("{} {}:\n{stack}", thread.tid, thread.name),
///         Err(error) => println!("{} {}: {error}", thread.tid, thread.name),
///     }
/// }
/// assert!(threads[0].stack.as_ref().is_ok_and(|stack| stack.is_complete()));
/// # Ok::<(), uunwind::Error>(())
/// ```
#[inline(never)]
pub fn all_threads(limit: Duration) -> Result<Vec<Thread>, Error> {
    Walk::new().all_threads(limit)
}

/// The stacks of all threads by the request that is made for a buffer.
#[inline(always)]
pub fn all(request: impl Fn(&mut Vec<u64>) -> Request, limit: Duration) -> Result<Vec<Thread>, Error> {
    /// Limit of the words of all stacks: 256 MiB, of which what is written becomes resident.
    const MOST_WORDS: usize = 32 << 20;
    let api = library::get()?;
    let limit = nanoseconds(limit);
    let mut room = FEW;
    loop {
        let mut words = Vec::with_capacity(WORDS.saturating_mul(room).min(MOST_WORDS));
        let mut threads: Vec<Entry> = Vec::with_capacity(room);
        let mut request = request(&mut words);
        // SAFETY: a whole request, with a buffer of that capacity; and room for that many threads.
        let found = unsafe { (api.walk_all)(&raw mut request, threads.as_mut_ptr(), room, limit) };
        Error::check("uu_walk_all", found)?;
        let found = found as usize;
        if found > room && room < THREADS {
            room = (found + FEW).min(THREADS);
            continue;
        }
        // SAFETY: the library has filled as many threads as there are, at most the capacity, and as many words as it
        // says, at most theirs.
        unsafe {
            threads.set_len(found.min(room));
            words.set_len(request.words.min(words.capacity()));
        }
        return Ok(threads.iter().map(|entry| thread(entry, &words)).collect());
    }
}

fn thread(entry: &Entry, words: &[u64]) -> Thread {
    let name = entry.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let own = entry.first.checked_add(entry.words).and_then(|end| words.get(entry.first..end)).unwrap_or_default();
    let stack = Stack::of(own.to_vec(), entry.count, entry.stop, entry.doubt);
    let failed = entry.error != 0;
    Thread {
        tid: entry.tid,
        name: String::from_utf8_lossy(name).into_owned(),
        stack: Error::check("uu_walk_thread", entry.error).map(|()| stack),
        silent: StopReason::from_number(entry.stop).filter(|_| failed),
    }
}

/// Gives the calling thread an alternate signal stack, unless it has one, so that the overflow of its stack can be
/// reported ([`CrashReport`](crate::CrashReport)). Threads that Rust's standard library starts have one already; those
/// of a C library, which call into Rust, may not.
///
/// ```
/// uunwind::prepare_thread()?;
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `ENOMEM`.
pub fn prepare_thread() -> Result<(), Error> {
    // SAFETY: the function has no preconditions.
    let result = unsafe { (library::get()?.prepare_thread)() };
    Error::check("uu_prepare_thread", result)
}
