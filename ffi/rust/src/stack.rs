//! Stacks: captured, kept as words, named when somebody wants to read them.

use crate::frame::{self, Frame};
use crate::sys::Request;
use crate::{library, Error, StackId, StopReason, Walk};
use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

/// Words of the longest stack: 4,160 frames of two words, and the mark for those that were left out.
pub(crate) const WORDS: usize = 2 * 4160 + 1;

/// A whole stack: native frames, those of JITs' windows, and those of interpreted languages, from the leaf to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    words: Vec<u64>,
    frames: u32,
    stop: u16,
    doubt: u16,
}

/// What [`native`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Words that were written.
    pub words: usize,
    /// Why the walk ended; `None`: for a reason that this crate does not know.
    pub stop: Option<StopReason>,
}

/// Captures the native stack of the calling thread into `frames`, leaf first: one word for each frame, two for a frame
/// in a window (`UU_FRAME_*` of `uu.h`); [`steps`](crate::steps) has the frames. Allocates nothing and takes no lock:
/// async-signal-safe once [`load`](crate::load) has succeeded. `None`: it has not. The first frame is the caller. Needs
/// up to 7 KiB of stack.
///
/// ```
/// uunwind::load()?;
/// let mut frames = [0; 128];
/// let captured = uunwind::native(&mut frames).expect("it is loaded");
/// assert!(captured.stop.is_some_and(uunwind::StopReason::is_complete));
/// # Ok::<(), uunwind::Error>(())
/// ```
#[inline(always)]
pub fn native(frames: &mut [u64]) -> Option<Captured> {
    // SAFETY: null stands for the caller.
    unsafe { captured(frames, std::ptr::null()) }
}

/// As [`native`], from the frame that a signal has interrupted.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static FRAMES: AtomicUsize = AtomicUsize::new(0);
///
/// extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
///     let mut words = [0; 64];
///     // SAFETY: the kernel has entered this handler with it, on this thread.
///     let captured = unsafe { uunwind::native_interrupted(&mut words, ucontext) };
///     let words = captured.and_then(|captured| words.get(..captured.words)).unwrap_or_default();
///     let exact = uunwind::steps(words).filter(|frame| frame.is_exact());
///     FRAMES.store(exact.count(), Ordering::Relaxed); // the interrupted instruction is the only one
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
/// assert_eq!(FRAMES.load(Ordering::Relaxed), 1);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Safety
/// `ucontext` must be the third argument of a signal handler that the kernel has entered on this thread and that is
/// still running. There must be 7 KiB of stack.
pub unsafe fn native_interrupted(frames: &mut [u64], ucontext: *const c_void) -> Option<Captured> {
    // SAFETY: the caller's.
    unsafe { captured(frames, ucontext) }
}

/// # Safety
/// `ucontext` must be null, or as that of [`native_interrupted`].
#[inline(always)]
unsafe fn captured(frames: &mut [u64], ucontext: *const c_void) -> Option<Captured> {
    let api = library::found()?;
    let mut stop = 0;
    // SAFETY: a buffer of this length, and a place for the reason; the ucontext is the caller's.
    let words = unsafe { (api.capture)(frames.as_mut_ptr(), frames.len(), ucontext, &raw mut stop) };
    Some(Captured { words, stop: StopReason::from_number(stop) })
}

impl Stack {
    /// Captures the stack of the calling thread. The first frame is the caller of this function.
    ///
    /// Frames of interpreted languages need [`setup`](crate::setup).
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    #[inline(never)]
    pub fn capture() -> Result<Stack, Error> {
        let api = library::get()?;
        let mut words = Vec::with_capacity(WORDS);
        // This function's own frame is the one that is skipped: it makes the call itself.
        let mut request = request(&mut words, 1);
        // SAFETY: a whole request, with a buffer of that capacity.
        let result = unsafe { (api.walk)(&raw mut request) };
        Error::check("uu_walk", result)?;
        Ok(filled(words, &request))
    }

    /// Captures the stack of another thread of this process (`tid`: gettid(2)), which is interrupted by a real-time
    /// signal; waits at most `limit` for it. `uu_walk_thread()` of `uu.h` says which calls are interrupted.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`] with `ESRCH` (no such thread), `ETIMEDOUT` (it did not answer),
    /// `EBUSY`, `EAGAIN`.
    ///
    /// ```
    /// uunwind::setup()?;
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let (stop, stopped) = std::sync::mpsc::channel::<()>();
    /// let thread = std::thread::spawn(move || {
    ///     // SAFETY: gettid has no preconditions.
    ///     send.send(unsafe { libc::gettid() }).unwrap();
    ///     let _ = stopped.recv();
    /// });
    /// let stack = uunwind::Stack::of_thread(receive.recv().unwrap() as u32, std::time::Duration::from_secs(60))?;
    /// assert!(stack.is_complete());
    /// drop(stop);
    /// # thread.join().unwrap();
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    pub fn of_thread(tid: u32, limit: Duration) -> Result<Stack, Error> {
        Walk::new().of_thread(tid, limit)
    }

