//! Walks frame by frame: which frames are wanted, where a walk begins, and each frame as it comes.

use crate::sys::{Request, RequestWithCfas};
use crate::{library, stack, Description, Error, Kind, Stack, StopReason};
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use uunwind_core::frame::{self, frame_words, FLAG_EXACT};

const NATIVE: u32 = 1;
const WINDOW: u32 = 2;
const SEMANTIC: u32 = 4;
const NO_INTERPRETER: u32 = 8;
const PROBED: u32 = 16;

/// A walk of the calling thread's stack that is to be made: all frames from the caller on, unless something else is
/// asked for. One value serves for any number of walks.
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
    /// `UU_DOUBT_*` of `uu.h`; 0: nothing is missing or uncertain before the end.
    pub doubt: u16,
}

/// A frame of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'w> {
    words: &'w [u64],
    cfa: u64,
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
        self.with(NATIVE)
    }

    /// For machine frames in code that JITs registered; as [`native`](Walk::native).
    pub const fn windows(self) -> Walk {
        self.with(WINDOW)
    }

    /// For frames of interpreted languages; as [`native`](Walk::native).
    pub const fn semantic(self) -> Walk {
        self.with(SEMANTIC)
    }

    /// Without interpreters' own machine frames.
    pub const fn without_interpreters(self) -> Walk {
        self.with(NO_INTERPRETER)
    }

    /// Asks the kernel for memory before it is read, also after [`handle_faults`](crate::handle_faults): where SIGSEGV
    /// or SIGBUS is blocked.
    pub const fn probed(self) -> Walk {
        self.with(PROBED)
    }

    const fn with(self, flag: u32) -> Walk {
        Walk { flags: self.flags | flag, ..self }
    }

    /// Walks, and passes each frame to `step`, leaf first, until that breaks. The first frame is the caller's.
    /// Async-signal-safe once [`load`](crate::load) has succeeded, if `step` is; `step` must not walk, and a panic in
    /// it ends the process.
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

    /// Walks, and keeps the frames with their CFAs. The first frame is the caller's. Such a walk takes nothing over
    /// from an earlier one, and allocates.
    ///
    /// # Errors
    /// As [`each`](Walk::each).
    #[inline(always)]
    pub fn steps(self) -> Result<Steps, Error> {
        let api = library::get()?;
        let (mut words, mut cfas) = (Vec::with_capacity(stack::WORDS), Vec::with_capacity(stack::WORDS));
        let request = Request { flags: self.flags, ..stack::request(&mut words, self.skip) };
        let mut request = RequestWithCfas::new(request, &mut cfas);
        // SAFETY: a whole request, with two buffers of that capacity.
        let result = unsafe { (api.walk)(&raw mut request.request) };
        Steps::filled(words, cfas, ended(result, &request.request)?, request.request.words)
    }

    fn request(
        self,
        ucontext: *const c_void,
        frame: unsafe extern "C" fn(*mut c_void, *const u64, usize) -> c_int,
        user: *mut c_void,
    ) -> Request {
        let none = &mut Vec::new();
        let frames = std::ptr::null_mut();
        Request { flags: self.flags, ucontext, frames, frame: Some(frame), user, ..stack::request(none, self.skip) }
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
    c_int::from(step(Step { words, cfa: 0 }).is_break())
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
        split(&self.words).zip(cfas).map(|(words, cfa)| Step { words, cfa })
    }

    /// How the walk ended.
    pub fn ended(&self) -> Ended {
        self.ended
    }
}

impl Stack {
    /// Its frames one by one, without names. They have no CFAs: [`Walk::steps`] has.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        split(self.words()).map(|words| Step { words, cfa: 0 })
    }
}

/// The words of each frame.
fn split(mut rest: &[u64]) -> impl Iterator<Item = &[u64]> {
    std::iter::from_fn(move || {
        let (frame, further) = rest.split_at_checked(frame_words(*rest.first()?))?;
        rest = further;
        Some(frame)
    })
}

impl<'w> Step<'w> {
    /// Its words (`UU_FRAME_*` of `uu.h`).
    pub fn words(self) -> &'w [u64] {
        self.words
    }

    fn decoded(self) -> Option<frame::Frame> {
        frame::frames(self.words).next()
    }

    /// What it is; `None`: the library knows a kind that this crate does not. Never [`Kind::Inlined`].
    pub fn kind(self) -> Option<Kind> {
        Some(match self.decoded()? {
            frame::Frame::Native { .. } => Kind::Native,
            frame::Frame::Window { .. } => Kind::Window,
            frame::Frame::Semantic { .. } => Kind::Semantic,
            frame::Frame::Omitted { frames } => Kind::Omitted(frames),
        })
    }

    /// Machine frames: the return address, or the interrupted instruction ([`is_exact`](Step::is_exact)).
    pub fn address(self) -> Option<u64> {
        match self.decoded()? {
            frame::Frame::Native { address, .. } | frame::Frame::Window { address, .. } => Some(address),
            frame::Frame::Semantic { .. } | frame::Frame::Omitted { .. } => None,
        }
    }

    /// Whether the address is the interrupted instruction itself; otherwise the call is before it.
    pub fn is_exact(self) -> bool {
        self.address().is_some() && self.words.first().is_some_and(|word| word & FLAG_EXACT != 0)
    }

    /// The canonical frame address: the stack pointer of the caller when this frame returns. `None`: frames of
    /// languages, an outermost frame whose caller nothing describes, and steps that do not come from [`Walk::steps`].
    pub fn cfa(self) -> Option<u64> {
        (self.cfa != 0).then_some(self.cfa)
    }

    /// The frame in words, without the names of native functions, which [`Stack::symbolize`] has. Async-signal-safe.
    /// `None`: the library is not loaded, or the frame is of no kind that it knows.
    pub fn describe(self) -> Option<Description> {
        Description::of(self.words)
    }
}
