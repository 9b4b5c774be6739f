//! `uu record --push`: receivers made from Pyroscope's published interface get every sample that the recording has, and
//! whatever else answers, or does not, the program ends as ever, and what was lost is counted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use uunwind_tests::pprof::{self, Profile};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, uu};

/// A request, as it came.
#[derive(Clone, Debug, Default)]
struct Request {
    /// Method, target and version.
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// A parameter of the query, decoded.
    fn parameter(&self, name: &str) -> String {
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

    /// The profile: the form's one file.
    fn profile(&self) -> Profile {
        let boundary = self.header("content-type").strip_prefix("multipart/form-data; boundary=").expect("a form");
        let (begin, end) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}--\r\n"));
        let part = self.body.strip_prefix(begin.as_bytes()).and_then(|rest| rest.strip_suffix(end.as_bytes()));
        let part = part.expect("one part");
        let head = part.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let text = String::from_utf8_lossy(&part[..head]);
        assert!(text.contains("name=\"profile\"") && text.contains("filename="), "{text}");
        pprof::read(&pprof::gunzip(&part[head + 4..]))
    }
}

/// Reads a request; `None`: the connection ended before.
fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("an ASCII head");
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut request = Request { line, headers: lines.filter_map(pair).collect(), body: Vec::new() };
    request.body = vec![0; request.header("content-length").parse().expect("a length")];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// A server: what it does with each connection, by the number of it from 0 on.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a server does with a connection.