    /// A stack as the library has written it.
    pub(crate) fn of(words: Vec<u64>, frames: u32, stop: u16, doubt: u16) -> Stack {
        Stack { words, frames, stop, doubt }
    }

    /// A stack of frame words that were kept, as from [`native`]. `None`: some are no frame's.
    ///
    /// ```
    /// use uunwind::Stack;
    /// let stack = Stack::capture()?;
    /// let kept = stack.words().to_vec(); // where a handler may not allocate, an array
    /// let again = Stack::from_words(&kept).expect("frames");
    /// assert_eq!((again.len(), again.stop()), (stack.len(), None));
    /// assert!(Stack::from_words(&[0]).is_none());
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    pub fn from_words(words: &[u64]) -> Option<Stack> {
        let mut at = 0;
        let mut frames = 0;
        while at < words.len() {
            let rest = words.get(at..)?;
            uunwind_core::frame::frames(rest).next()?;
            at += uunwind_core::frame::frame_words(*rest.first()?);
            frames += 1;
        }
        (at == words.len()).then(|| Stack { words: words.to_vec(), frames, stop: 0, doubt: 0 })
    }

    /// The frame words, leaf first (`UU_FRAME_*` of `uu.h`).
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many frames it has.
    pub fn len(&self) -> usize {
        self.frames as usize
    }

    /// Whether it has no frame.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Why the walk ended. `None`: not available, or for a reason that this crate does not know.
    pub fn stop(&self) -> Option<StopReason> {
        StopReason::from_number(self.stop)
    }

    /// Whether it reaches the frame where the thread, the program or a switched stack begins, and no frame on the way
    /// is missing or uncertain.
    pub fn is_complete(&self) -> bool {
        self.stop().is_some_and(StopReason::is_complete) && self.doubt == 0
    }

    /// A sum of [`DOUBT_FRAMES`](crate::DOUBT_FRAMES) and others; 0: nothing is missing or uncertain before the end.
    pub fn doubt(&self) -> u16 {
        self.doubt
    }

    /// A number that equal stacks share, in the library's own table; `None`: that is full
    /// ([`ids_lost`](crate::ids_lost) counts it), or the stack is empty.
    ///
    /// # Errors
    /// Those of [`load`](crate::load).
    pub fn id(&self) -> Result<Option<StackId>, Error> {
        StackId::of(&self.words)
    }

    /// The functions of its frames, with files and lines: inlined functions before the one that contains them. Reads
    /// the files of the loaded objects: for stacks that a person is to see.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`] with `ENOENT` where `uu/libuunwind-setup.so` is not beside the
    /// library.
    pub fn symbolize(&self) -> Result<Vec<Frame>, Error> {
        frame::symbolize(&self.words)
    }
}

/// A request for everything, into the unused capacity of an empty vector.
pub(crate) fn request(words: &mut Vec<u64>, skip: u32) -> Request {
    Request {
        size: size_of::<Request>() as u32,
        flags: 0,
        ucontext: std::ptr::null(),
        frames: words.as_mut_ptr(),
        capacity: words.capacity(),
        skip,
        reserved: 0,
        frame: None,
        user: std::ptr::null_mut(),
        words: 0,
        count: 0,
        stop: 0,
        doubt: 0,
    }
}

/// A limit as the library takes it.
pub(crate) fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}

/// The stack that a request has written to this vector's capacity.
pub(crate) fn filled(mut words: Vec<u64>, request: &Request) -> Stack {
    // SAFETY: the library has written that number of words, which is not above the capacity.
    unsafe { words.set_len(request.words.min(words.capacity())) };
    words.shrink_to_fit();
    Stack::of(words, request.count, request.stop, request.doubt)
}

/// The frames, numbered, each function on a line of its own, with file and line below it; and why the stack ended,
/// unless it is complete.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.symbolize() {
            Ok(frames) => frame::write(&frames, f)?,
            Err(error) => {
                writeln!(f, "  ({error})")?;
                frame::write(&frame::bare(&self.words), f)?;
            }
        }
        match self.stop() {
            Some(stop) if !stop.is_complete() => writeln!(f, "  ({})", stop.text()),
            _ if self.doubt != 0 => writeln!(f, "  (frames may be missing)"),
            _ => Ok(()),
        }
    }
}
