//! A connection to a store: TCP, or TLS over it, through a proxy where one is named. Each read and write of it ends
//! when the request's time is over.

use crate::proxy::Proxy;
use crate::secured::Secured;
use crate::tls::{no_http2, Trust};
use crate::url::Url;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use uunwind_clock::Instant;

/// Longest time until a connection stands.
const CONNECT: Duration = Duration::from_secs(5);
/// Addresses of a host that are tried.
const ADDRESSES: usize = 4;
/// Bytes of a proxy's answer that are read.
const HEAD: usize = 8 << 10;

/// HTTP/2 by TLS, among [what TLS can agree on](https://www.rfc-editor.org/rfc/rfc9113#name-http-2-version-identificati).
const H2: &[u8] = b"h2";

/// When a request must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    begin: Instant,
    longest: Duration,
}

impl Deadline {
    pub(crate) fn after(longest: Duration) -> Deadline {
        Deadline { begin: Instant::now(), longest }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.longest.saturating_sub(self.begin.elapsed());
        if left < Duration::from_millis(1) {
            Err(late())
        } else {
            Ok(left)
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "there is no answer in time")
}

/// TCP with a deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    deadline: Deadline,
    /// Reads and writes wait for the other side.
    waits: bool,
}

/// What the kernel says when a timeout is over.
fn in_time<T>(done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| if error.kind() == io::ErrorKind::WouldBlock { late() } else { error })
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.waits {
            return self.stream.read(into);
        }
        self.stream.set_read_timeout(Some(self.deadline.left()?))?;
        in_time(self.stream.read(into))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.waits {
            return self.stream.write(bytes);
        }
        self.stream.set_write_timeout(Some(self.deadline.left()?))?;
        in_time(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) enum Connection {
    Plain(Timed),
    Tls(Box<Secured<Timed>>),
}

impl Connection {
    /// To a store, through this proxy if there is one, until the deadline. With TLS, `trust` says whom to believe.
    pub(crate) fn open(
        url: &Url,
        proxy: Option<&Proxy>,
        trust: &mut Trust,
        deadline: Deadline,
    ) -> io::Result<Connection> {
        let of_proxy = |proxy: &Proxy, error: io::Error| {
            io::Error::new(error.kind(), format!("the proxy {}: {error}", proxy.url.authority))
        };
        let stream = match proxy {
            None => connect(url, deadline)?,
            Some(proxy) => {
                let mut stream = connect(&proxy.url, deadline).map_err(|error| of_proxy(proxy, error))?;
                // A proxy of HTTP/1.1 cannot read requests of HTTP/2, and so cannot pass them on.
                if url.is_tls || url.is_grpc {
                    tunnel(&mut stream, url, proxy).map_err(|error| of_proxy(proxy, error))?;
                }
                stream
            }
        };
        if !url.is_tls {
            return Ok(Connection::Plain(stream));
        }
        let protocols = if url.is_grpc { vec![H2.to_vec()] } else { Vec::new() };
        let client = trust.client(&url.host, protocols)?;
        let secured = Secured::open(client, stream, &url.host).map_err(|refused| {
            if refused.is_tls {
                trust.forget();
            }
            refused.error
        })?;
        if url.is_grpc && !secured.is_agreed(H2) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, no_http2(&url.host)));
        }
        Ok(Connection::Tls(Box::new(secured)))
    }

    fn timed(&mut self) -> &mut Timed {
        match self {
            Connection::Plain(stream) => stream,
            Connection::Tls(stream) => stream.under(),
        }
    }

    /// From now on, a read or a write that has to wait ends with an error of the kind `WouldBlock` at once.
    pub(crate) fn wait_no_more(&mut self) -> io::Result<()> {
        let timed = self.timed();
        timed.waits = false;
        timed.stream.set_nonblocking(true)
    }

    /// Waits until a read or a write may go on. Error: the request's time is over.
    pub(crate) fn wait(&mut self, reads: bool, writes: bool) -> io::Result<()> {
        let timed = self.timed();
        let left = timed.deadline.left()?;
        let mut events = PollFlags::empty();
        events.set(PollFlags::OUT, writes);
        events.set(PollFlags::IN, reads || !writes);
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&timed.stream, events)], Some(&left)) {
            // Whether the time is over, the next call says.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.read(into),
            Connection::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.write(bytes),
            Connection::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.flush(),
            Connection::Tls(stream) => stream.flush(),
        }
    }
}

fn connect(url: &Url, deadline: Deadline) -> io::Result<Timed> {
    let addresses = (&*url.host, url.port).to_socket_addrs()?;
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses.take(ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT.min(deadline.left()?)) {
            Ok(stream) => return Ok(Timed { stream, deadline, waits: true }),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Lets a proxy pass bytes on to this host ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#name-connect)).
fn tunnel(stream: &mut Timed, url: &Url, proxy: &Proxy) -> io::Result<()> {
    let place = url.place();
    let user = proxy.credentials.header().map_or(String::new(), |value| format!("Proxy-Authorization: {value}\r\n"));
    let agent = concat!("User-Agent: uu/", env!("CARGO_PKG_VERSION"));
    let head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{agent}\r\n{user}\r\n");
    stream.write_all(head.as_bytes())?;
    // Byte by byte: what follows is the store's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if answer.len() > HEAD || stream.read(&mut byte)? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is not HTTP"));
        }
        answer.extend(byte);
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.split("\r\n").next().unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
    match status {
        "200" => Ok(()),
        "407" => Err(io::Error::other("it wants credentials: http://USER:PASSWORD@HOST:PORT in https_proxy")),
        _ => Err(io::Error::other(format!("it refuses: {}", uunwind_report::formats::printable(line)))),
    }
}
