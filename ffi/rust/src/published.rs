//! Interpreters that show their frames themselves, without a plugin: their code is marked, their functions have names,
//! and each thread has a list of the frames that run.

use crate::held::Held;
use crate::sys::{Api, FrameRecord};
use crate::{library, Error};
use std::cell::Cell;
use std::ffi::{c_void, CString};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Code of an interpreter whose frames are published, marked until the value is dropped: its native frames are shown
/// to be the interpreter's, and host the frames that [`FrameName::run`] publishes inside them. A value that is
/// forgotten ([`std::mem::forget`]) marks the code until the process ends: then its object must not be unloaded.
///
/// In [`FrameName::run`] is an example.
#[derive(Debug)]
pub struct Interpreter {
    /// Address of the first byte.
    text: usize,
}

/// A function of an interpreted language, with the place where it is defined, for ever.
///
/// ```
/// use uunwind::FrameName;
/// let main = FrameName::intern("main", "prog.lang", 12)?;
/// assert_eq!(main, FrameName::intern("main", "prog.lang", 12)?);
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameName(NonZeroU32);

/// A frame that runs: see [`FrameName::run`].
#[derive(Debug)]
pub struct Running(FrameRecord);

/// A list of frames beside the threads' own: for a coroutine with a stack of its own, whose frames the thread must not
/// show while another one runs. Its place does not change when the value is moved.
///
/// ```
/// use uunwind::{FrameList, FrameName};
///
/// let list = FrameList::new();
/// // SAFETY: nothing runs in the list when the thread has its own again.
/// unsafe { list.publish()? }; // the thread switches to the coroutine
/// FrameName::intern("body", "prog.lang", 1)?.run(2, |_| { /* the coroutine's own code */ });
/// uunwind::publish_frames()?; // and back
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Debug)]
pub struct FrameList {
    /// The innermost frame that runs; null: none.
    head: Held<AtomicPtr<FrameRecord>>,
}

/// The calling thread's list, and which one is published.
struct Lists {
    own: FrameList,
    /// Head of the list that frames go to; null: the thread's own, which is not published so far.
    current: Cell<*const AtomicPtr<FrameRecord>>,
}

thread_local! {
    static LISTS: Lists = Lists { own: FrameList::new(), current: Cell::new(std::ptr::null()) };
}

impl Interpreter {
    /// Marks the whole function that begins at this address, by its unwind information. It must not be inlined
    /// elsewhere; what the compiler moved out of it, such as a cold part, is not marked.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`]: `EINVAL` (null), `ENOENT` (no function with unwind information
    /// begins there), `EEXIST` (it overlaps marked code), `ENOMEM` (64 ranges are marked).
    pub fn mark(function: *const ()) -> Result<Interpreter, Error> {
        Interpreter::of(function, 0)
    }

