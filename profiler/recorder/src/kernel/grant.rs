//! What [`super::helper`] and those who ask it say to each other, over a
//! [SOCK_SEQPACKET socket](https://man7.org/linux/man-pages/man7/unix.7.html): one packet asks, one answers.

use crate::child::wait;
use rustix::net::{
    connect, recvmsg, send, socket_with, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use uunwind_clock::Instant;

/// Bytes of a packet that asks.
pub const ASKS: usize = 32;
/// Bytes of a packet that answers: an error number, or 0 and one descriptor.
pub const ANSWERS: usize = 4;
/// What a packet that asks begins with. Another version of this page has another one.
const MAGIC: u64 = u64::from_le_bytes(*b"uu-open1");
/// Longest time in which an answer must come.
const PATIENCE: Duration = Duration::from_secs(5);

/// What may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// An event that signals this thread, disabled, as [`super::event::Event::signalling`] makes it.
    Event {
        /// Thread id.
        tid: u32,
        /// CPU time between two samples, in ns.
        period: u64,
        /// The samples have the stack in the kernel.
        stacks: bool,
    },
    /// `/proc/kallsyms`, opened by one who sees addresses there.
    Names,
}

impl Ask {
    /// The request as it is sent to the helper, in this machine's byte order.
    pub fn packet(self) -> [u8; ASKS] {
        let (kind, stacks, tid, period) = match self {
            Ask::Event { tid, period, stacks } => (1u32, u32::from(stacks), tid, period),
            Ask::Names => (2, 0, 0, 0),
        };
        let mut packet = [0; ASKS];
        let parts = [&MAGIC.to_le_bytes()[..], &kind.to_le_bytes(), &stacks.to_le_bytes(), &tid.to_le_bytes(), &[0; 4]];
        let bytes = parts.concat().into_iter().chain(period.to_le_bytes());
        packet.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        packet
    }

    /// What a packet asks for; `None`: nothing.
    pub fn read(packet: &[u8]) -> Option<Ask> {
        let packet: &[u8; ASKS] = packet.try_into().ok()?;
        let half = |at: usize| packet.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let word = |at: usize| packet.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (magic, kind, stacks, tid, rest, period) = (word(0)?, half(8)?, half(12)?, half(16)?, half(20)?, word(24)?);
        match (magic, kind, stacks, rest) {
            (MAGIC, 1, 0 | 1, 0) => Some(Ask::Event { tid, period, stacks: stacks == 1 }),
            (MAGIC, 2, 0, 0) if tid == 0 && period == 0 => Some(Ask::Names),
            _ => None,
        }
    }
}

/// Who is at the other end of a connection (SO_PEERCRED). Fails with ESRCH where that process is in another pid
/// namespace: there, a thread's id would be another thread's.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: a structure of this size, to which both pointers are.
    let failed = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast::<libc::c_void>(), &raw mut size)
    };
    match (failed, peer.pid) {
        (0, 1..) => Ok(peer),
        (0, _) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A connection to a helper.
pub struct Granted {
    socket: OwnedFd,
    /// A question has no answer so far. That could come later, and is none to the next question.
    is_unanswered: Cell<bool>,
}

impl Granted {
    /// Connects. Fails with EPERM if root does not listen there, as what another user passed could be anything; with
    /// ESRCH from another pid namespace.
    pub fn connect(path: &Path) -> io::Result<Granted> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        match peer(socket.as_fd())?.uid {
            0 => Ok(Granted { socket, is_unanswered: Cell::new(false) }),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }

    /// Asks, and waits for the descriptor.
    pub fn ask(&self, ask: Ask) -> io::Result<OwnedFd> {
        if self.is_unanswered.replace(true) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        send(&self.socket, &ask.packet(), SendFlags::NOSIGNAL)?;
        let begin = Instant::now();
        // A signal ends a wait early.
        while wait([self.socket.as_fd()], 100) != [true] {
            if begin.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let mut answer = [0; ANSWERS];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut answer)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
        let fd = passed.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        if got.bytes != ANSWERS {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.is_unanswered.set(false);
        match (i32::from_le_bytes(answer), fd) {
            (0, Some(fd)) => Ok(fd),
            (0, None) => Err(io::ErrorKind::InvalidData.into()),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_read_again_and_nothing_else() {
        for ask in [
            Ask::Names,
            Ask::Event { tid: 7, period: 1_001_001, stacks: true },
            Ask::Event { tid: u32::MAX, period: u64::MAX, stacks: false },
        ] {
            let packet = ask.packet();
            assert_eq!(Ask::read(&packet), Some(ask));
            assert_eq!(Ask::read(&packet[..ASKS - 1]), None);
            assert_eq!(Ask::read(&[&packet[..], &[0]].concat()), None);
            // Each other magic, kind, flag.
            for at in (0..16).chain(20..24) {
                let mut other = packet;
                other[at] ^= 0x80;
                assert_eq!(Ask::read(&other), None, "byte {at} of {ask:?}");
            }
        }
    }
}