#[derive(Clone, Copy)]
enum Does {
    /// Reads the request, and answers this.
    Answers(&'static str),
    /// Answers before it has read anything, and closes.
    Throws(&'static str),
    /// Closes halfway.
    Closes,
    /// Neither reads nor answers.
    Sleeps,
}

const OK: Does = Does::Answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");

impl Server {
    fn start(does: impl Fn(usize) -> Does + Send + 'static) -> Server {
        Server::at(0, does)
    }

    /// On this port; 0: any.
    fn at(port: u16, does: impl Fn(usize) -> Does + Send + 'static) -> Server {
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
                match does(number) {
                    Does::Answers(answer) => {
                        if let Some(request) = read(&mut stream) {
                            kept.lock().expect("no panic").push(request);
                            let _ = stream.write_all(answer.as_bytes());
                        }
                    }
                    Does::Throws(answer) => {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    Does::Closes => {
                        let _ = stream.read(&mut [0; 100]);
                    }
                    Does::Sleeps => open.push(stream),
                }
            }
        });
        Server { port, requests, over, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests that were read.
    fn end(mut self) -> Vec<Request> {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("a receiver that validates"));
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

fn program(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[])
}

/// Records the program for this time, with a profile a second.
fn pushed(scratch: &Path, url: &str, milliseconds: &str, options: &[&str], secrets: &[(&str, &str)]) -> Recording {
    let program = program(scratch);
    let options = [&["-r", "499", "--push", url, "--push-every", "1"], options].concat();
    let configure = |uu: &mut std::process::Command| {
        uu.envs(secrets.iter().copied());
    };
    uu::record(scratch, &options, configure, &[program.as_os_str(), milliseconds.as_ref()]).expect_code(0)
}

/// What the recording's own report says, read by the same reader.
fn local(recording: &Recording, scratch: &Path) -> Profile {
    let out = scratch.join("local.pb.gz");
    let words = ["report".as_ref(), recording.file.as_os_str(), "-o".as_ref(), out.as_os_str()];
    let done = uu::command(scratch, &words).output().expect("uu runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    pprof::read(&pprof::gunzip(&std::fs::read(out).expect("a profile")))
}

#[test]
fn a_store_gets_every_sample_once() {
    let scratch = paths::scratch("push-all");
    let server = Server::start(|_| OK);
    let options = ["--service", "shop.cart", "--label", "zone=b", "--label", "tier=1"];
    let secrets = [("UU_PUSH_USER", "tenant"), ("UU_PUSH_PASSWORD", "geheim")];
    let recording = pushed(&scratch, &format!("{}/store/", server.url()), "3500", &options, &secrets);
    let requests = server.end();
    assert!(requests.len() >= 3, "{} profiles: {}", requests.len(), recording.outcome.text());
    let mut all = Profile::default();
    let mut until = 0;
    for request in &requests {
        assert!(request.line.starts_with("POST /store/ingest?") && request.line.ends_with(" HTTP/1.1"), "{request:?}");
        assert_eq!(request.parameter("name"), "shop.cart{zone=b,tier=1}");
        assert_eq!((&*request.parameter("format"), &*request.parameter("sampleRate")), ("pprof", "499"));
        // `printf tenant:geheim | base64`
        assert_eq!(request.header("authorization"), "Basic dGVuYW50OmdlaGVpbQ==");
        let profile = request.profile();
        assert_eq!(profile.types, ["samples/count", "cpu/nanoseconds"]);
        let seconds = |name| request.parameter(name).parse::<u64>().expect("seconds") * 1_000_000_000;
        assert!(seconds("from") <= profile.time && profile.time + profile.duration <= seconds("until"));
        assert!(profile.time >= until, "a profile begins before the one before it ends");
        until = profile.time + profile.duration;
        all.add(&profile);
    }
    assert_eq!(all.stacks, local(&recording, &scratch).stacks);
    let said = format!("pushed {} profiles ({} samples)", requests.len(), all.sum(0));
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// Nobody listens: said once, all is kept, and the next recording that pushes there sends it.
#[test]
fn what_nobody_took_is_sent_by_a_later_recording() {
    let scratch = paths::scratch("push-later");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}");
    let first = pushed(&scratch, &url, "2500", &[], &[]);
    let said = &first.outcome.stderr;
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(said.contains("pushed 0 profiles (0 samples)") && said.contains("wait to be sent"), "{said}");
    let mut all = local(&first, &scratch);
    // Another program may have taken the port; then there is nothing to see here.
    let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) else { return };
    drop(listener);
    let server = Server::at(port, |_| OK);
    let second = pushed(&scratch, &url, "300", &[], &[]);
    let requests = server.end();
    let mut got = Profile::default();
    requests.iter().for_each(|request| got.add(&request.profile()));
    all.add(&local(&second, &scratch));
    assert_eq!(got.stacks, all.stacks);
    assert!(second.outcome.stderr.contains("of an earlier recording"), "{}", second.outcome.text());
}

/// Wrong credentials do not become right: said once, counted, nothing is kept.
#[test]
fn refusals_are_final_and_said_once() {
    let scratch = paths::scratch("push-refused");
    let server = Server::start(|_| Does::Answers("HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nsecret"));
    let recording = pushed(&scratch, &server.url(), "2500", &[], &[("UU_PUSH_TOKEN", "wrong")]);
    let requests = server.end();
    assert!(requests.len() >= 2 && requests.iter().all(|request| request.header("authorization") == "Bearer wrong"));
    let said = &recording.outcome.stderr;
    assert_eq!(said.matches("401: credentials are missing or wrong").count(), 1, "{said}");
    assert!(said.contains(&format!("{} profiles were refused, 0 found no room, 0 wait", requests.len())), "{said}");
}

/// A store that is there again after some trouble gets all; each kind of trouble is named.
#[test]
fn trouble_is_survived_and_nothing_is_lost() {
    for (name, trouble, said) in [
        ("garbage", Does::Throws("\u{1}\u{2}SSH-2.0\r\n\r\n\r\n"), "its answer is not HTTP"),
        ("closes", Does::Closes, "uu tries again"),
        ("busy", Does::Answers("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n"), "the answer is 503"),
    ] {
        let scratch = paths::scratch(&format!("push-{name}"));
        let server = Server::start(move |number| if number == 0 { trouble } else { OK });
        let recording = pushed(&scratch, &server.url(), "4500", &[], &[]);
        let mut got = Profile::default();
        let requests = server.end();
        let taken = requests.iter().skip(usize::from(matches!(trouble, Does::Answers(_))));
        taken.for_each(|request| got.add(&request.profile()));
        assert!(recording.outcome.stderr.contains(said), "{name}: {}", recording.outcome.text());
        assert_eq!(got.stacks, local(&recording, &scratch).stacks, "{name}: {}", recording.outcome.text());
    }
}

/// A store that takes a connection and says nothing: uu waits some seconds for it, and keeps all.
#[test]
fn a_store_that_says_nothing_holds_nobody_up_for_long() {
    let scratch = paths::scratch("push-silent");
    let server = Server::start(|_| Does::Sleeps);
    let recording = pushed(&scratch, &server.url(), "1500", &[], &[]);
    server.end();
    let said = &recording.outcome.stderr;
    assert!(said.contains("pushed 0 profiles (0 samples)") && said.contains("wait to be sent"), "{said}");
}

#[test]
fn wrong_values_are_refused_before_the_program_starts() {
    let scratch = paths::scratch("push-values");
    for (options, why) in [
        (&["--push", "https://h"][..], "uu speaks http:// only"),
        (&["--push", "localhost"], "give an URL"),
        (&["--push", "http://u:p@h"], "credentials stand in the environment"),
        (&["--push", "http://h", "--label", "x"], "a label is KEY=VALUE"),
        (&["--push", "http://h", "--service", "a b"], "the service's name is"),
        (&["--push", "http://h", "--push-every", "0"], "--push-every 0: the time must be"),
        (&["--push", "http://h", "--names", "later"], "leave --names and --unwind out"),
        (&["--push", "http://h", "--mode", "alloc"], "--push and --mode alloc do not go together"),
        (&["--push-every", "7"], "give --push URL"),
        (&["--label", "x"], "a label is KEY=VALUE"),
    ] {
        let words = [&["record"], options, &["--", "touch", "started"]].concat();
        let done = uu::command(&scratch, &words).current_dir(&scratch).output().expect("uu runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{options:?}: {said}");
        assert!(!scratch.join("started").exists(), "{options:?} started the program");
    }
}