    /// Marks code of this length in bytes, which must lie in one loaded object.
    ///
    /// ```
    /// fn evaluate() {}
    /// let code = uunwind::Interpreter::mark_range(evaluate as *const (), 1)?;
    /// drop(code); // before its object is unloaded
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`]: `EINVAL` (null, or the range is empty or wraps around), `ENOENT`
    /// (it does not lie in one loaded object: code made at run time is registered as a [`Window`](crate::Window)),
    /// `EEXIST` (it overlaps marked code), `ENOMEM` (64 ranges are marked).
    pub fn mark_range(text: *const (), len: usize) -> Result<Interpreter, Error> {
        if len == 0 {
            return Err(Error::Os { call: "uu_mark_interpreter", errno: libc::EINVAL });
        }
        Interpreter::of(text, len)
    }

    fn of(text: *const (), len: usize) -> Result<Interpreter, Error> {
        // SAFETY: the function checks the range.
        let result = unsafe { (library::get()?.mark_interpreter)(text.cast(), len) };
        Error::check("uu_mark_interpreter", result).map(|()| Interpreter { text: text as usize })
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        if let Some(api) = library::found() {
            // SAFETY: the function has no preconditions.
            unsafe { (api.unmark_interpreter)(self.text as *const c_void) };
        }
    }
}

impl FrameName {
    /// The name of a function that begins in this line of the file. Equal arguments give equal names. Texts are cut
    /// after 1,024 bytes. Allocates.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`] with `EINVAL`: a text contains a NUL; `ENOMEM`: there are
    /// 1,048,576 names, or there is no memory.
    pub fn intern(function: &str, file: &str, first_line: u32) -> Result<FrameName, Error> {
        let failed = |errno| Error::Os { call: "uu_intern", errno };
        let text = |text: &str| CString::new(text).map_err(|_| failed(libc::EINVAL));
        let (function, file) = (text(function)?, text(file)?);
        // SAFETY: two NUL-terminated texts, which are copied.
        let name = unsafe { (library::get()?.intern)(function.as_ptr(), file.as_ptr(), first_line) };
        NonZeroU32::new(name).map(FrameName).ok_or(failed(libc::ENOMEM))
    }

    /// Runs `then` as a frame of this function, which executes this line. Until it returns or panics, stacks of this
    /// thread have the frame before the native frame of the function that calls this, which must be marked code. While
    /// nobody walks, this costs a few stores. Without a place for the thread's list, `then` runs all the same: see
    /// [`publish_frames`].
    ///
    /// The frames of a list end in the reverse order of their beginning. Where `then` may be suspended (a coroutine
    /// with a stack of its own) while other frames begin and end, each coroutine needs a [`FrameList`].
    ///
    /// ```
    /// use uunwind::{FrameName, Interpreter, Kind, Stack};
    ///
    /// /// The loop of an interpreter, which calls itself for each function of the language.
    /// #[inline(never)]
    /// fn evaluate(functions: &[FrameName]) -> Result<Stack, uunwind::Error> {
    ///     let Some((function, callees)) = functions.split_first() else { return Stack::capture() };
    ///     function.run(20, |frame| {
    ///         frame.set_line(21);
    ///         evaluate(callees)
    ///     })
    /// }
    ///
    /// let _code = Interpreter::mark(evaluate as *const ())?;
    /// let (main, helper) = (FrameName::intern("main", "prog.lang", 1)?, FrameName::intern("helper", "prog.lang", 9)?);
    /// let frames = evaluate(&[main, helper])?.symbolize()?;
    /// let shown = frames.iter().filter(|frame| frame.kind == Kind::Semantic);
    /// let shown: Vec<_> = shown.map(|frame| (&*frame.function, frame.line)).collect();
    /// assert_eq!(shown, [("helper", Some(21)), ("main", Some(21))]);
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    // Inlined, so that the record lies in the caller's native frame.
    #[inline(always)]
    pub fn run<T>(self, line: u32, then: impl FnOnce(&Running) -> T) -> T {
        let (outer, activation) = (std::ptr::null_mut(), std::ptr::null());
        let mut frame = Running(FrameRecord { outer, activation, name: self.0.get(), line: AtomicU32::new(line) });
        let _pushed = Pushed::of(&raw mut frame.0);
        then(&frame)
    }
}

impl Running {
    /// Sets the line that executes. Async-signal-safe.
    #[inline(always)]
    pub fn set_line(&self, line: u32) {
        self.0.line.store(line, Ordering::Relaxed);
    }
}

/// Gives the calling thread its list of frames, which [`FrameName::run`] else does at its first call in a thread, and
/// says whether there is one. It ends with the thread. It takes the place of a [`FrameList`], and of what was published
/// from C: a thread has one list at a time, and `uu_publish_frames()` of `uu.h` does not say which was there before.
///
/// ```
/// uunwind::publish_frames()?;
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `ENOMEM`: there is no place for this thread; `ESRCH`: the thread
/// is ending.
pub fn publish_frames() -> Result<(), Error> {
    let api = library::get()?;
    // SAFETY: the thread's own list is withdrawn before it is freed.
    with_lists(|lists| unsafe { lists.publish(api, lists.own.head.get()) })
}

