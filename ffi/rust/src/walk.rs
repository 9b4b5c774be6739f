//! Walks frame by frame: which frames are wanted, where a walk begins, and each frame as it comes.

use crate::sys::{
    Request, RequestWithCfas, WALK_NATIVE, WALK_NO_INTERPRETER, WALK_PROBED, WALK_SEMANTIC, WALK_TRUST_PLUGINS,
    WALK_WINDOW,
};
use crate::{library, stack, steps, threads, Error, Stack, Step, StopReason, Thread};
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::time::Duration;

/// A walk that is to be made, of the calling thread's stack or of other threads': all frames from the caller on, unless
/// something else is asked for. One value serves for any number of walks.
///
/// ```
/// use std::ops::ControlFlow;
///
/// fn outer<T>(then: impl FnOnce() -> T) -> T {
///     let result = then();
///     std::hint::black_box(()); // lest the call be a jump
///     result
/// }
///
/// uunwind::load()?;
/// // One step after the other, as with a cursor; until something is found.
/// let mut steps = 0;
/// let ended = outer(|| {
///     uunwind::Walk::new().each(|frame| {
///         steps += 1;
///         let here = frame.describe();
///         let is_found = here.is_some_and(|here| here.file_address().is_some()) && steps == 3;
///         if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
///     })
/// });
/// assert_eq!((steps, ended?.stop), (3, Some(uunwind::StopReason::EndedByCallback)));
///
/// // All steps with their CFAs: each caller's stack pointer is above its callee's.
/// let steps = uunwind::Walk::new().steps()?;
/// let cfas: Vec<u64> = steps.frames().filter_map(|frame| frame.cfa()).collect();
/// assert!(cfas.len() > 1 && cfas.is_sorted());
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    flags: u32,
    skip: u32,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How many frames were passed on.
    pub frames: usize,
    /// Why it ended; `None`: for a reason that this crate does not know.
    pub stop: Option<StopReason>,
    /// A sum of [`DOUBT_FRAMES`](crate::DOUBT_FRAMES) and others; 0: nothing is missing or uncertain before the end.
    pub doubt: u16,
}

/// The frames of a walk, with their CFAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    words: Vec<u64>,
    cfas: Vec<u64>,
    ended: Ended,
}

impl Walk {
    /// For all frames from the caller on.
    pub const fn new() -> Walk {
        Walk { flags: 0, skip: 0 }
    }

    /// Without this number of frames nearest the leaf, of those that are wanted.
    pub const fn skip(self, frames: u32) -> Walk {
        Walk { skip: frames, ..self }
    }

    /// For machine frames in objects; with [`windows`](Walk::windows) or [`semantic`](Walk::semantic) for those, too.
    pub const fn native(self) -> Walk {
        self.with(WALK_NATIVE)
    }

    /// For machine frames in code that JITs registered; as [`native`](Walk::native).
    pub const fn windows(self) -> Walk {
        self.with(WALK_WINDOW)
    }

    /// For frames of interpreted languages; as [`native`](Walk::native).
    pub const fn semantic(self) -> Walk {
        self.with(WALK_SEMANTIC)
    }

    /// Without interpreters' own machine frames.
    pub const fn without_interpreters(self) -> Walk {
        self.with(WALK_NO_INTERPRETER)
    }

    /// Asks the kernel for memory before it is read, also after [`handle_faults`](crate::handle_faults): where SIGSEGV
    /// or SIGBUS is blocked.
    pub const fn probed(self) -> Walk {
        self.with(WALK_PROBED)
    }

    /// Where memory is asked for before it is read, as without [`handle_faults`](crate::handle_faults), plugins that
    /// do not promise to raise no faults are called, too.
    ///
    /// # Safety
    /// The plugins of this process must raise no faults, whatever memory they are shown: nothing contains them.
    pub const unsafe fn trusting_plugins(self) -> Walk {
        self.with(WALK_TRUST_PLUGINS)
    }

    const fn with(self, flag: u32) -> Walk {
        Walk { flags: self.flags | flag, ..self }
    }

