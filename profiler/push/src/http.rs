//! One request of HTTP/1.1 ([RFC 9112](https://www.rfc-editor.org/rfc/rfc9112)) on a connection of its own. What answers
//! may be anything: it gets a time and a number of bytes.

use crate::target::Target;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use uunwind_clock::Instant;

/// Longest time until a connection stands.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const MOST: usize = 16 << 10;
/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;
/// Addresses of a host that are tried.
const ADDRESSES: usize = 4;
/// What separates the parts of a body. It does not occur in compressed data by chance: it would have to be met after a
/// line's end.
const BOUNDARY: &str = "uu-7c1f0e0b5d3a49f2-profile";

/// What the store says.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// How long it asks to wait (`Retry-After`, in seconds).
    pub(crate) retry_after: Option<Duration>,
    /// What it says, for people: the first line of the body.
    pub(crate) text: String,
}

/// Sends a profile by POST to `/ingest`, as a file of a form, with this query. Takes at most about `longest`.
pub(crate) fn ingest(target: &Target, query: &str, profile: &[u8], longest: Duration) -> io::Result<Answer> {
    let begin = Instant::now();
    let left = || {
        let left = longest.saturating_sub(begin.elapsed());
        if left < Duration::from_millis(1) {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        } else {
            Ok(left)
        }
    };
    let mut stream = connect(target, longest)?;
    let before = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"profile.pb.gz\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let after = format!("\r\n--{BOUNDARY}--\r\n");
    let len = before.len() + profile.len() + after.len();
    let authorization =
        target.credentials.header().map_or(String::new(), |value| format!("Authorization: {value}\r\n"));
    let head = format!(
        "POST {}/ingest?{query} HTTP/1.1\r\nHost: {}\r\nUser-Agent: uu/{}\r\nAccept: */*\r\n\
         Connection: close\r\n{authorization}Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\
         Content-Length: {len}\r\n\r\n{before}",
        target.path,
        target.authority,
        env!("CARGO_PKG_VERSION"),
    );
    let pieces = [head.as_bytes(), profile, after.as_bytes()].into_iter().flat_map(|part| part.chunks(PIECE));
    let mut sent = Ok(());
    for piece in pieces {
        stream.set_write_timeout(Some(left()?))?;
        sent = stream.write_all(piece);
        if sent.is_err() {
            break;
        }
    }
    // Who refuses a request may say so, and close, before all of it is sent.
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while answer.len() < MOST {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(piece.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if answer.is_empty() => return Err(sent.err().unwrap_or(error)),
            Err(_) => break,
        }
        if is_whole(&answer) {
            break;
        }
    }
    if answer.is_empty() {
        sent?;
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection without an answer"));
    }
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its answer is not HTTP"))
}

fn connect(target: &Target, longest: Duration) -> io::Result<TcpStream> {
    let addresses = (&*target.host, target.port).to_socket_addrs()?;
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses.take(ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT.min(longest)) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// The head of an answer, and its body so far.
fn parts(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    Some((std::str::from_utf8(answer.get(..end)?).ok()?, answer.get(end + 4..)?))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Whether an answer's length is known, and all of it is there: some servers leave the connection open.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = parts(answer) else { return false };
    let len = header(head, "content-length").and_then(|len| len.parse::<usize>().ok());
    len.is_some_and(|len| body.len() >= len)
        || header(head, "transfer-encoding").is_some() && body.ends_with(b"0\r\n\r\n")
}

/// An answer, or what there is of it.
fn parse(answer: &[u8]) -> Option<Answer> {
    let (head, body) = parts(answer)?;
    let line = head.split("\r\n").next()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next()?.parse().ok().filter(|status| (100..600).contains(status))?;
    let retry_after = header(head, "retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs);
    let text = String::from_utf8_lossy(body.get(..body.len().min(512)).unwrap_or_default()).into_owned();
    Some(Answer { status, retry_after, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_or_refused() {
        let answer = parse(b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nX: y\r\n\r\nslow down").expect("an answer");
        assert_eq!((answer.status, answer.retry_after), (429, Some(Duration::from_secs(7))));
        assert_eq!(answer.text, "slow down");
        for wrong in
            [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"HTTP/1.1 xyz\r\n\r\n", b"HTTP/1.1 9999 x\r\n\r\n", b"HTTP/1.1 200"]
        {
            assert!(parse(wrong).is_none(), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok"));
    }
}
