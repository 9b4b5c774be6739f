//! One request of HTTP/1.1 ([RFC 9112](https://www.rfc-editor.org/rfc/rfc9112)) on a connection of its own. What answers
//! may be anything: it gets a time and a number of bytes.

use crate::connection::{Connection, Deadline};
use crate::target::Target;
use crate::tls::Trust;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Bytes of an answer that are read.
const MOST: usize = 16 << 10;
/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;

/// What the store says.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// How long it asks to wait (`Retry-After`, in seconds).
    pub(crate) retry_after: Option<Duration>,
    /// What follows the head.
    pub(crate) body: Vec<u8>,
}

/// Sends a request by POST, whose body is these parts, and waits for the answer. `place`: what follows the target's
/// URL. `headers`: those of the body, each with an end of line. Takes at most about `longest`.
pub(crate) fn post(
    target: &Target,
    trust: &mut Trust,
    place: &str,
    headers: &str,
    parts: &[&[u8]],
    longest: Duration,
) -> io::Result<Answer> {
    let mut stream = Connection::open(&target.url, target.proxy.as_ref(), trust, Deadline::after(longest))?;
    let header =
        |name: &str, value: Option<String>| value.map_or(String::new(), |value| format!("{name}: {value}\r\n"));
    // A proxy that passes requests on is asked for the whole URL; one that passes bytes on knows it already.
    let asked = target.proxy.as_ref().filter(|_| !target.url.is_tls);
    let before = asked.map_or(String::new(), |_| format!("http://{}", target.url.authority));
    let of_proxy = header("Proxy-Authorization", asked.and_then(|proxy| proxy.credentials.header()));
    let head = format!(
        "POST {before}{}{place} HTTP/1.1\r\nHost: {}\r\nUser-Agent: uu/{}\r\nAccept: */*\r\n\
         Connection: close\r\n{of_proxy}{}{headers}Content-Length: {}\r\n\r\n",
        target.url.path,
        target.url.authority,
        env!("CARGO_PKG_VERSION"),
        header("Authorization", target.credentials.header()),
        parts.iter().map(|part| part.len()).sum::<usize>(),
    );
    let pieces = [head.as_bytes()].into_iter().chain(parts.iter().copied()).flat_map(|part| part.chunks(PIECE));
    let mut sent = Ok(());
    for piece in pieces {
        sent = stream.write_all(piece);
        if sent.is_err() {
            break;
        }
    }
    let sent = sent.and_then(|()| stream.flush());
    // Who refuses a request may say so, and close, before all of it is sent.
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while answer.len() < MOST {
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
    let not_http = || match answer.first() {
        // A record of TLS: an alert, or the beginning of a handshake.
        Some(0x15 | 0x16) if !target.url.is_tls => "it speaks TLS: give https://",
        _ => "its answer is not HTTP",
    };
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, not_http()))
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

impl Answer {
    /// What it says, for people: the first line of the body.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(self.body.get(..self.body.len().min(512)).unwrap_or_default()).into_owned();
        let line = text.split(['\r', '\n']).find(|line| !line.trim().is_empty()).unwrap_or_default();
        uunwind_report::formats::printable(line.trim())
    }
}

/// An answer, or what there is of it.
fn parse(answer: &[u8]) -> Option<Answer> {
    let (head, body) = parts(answer)?;
    let line = head.split("\r\n").next()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next()?.parse().ok().filter(|status| (100..600).contains(status))?;
    let retry_after = header(head, "retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs);
    let is_chunked =
        header(head, "transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
    Some(Answer { status, retry_after, body: if is_chunked { unchunked(body) } else { body.to_vec() } })
}

/// The data of a body in chunks, as far as it is there (RFC 9112, section 7.1).
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let line = std::str::from_utf8(body.get(..end).unwrap_or_default()).unwrap_or_default();
        let len = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        let after = body.get(end + 2..).unwrap_or_default();
        data.extend_from_slice(after.get(..len.min(after.len())).unwrap_or_default());
        body = match len.checked_add(2).and_then(|len| after.get(len..)) {
            Some(rest) if len > 0 => rest,
            _ => break,
        };
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_or_refused() {
        let answer = parse(b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nX: y\r\n\r\nslow down").expect("an answer");
        assert_eq!((answer.status, answer.retry_after), (429, Some(Duration::from_secs(7))));
        assert_eq!(answer.text(), "slow down");
        let chunked =
            b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nwrong\r\n6\r\n label\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).expect("an answer").text(), "wrong label");
        for wrong in
            [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"HTTP/1.1 xyz\r\n\r\n", b"HTTP/1.1 9999 x\r\n\r\n", b"HTTP/1.1 200"]
        {
            assert!(parse(wrong).is_none(), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok"));
    }
}