    /// Walks, and passes each frame to `step`, leaf first, until that breaks. The first frame is the caller's.
    /// Async-signal-safe once [`load`](crate::load) has succeeded, if `step` is; `step` must not walk, and a panic in
    /// it ends the process. Needs 8 KiB of stack, and what `step` does: in a handler that runs on an alternate stack,
    /// that one must have them, and those of Rust's own threads do not.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`] with `ENOMEM`: there is no memory for this thread's first walk.
    #[inline(always)]
    pub fn each<F: FnMut(Step<'_>) -> ControlFlow<()>>(self, mut step: F) -> Result<Ended, Error> {
        let api = library::get()?;
        let mut request = self.request(std::ptr::null(), called::<F>, (&raw mut step).cast());
        // SAFETY: a whole request; the function is called with what it expects, before the call returns.
        let result = unsafe { (api.walk)(&raw mut request) };
        ended(result, &request)
    }

    /// As [`each`](Walk::each), from the frame that a signal has interrupted.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    ///
    /// extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    ///     let step = |frame: uunwind::Step<'_>| {
    ///         INTERRUPTED.store(frame.address().filter(|_| frame.is_exact()).unwrap_or(0), Ordering::Relaxed);
    ///         ControlFlow::Break(()) // the first frame is enough
    ///     };
    ///     // SAFETY: the kernel has entered this handler with it, on this thread.
    ///     let _ = unsafe { uunwind::Walk::new().each_interrupted(ucontext, step) };
    /// }
    ///
    /// uunwind::load()?;
    /// // SAFETY: a whole action; the handler is async-signal-safe.
    /// unsafe {
    ///     let mut action: libc::sigaction = std::mem::zeroed();
    ///     action.sa_sigaction = handler as *const () as usize;
    ///     action.sa_flags = libc::SA_SIGINFO;
    ///     libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    ///     libc::raise(libc::SIGUSR1);
    /// }
    /// assert_ne!(INTERRUPTED.load(Ordering::Relaxed), 0);
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there; [`Error::Os`] with `EINVAL`: the ucontext is no multiple of 8.
    ///
    /// # Safety
    /// `ucontext` must be the third argument of a signal handler that the kernel has entered on this thread and that is
    /// still running. There must be 8 KiB of stack: the alternate signal stacks of Rust's own threads have less.
    pub unsafe fn each_interrupted<F: FnMut(Step<'_>) -> ControlFlow<()>>(
        self,
        ucontext: *const c_void,
        mut step: F,
    ) -> Result<Ended, Error> {
        let api = library::get()?;
        let mut request = self.request(ucontext, called::<F>, (&raw mut step).cast());
        // SAFETY: as above; the ucontext is the caller's.
        let result = unsafe { (api.walk)(&raw mut request) };
        ended(result, &request)
    }

