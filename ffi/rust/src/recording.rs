//! What a program says to the `uu record` that records it.

use crate::{library, Error};
use std::ffi::{c_char, c_int, CString};

pub use crate::sys::{LABELS, LABEL_BYTES, LABEL_KEY, LABEL_VALUE};

/// Where nothing records the process, a call does nothing: it has no library either, or nobody to tell.
fn done(call: &'static str, result: c_int) -> Result<bool, Error> {
    match result {
        result if result == -libc::ENOTCONN => Ok(false),
        result => Error::check(call, result).map(|()| true),
    }
}

/// Resumes the recording of this process by `uu record`: begins it, where that was started with `--start-paused`.
/// False: nothing records it. Async-signal-safe once [`load`](crate::load) has succeeded.
///
/// ```
/// // Nothing records this program.
/// assert!(!uunwind::record_start()?);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `ENOTSUP`: perf events time the samples.
pub fn record_start() -> Result<bool, Error> {
    // SAFETY: it has no preconditions.
    done("uu_record_start", unsafe { (library::get()?.record_start)() })
}

/// Pauses the recording of this process until [`record_start`] or `uu resume`. False: nothing records it.
/// Async-signal-safe once [`load`](crate::load) has succeeded.
///
/// ```
/// assert!(!uunwind::record_stop()?);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// As [`record_start`].
pub fn record_stop() -> Result<bool, Error> {
    // SAFETY: it has no preconditions.
    done("uu_record_stop", unsafe { (library::get()?.record_stop)() })
}

/// From now on, each sample of the calling thread has this label; without a value, none with this key. At most
/// [`LABELS`], keys of [`LABEL_KEY`] and values of [`LABEL_VALUE`] bytes, and [`LABEL_BYTES`] in all, with 2 for each.
/// False: nothing records the process. Allocates.
///
/// ```
/// assert!(!uunwind::label("request", Some("/index"))?);
/// assert!(!uunwind::label("request", None)?);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load); [`Error::Os`] with `EINVAL`: the key is empty, or one of both has a NUL;
/// `ENAMETOOLONG`: one of both is too long; `ENOSPC`: it is one label too many, or too much text.
pub fn label(key: &str, value: Option<&str>) -> Result<bool, Error> {
    let nul = |_| Error::Os { call: "uu_label_set", errno: libc::EINVAL };
    let (key, value) = (CString::new(key).map_err(nul)?, value.map(CString::new).transpose().map_err(nul)?);
    let value: *const c_char = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
    // SAFETY: NUL-terminated, or null.
    done("uu_label_set", unsafe { (library::get()?.label_set)(key.as_ptr(), value) })
}
