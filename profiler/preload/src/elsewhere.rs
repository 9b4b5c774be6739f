//! The recorder of a process that cannot open its files in `/proc`: it is asked through a socket
//! ([`uunwind_ring::elsewhere`]). By system calls, since the child of a fork asks, too.
//!
//! A [filter of system calls](https://man7.org/linux/man-pages/man2/seccomp.2.html) may end a program that makes a
//! socket: a process that runs under more filters than the recorder asks for nothing.

use crate::process::Outer;
use core::mem::size_of;
use uunwind_core::syscall::{self, nr};
use uunwind_ring::elsewhere::{Answer, Request, FILES, IDS, NAME, PREFIX, SECRET};

/// The longest time that a process waits for the recorder, in seconds; that one answers at once, unless it is stopped.
const PATIENCE: i64 = 5;
/// A call that a signal interrupts is made again, at most this number of times.
const INTERRUPTED: usize = 100;
/// Bytes of a process's status that are read at once.
const STATUS: usize = 4096;

/// How the recorder is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    name: [u8; NAME],
    secret: [u8; SECRET],
    /// Number of filters that the recorder runs under.
    filters: u32,
}

/// Descriptors of the session and of the facts, which are this process's own.
pub struct Files {
    pub session: usize,
    pub facts: usize,
}

impl Files {
    /// Closes both.
    pub fn close(self) {
        close(self.session);
        close(self.facts);
    }
}

impl Socket {
    /// Parses what the environment has ([`uunwind_ring::ENV_SOCKET`]).
    pub fn parse(text: &[u8]) -> Option<Socket> {
        let mut parts = text.split(|byte| *byte == b':');
        let (name, secret) = (parts.next()?.try_into().ok()?, parts.next()?.try_into().ok()?);
        let filters = number(parts.next()?)?;
        parts.next().is_none().then_some(Socket { name, secret, filters })
    }

    /// The process as the recorder sees it, with the recorder's files. `None`: the recorder cannot be reached from here
    /// (another network namespace), is over, or refuses; or the process may not ask.
    pub fn ask_for_files(&self) -> Option<(Outer, Files)> {
        let (outer, [session, facts]) = self.ask(FILES)?;
        let number = |fd: i32| usize::try_from(fd).ok();
        match (number(session), number(facts)) {
            (Some(session), Some(facts)) => Some((outer, Files { session, facts })),
            (one, other) => {
                one.into_iter().chain(other).for_each(close);
                None
            }
        }
    }

    /// The process as the recorder sees it. Async-signal-safe.
    pub fn ask_for_ids(&self) -> Option<Outer> {
        let (outer, files) = self.ask(IDS)?;
        files.iter().filter_map(|fd| usize::try_from(*fd).ok()).for_each(close);
        Some(outer)
    }

    fn ask(&self, what: u32) -> Option<(Outer, [i32; 2])> {
        if filters()? > self.filters {
            return None;
        }
        let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
        // SAFETY: plain numbers.
        let socket = unsafe { syscall::call(nr::SOCKET, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) };
        let socket = usize::try_from(socket).ok()?;
        let answer = self.connect(socket).and_then(|()| exchange(socket, &Request { secret: self.secret, what }));
        close(socket);
        let (answer, files) = answer?;
        Some((Outer { pid: answer.pid, parent: answer.parent, origin: 0 }, files))
    }

    /// Connects to a recorder of this process's own user: after its end, the name could be taken by another one.
    fn connect(&self, socket: usize) -> Option<()> {
        #[repr(C)]
        struct Address {
            family: u16,
            zero: u8,
            prefix: [u8; PREFIX.len()],
            name: [u8; NAME],
        }
        let address = Address { family: libc::AF_UNIX as u16, zero: 0, prefix: PREFIX, name: self.name };
        let time = [PATIENCE, 0i64];
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as u32;
        // SAFETY: an open socket; a timeval, an address and a ucred of the lengths that are given.
        unsafe {
            for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                let value = (&raw const time) as usize;
                let arguments = [socket, libc::SOL_SOCKET as usize, option as usize, value, size_of_val(&time), 0];
                syscall::call(nr::SETSOCKOPT, arguments);
            }
            let arguments = [socket, (&raw const address) as usize, size_of::<Address>(), 0, 0, 0];
            again(|| syscall::call(nr::CONNECT, arguments))?;
            let (value, len) = ((&raw mut peer) as usize, (&raw mut len) as usize);
            let option = [libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize];
            again(|| syscall::call(nr::GETSOCKOPT, [socket, option[0], option[1], value, len, 0]))?;
            (peer.uid == syscall::call(nr::GETEUID, [0; 6]) as u32).then_some(())
        }
    }
}

