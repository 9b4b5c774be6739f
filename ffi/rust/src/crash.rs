//! Reports of crashes.

use crate::sys::{CRASH_FIRST, CRASH_JSON, CRASH_ONE_THREAD};
use crate::{library, Error};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// How crashes are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// JSON lines instead of text.
    pub json: bool,
    /// Before handlers that the program had installed are called: also faults that they mend.
    pub before_handlers: bool,
    /// Only the thread that crashed.
    pub one_thread: bool,
}

/// Our own descriptor of the destination, which the library writes to. The lock is held from before the library learns
/// of a destination until the one before is closed, so that two threads cannot close each other's. It is never waited
/// for: the child of a fork could find it held.
static DESTINATION: Mutex<Option<OwnedFd>> = Mutex::new(None);

impl CrashReport {
    /// Text, all threads, after the handlers that the program has installed.
    pub fn new() -> CrashReport {
        CrashReport::default()
    }

    /// `UU_CRASH_*`.
    fn flags(self) -> u32 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.json, CRASH_JSON) | flag(self.before_handlers, CRASH_FIRST) | flag(self.one_thread, CRASH_ONE_THREAD)
    }

    /// From now on a fatal signal is reported there: the signal, registers, the whole stacks of the thread that crashed
    /// and of the others, the objects with their build-ids. Then the process ends by the same signal
    /// (`uu_report_crashes()` of `uu.h`). Rust's own handler of stack overflows stays. A later call replaces the
    /// destination. Frames of languages need [`setup`](crate::setup).
    ///
    /// The file is duplicated: `to` may be closed.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`]: `EBADF` (not open for writing), `ENOMEM`, `EIO`,
    /// `EBUSY` (another thread is in one of these calls, or was when this process was forked).
    ///
    /// ```
    /// uunwind::CrashReport::new().to(&std::io::stderr())?;
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    pub fn to(self, to: &impl AsFd) -> Result<(), Error> {
        let api = library::get()?;
        let copied = to.as_fd().try_clone_to_owned();
        let failed = |e: std::io::Error| Error::Os { call: "fcntl", errno: e.raw_os_error().unwrap_or(libc::EIO) };
        let copy = copied.map_err(failed)?;
        // SAFETY: an open descriptor, which stays open if this succeeds.
        let result = || unsafe { (api.report_crashes)(copy.as_raw_fd(), self.flags()) };
        replace("uu_report_crashes", result)?.replace(copy);
        Ok(())
    }

    /// As [`to`](CrashReport::to), to a file that is made, or appended to, when a crash comes. Each `%p` in its path
    /// becomes the process id.
    ///
    /// ```
    /// use uunwind::CrashReport;
    /// let json = CrashReport { json: true, ..CrashReport::new() };
    /// json.to_path(&std::env::temp_dir().join("crash-%p.json"))?;
    /// CrashReport::end()?; // no reports any more
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`to`](CrashReport::to), and of `uu_report_crashes_to()` of `uu.h`; `EINVAL`: there is a NUL in the
    /// path.
    pub fn to_path(self, path: &Path) -> Result<(), Error> {
        let api = library::get()?;
        let call = "uu_report_crashes_to";
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Os { call, errno: libc::EINVAL })?;
        // SAFETY: a NUL-terminated path, which the library copies.
        let result = || unsafe { (api.report_crashes_to)(path.as_ptr(), self.flags()) };
        replace(call, result)?.take();
        Ok(())
    }

    /// No reports any more.
    ///
    /// # Errors
    /// Those of [`to`](CrashReport::to).
    pub fn end() -> Result<(), Error> {
        let api = library::get()?;
        // SAFETY: -1 ends the reports.
        replace("uu_report_crashes", || unsafe { (api.report_crashes)(-1, 0) })?.take();
        Ok(())
    }
}

/// Calls the library, and returns the place of our descriptor for it, to be replaced by the new one, or taken.
fn replace(
    call: &'static str,
    library: impl FnOnce() -> std::ffi::c_int,
) -> Result<MutexGuard<'static, Option<OwnedFd>>, Error> {
    let destination = match DESTINATION.try_lock() {
        Ok(destination) => destination,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Error::Os { call, errno: libc::EBUSY }),
    };
    Error::check(call, library())?;
    Ok(destination)
}
