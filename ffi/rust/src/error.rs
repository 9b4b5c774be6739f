//! What can go wrong.

use std::ffi::c_int;
use std::fmt;

/// Why a function of this crate did nothing.
///
/// ```
/// use uunwind::{Error, Window, Unwind};
/// match Window::of(Vec::new(), Unwind::Opaque).register().map_err(Error::from) {
///     Err(Error::Os { call, errno: libc::EINVAL }) => assert_eq!(call, "uu_register_window"),
///     Err(Error::NoLibrary(why)) => println!("stacks are not available: {why}"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `libuunwind.so.0` cannot be opened. The dynamic loader's reason.
    NoLibrary(String),
    /// The library that is there has another interface: its `uu_abi()`.
    Version(u32),
    /// The library that is there is older than this crate: it lacks a function.
    Missing(&'static str),
    /// A function of the library failed.
    Os {
        /// Its name in `uu.h`, which documents its errors.
        call: &'static str,
        /// The error number (errno.h), positive.
        errno: i32,
    },
}

impl Error {
    /// The error of a call that returned a negative errno.
    pub(crate) fn os(call: &'static str, result: c_int) -> Error {
        Error::Os { call, errno: result.wrapping_neg() }
    }

    /// An error, if the result is one.
    pub(crate) fn check(call: &'static str, result: c_int) -> Result<(), Error> {
        if result < 0 {
            Err(Error::os(call, result))
        } else {
            Ok(())
        }
    }
}

/// What a call that failed gives back, and why it failed. `?` makes an [`Error`] of it, and drops what came back.
///
/// ```
/// use uunwind::{Unwind, Window};
/// let code: &'static [u8] = &[0xc3; 16];
/// let first = Window::of(code, Unwind::Opaque).register()?;
/// let failed = Window::of(code, Unwind::FramePointer).register().err().expect("they overlap");
/// drop(first);
/// let window = failed.value.register()?; // the same builder, once there is room for it
/// # Ok::<(), uunwind::Error>(())
/// ```
pub struct Failed<T> {
    /// What the call was made with. Nothing has happened to it, unless the function says so.
    pub value: T,
    /// Why.
    pub error: Error,
}

impl<T> Failed<T> {
    pub(crate) fn with(value: T, error: Error) -> Box<Failed<T>> {
        Box::new(Failed { value, error })
    }
}

impl<T> From<Box<Failed<T>>> for Error {
    fn from(failed: Box<Failed<T>>) -> Error {
        failed.error
    }
}

/// Without the value, which need not be printable.
impl<T> fmt::Debug for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for Failed<T> {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoLibrary(why) => write!(
                f,
                "libuunwind.so.0 cannot be opened: {why}; install it, or set UUNWIND_LIBRARY to its path"
            ),
            Error::Version(abi) => write!(
                f,
                "libuunwind.so.0 has interface {abi}, this program was made for {}; install the version that it was made for",
                crate::sys::ABI
            ),
            Error::Missing(name) => {
                write!(f, "libuunwind.so.0 has no {name}; install a version as new as the crate uunwind")
            }
            Error::Os { call, errno } => {
                write!(f, "{call} failed: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}
