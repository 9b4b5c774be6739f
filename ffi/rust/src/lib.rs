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
//! Once [`load`] has succeeded, these are async-signal-safe:
//!
//! * [`native`] and [`native_interrupted`] (up to 7 KiB of stack);
//! * [`Walk::each`] and [`Walk::each_interrupted`] (8 KiB, and what their functions need);
//! * [`Client::trigger`] (8 KiB, what clients need, and the kernel's signal frame);
//! * [`steps`], [`Step`] and [`Step::describe`], whose result has 1.7 KiB;
//! * [`StackId::of`] and [`StackId::words`], [`Cookie::is_pending`], [`cancel_trigger`], [`thread_signal`],
//!   [`captures_abandoned`], [`Ticket::now`], [`Running::set_line`], [`ids_lost`], [`names_lost`], [`triggers_lost`].
//!
//! Everything else allocates or locks. The alternate signal stacks of threads that Rust's standard library has started
//! have 8 KiB or little more in all: a handler that is to walk must not run there (no `SA_ONSTACK`).
//!
//! ```text
//! stack     Stack: a whole stack of this thread, or of another one
//! walk      Walk: frame by frame, as with a cursor; which frames are wanted; CFAs; step: Step, a frame
//! describe  Description: a frame in words, in a signal handler, too
//! frame     Frame: a frame in words, with the names of native functions
//! id        StackId: a number for a stack
//! threads   the stacks of all threads; what a thread needs to have a stack overflow reported
//! window    Window: code of a JIT, registered as long as the value lives
//! replace   one set of windows instead of another, at once
//! growing   GrowingWindow: code to which functions are added
//! ticket    Ticket: when what walks read may be freed
//! unwinder  Unwinder: rules and names of a window's code by a value; held: what walks read while a window owns it
//! stepper   Stepper: steps through a window's code by a value
//! published FrameName, Running, FrameList: the frames that an interpreter shows itself; Interpreter: its code
//! plugin    requests to plugins
//! client    Client: stacks that are asked for now and taken at the next safe point
//! control   the signal by which threads are asked; captures that were left
//! crash     CrashReport: fatal signals
//! panic     a panic hook
//! recording what the program says to the `uu record` that records it
//! library   how the library is found; sys: what it exports
//! ```

mod client;
mod control;
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
mod recording;
mod replace;
mod stack;
mod step;
mod stepper;
#[doc(hidden)]
pub mod sys;
#[cfg(test)]
mod tests;
mod threads;
mod ticket;
mod unwinder;
mod walk;
mod window;

pub use client::{cancel_trigger, triggers_lost, Client, Cookie, Delivery};
pub use control::{captures_abandoned, thread_signal};
pub use crash::CrashReport;
pub use describe::{names_lost, Description};
pub use error::{Error, Failed};
pub use frame::{Frame, Kind};
pub use growing::GrowingWindow;
pub use id::{ids_lost, StackId};
pub use panic::install_panic_hook;
pub use plugin::plugin_call;
pub use published::{publish_frames, FrameList, FrameName, Interpreter, Running};
pub use recording::{label, record_start, record_stop, LABELS, LABEL_BYTES, LABEL_KEY, LABEL_VALUE};
pub use stack::{native, native_interrupted, Captured, Stack};
pub use step::{steps, Step};
pub use stepper::{Cursor, Stepped, Stepper};
pub use threads::{all_threads, prepare_thread, Thread};
pub use ticket::Ticket;
pub use unwinder::{Function, Rule, Unwinder};
pub use uunwind_core::stop_reason::StopReason;
pub use walk::{Ended, Steps, Walk};
pub use window::{Unwind, Window, WindowBuilder};

/// A doubt about a stack: a plugin reported missing or uncertain frames, failed, or is off.
pub const DOUBT_FRAMES: u16 = 1;
/// A doubt: an object in the stack was not seen by [`setup`]: it may be an interpreter.
pub const DOUBT_SETUP_DUE: u16 = 2;
/// A doubt: a plugin was not called, because nothing would contain its faults ([`handle_faults`],
/// [`Walk::trusting_plugins`]).
pub const DOUBT_PLUGIN_NOT_CALLED: u16 = 4;

/// Opens the library, if that has not been done. Thread-safe; not async-signal-safe.
///
/// ```
/// uunwind::load()?;
/// # Ok::<(), uunwind::Error>(())
/// ```
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
/// ```
/// uunwind::setup()?;
/// // SAFETY: nothing here blocks these signals or installs handlers for them.
/// unsafe { uunwind::handle_faults()? };
/// assert!(uunwind::Stack::capture()?.is_complete());
/// # Ok::<(), uunwind::Error>(())
/// ```
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