    /// Walks, and keeps the frames. The first one is the caller's. Allocates.
    ///
    /// ```
    /// uunwind::setup()?; // finds the interpreters of this process
    /// let stack = uunwind::Walk::new().without_interpreters().capture()?;
    /// assert!(stack.is_complete() && !stack.is_empty());
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`each`](Walk::each).
    #[inline(always)]
    pub fn capture(self) -> Result<Stack, Error> {
        let api = library::get()?;
        let mut words = Vec::with_capacity(stack::WORDS);
        let mut request = self.into(&mut words);
        // SAFETY: a whole request, with a buffer of that capacity.
        let result = unsafe { (api.walk)(&raw mut request) };
        Error::check("uu_walk", result)?;
        Ok(stack::filled(words, &request))
    }

    /// As [`Stack::of_thread`], with the frames that this walk wants.
    ///
    /// # Errors
    /// As there.
    pub fn of_thread(self, tid: u32, limit: Duration) -> Result<Stack, Error> {
        let api = library::get()?;
        let mut words = Vec::with_capacity(stack::WORDS);
        let mut request = self.into(&mut words);
        // SAFETY: a whole request, with a buffer of that capacity.
        let result = unsafe { (api.walk_thread)(tid, &raw mut request, stack::nanoseconds(limit)) };
        Error::check("uu_walk_thread", result)?;
        Ok(stack::filled(words, &request))
    }

    /// As [`all_threads`](crate::all_threads), with the frames that this walk wants.
    ///
    /// ```
    /// uunwind::setup()?; // finds the interpreters of this process
    /// let walk = uunwind::Walk::new().semantic(); // only what is interpreted
    /// for thread in walk.all_threads(std::time::Duration::from_secs(10))? {
    ///     assert!(thread.stack?.steps().all(|frame| frame.kind() == Some(uunwind::Kind::Semantic)));
    /// }
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    #[inline(never)]
    pub fn all_threads(self, limit: Duration) -> Result<Vec<Thread>, Error> {
        threads::all(|words| self.into(words), limit)
    }

    /// Walks, and keeps the frames with their CFAs. The first frame is the caller's. Such a walk takes nothing over
    /// from an earlier one, and allocates.
    ///
    /// # Errors
    /// As [`each`](Walk::each).
    #[inline(always)]
    pub fn steps(self) -> Result<Steps, Error> {
        let api = library::get()?;
        let (mut words, mut cfas) = (Vec::with_capacity(stack::WORDS), Vec::with_capacity(stack::WORDS));
        let mut request = RequestWithCfas::new(self.into(&mut words), &mut cfas);
        // SAFETY: a whole request, with two buffers of that capacity.
        let result = unsafe { (api.walk)(&raw mut request.request) };
        Steps::filled(words, cfas, ended(result, &request.request)?, request.request.words)
    }

    /// A request for these frames, into the unused capacity of an empty vector.
    fn into(self, words: &mut Vec<u64>) -> Request {
        Request { flags: self.flags, ..stack::request(words, self.skip) }
    }

    fn request(
        self,
        ucontext: *const c_void,
        frame: unsafe extern "C" fn(*mut c_void, *const u64, usize) -> c_int,
        user: *mut c_void,
    ) -> Request {
        let frames = std::ptr::null_mut();
        Request { ucontext, frames, frame: Some(frame), user, ..self.into(&mut Vec::new()) }
    }
}

fn ended(result: c_int, request: &Request) -> Result<Ended, Error> {
    Error::check("uu_walk", result)?;
    let stop = StopReason::from_number(request.stop);
    Ok(Ended { frames: request.count as usize, stop, doubt: request.doubt })
}

unsafe extern "C" fn called<F: FnMut(Step<'_>) -> ControlFlow<()>>(
    step: *mut c_void,
    words: *const u64,
    count: usize,
) -> c_int {
    // SAFETY: the function that `each` passes, and the words of a frame, which are there during this call.
    let (step, words) = unsafe { (&mut *step.cast::<F>(), std::slice::from_raw_parts(words, count)) };
    c_int::from(step(Step::of(words, 0)).is_break())
}

impl Steps {
    fn filled(mut words: Vec<u64>, mut cfas: Vec<u64>, ended: Ended, written: usize) -> Result<Steps, Error> {
        // SAFETY: the library has written that number of words, and a CFA for each frame, which are not above the
        // capacities.
        unsafe {
            words.set_len(written.min(words.capacity()));
            cfas.set_len(ended.frames.min(cfas.capacity()));
        }
        Ok(Steps { words, cfas, ended })
    }

    /// The frames, leaf first.
    pub fn frames(&self) -> impl Iterator<Item = Step<'_>> {
        let cfas = self.cfas.iter().copied().chain(std::iter::repeat(0));
        steps(&self.words).zip(cfas).map(|(step, cfa)| Step::of(step.words(), cfa))
    }

    /// How the walk ended.
    pub fn ended(&self) -> Ended {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_the_walk_says() {
        let walk = Walk::new().skip(3).native().without_interpreters();
        // SAFETY: nothing walks.
        let walk = unsafe { walk.trusting_plugins() };
        let mut words = Vec::with_capacity(7);
        let request = walk.into(&mut words);
        assert_eq!(request.flags, WALK_NATIVE | WALK_NO_INTERPRETER | WALK_TRUST_PLUGINS);
        assert_eq!((request.skip, request.frames, request.capacity), (3, words.as_mut_ptr(), words.capacity()));
        assert_eq!(Walk::new().windows().semantic().probed().flags, WALK_WINDOW | WALK_SEMANTIC | WALK_PROBED);
        assert_eq!(Walk::new().into(&mut words).flags, 0);
    }
}
