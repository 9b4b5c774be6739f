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

/// The calling thread's list.
struct List {
    /// The innermost frame that runs; null: none.
    head: Held<AtomicPtr<FrameRecord>>,
    is_published: Cell<bool>,
}

thread_local! {
    static LIST: List = List {
        head: Held::of(Box::new(AtomicPtr::new(std::ptr::null_mut()))),
        is_published: Cell::new(false),
    };
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
    /// # Errors
    /// As [`mark`](Self::mark); also `EINVAL`: the range is empty or wraps around.
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
/// says whether there is one. It ends with the thread.
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
    let failed = Error::Os { call: "uu_publish_frames", errno: libc::ESRCH };
    library::get()?;
    LIST.try_with(List::publish).unwrap_or(Err(failed))
}

impl List {
    /// Not before the library has been found.
    fn publish(&self) -> Result<(), Error> {
        if self.is_published.get() {
            return Ok(());
        }
        let Some(api) = library::found() else { return Ok(()) };
        self.set(api, self.head.address().cast())?;
        self.is_published.set(true);
        Ok(())
    }

    fn set(&self, api: &Api, head: *const AtomicPtr<FrameRecord>) -> Result<(), Error> {
        // SAFETY: null, or the head of this thread's list, which is withdrawn before it is freed. What it leads to is
        // taken out of the list before it ends.
        Error::check("uu_publish_frames", unsafe { (api.publish_frames)(head) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(api) = library::found().filter(|_| self.is_published.get()) {
            let _ = self.set(api, std::ptr::null());
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
        let head = LIST.try_with(|list| {
            // Without a place for it, the list is kept all the same, for nobody.
            let _ = list.publish();
            let head = list.head.get();
            // SAFETY: the caller's record, which is not shared yet.
            unsafe {
                (*record).outer = head.load(Ordering::Relaxed);
                (*record).activation = record.cast();
            }
            // It stands whole before a handler of this thread can see it.
            head.store(record, Ordering::Release);
            std::ptr::from_ref(head)
        });
        Pushed { record, head: head.ok() }
    }
}

impl Drop for Pushed {
    #[inline]
    fn drop(&mut self) {
        if let Some(head) = self.head {
            // SAFETY: the record lives as long as this; the list as long as the thread, as this function runs in it
            // before its thread-locals end, or a destructor of one of them runs it whole.
            unsafe { (*head).store((*self.record).outer, Ordering::Release) };
            // What is written to the record's place next stays after that.
            std::sync::atomic::compiler_fence(Ordering::Release);
        }
    }
}
