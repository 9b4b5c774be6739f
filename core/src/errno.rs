//! Linux's error numbers, of which x86-64 and AArch64 have the same
//! (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/errno-base.h>, `errno.h`): this crate links no
//! libc.

use core::ops::Neg;

/// An error number, positive; negated, it is what functions of the C interface and system calls return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Neg for Errno {
    type Output = i32;

    fn neg(self) -> i32 {
        -self.0
    }
}

/// There is no such object, window or plugin.
pub const ENOENT: Errno = Errno(2);
/// There is no such thread.
pub const ESRCH: Errno = Errno(3);
/// No open file, or not one for writing.
pub const EBADF: Errno = Errno(9);
/// No answer yet, or a limit of the kernel's; asking again may help.
pub const EAGAIN: Errno = Errno(11);
/// The kernel does not report what is needed.
pub const EIO: Errno = Errno(5);
/// Bytes are not what this build expects: a library of another build, or no plugin's table.
pub const ENOEXEC: Errno = Errno(8);
/// The kernel gives no memory, or a table has reached its limit.
pub const ENOMEM: Errno = Errno(12);
/// In use: by a walk that may still read it, or by another thread.
pub const EBUSY: Errno = Errno(16);
/// There is one in this place already.
pub const EEXIST: Errno = Errno(17);
/// There is no room for one more.
pub const ENOSPC: Errno = Errno(28);
/// An argument has an invalid value.
pub const EINVAL: Errno = Errno(22);
/// The call came from inside a walk, or from a handler that interrupted a registry call of the same thread.
pub const EDEADLK: Errno = Errno(35);
/// A path or a text is longer than the buffer for it.
pub const ENAMETOOLONG: Errno = Errno(36);
/// There is no such function.
pub const ENOSYS: Errno = Errno(38);
/// The library does not support this kind.
pub const ENOTSUP: Errno = Errno(95);
/// A text is not UTF-8.
pub const EILSEQ: Errno = Errno(84);
/// Nobody records the process or the thread.
pub const ENOTCONN: Errno = Errno(107);
/// Walks did not end in time.
pub const ETIMEDOUT: Errno = Errno(110);
