//! Files of uu's are passed to a process: a borrowed thread makes a pair of sockets, uu takes one of them, and sends
//! the files through it (SCM_RIGHTS, [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)). So it works in whatever
//! namespaces and with whatever rights the process is: uu's own files it could not open.

use super::forked::Files;
use super::opened::{is_still, Opened};
use super::process::Process;
use super::remote_call::{Borrowed, Trouble};

use rustix::fs::fstat;
use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use uunwind_elf::process;
use uunwind_remote::memory::Memory;

/// Number of files.
const FILES: usize = 3;
/// Bytes of a control message with them, and of its place: headers are multiples of 8 bytes (cmsg(3)).
const MESSAGE: usize = size_of::<libc::cmsghdr>() + FILES * size_of::<libc::c_int>();
const PLACE: usize = MESSAGE.next_multiple_of(8);

/// A message of one byte with such a control message, as the calls want it.
#[repr(C)]
struct Message {
    header: libc::msghdr,
    part: libc::iovec,
    byte: u64,
    head: libc::cmsghdr,
    files: [libc::c_int; PLACE / 4 - size_of::<libc::cmsghdr>() / 4],
}

impl Message {
    /// The message as it lies at this address, or where it is made if that is 0.
    fn at(address: u64) -> Box<Message> {
        let layout = Layout::new::<Message>();
        // In place, so that its padding stays zero, too.
        // SAFETY: integers and pointers only; memory of the layout that a box of it has, if there is any.
        let mut message = unsafe {
            let memory = alloc_zeroed(layout);
            if memory.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(memory.cast::<Message>())
        };
        let address = if address == 0 { std::ptr::from_ref(&*message).addr() as u64 } else { address };
        let place = |offset: usize| (address + offset as u64) as *mut libc::c_void;
        message.part = libc::iovec { iov_base: place(std::mem::offset_of!(Message, byte)), iov_len: 1 };
        message.header.msg_iov = place(std::mem::offset_of!(Message, part)).cast();
        message.header.msg_iovlen = 1;
        message.header.msg_control = place(std::mem::offset_of!(Message, head));
        message.header.msg_controllen = PLACE;
        message
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: each of its fields is a multiple of 8 bytes long, and the padding inside of the header was zeroed
        // where the value lies: [`Message::at`] has not moved it.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Message>()) }
    }
}

