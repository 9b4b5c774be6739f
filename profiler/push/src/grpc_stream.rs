//! A connection as h2 takes it, which never waits in a read or a write; and what waits for it in their place, on this
//! thread, until the request's time is over.

use crate::connection::Connection;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uunwind_report::formats::printable;

/// Bytes that are read of what the other side says: an answer has a few hundred.
const MOST: usize = 1 << 20;
/// Of these, those that are kept to say what it is instead.
const FIRST: usize = 128;

/// A connection, and what happened on it.
#[derive(Debug)]
struct Line {
    connection: Connection,
    /// The first bytes that came.
    first: Vec<u8>,
    /// Number of bytes that came.
    count: usize,
    /// The other side said its last.
    ended: bool,
    /// Since it was last waited for, a read has found nothing.
    reads: bool,
    /// And a write no room.
    writes: bool,
    /// Why it is of no use any more. h2 makes another error of it.
    why: Option<io::Error>,
}

/// A handle of a connection. h2 has one, and who waits another one.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Rc<RefCell<Line>>);

/// Whether something was woken since it was last asked.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stream {
    pub(crate) fn new(mut connection: Connection) -> io::Result<Stream> {
        connection.wait_no_more()?;
        let first = Vec::new();
        let line = Line { connection, first, count: 0, ended: false, reads: false, writes: false, why: None };
        Ok(Stream(Rc::new(RefCell::new(line))))
    }

    /// Runs what reads and writes by this connection, until it is done or the time is over.
    pub(crate) fn run<T>(&self, work: impl Future<Output = Result<T, h2::Error>>) -> io::Result<T> {
        let mut work = pin!(work);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
                return done.map_err(|error| self.error(error));
            }
            // Parts of the work wake each other; only then does it wait for the other side.
            if !woken.0.swap(false, Ordering::Relaxed) {
                let mut line = self.0.borrow_mut();
                let (reads, writes) = (std::mem::take(&mut line.reads), std::mem::take(&mut line.writes));
                line.connection.wait(reads, writes)?;
            }
        }
    }

    /// What a failure is, by what has come.
    fn error(&self, error: h2::Error) -> io::Error {
        let mut line = self.0.borrow_mut();
        if let Some(why) = line.why.take() {
            return why;
        }
        let of_stream = error.get_io().map(|error| (error.kind(), error.to_string()));
        match of_stream {
            // That it ends is seen by writes, too, and by h2, which says that its pipe is broken.
            _ if line.ended && line.count == 0 => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection without an answer")
            }
            _ if line.ended && !error.is_go_away() && !error.is_reset() => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection before its answer was whole")
            }
            Some((kind, text)) => io::Error::new(kind, text),
            None => io::Error::new(io::ErrorKind::InvalidData, format!("HTTP/2: {}", printable(&error.to_string()))),
        }
    }
}

impl Line {
    /// Takes note of what came. Error: it is not HTTP/2, or without end.
    fn heard(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count = self.count.saturating_add(bytes.len());
        self.ended |= bytes.is_empty();
        let room = FIRST.saturating_sub(self.first.len());
        self.first.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        let error = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        if let Some(what) = not_http2(&self.first) {
            return error(what);
        }
        if self.count > MOST {
            return error(format!("it has said more than {MOST} bytes, and that is no answer"));
        }
        Ok(())
    }

    /// Reads into this. Ok(0): the other side has closed.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.connection.read(into)?;
        self.heard(into.get(..len).unwrap_or_default())?;
        Ok(len)
    }

    /// Writes. Who refuses a request may say so, and close, before all of it is written: then it was written, and what
    /// that side has said is read until its end.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.connection.write(bytes) {
            Err(error) if is_closed(&error) => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.connection.flush() {
            Err(error) if is_closed(&error) => Ok(()),
            flushed => flushed,
        }
    }

    /// Does this until no signal interrupts it. `flag`: where it is noted that it has to wait.
    fn done<T>(
        &mut self,
        mut act: impl FnMut(&mut Line) -> io::Result<T>,
        flag: impl Fn(&mut Line) -> &mut bool,
    ) -> Poll<io::Result<T>> {
        loop {
            match act(self) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *flag(self) = true;
                    return Poll::Pending;
                }
                Err(error) => {
                    let kind = error.kind();
                    self.ended |= is_closed(&error);
                    if !is_closed(&error) {
                        self.why.get_or_insert(error);
                    }
                    return Poll::Ready(Err(kind.into()));
                }
                Ok(done) => return Poll::Ready(Ok(done)),
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

/// What the other side speaks, if it is not HTTP/2, whose servers begin with a frame SETTINGS that acknowledges nothing
/// ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#name-http-2-connection-preface), sections 3.4 and 4.1).
fn not_http2(first: &[u8]) -> Option<String> {
    let is_settings = first.iter().zip(0..9).all(|(byte, at)| match at {
        // Its length is below 2^16.
        0 => *byte == 0,
        1 | 2 => true,
        3 => *byte == 4,
        4 => byte & 1 == 0,
        // The connection itself, and a bit that has no meaning.
        5 => byte & 0x7f == 0,
        _ => *byte == 0,
    });
    if is_settings {
        return None;
    }
    Some(match first.first() {
        Some(b'H') if first.starts_with(b"HTTP/1") || b"HTTP/1".starts_with(first) => {
            let line = first.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
            let line = printable(&String::from_utf8_lossy(line));
            format!("it speaks HTTP/1.1, and not HTTP/2 as gRPC does ({line}): is this another port of it?")
        }
        // A record of TLS: an alert, or the beginning of a handshake.
        Some(0x15 | 0x16) if first.get(1).is_none_or(|byte| *byte == 3) => "it speaks TLS: give grpcs://".to_owned(),
        _ => "its answer is not HTTP/2".to_owned(),
    })
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; 4096];
        let room = piece.len().min(into.remaining());
        let piece = piece.get_mut(..room).unwrap_or_default();
        let read = self.0.borrow_mut().done(|line| line.read(piece), |line| &mut line.reads);
        read.map_ok(|len| into.put_slice(piece.get(..len).unwrap_or_default()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().done(|line| line.write(bytes), |line| &mut line.writes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().done(Line::flush, |line| &mut line.writes)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection is closed when it is dropped.
        self.poll_flush(context)
    }
}
