//! Opens perf events for a recorder without rights: for one user, and for threads of that user's alone.
//!
//! Who asks is known from the connection (SO_PEERCRED); whose the thread is, the kernel decides, by the same question
//! as when one process wants to look into another (PTRACE_MODE_READ): a child of the helper's takes the caller's ids,
//! gives up all capabilities, and opens `/proc/TID/environ`. That is refused for threads of others, of set-user-ID
//! programs, and of programs that have dropped rights.
//!
//! The event is opened first, and looked at is what has the thread's id after that. If it is another thread by then,
//! the event's own is gone, and its event with it. If the thread executes a set-user-ID program meanwhile or later, the
//! event ends there (`remove_on_exec`; the kernel opens no event in the middle of an exec). The event is disabled until
//! the caller has it. The caller may read from it and change its period: it can do both with events of its own, too.
//! What it learns beyond that is where the kernel's code lies in memory.

use super::event::{Event, Signalling};
use super::filter::Filter;
use super::grant::{peer, Ask, ASKS};
use crate::child::{pidfd, wait};
use rustix::fs::{chownat, fstat, open, AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::net::{
    accept_with, bind, listen, recv, sendmsg, socket_with, AddressFamily, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::ffi::{CStr, CString, OsStr};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;
use uunwind_elf::process;
use uunwind_ring::EVENT_COOKIE;

/// Connections at once, at most. Later ones wait.
const CALLERS: usize = 16;
/// Periods that may be asked for, in ns: rates of 1 to 10,000 Hz.
const PERIODS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000_000;
/// Longest time in which the child that looks must end, in ms: its user may stop it.
const LOOK: u32 = 2_000;

/// Whom events are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id, not root's.
    pub uid: u32,
    /// Group id of the socket's file.
    pub gid: u32,
}

impl Owner {
    /// The user with this name or number. The calling process must have one thread.
    pub fn of(name: &OsStr) -> Option<Owner> {
        let of = |entry: *const libc::passwd| {
            // SAFETY: null, or an entry that stays until the next of these calls.
            unsafe { entry.as_ref() }.map(|entry| Owner { uid: entry.pw_uid, gid: entry.pw_gid })
        };
        let text = CString::new(name.as_bytes()).ok()?;
        // SAFETY: a text that lives as long as the call.
        of(unsafe { libc::getpwnam(text.as_ptr()) }).or_else(|| {
            let uid = name.to_str()?.parse().ok()?;
            // SAFETY: no preconditions.
            of(unsafe { libc::getpwuid(uid) })
        })
    }
}

/// Listens for one user.
pub struct Helper {
    listener: OwnedFd,
    filter: Filter,
    owner: Owner,
    callers: Vec<Caller>,
}

/// A process that has connected, with the rights that the kernel says it had then.
struct Caller {
    socket: OwnedFd,
    uid: u32,
    gid: u32,
}

impl Helper {
    /// Begins to listen at this path, with a socket that the owner alone may connect to. The file must not exist, or be
    /// a socket at which nobody listens any more. The calling process must have one thread.
    pub fn listen(path: &Path, owner: Owner) -> io::Result<Helper> {
        let filter = Filter::load()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let address = SocketAddrUnix::new(path)?;
        let new = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && rustix::net::connect(new()?, &address) == Err(rustix::io::Errno::CONNREFUSED) {
            std::fs::remove_file(path)?;
        }
        let listener = new()?;
        // SAFETY: no preconditions.
        let mask = unsafe { libc::umask(0o177) };
        let bound = bind(&listener, &address);
        // SAFETY: as above.
        unsafe { libc::umask(mask) };
        bound?;
        give(path, owner)?;
        listen(&listener, CALLERS as i32)?;
        Ok(Helper { listener, filter, owner, callers: Vec::new() })
    }

    /// Serves for ever, or until nobody can be served.
    pub fn serve(&mut self) -> io::Error {
        loop {
            if let Err(e) = self.turn() {
                return e;
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        let is_open = self.callers.len() < CALLERS;
        let sockets = self.callers.iter().map(|caller| caller.socket.as_fd());
        let listener = is_open.then(|| self.listener.as_fd());
        let mut ready = wait(sockets.chain(listener), u32::MAX >> 1).into_iter();
        let filter = &self.filter;
        self.callers.retain(|caller| !ready.next().unwrap_or(false) || caller.serve(filter).is_ok());
        if ready.next().unwrap_or(false) {
            self.accept()?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
            // The caller has gone, or there are no descriptors for now.
            uunwind_clock::sleep(Duration::from_millis(10));
            return Ok(());
        };
        if let Some(peer) = peer(socket.as_fd()).ok().filter(|peer| peer.uid == self.owner.uid && peer.uid != 0) {
            self.callers.push(Caller { socket, uid: peer.uid, gid: peer.gid });
        }
        Ok(())
    }
}

impl Caller {
    /// Answers one packet. Fails if the connection is over, or is not served any longer.
    fn serve(&self, filter: &Filter) -> io::Result<()> {
        // Descriptors that come with it are closed by the kernel: there is no room for them.
        let mut packet = [0; ASKS + 1];
        let (_, bytes) = match recv(&self.socket, &mut packet, RecvFlags::DONTWAIT) {
            Ok(got) => got,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let ask = packet.get(..bytes).and_then(Ask::read).ok_or(io::ErrorKind::InvalidData)?;
        match self.grant(ask, filter) {
            Ok(fd) => self.answer(0, Some(fd.as_fd())),
            Err(e) => self.answer(e.raw_os_error().unwrap_or(libc::EIO), None),
        }
    }

    fn grant(&self, ask: Ask, filter: &Filter) -> io::Result<OwnedFd> {
        match ask {
            Ask::Names => Ok(std::fs::File::open("/proc/kallsyms")?.into()),
            Ask::Event { tid, period, stacks } => {
                // 0 would be this process, and what does not fit is none.
                if !PERIODS.contains(&period) || tid == 0 || i32::try_from(tid).is_err() {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                let fd = Event::signalling(tid, period, EVENT_COOKIE, Signalling::All { filter, stacks })?;
                match may_look(self.uid, self.gid, tid)? {
                    true => Ok(fd),
                    false => Err(io::Error::from_raw_os_error(libc::EPERM)),
                }
            }
        }
    }

    fn answer(&self, error: i32, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = error.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if let Some(fd) = &fd {
            passed.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut passed, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }
}

/// Makes the owner that of the socket's file. Whoever may write to its folder can put another file there meanwhile:
/// only a socket of this process's user, which has no other name, is given away.
fn give(path: &Path, owner: Owner) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if !is_own || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file was put in the place of the socket"));
    }
    Ok(chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// Whether a process with these ids, and no rights beyond, may look into the thread. The calling process must have one
/// thread.
fn may_look(uid: u32, gid: u32, tid: u32) -> io::Result<bool> {
    let path =
        CString::new(process::file(tid, "environ").into_os_string().into_encoded_bytes()).map_err(io::Error::from)?;
    // SAFETY: this process has no other thread that could hold a lock; the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a path that lives until the process ends.
        let is_allowed = unsafe { become_and_open(uid, gid, &path) };
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_allowed)) };
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let has_ended = pidfd(child as u32).is_ok_and(|fd| wait([fd.as_fd()], LOOK) == [true]);
    let mut status = 0;
    // SAFETY: our own child, which nobody else waits for, and a live local.
    let waited = unsafe {
        if !has_ended {
            libc::kill(child, libc::SIGKILL);
        }
        libc::waitpid(child, &raw mut status, 0)
    };
    Ok(has_ended && waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

/// In the child: gives up all rights but those of this user, and opens the file.
///
/// # Safety
/// The process must have one thread.
unsafe fn become_and_open(uid: u32, gid: u32, path: &CStr) -> bool {
    // struct __user_cap_header_struct of _LINUX_CAPABILITY_VERSION_3, and two empty sets.
    let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: valid arguments.
    unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
            && libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) == 0
            && libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that somebody else put there, by a name of its own or a second one, stays its owner's.
    #[test]
    fn only_a_socket_of_its_own_is_given_away() {
        let folder = std::env::temp_dir().join(format!("uu-helper-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let at = |name: &str| folder.join(name);
        std::fs::write(at("file"), "").expect("a file");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("a link");
        let _listener = std::os::unix::net::UnixListener::bind(at("twice")).expect("a socket");
        std::fs::hard_link(at("twice"), at("other")).expect("another name");
        let _another = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        // SAFETY: no preconditions.
        let owner = unsafe { Owner { uid: libc::geteuid(), gid: libc::getegid() } };
        for name in ["file", "link", "twice", "other"] {
            let refused = give(&at(name), owner).expect_err(name).to_string();
            assert_eq!(refused, "another file was put in the place of the socket", "{name}");
        }
        assert!(give(&at("socket"), owner).is_ok());
        std::fs::remove_dir_all(&folder).expect("a folder");
    }

    /// The kernel's answer, for processes of root and of others.
    #[test]
    fn others_may_not_look() {
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return uunwind_skips::skipped("whose a thread is", "only root can ask as another user");
        }
        const NOBODY: u32 = 65_534;
        let sleeper = |uid: u32| {
            let mut command = std::process::Command::new("setpriv");
            command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]);
            let child = command.args(["cat"]).stdin(std::process::Stdio::piped()).spawn();
            child.expect("setpriv")
        };
        let mut children = [sleeper(NOBODY), sleeper(NOBODY - 1)];
        let [own, others] = children.each_ref().map(std::process::Child::id);
        let begun = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cat\n");
        while !begun(own) || !begun(others) {
            uunwind_clock::sleep(Duration::from_millis(1));
        }
        // In this process, tests have threads: a child of one makes system calls only, as it should.
        let may = |tid: u32| may_look(NOBODY, NOBODY, tid).expect("a child");
        assert!(may(own), "its own process");
        for tid in [others, std::process::id(), 1, 2, 0, i32::MAX as u32] {
            assert!(!may(tid), "{tid}");
        }
        assert!(!may_look(NOBODY, NOBODY - 1, own).expect("a child"), "another group");
        for child in &mut children {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