/// Passes these files. Returns their numbers there, and which files they are. `made` gets
/// all files that the process opens for it.
pub fn pass(
    thread: &mut Borrowed<'_>,
    process: &Process,
    files: [BorrowedFd<'_>; FILES],
    made: &mut Files,
) -> Result<[Opened; FILES], Trouble> {
    let pid = process.pid;
    let at = thread.put(&[0; 8])?;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    thread.call(libc::SYS_socketpair, [libc::AF_UNIX as u64, kind as u64, 0, at, 0, 0])?;
    let mut pair = [0; 8];
    if !Memory::of(pid).read_now(at, &mut pair) {
        return Err(wrong());
    }
    let [a, b, c, d, e, f, g, h] = pair;
    let ends = [[a, b, c, d], [e, f, g, h]].map(|end| u64::from(u32::from_ne_bytes(end)));
    let known = ends.map(|end| which(pid, end).map(|file| (end, file)));
    known.iter().flatten().for_each(|(_, file)| made.add(*file));
    for file in files {
        let stat = fstat(file).map_err(io::Error::from)?;
        made.add((stat.st_dev, stat.st_ino));
    }
    let passed = match known {
        [Some(own), Some(other)] => exchange(thread, process, [own, other], files),
        _ => Err(wrong()),
    };
    for end in known.into_iter().flatten().filter(|end| is_still(pid, *end)) {
        let _ = thread.call(libc::SYS_close, [end.0, 0, 0, 0, 0, 0]);
    }
    passed
}

fn wrong() -> Trouble {
    Trouble::Failed(io::Error::other("it has not got the sampler's files"))
}

/// Which socket a number there is of. `None`: it is of none.
fn which(pid: u32, fd: u64) -> Option<(u64, u64)> {
    let file = std::fs::metadata(process::file(pid, "fd").join(fd.to_string())).ok()?;
    file.file_type().is_socket().then(|| (file.dev(), file.ino()))
}

/// Whether a socket is an end of a pair: of the kind that is made here, connected, and without names.
fn is_unnamed(socket: &OwnedFd) -> io::Result<bool> {
    let socket = UnixDatagram::from(socket.try_clone()?);
    let is_datagram = rustix::net::sockopt::socket_type(&socket)? == rustix::net::SocketType::DGRAM;
    Ok(is_datagram && socket.local_addr()?.is_unnamed() && socket.peer_addr()?.is_unnamed())
}

fn exchange(
    thread: &mut Borrowed<'_>,
    process: &Process,
    [own, (other, _)]: [Opened; 2],
    files: [BorrowedFd<'_>; FILES],
) -> Result<[Opened; FILES], Trouble> {
    let socket = process.file(i32::try_from(own.0).map_err(|_| wrong())?)?;
    // Another thread there may have put a file of the program's in its place, which gets nothing of uu's.
    let stat = fstat(&socket).map_err(io::Error::from)?;
    if (stat.st_dev, stat.st_ino) != own.1 || !is_unnamed(&socket)? {
        return Err(wrong());
    }
    send(&socket, files)?;
    let at = thread.put(&[])?;
    thread.put(Message::at(at).bytes())?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    thread.call(libc::SYS_recvmsg, [other, at, flags as u64, 0, 0, 0])?;
    let mut message = [0; MESSAGE];
    if !Memory::of(process.pid).read_now(at + std::mem::offset_of!(Message, head) as u64, &mut message) {
        return Err(wrong());
    }
    let number = |offset: usize| {
        let bytes = message.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_ne_bytes)
    };
    let level = number(std::mem::offset_of!(libc::cmsghdr, cmsg_level));
    let kind = number(std::mem::offset_of!(libc::cmsghdr, cmsg_type));
    if number(0) != MESSAGE as i32 || (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Err(wrong());
    }
    let mut passed = [(0, (0, 0)); FILES];
    for (index, (to, file)) in passed.iter_mut().zip(files).enumerate() {
        let fd = number(size_of::<libc::cmsghdr>() + index * size_of::<libc::c_int>());
        let stat = fstat(file).map_err(io::Error::from)?;
        *to = (u64::try_from(fd).map_err(|_| wrong())?, (stat.st_dev, stat.st_ino));
    }
    // Another thread there may have put others in their place.
    if passed.iter().all(|opened| is_still(process.pid, *opened)) {
        Ok(passed)
    } else {
        Err(wrong())
    }
}

/// Sends files through a socket, without waiting.
fn send(socket: &OwnedFd, files: [BorrowedFd<'_>; FILES]) -> io::Result<()> {
    let mut message = Message::at(0);
    message.header.msg_controllen = MESSAGE;
    message.head.cmsg_len = MESSAGE;
    (message.head.cmsg_level, message.head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    message.files.iter_mut().zip(files).for_each(|(to, file)| *to = file.as_raw_fd());
    // SAFETY: the message, and what it points to, which is inside it, live during the call.
    let sent = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message.header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{memfd_create, MemfdFlags};
    use std::os::fd::{AsFd, FromRawFd};

    /// What is sent is received by the message that a process would use.
    #[test]
    fn files_go_through_a_socket() {
        let (one, other) = UnixDatagram::pair().expect("sockets");
        let files = [c"a", c"b", c"c"].map(|name| memfd_create(name, MemfdFlags::CLOEXEC).expect("memfd"));
        send(&OwnedFd::from(one), files.each_ref().map(AsFd::as_fd)).expect("sent");
        let mut got = Message::at(0);
        // SAFETY: the message, and what it points to, live during the call.
        let read = unsafe { libc::recvmsg(other.as_raw_fd(), &raw mut got.header, libc::MSG_DONTWAIT) };
        assert_eq!((read, got.head.cmsg_len), (1, MESSAGE));
        assert_eq!((got.head.cmsg_level, got.head.cmsg_type), (libc::SOL_SOCKET, libc::SCM_RIGHTS));
        for (fd, file) in got.files.iter().zip(&files) {
            // SAFETY: the call has just opened it.
            let fd = unsafe { OwnedFd::from_raw_fd(*fd) };
            let same = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).expect("a file");
            assert_eq!(same(fd.as_fd()), same(file.as_fd()));
        }
    }
}
