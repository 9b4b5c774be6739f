//! A server of HTTP/1.1 for what `uu record --push` sends: it keeps the requests, and answers what a test wants.

use crate::certificates::Identity;
use crate::pprof::{self, Profile};
use crate::uu::{self, Recording};
use rustls::{ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A request, as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Method, target and version.
    pub line: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// What follows them.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header; empty: it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// A parameter of the query, decoded.
    ///
    /// # Panics
    /// If it is not there.
    #[track_caller]
    pub fn parameter(&self, name: &str) -> String {
        let target = self.line.split(' ').nth(1).expect("a target");
        let (_, query) = target.split_once('?').expect("a query");
        let pair = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        let value = pair.unwrap_or_else(|| panic!("no {name} in {query}")).1;
        let mut bytes = Vec::new();
        let mut rest = value.bytes();
        while let Some(byte) = rest.next() {
            let mut digit = || char::from(rest.next().expect("two digits")).to_digit(16).expect("a digit") as u8;
            bytes.push(if byte == b'%' { digit() << 4 | digit() } else { byte });
        }
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// The profile: the form's one file, but for the meaning of its values.
    ///
    /// # Panics
    /// If the body is another one.
    #[track_caller]
    pub fn profile(&self) -> Profile {
        let boundary = self.header("content-type").strip_prefix("multipart/form-data; boundary=").expect("a form");
        let (begin, end) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}--\r\n"));
        let part = self.body.strip_prefix(begin.as_bytes()).and_then(|rest| rest.strip_suffix(end.as_bytes()));
        let part = part.expect("one part");
        let next = format!("\r\n--{boundary}\r\n");
        let end = part.windows(next.len()).position(|bytes| bytes == next.as_bytes());
        let part = &part[..end.unwrap_or(part.len())];
        let head = part.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let text = String::from_utf8_lossy(&part[..head]);
        assert!(text.contains("name=\"profile\"") && text.contains("filename="), "{text}");
        pprof::read(&pprof::gunzip(&part[head + 4..]))
    }
}

/// Leaves of what says how stores are reached only this in the environment.
pub fn only_with(uu: &mut Command, environment: &[(&str, &str)]) {
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
        uu.env_remove(name);
    }
    uu.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").envs(environment.iter().copied());
}

/// The sums of the profiles of these requests.
///
/// # Panics
/// If one has none.
#[track_caller]
pub fn sums(requests: &[Request]) -> Profile {
    let mut all = Profile::default();
    requests.iter().for_each(|request| all.add(&request.profile()));
    all
}

/// What the recording's own report says, read by the same reader.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn local(recording: &Recording, scratch: &Path) -> Profile {
    local_with(recording, scratch, &[])
}

/// The same with options.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn local_with(recording: &Recording, scratch: &Path, options: &[&str]) -> Profile {
    let out = scratch.join("local.pb.gz");
    let mut uu = uu::command(scratch, &["report"]);
    let done = uu.arg(&recording.file).args(options).arg("-o").arg(&out).output().expect("uu runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    pprof::read(&pprof::gunzip(&std::fs::read(out).expect("a profile")))
}

/// A connection, of TCP or TLS.
trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Reads up to the end of a head; `None`: the connection ended before.
fn read_head(stream: &mut dyn Wire) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).expect("an ASCII head"))
}

/// Reads a request; `None`: the connection ended before.
fn read(stream: &mut dyn Wire) -> Option<Request> {
    let mut request = parsed(&read_head(stream)?);
    request.body = vec![0; request.header("content-length").parse().expect("a length")];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}

fn parsed(head: &str) -> Request {
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned()));
    Request { line, headers: lines.filter_map(pair).collect(), body: Vec::new() }
}

/// What a server does with a connection.
#[derive(Clone)]
pub enum Does {
    /// Reads the request, and answers this.
    Answers(Vec<u8>),
    /// Answers before it has read anything, and closes.
    Throws(&'static str),
    /// Reads once, says this, and closes.
    Says(&'static str),
    /// Closes halfway.
    Closes,
    /// Neither reads nor answers.
    Sleeps,
    /// Shows this, speaks TLS, and answers this.
    Shows(Identity, Vec<u8>),
    /// Is a proxy: passes bytes on to this port, whatever it is asked for, if it is asked with these credentials.
    PassesOn(u16, &'static str),
}

/// An answer without a body.
pub fn ok() -> Does {
    Does::Answers(OK.to_vec())
}

/// What [`ok`] answers.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A server: what it does with each connection, by the number of it from 0 on.
pub struct Server {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// On any port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start(does: impl Fn(usize) -> Does + Send + 'static) -> Server {
        Server::at(0, does)
    }

    /// On this port; 0: any.
    ///
    /// # Panics
    /// If it is taken.
    pub fn at(port: u16, does: impl Fn(usize) -> Does + Send + 'static) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (requests, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, ends) = (requests.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            for (number, stream) in listener.incoming().enumerate() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                let keep = |request| kept.lock().expect("no panic").push(request);
                match does(number) {
                    Does::Answers(answer) => serve(&mut stream, &answer, keep),
                    Does::Throws(answer) => {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    Does::Says(answer) => {
                        let _ = stream.read(&mut [0; 4096]);
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    Does::Closes => {
                        let _ = stream.read(&mut [0; 100]);
                    }
                    Does::Sleeps => open.push(stream),
                    Does::Shows(identity, answer) => {
                        let connection = ServerConnection::new(identity.config).expect("a connection");
                        serve(&mut StreamOwned::new(connection, stream), &answer, keep);
                    }
                    Does::PassesOn(to, user) => pass_on(stream, to, user, keep),
                }
            }
        });
        Server { port, requests, over, thread: Some(thread) }
    }

    /// By http.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests that were read so far.
    ///
    /// # Panics
    /// If the receiver has panicked.
    pub fn so_far(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }

    /// The requests that were read.
    ///
    /// # Panics
    /// If the receiver has found fault with one.
    pub fn end(mut self) -> Vec<Request> {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("a receiver that validates"));
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

fn serve(stream: &mut dyn Wire, answer: &[u8], keep: impl FnOnce(Request)) {
    if let Some(request) = read(stream) {
        keep(request);
        let _ = stream.write_all(answer);
        let _ = stream.flush();
    }
}

/// One request to a proxy: its head is kept.
fn pass_on(mut stream: TcpStream, to: u16, user: &str, keep: impl FnOnce(Request)) {
    let Some(head) = read_head(&mut stream) else { return };
    let request = parsed(&head);
    let (is_tunnel, is_known) = (request.line.starts_with("CONNECT "), request.header("proxy-authorization") == user);
    keep(request);
    if !is_known {
        let _ = stream.write_all(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let mut onward = TcpStream::connect(("127.0.0.1", to)).expect("the server");
    match is_tunnel {
        true => stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").expect("an open connection"),
        false => onward.write_all(head.as_bytes()).expect("an open connection"),
    }
    let (mut from, mut back) = (stream.try_clone().expect("a stream"), onward.try_clone().expect("a stream"));
    let there = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut onward);
        let _ = onward.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut back, &mut stream);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    there.join().expect("no panic");
}
