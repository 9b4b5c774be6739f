//! PHP's server of processes (FPM), and a client of it (<https://fastcgi-archives.github.io/FastCGI_Specification.html>).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::paths;
use uunwind_tests::running::wait_for;

/// The server's program. `None`: this machine has none that runs.
pub fn program() -> Option<PathBuf> {
    let suites = paths::list(&paths::target().join("interpreters")).into_iter();
    let folders = suites.map(|suite| suite.join("usr/sbin")).chain([PathBuf::from("/usr/sbin")]);
    let programs = folders.flat_map(|folder| paths::list(&folder));
    let is_fpm = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    let runs = |path: &PathBuf| Command::new(path).args(["-n", "-v"]).output().is_ok_and(|out| out.status.success());
    programs.filter(is_fpm).find(runs)
}

/// A server of two processes, with its files in a folder.
pub struct Server {
    folder: PathBuf,
}

impl Server {
    /// Writes down how it is configured.
    pub fn new(folder: &Path) -> Server {
        let at = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "[global]\nerror_log = {}\npid = {}\ndaemonize = no\n[www]\nlisten = {}\npm = static\npm.max_children = 2\n\
             user = root\ngroup = root\nclear_env = no\n",
            at("fpm.log"),
            at("fpm.pid"),
            at("socket")
        );
        std::fs::write(folder.join("fpm.conf"), text).expect("a file");
        Server { folder: folder.to_owned() }
    }

    /// The options that start it, in the foreground.
    pub fn options(&self) -> Vec<String> {
        let configuration = self.folder.join("fpm.conf").display().to_string();
        ["-n", "-R", "-F", "-y", &configuration].map(str::to_owned).to_vec()
    }

    /// Asks for a page this many times, once it serves, and ends it. Returns the last answer.
    pub fn ask(&self, page: &Path, times: u32) -> String {
        let socket = self.folder.join("socket");
        wait_for("the server's socket", || UnixStream::connect(&socket).is_ok());
        let mut answer = String::new();
        for _ in 0..times {
            answer = request(UnixStream::connect(&socket).expect("a server"), page);
        }
        let pid = std::fs::read_to_string(self.folder.join("fpm.pid")).expect("its number");
        let ended = Command::new("sh").args(["-c", "kill -QUIT \"$0\"", pid.trim()]).status();
        assert!(ended.is_ok_and(|status| status.success()), "{pid}");
        answer
    }
}

/// A record of the protocol.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, len[0], len[1], 0, 0], content].concat()
}

fn request(mut server: UnixStream, page: &Path) -> String {
    const BEGIN: u8 = 1;
    const PARAMETERS: u8 = 4;
    const INPUT: u8 = 5;
    let page = page.to_str().expect("a path");
    let mut parameters = Vec::new();
    for (name, value) in [("SCRIPT_FILENAME", page), ("SCRIPT_NAME", "/page.php"), ("REQUEST_METHOD", "GET")] {
        // Lengths over 127 have four bytes, with the highest bit.
        for len in [name.len(), value.len()] {
            parameters.extend((len as u32 | 1 << 31).to_be_bytes());
        }
        parameters.extend([name, value].concat().bytes());
    }
    let responder = [0, 1, 0, 0, 0, 0, 0, 0];
    let records =
        [record(BEGIN, &responder), record(PARAMETERS, &parameters), record(PARAMETERS, &[]), record(INPUT, &[])];
    server.write_all(&records.concat()).expect("a request");
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}
