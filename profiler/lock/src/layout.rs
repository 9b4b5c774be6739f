//! What is known of locks: where glibc keeps who has them, and which operations of futex(2) wait.

/// Offset of `__owner` in a `pthread_mutex_t`, and of `__cur_writer` in a `pthread_rwlock_t`, in bytes
/// ([struct_mutex.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_mutex.h;hb=refs/tags/glibc-2.39),
/// [struct_rwlock.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_rwlock.h;hb=refs/tags/glibc-2.39)).
pub const OWNER: usize = 8;
/// See `OWNER`.
pub const WRITER: usize = 24;

/// Whether this operation of futex(2) waits until somebody wakes the thread
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h>). Those with priority inheritance are left
/// out, as no such lock is made by way of syscall(2).
pub fn waits(operation: u32) -> bool {
    /// The operation, without its flags.
    const COMMAND: u32 = 0x7f;
    const WAIT: u32 = 0;
    const WAIT_BITSET: u32 = 9;
    matches!(operation & COMMAND, WAIT | WAIT_BITSET)
}

/// Whether such a call, which has failed with this error, has waited before. Any other one says that it has not, such
/// as EAGAIN: the word had changed.
pub fn has_waited(errno: i32) -> bool {
    matches!(errno, libc::ETIMEDOUT | libc::EINTR)
}
