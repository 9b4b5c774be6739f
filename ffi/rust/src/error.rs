//! What can go wrong.

use std::ffi::c_int;
use std::fmt;

/// Why a function of this crate did nothing.
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
