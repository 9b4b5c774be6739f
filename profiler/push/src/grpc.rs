//! One call of gRPC with one message each way
//! ([gRPC over HTTP/2](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md)) on a connection of its own. What
//! answers may be anything: it gets a time and a number of bytes.
//!
//! HTTP/2 ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113)) is that of the crate h2, which is tried on all kinds of
//! servers: frames, header compression, flow control and the limits of what others may ask for. Of tokio it needs two
//! traits for a stream; there is no runtime, and no thread: `grpc_stream` waits.

use crate::connection::{Connection, Deadline};
use crate::credentials::Credentials;
use crate::grpc_status::{Answer, Status};
use crate::grpc_stream::Stream;
use crate::target::Target;
use crate::tls::Trust;
use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Version};
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Bytes of a message that are read.
const MOST: usize = 16 << 10;
/// Bytes of headers that are read.
const HEADERS: u32 = 16 << 10;
/// Bytes of an answer that may be under way.
const WINDOW: u32 = 64 << 10;
/// What stands before a message: whether it is compressed, and its length in four bytes.
const PREFIX: usize = 5;

/// A message as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'m> {
    Plain(&'m [u8]),
    /// Compressed by gzip.
    Gzip(&'m [u8]),
}

/// Headers that requests have anyway, or that HTTP/2 has none of ([RFC
/// 9113](https://www.rfc-editor.org/rfc/rfc9113#name-connection-specific-header-)).
const TAKEN: [&str; 9] = [
    "connection",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Whether a request can have this header besides its own.
pub(crate) fn is_free(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !TAKEN.contains(&&*name) && !name.starts_with("grpc-")
}

/// Calls a method, `package.Service/Method`, and waits for its answer. Takes at most about `longest`.
pub(crate) fn call(
    target: &Target,
    trust: &mut Trust,
    method: &str,
    message: Message<'_>,
    longest: Duration,
) -> io::Result<Answer> {
    let request = request(target, method, message, longest)?;
    let connection = Connection::open(&target.url, target.proxy.as_ref(), trust, Deadline::after(longest))?;
    let stream = Stream::new(connection)?;
    stream.run(talk(stream.clone(), request, framed(message)?))
}

fn framed(message: Message<'_>) -> io::Result<Bytes> {
    let (is_compressed, bytes) = match message {
        Message::Plain(bytes) => (0, bytes),
        Message::Gzip(bytes) => (1, bytes),
    };
    let len = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a profile of more than 4 GiB"))?;
    let mut framed = BytesMut::with_capacity(PREFIX + bytes.len());
    framed.extend_from_slice(&[is_compressed]);
    framed.extend_from_slice(&len.to_be_bytes());
    framed.extend_from_slice(bytes);
    Ok(framed.freeze())
}

/// The head of a request.
fn request(target: &Target, method: &str, message: Message<'_>, longest: Duration) -> io::Result<Request<()>> {
    let scheme = if target.url.is_tls { "https" } else { "http" };
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("{scheme}://{}/{method}", target.url.authority))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header("user-agent", concat!("uu/", env!("CARGO_PKG_VERSION")))
        .header("grpc-timeout", format!("{}m", longest.as_millis().clamp(1, 99_999_999)));
    if let Message::Gzip(_) = message {
        request = request.header("grpc-encoding", "gzip");
    }
    let mut request = request.body(()).map_err(io::Error::other)?;
    let secret = |value: &str| {
        let mut value = HeaderValue::from_str(value).map_err(io::Error::other)?;
        // So that nobody on the way keeps it in a table.
        value.set_sensitive(true);
        Ok::<_, io::Error>(value)
    };
    for (name, value) in &target.headers {
        // Credentials of uu's own variables come first.
        if target.credentials == Credentials::None || !name.eq_ignore_ascii_case("authorization") {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
            request.headers_mut().append(name, secret(value)?);
        }
    }
    if let Some(value) = target.credentials.header() {
        request.headers_mut().insert("authorization", secret(&value)?);
    }
    Ok(request)
}

/// One request and its answer.
async fn talk(stream: Stream, request: Request<()>, body: Bytes) -> Result<Answer, h2::Error> {
    let mut builder = Builder::new();
    builder.enable_push(false).max_header_list_size(HEADERS).initial_window_size(WINDOW);
    builder.initial_connection_window_size(WINDOW);
    let (client, connection) = builder.handshake(stream).await?;
    let (mut connection, mut exchange) = (pin!(connection), pin!(exchange(client, request, body)));
    poll_fn(|context| {
        let over = connection.as_mut().poll(context);
        if let Poll::Ready(answer) = exchange.as_mut().poll(context) {
            if over.is_pending() {
                // Best effort: says farewell.
                let _ = connection.as_mut().poll(context);
            }
            return Poll::Ready(answer);
        }
        match over {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // It has closed.
            Poll::Ready(Ok(())) => Poll::Ready(Err(h2::Reason::NO_ERROR.into())),
        }
    })
    .await
}

async fn exchange(client: SendRequest<Bytes>, request: Request<()>, body: Bytes) -> Result<Answer, h2::Error> {
    let mut client = client.ready().await?;
    let (response, mut sending) = client.send_request(request, false)?;
    sending.send_data(body, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut said = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        if said.len() + piece.len() <= PREFIX + MOST {
            said.extend_from_slice(&piece);
        }
        body.flow_control().release_capacity(piece.len())?;
    }
    let trailers = body.trailers().await?;
    let status = trailers.as_ref().and_then(Status::of).or_else(|| Status::of(&head.headers));
    let kind = head.headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
    let is_grpc = head.status == http::StatusCode::OK && kind.starts_with(b"application/grpc");
    let status = match status {
        Some(status) => status,
        None if is_grpc => Status::missing(),
        None => Status::of_http(head.status),
    };
    Ok(Answer { status, message: message(said.freeze()) })
}

/// The one message of an answer; `None`: it is another one, or compressed, which nobody asked for.
fn message(mut said: Bytes) -> Option<Vec<u8>> {
    let is_plain = said.first() == Some(&0) && said.len() >= PREFIX;
    is_plain.then(|| said.advance(1))?;
    let len = said.get_u32() as usize;
    (said.len() == len).then(|| said.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::grpc_status::judge;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread::{spawn, JoinHandle};
    use uunwind_random::Random;

    /// A frame ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#name-frame-format)).
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    const DATA: u8 = 0;
    const HEADERS_FRAME: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const CONTINUATION: u8 = 9;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    /// Headers as literals ([RFC 7541](https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2)).
    fn headers(pairs: &[(&str, &str)]) -> Vec<u8> {
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        pairs.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
    }

    fn head(flags: u8, pairs: &[(&str, &str)]) -> Vec<u8> {
        frame(HEADERS_FRAME, END_HEADERS | flags, 1, &headers(pairs))
    }

    const OK: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

    fn good(message: &[u8], status: &[(&str, &str)]) -> Vec<u8> {
        [settings(), head(0, &OK), frame(DATA, 0, 1, message), head(END_STREAM, status)].concat()
    }

    fn settings() -> Vec<u8> {
        frame(SETTINGS, 0, 0, &[])
    }

    /// Kind, flags and payload of the next frame.
    fn read_frame(stream: &mut dyn Read) -> (u8, u8, Vec<u8>) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).expect("a payload");
        (head[3], head[4], payload)
    }

    /// Reads the preface of a connection, and frames up to the head of a request.
    fn read_head(stream: &mut dyn Read) {
        stream.read_exact(&mut [0; 24]).expect("a preface");
        while read_frame(stream).0 != HEADERS_FRAME {}
    }

    /// Answers each connection with the next of these, once a request has begun; then closes it, or leaves it open
    /// until the client closes.
    fn server(answers: Vec<Vec<u8>>, closes: bool) -> (Target, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("parca+grpc://{}", listener.local_addr().expect("an address"));
        let serve = move |answer: &[u8], stream: &mut TcpStream| {
            read_head(stream);
            let _ = stream.write_all(answer);
            if !closes {
                while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
            }
        };
        let thread = spawn(move || {
            answers.iter().for_each(|answer| serve(answer, &mut listener.accept().expect("a connection").0));
        });
        (Target::new(&url, None, "p", &[], Credentials::None, None, &|_| None).expect("valid"), thread)
    }

    fn called(target: &Target, message: &[u8], seconds: u64) -> Attempt {
        let longest = Duration::from_secs(seconds);
        let answer = call(target, &mut Trust::default(), "a.B/C", Message::Gzip(message), longest);
        let accepted = |message: &[u8]| Attempt::SentBut(String::from_utf8_lossy(message).into_owned());
        judge(answer, accepted, "a.B", "nowhere")
    }

    /// What becomes of this answer, if the connection stays open.
    fn answered(answer: Vec<u8>) -> Attempt {
        let (target, thread) = server(vec![answer], false);
        let attempt = called(&target, b"request", 60);
        thread.join().expect("no panic");
        attempt
    }

    #[test]
    fn answers_are_read_to_their_status() {
        let said = b"\0\0\0\0\x02hi";
        assert_eq!(answered(good(said, &[("grpc-status", "0")])), Attempt::SentBut("hi".to_owned()));
        // In pieces of a byte.
        let pieces: Vec<u8> = said.iter().flat_map(|byte| frame(DATA, 0, 1, &[*byte])).collect();
        let answer = [settings(), head(0, &OK), pieces, head(END_STREAM, &[("grpc-status", "0")])].concat();
        assert_eq!(answered(answer), Attempt::SentBut("hi".to_owned()));
        let status = [("grpc-status", "3"), ("grpc-message", "no%20good")];
        let refused = Attempt::Refused("the answer is INVALID_ARGUMENT: no good".to_owned());
        assert_eq!(answered(good(b"", &status)), refused);
        assert_eq!(answered([settings(), head(END_STREAM, &[&OK[..], &status].concat())].concat()), refused);
        for message in [&b""[..], b"\0\0\0\0\x03hi", b"\x01\0\0\0\x02hi", b"\0\0\0\0\x00\0\0\0\0\x00", b"\0\0\0"] {
            let attempt = answered(good(message, &[("grpc-status", "0")]));
            assert!(matches!(attempt, Attempt::Refused(_)), "{message:?}: {attempt:?}");
        }
    }

    #[test]
    fn what_else_answers_is_named() {
        let long = vec![b'x'; 100];
        let many: Vec<(&str, &str)> = (0..200).map(|_| ("x", std::str::from_utf8(&long).expect("UTF-8"))).collect();
        let pages = [(":status", "404"), ("content-type", "text/html")];
        // Headers without an end.
        let continued = frame(CONTINUATION, 0, 1, &headers(&many));
        let (piece, end) = (frame(DATA, 0, 1, &[0; 15 << 10]), head(END_STREAM, &[("grpc-status", "0")]));
        let endless = [settings(), frame(HEADERS_FRAME, 0, 1, &headers(&OK)), continued.repeat(20)].concat();
        for (name, answer, is_final, said) in [
            ("page", [settings(), head(END_STREAM, &pages)].concat(), true, "no server of gRPC: HTTP status 404"),
            ("no status", [settings(), head(END_STREAM, &OK)].concat(), true, "the answer has no grpc-status"),
            ("reset", [settings(), frame(RST_STREAM, 0, 1, &7u32.to_be_bytes())].concat(), false, "HTTP/2: "),
            ("goaway", [settings(), frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11])].concat(), false, "HTTP/2: "),
            ("endless headers", endless, false, ""),
            ("pings", [settings(), frame(PING, 0, 0, &[0; 8]).repeat(1 << 17)].concat(), false, ""),
            (
                "too long",
                [settings(), head(0, &OK), piece.repeat(3), end].concat(),
                true,
                "the answer is OK and has no message",
            ),
            (
                "a window of 2^31",
                [settings(), frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])].concat(),
                false,
                "HTTP/2: ",
            ),
            ("no settings", head(END_STREAM, &OK), false, "its answer is not HTTP/2"),
        ] {
            let attempt = answered(answer);
            let (why, may_be_repeated) = match &attempt {
                Attempt::Refused(why) => (why, false),
                Attempt::Later(why, None) => (why, true),
                other => panic!("{name}: {other:?}"),
            };
            assert!(why.contains(said) && !why.is_empty() && may_be_repeated != is_final, "{name}: {attempt:?}");
        }
    }

    /// A server that reads nothing more, or says nothing: its time is over at some time, and was not spent in a loop.
    #[test]
    fn who_says_nothing_is_left_when_the_time_is_over() {
        let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        for answer in [Vec::new(), settings()] {
            let (target, thread) = server(vec![answer], false);
            let begin = cpu();
            // More than both windows.
            let attempt = called(&target, &vec![7; 4 << 20], 2);
            let used = cpu() - begin;
            assert_eq!(attempt, Attempt::Later("there is no answer in time".to_owned(), None));
            assert!(used.tv_sec == 0 && used.tv_nsec < 500_000_000, "{used:?}");
            thread.join().expect("no panic");
        }
    }

    trait Wire: Read + Write {}
    impl<T: Read + Write> Wire for T {}

    /// Reads a request, and gives room for more, either at once for all of it, or for what is read.
    fn read_request(stream: &mut dyn Wire, at_once: bool) -> Vec<u8> {
        let room = |count: u32| [0, 1].map(|on| frame(WINDOW_UPDATE, 0, on, &count.to_be_bytes())).concat();
        stream.write_all(&settings()).expect("a connection");
        read_head(stream);
        if at_once {
            stream.write_all(&room(1 << 30)).expect("a connection");
            // So that all is full on the way.
            std::thread::sleep(Duration::from_millis(300));
        }
        let mut body = Vec::new();
        loop {
            let (kind, flags, payload) = read_frame(stream);
            if kind != DATA {
                continue;
            }
            body.extend_from_slice(&payload);
            if flags & END_STREAM != 0 {
                return body;
            }
            if !at_once && !payload.is_empty() {
                stream.write_all(&room(payload.len() as u32)).expect("a connection");
            }
        }
    }

    /// More than the windows of HTTP/2 let pass at once, and more than a socket holds; with TLS, and without.
    #[test]
    fn a_large_message_goes_as_there_is_room() {
        let message: Vec<u8> = (0..12_u32 << 20).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let mut trust = Trust::in_roots(roots);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("a server");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        for (scheme, at_once) in [("grpc", true), ("grpc", false), ("grpcs", true), ("grpcs", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("parca+{scheme}://localhost:{}", listener.local_addr().expect("an address").port());
            let config = config.clone();
            let thread = spawn(move || {
                let (stream, _) = listener.accept().expect("a connection");
                let mut stream: Box<dyn Wire> = match scheme {
                    "grpcs" => Box::new(StreamOwned::new(ServerConnection::new(config).expect("a server"), stream)),
                    _ => Box::new(stream),
                };
                let body = read_request(&mut *stream, at_once);
                let answer =
                    [head(0, &OK), frame(DATA, 0, 1, b"\0\0\0\0\x02hi"), head(END_STREAM, &[("grpc-status", "0")])];
                stream.write_all(&answer.concat()).and_then(|()| stream.flush()).expect("a connection");
                while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
                body
            });
            let target = Target::new(&url, None, "p", &[], Credentials::None, None, &|_| None).expect("valid");
            let longest = Duration::from_secs(120);
            let answer = call(&target, &mut trust, "a.B/C", Message::Plain(&message), longest).expect("an answer");
            assert_eq!(answer.message.as_deref(), Some(&b"hi"[..]), "{scheme} {at_once}");
            let body = thread.join().expect("no panic");
            let (prefix, body) = body.split_at(PREFIX);
            assert!(body == message, "{scheme} {at_once}: {} bytes", body.len());
            assert_eq!(prefix, [&[0][..], &(12_u32 << 20).to_be_bytes()].concat());
        }
    }

    /// Whatever comes, in whatever order: no panic, and an end.
    #[test]
    fn damaged_answers_have_an_end() {
        let message = good(b"\0\0\0\0\x02hi", &[("grpc-status", "0"), ("grpc-message", "a%20b")]);
        let seed = [message, frame(PING, 0, 0, &[1; 8]), frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0])].concat();
        let mut random = Random::new(38);
        let damaged = |_| {
            let mut answer = seed.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(answer.len() as u64) as usize;
                match random.below(4) {
                    0 => answer[at] = random.below(256) as u8,
                    1 => answer[at] ^= 1 << random.below(8),
                    2 => answer.truncate(at.max(1)),
                    _ => drop(answer.splice(at..at, seed.iter().copied().take(random.below(40) as usize))),
                }
            }
            answer
        };
        let answers: Vec<Vec<u8>> = (0..1_000).map(damaged).collect();
        let count = answers.len();
        let (target, thread) = server(answers, true);
        let attempts: Vec<Attempt> = (0..count).map(|_| called(&target, b"request", 60)).collect();
        thread.join().expect("no panic");
        // Some are whole still, and none was waited for until the time was over.
        assert!(attempts.iter().any(|attempt| matches!(attempt, Attempt::SentBut(_))));
        let late = |attempt: &Attempt| matches!(attempt, Attempt::Later(why, _) if why.contains("in time"));
        assert!(!attempts.iter().any(late));
    }
}
