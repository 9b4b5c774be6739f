//! How a process gets its session that cannot open the recorder's files in `/proc`: it lives in another [pid
//! namespace](https://man7.org/linux/man-pages/man7/pid_namespaces.7.html) or [user
//! namespace](https://man7.org/linux/man-pages/man7/user_namespaces.7.html).
//!
//! It connects to a socket of the recorder's with an abstract name
//! ([unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)), which no root directory and no mount hides, sends a
//! [`Request`], and gets an [`Answer`]. The kernel tells the recorder which process has connected, by its id where the
//! recorder lives.
//!
//! The environment ([`crate::ENV_SOCKET`]) has `<name>:<secret>:<filters>`: the socket's name without its [`PREFIX`],
//! the secret that a request begins with, in the hexadecimal digits that are sent, and how many filters of system calls
//! the recorder itself runs under.

/// What the socket's name begins with, after its zero byte.
pub const PREFIX: [u8; 3] = *b"uu-";
/// Bytes of the rest of its name.
pub const NAME: usize = 16;
/// Bytes of the secret.
pub const SECRET: usize = 32;

/// What a process asks for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    /// As the environment has it.
    pub secret: [u8; SECRET],
    /// [`FILES`] or [`IDS`].
    pub what: u32,
}

/// [`Request::what`]: its ids, and the files of the session and of the facts, in this order (SCM_RIGHTS).
pub const FILES: u32 = 1;
/// [`Request::what`]: its ids alone.
pub const IDS: u32 = 2;

/// What the recorder answers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Answer {
    /// The process's id where the recorder lives.
    pub pid: u32,
    /// Its parent's id there; 0: it has none.
    pub parent: u32,
}
