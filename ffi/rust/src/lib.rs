//! Stacks of native, interpreted and JIT-compiled code, taken from inside the program: `libuunwind.so.0` for Rust.
//!
//! ```
//! fn work() -> Result<uunwind::Stack, uunwind::Error> {
//!     uunwind::Stack::capture()
//! }
//!
//! uunwind::setup()?; // finds the interpreters of this process; without it their frames are native ones
//! let stack = work()?;
//! assert!(stack.is_complete());
//! let frames = stack.symbolize()?;
//! assert!(frames.iter().any(|frame| frame.function.ends_with("work")));
//! println!("{stack}"); // the same, with a line for each file
//! # Ok::<(), uunwind::Error>(())
//! ```
//!
//! # The library
//!
//! A process has one registry of code: that of `libuunwind.so.0`. This crate is linked with none of it: it opens the
//! library when it is first needed, and finds it, in this order,
//!
//! 1. in the process, if the program is linked with it, is recorded, or anything else has opened it;
//! 2. at the path in `UUNWIND_LIBRARY`, unless the program is set-user-ID or the like;
//! 3. where the dynamic loader looks for `libuunwind.so.0` (rpath, `LD_LIBRARY_PATH`, system folders).
//!
//! Where it is not there, every function returns [`Error::NoLibrary`] with the loader's reason, and does nothing; it is
//! looked for again at the next call. [`load`] asks for it beforehand.
//!
//! # Signal handlers
//!
//! [`native`], [`Walk::each`] and [`Walk::each_interrupted`] are async-signal-safe once [`load`] has succeeded, and so
//! are [`Step::describe`], [`Client::trigger`], [`Cookie::is_pending`], [`cancel_trigger`] and [`Running::set_line`].
//! Everything else allocates or locks.
//!
//! ```text
//! stack     Stack: a whole stack of this thread, or of another one
//! walk      Walk, Step: frame by frame, as with a cursor; which frames are wanted; CFAs
//! describe  Description: a frame in words, in a signal handler, too
//! frame     Frame: a frame in words, with the names of native functions
//! id        StackId: a number for a stack
//! threads   the stacks of all threads; what a thread needs to have a stack overflow reported
//! window    Window: code of a JIT, registered as long as the value lives
//! replace   one set of windows instead of another, at once
//! growing   GrowingWindow: code to which functions are added
//! unwinder  Unwinder: rules and names of a window's code by a value; held: what walks read while a window owns it
//! published FrameName, Running: the frames that an interpreter shows itself; Interpreter: its code
//! plugin    requests to plugins
//! client    Client: stacks that are asked for now and taken at the next safe point
//! crash     CrashReport: fatal signals
//! panic     a panic hook
//! library   how the library is found; sys: what it exports
//! ```

mod client;
mod crash;
mod describe;
mod error;
mod frame;
mod growing;
mod held;
mod id;
mod library;
mod panic;
mod plugin;
mod published;
mod replace;
mod stack;
#[doc(hidden)]
pub mod sys;
mod threads;
mod unwinder;
mod walk;
mod window;

pub use client::{cancel_trigger, triggers_lost, Client, Cookie, Delivery};
pub use crash::CrashReport;
pub use describe::Description;
pub use error::Error;
pub use frame::{Frame, Kind};
pub use growing::GrowingWindow;
pub use id::{ids_lost, StackId};
pub use panic::install_panic_hook;
pub use plugin::plugin_call;
pub use published::{publish_frames, FrameName, Interpreter, Running};
pub use stack::{native, Captured, Stack};
pub use threads::{all_threads, prepare_thread, Thread};
pub use unwinder::{Function, Rule, Unwinder};
pub use uunwind_core::stop_reason::StopReason;
pub use walk::{Ended, Step, Steps, Walk};
pub use window::{Unwind, Window, WindowBuilder};

/// Opens the library, if that has not been done. Thread-safe; not async-signal-safe.
///
/// # Errors
/// [`Error::NoLibrary`], [`Error::Version`], [`Error::Missing`].
pub fn load() -> Result<(), Error> {
    library::get().map(|_| ())
}

/// Prepares the process for walks: reads the files of all loaded objects, makes tables of their unwind rules, opens
/// plugins and finds the interpreters that are loaded (`uu_setup()` of `uu.h`). Milliseconds for each large object that
/// is new; what is there is not done again. Call it again after an interpreter was loaded. Returns how many objects
/// have a table.
///
/// # Errors
/// Those of [`load`]; [`Error::Os`] with `ENOENT` where `uu/libuunwind-setup.so` is not beside the library.
///
/// ```
/// assert!(uunwind::setup()? > 0);
/// # Ok::<(), uunwind::Error>(())
/// ```
pub fn setup() -> Result<usize, Error> {
    // SAFETY: uu_setup has no preconditions.
    let tables = unsafe { (library::get()?.setup)() };
    usize::try_from(tables).map_err(|_| Error::os("uu_setup", tables))
}

/// As [`setup`], and once more by itself when a walk meets an object that was loaded since: a thread of this process
/// sleeps until then, with all signals blocked (`uu_setup_with()` of `uu.h`). The child of a fork has to call it again.
///
/// # Errors
/// Those of [`setup`]; [`Error::Os`] with `EAGAIN`: there is no such thread.
///
/// ```
/// assert!(uunwind::setup_by_itself()? > 0);
/// # Ok::<(), uunwind::Error>(())
/// ```
pub fn setup_by_itself() -> Result<usize, Error> {
    // SAFETY: uu_setup_with has no preconditions.
    let tables = unsafe { (library::get()?.setup_with)(sys::SETUP_BY_ITSELF) };
    usize::try_from(tables).map_err(|_| Error::os("uu_setup_with", tables))
}

/// Makes walks faster: the library takes SIGSEGV and SIGBUS over, so that memory need not be asked for before it is
/// read (`uu_handle_faults()` of `uu.h`).
///
/// # Errors
/// Those of [`load`]; [`Error::Os`]: `EBUSY`, `EIO`.
///
/// # Safety
/// From then on every walk must be made with both signals unblocked, and a handler that is installed for one of them
/// later must chain to the one that it replaced.
pub unsafe fn handle_faults() -> Result<(), Error> {
    // SAFETY: what is asked for is the caller's.
    let result = unsafe { (library::get()?.handle_faults)() };
    Error::check("uu_handle_faults", result)
}