/// Sends a request and receives the answer, with the descriptors that came with it; -1: none.
fn exchange(socket: usize, request: &Request) -> Option<(Answer, [i32; 2])> {
    /// Room for a control message with two descriptors.
    #[repr(C)]
    struct Control {
        head: libc::cmsghdr,
        files: [i32; 2],
    }
    let request = [socket, core::ptr::from_ref(request) as usize, size_of::<Request>()];
    let no_signal = libc::MSG_NOSIGNAL as usize;
    // SAFETY: the bytes of the request, which has no padding.
    let sent = again(|| unsafe { syscall::call(nr::SENDTO, [request[0], request[1], request[2], no_signal, 0, 0]) })?;
    if sent != size_of::<Request>() {
        return None;
    }
    let mut answer = Answer::default();
    let mut part = libc::iovec { iov_base: (&raw mut answer).cast(), iov_len: size_of::<Answer>() };
    // SAFETY: integers, for which zero is valid.
    let (mut control, mut message): (Control, libc::msghdr) = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL) as usize;
    // SAFETY: a message whose parts live until the call is over.
    let got = again(|| unsafe { syscall::call(nr::RECVMSG, [socket, (&raw mut message) as usize, flags, 0, 0, 0]) })?;
    let bytes = message.msg_controllen.saturating_sub(size_of::<libc::cmsghdr>());
    let is_files = (control.head.cmsg_level, control.head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    let files = match (is_files, bytes / size_of::<i32>()) {
        (true, 2..) => control.files,
        (true, 1) => [control.files[0], -1],
        _ => [-1; 2],
    };
    if got == size_of::<Answer>() && answer.pid != 0 {
        return Some((answer, files));
    }
    files.iter().filter_map(|fd| usize::try_from(*fd).ok()).for_each(close);
    None
}

/// Makes a call until no signal interrupts it; its result, if it is no error.
fn again(mut call: impl FnMut() -> isize) -> Option<usize> {
    let is_interrupted = |result: &isize| *result == -(libc::EINTR as isize);
    let result = (0..INTERRUPTED).map(|_| call()).find(|result| !is_interrupted(result))?;
    usize::try_from(result).ok()
}

fn close(fd: usize) {
    // SAFETY: a descriptor of our own, which is closed once.
    unsafe { syscall::call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

/// How many filters of system calls the calling thread runs under, by
/// [`/proc/thread-self/status`](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html). `None`: that cannot be
/// read, or the kernel does not give their number (before Linux 5.9) and there are some.
fn filters() -> Option<u32> {
    let mut text = [0u8; STATUS];
    let path = c"/proc/thread-self/status".as_ptr() as usize;
    let mode = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path, and a buffer of that length.
    let read = unsafe {
        let fd = usize::try_from(syscall::call(nr::OPENAT, [libc::AT_FDCWD as usize, path, mode, 0, 0, 0])).ok()?;
        let read = syscall::call(nr::READ, [fd, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        close(fd);
        read
    };
    filters_in(text.get(..usize::try_from(read).ok()?)?)
}

/// The same, in this status. What is not there at all was cut off: the lines of a kernel without filters cannot be
/// distinguished from that.
fn filters_in(status: &[u8]) -> Option<u32> {
    let value = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        number(lines.find_map(|line| line.strip_prefix(name))?.trim_ascii())
    };
    value(b"Seccomp_filters:").or_else(|| value(b"Seccomp:").filter(|mode| *mode == 0))
}

fn number(digits: &[u8]) -> Option<u32> {
    let add = |n: u32, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        n.checked_mul(10)?.checked_add(u32::from(digit))
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, add))?
}

const _: () = assert!(size_of::<Request>() == SECRET + 4 && size_of::<Answer>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_in_the_environment() {
        let text = b"0123456789abcdef:00112233445566778899aabbccddeeff:2";
        let socket = Socket::parse(text).expect("a socket");
        assert_eq!((socket.name, socket.filters), (*b"0123456789abcdef", 2));
        assert_eq!(&socket.secret, b"00112233445566778899aabbccddeeff");
        let cut = text.get(1..).expect("longer");
        for bad in
            [&b""[..], b":::", cut, &text[..text.len() - 1], &[&text[..], b":1"].concat(), b"0123456789abcdef:1:2"]
        {
            assert_eq!(Socket::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn filters_are_counted_or_not_known() {
        assert_eq!(filters_in(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation:\tx\n"), Some(3));
        assert_eq!(filters_in(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(filters_in(b"Seccomp:\t0\n"), Some(0), "before Linux 5.9");
        assert_eq!(filters_in(b"Seccomp:\t2\n"), None, "the same, with filters");
        for cut in [&b""[..], b"Name:\tx\n", b"Seccomp_filters:\t", b"Seccomp_filters:\tx\n"] {
            assert_eq!(filters_in(cut), None);
        }
        assert!(filters().is_some());
    }

    /// Nobody listens: it is refused at once.
    #[test]
    fn without_a_recorder_there_is_no_answer() {
        let socket = Socket { name: *b"nobody's socket!", secret: [b'0'; SECRET], filters: u32::MAX };
        assert!(socket.ask_for_ids().is_none() && socket.ask_for_files().is_none());
    }
}
