//! Web servers under load: each answers with the sum of the squares below 2,000.

use crate::running::Running;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What each answer has.
pub const ANSWER: &str = "2664667000";
/// Connections at a time.
const CONNECTIONS: usize = 3;

/// How often a campaign goes round: `UU_CYCLES`, else with `UU_CAMPAIGNS` this often, else a few times.
pub fn cycles(campaign: u32) -> u32 {
    let wanted = std::env::var("UU_CYCLES").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(if std::env::var_os("UU_CAMPAIGNS").is_some() { campaign } else { 3 })
}

/// Starts a server that says "ready" and its port, which is returned.
///
/// # Panics
/// If it says something else.
#[track_caller]
pub fn served(command: &mut Command) -> (Running, u16) {
    let mut running = Running::start(command);
    let line = running.line();
    let port = line.strip_prefix("ready ").and_then(|port| port.parse().ok());
    let port = port.unwrap_or_else(|| panic!("{command:?} says {line:?}"));
    (running, port)
}

/// Requests to a server, one after the other on each connection, as long as this lives.
pub struct Load {
    over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins to ask the server on this port.
    pub fn on(port: u16) -> Load {
        let (over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let ask = |_| {
            let (over, answers) = (over.clone(), answers.clone());
            std::thread::spawn(move || ask(port, &over, &answers))
        };
        let threads = (0..CONNECTIONS).map(ask).collect();
        Load { over, answers, threads }
    }

    /// Ends, and returns the number of answers.
    ///
    /// # Panics
    /// If a request has failed.
    #[track_caller]
    pub fn end(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        let failed = self.threads.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        assert_eq!(failed, 0, "requests have failed, see above");
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    /// Nobody asks a server that ends.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Asks until `over` says so, and counts the answers; a request that fails is a failure.
fn ask(port: u16, over: &AtomicBool, answers: &AtomicU64) {
    let request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    let mut server = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    while !over.load(Ordering::Relaxed) {
        server.write_all(request).expect("a request");
        let mut text = Vec::new();
        while !text.windows(ANSWER.len()).any(|part| part == ANSWER.as_bytes()) {
            let mut part = [0; 4096];
            let read = server.read(&mut part).expect("an answer");
            assert!(read > 0, "the connection was closed: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&part[..read]);
        }
        assert!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&text));
        answers.fetch_add(1, Ordering::Relaxed);
    }
}