fn with_lists(publish: impl FnOnce(&Lists) -> Result<(), Error>) -> Result<(), Error> {
    let ending = Error::Os { call: "uu_publish_frames", errno: libc::ESRCH };
    LISTS.try_with(publish).unwrap_or(Err(ending))
}

impl FrameList {
    /// An empty list, which is not published.
    pub fn new() -> FrameList {
        FrameList { head: Held::of(Box::new(AtomicPtr::new(std::ptr::null_mut()))) }
    }

    /// From now on the calling thread shows the frames of this list, and [`FrameName::run`] adds to it, until another
    /// one is published. A frame that runs already stays in its list. Allocates only at the thread's first call.
    ///
    /// # Errors
    /// As [`publish_frames`].
    ///
    /// # Safety
    /// The list must live until another one is published in this thread, or the thread has ended, and until each
    /// [`FrameName::run`] that has begun while it was published has returned. One thread at a time may have it.
    pub unsafe fn publish(&self) -> Result<(), Error> {
        let api = library::get()?;
        // SAFETY: the caller's.
        with_lists(|lists| unsafe { lists.publish(api, self.head.get()) })
    }
}

impl Default for FrameList {
    fn default() -> FrameList {
        FrameList::new()
    }
}

impl Lists {
    /// The head that a frame is added to.
    #[inline]
    fn head(&self) -> *const AtomicPtr<FrameRecord> {
        let current = self.current.get();
        if !current.is_null() {
            return current;
        }
        self.first()
    }

    /// The thread's own, which is published if that is possible. Else it is kept all the same, for nobody.
    #[cold]
    fn first(&self) -> *const AtomicPtr<FrameRecord> {
        let own = self.own.head.get();
        if let Some(api) = library::found() {
            // SAFETY: the thread's own list is withdrawn before it is freed.
            let _ = unsafe { self.publish(api, own) };
        }
        own
    }

    /// # Safety
    /// The head must live until another one is published, or null is.
    unsafe fn publish(&self, api: &Api, head: *const AtomicPtr<FrameRecord>) -> Result<(), Error> {
        // SAFETY: the caller's. What it leads to is taken out of the list before it ends.
        Error::check("uu_publish_frames", unsafe { (api.publish_frames)(head) })?;
        self.current.set(head);
        Ok(())
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        if let Some(api) = library::found().filter(|_| !self.current.get().is_null()) {
            // SAFETY: null withdraws the list.
            let _ = unsafe { self.publish(api, std::ptr::null()) };
        }
    }
}

/// A record in the thread's list, until this is dropped.
struct Pushed {
    record: *const FrameRecord,
    /// The list's; `None`: the thread is ending, and has none any more.
    head: Option<*const AtomicPtr<FrameRecord>>,
}

impl Pushed {
    fn of(record: *mut FrameRecord) -> Pushed {
        let head = LISTS.try_with(|lists| {
            let head = lists.head();
            // SAFETY: the caller's record, which is not shared yet; and a list that lives.
            unsafe {
                (*record).outer = (*head).load(Ordering::Relaxed);
                (*record).activation = record.cast();
                // It stands whole before a handler of this thread can see it.
                (*head).store(record, Ordering::Release);
            }
            head
        });
        Pushed { record, head: head.ok() }
    }
}

impl Drop for Pushed {
    #[inline]
    fn drop(&mut self) {
        if let Some(head) = self.head {
            // SAFETY: the record lives as long as this; the list too, by the contract of its publication, or as
            // long as the thread, as this function runs in it before its thread-locals end, or a destructor of one of
            // them runs it whole.
            unsafe { (*head).store((*self.record).outer, Ordering::Release) };
            // What is written to the record's place next stays after that.
            std::sync::atomic::compiler_fence(Ordering::Release);
        }
    }
}
