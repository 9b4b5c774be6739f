//! The thread that answers processes which cannot open the recorder's files in `/proc`, as they live in another pid or
//! user namespace ([`uunwind_ring::elsewhere`]).
//!
//! It answers processes of its own user alone, which have read the secret in their environment: these could open its
//! files where they can see it.

use crate::analyst::without_signals;
use crate::survey::{see, status};
use rustix::net::{recv, sendmsg, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fmt::Write;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use uunwind_ring::elsewhere::{Answer, Request, FILES, IDS, NAME, PREFIX, SECRET};

/// A process has sent its request by then, as it does so at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where no connection can be accepted, for lack of a descriptor, the thread waits for this time.
const PAUSE: Duration = Duration::from_millis(10);

/// The socket and its thread, which end with this value.
pub struct Elsewhere {
    shared: Arc<Shared>,
    variable: String,
}

struct Shared {
    listener: UnixListener,
    is_over: AtomicBool,
}

/// What the thread gives away.
struct Given {
    secret: Vec<u8>,
    session: OwnedFd,
    facts: OwnedFd,
}

impl Elsewhere {
    /// Makes the socket, and starts the thread. Errors: there are no such sockets here, no memory, or no thread
    /// (RLIMIT_NPROC); then processes in other namespaces are not recorded.
    pub fn start(session: BorrowedFd<'_>, facts: BorrowedFd<'_>) -> io::Result<Elsewhere> {
        let digits = digits::<{ NAME + SECRET }>()?;
        let (name, secret) = digits.split_at(NAME);
        let address = SocketAddr::from_abstract_name([&PREFIX[..], name.as_bytes()].concat())?;
        let listener = UnixListener::bind_addr(&address)?;
        let filters = status("self").and_then(|status| status.filters).unwrap_or(0);
        let variable = format!("{name}:{secret}:{filters}");
        let secret = secret.as_bytes().to_vec();
        let given = Given { secret, session: session.try_clone_to_owned()?, facts: facts.try_clone_to_owned()? };
        let shared = Arc::new(Shared { listener, is_over: AtomicBool::new(false) });
        let own = shared.clone();
        without_signals(|| Builder::new().name("uu-elsewhere".to_owned()).spawn(move || serve(&own, &given)))?;
        Ok(Elsewhere { shared, variable })
    }

    /// The value of [`uunwind_ring::ENV_SOCKET`].
    pub fn variable(&self) -> &str {
        &self.variable
    }
}

impl Drop for Elsewhere {
    /// Nobody is answered any more.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
    }
}

/// This number of random hexadecimal digits.
fn digits<const COUNT: usize>() -> io::Result<String> {
    let mut random = [0u8; COUNT];
    // SAFETY: a buffer of that length.
    let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), COUNT, 0) };
    if got != COUNT as isize {
        return Err(io::Error::last_os_error());
    }
    let mut text = String::new();
    for byte in random {
        let _ = write!(text, "{:x}", byte & 15);
    }
    Ok(text)
}

fn serve(shared: &Shared, given: &Given) {
    while !shared.is_over.load(Ordering::Acquire) {
        match shared.listener.accept() {
            // Who is refused finds its connection closed.
            Ok((stream, _)) if !shared.is_over.load(Ordering::Acquire) => {
                let _ = answer(&stream, given);
            }
            Ok(_) => return,
            Err(_) => uunwind_clock::sleep(PAUSE),
        }
    }
}

/// Answers one process. Errors: those of its connection; it is refused.
fn answer(stream: &UnixStream, given: &Given) -> io::Result<()> {
    let peer = peer(stream)?;
    // 0: it lives where this process has no number for it, as in a namespace around this one's.
    let pid = u32::try_from(peer.pid).ok().filter(|pid| *pid != 0).ok_or(io::ErrorKind::NotFound)?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0u8; size_of::<Request>()];
    let (bytes, _) = recv(stream, &mut request, RecvFlags::WAITALL)?;
    let (secret, what) = request.split_at(SECRET);
    if bytes != request.len() || secret != given.secret {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let files = match u32::from_ne_bytes(what.try_into().map_err(io::Error::other)?) {
        FILES => &[given.session.as_fd(), given.facts.as_fd()][..],
        IDS => &[],
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let parent = see(pid).map_or(0, |seen| seen.parent);
    let Answer { pid, parent } = Answer { pid, parent };
    let bytes = [pid.to_ne_bytes(), parent.to_ne_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        passed.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(stream, &[IoSlice::new(&bytes)], &mut passed, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Which process has connected, by its id here (SO_PEERCRED,
/// [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)).
fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a structure of the length that is given.
    let result = unsafe {
        let value = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len)
    };
    if result == 0 {
        Ok(peer)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage};
    use std::fs::File;
    use std::io::{IoSliceMut, Read, Write};
    use std::os::unix::fs::MetadataExt;

    fn connect(elsewhere: &Elsewhere) -> io::Result<UnixStream> {
        let name = elsewhere.variable().split(':').next().expect("a name");
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(format!("uu-{name}"))?)
    }

    fn request(elsewhere: &Elsewhere, what: u32) -> Vec<u8> {
        let secret = elsewhere.variable().split(':').nth(1).expect("a secret");
        [secret.as_bytes(), &what.to_ne_bytes()].concat()
    }

    #[test]
    fn who_knows_the_secret_gets_files_and_ids() {
        let (session, facts) =
            (File::open("/proc/self/exe").expect("a file"), File::open("/dev/null").expect("a file"));
        let elsewhere = Elsewhere::start(session.as_fd(), facts.as_fd()).expect("a socket");
        let own = [std::process::id().to_ne_bytes(), std::os::unix::process::parent_id().to_ne_bytes()].concat();
        for (what, count) in [(FILES, 2), (IDS, 0)] {
            let mut stream = connect(&elsewhere).expect("it listens");
            stream.write_all(&request(&elsewhere, what)).expect("it reads");
            let (mut space, mut bytes) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))], [0; 8]);
            let mut passed = RecvAncillaryBuffer::new(&mut space);
            recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut passed, RecvFlags::CMSG_CLOEXEC)
                .expect("it answers");
            assert_eq!(bytes, own[..]);
            let files = passed.drain().flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
                _ => Vec::new(),
            });
            let inode = |file: &File| file.metadata().expect("its status").ino();
            let got: Vec<_> = files.map(|file| inode(&File::from(file))).collect();
            assert_eq!(got, [inode(&session), inode(&facts)][..count]);
        }
        // Others are refused, and it goes on.
        let good = request(&elsewhere, FILES);
        for bad in [&[b'x'; 36][..], &good[..20], &request(&elsewhere, 7)] {
            let mut stream = connect(&elsewhere).expect("it listens");
            stream.write_all(bad).expect("it reads");
            stream.shutdown(std::net::Shutdown::Write).expect("a socket");
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
        }
    }

    #[test]
    fn its_end_refuses_all() {
        let file = File::open("/dev/null").expect("a file");
        let elsewhere = Elsewhere::start(file.as_fd(), file.as_fd()).expect("a socket");
        let waiting = connect(&elsewhere).expect("it listens");
        elsewhere.shared.is_over.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&elsewhere.shared.listener, rustix::net::Shutdown::Both);
        assert!(connect(&elsewhere).is_err());
        drop(waiting);
    }
}
