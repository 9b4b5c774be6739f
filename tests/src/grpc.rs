//! A server of gRPC, by grpcio, for what `uu record --push` sends: another implementation, which keeps the calls and
//! answers what a test wants.

use crate::certificates::Identity;
use crate::{paths, readers};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A call, as it came.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// `/package.Service/Method`.
    pub method: String,
    /// Names and values.
    pub metadata: Vec<(String, String)>,
    /// The time that the client gives it, in seconds, as far as it is left.
    pub seconds: f64,
    /// The message, decompressed.
    pub message: Vec<u8>,
    /// The file with that message.
    pub file: PathBuf,
}

impl Call {
    /// The values of this name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.metadata.iter().filter(|(key, _)| key == name).map(|(_, value)| &**value).collect()
    }
}

/// A server that runs.
pub struct Server {
    child: Child,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts one with these answers, of which the last one is that of all further calls
    /// (`tests/tests/push/serve_grpc.py`). `None`, and `what` is reported as skipped: there is no grpcio. `identity`:
    /// what it shows, for TLS.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start(what: &str, scratch: &Path, answers: &Value, identity: Option<&Identity>) -> Option<Server> {
        readers::installed(what, "grpcio")?;
        let python = readers::installed(what, "python/bin/python3")?;
        let folder = scratch.join("calls");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("plan.json"), answers.to_string()).expect("a file");
        let mut command = Command::new(python);
        command.arg(paths::root().join("tests/tests/push/serve_grpc.py")).arg(&folder).stdout(Stdio::piped());
        // What tests of proxies set is not for it.
        command.env_remove("http_proxy").env_remove("https_proxy");
        if let Some(identity) = identity {
            let pem = scratch.join("identity.pem");
            std::fs::write(&pem, &identity.pem).expect("a file");
            command.arg(pem);
        }
        let mut child = command.spawn().expect("python runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("a port");
        Some(Server { child, port, folder })
    }

    /// Its calls so far.
    ///
    /// # Panics
    /// If it has not kept one.
    pub fn calls(&self) -> Vec<Call> {
        let file = |number: usize, kind: &str| self.folder.join(format!("{number}.{kind}"));
        let call = |number| {
            let known = std::fs::read(file(number, "json")).expect("a file");
            let known: Value = serde_json::from_slice(&known).expect("JSON");
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let metadata = known["metadata"].as_array().expect("a list").iter();
            let file = file(number, "request");
            Call {
                method: text(&known["method"]),
                metadata: metadata.map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
                seconds: known["seconds"].as_f64().expect("a time"),
                message: std::fs::read(&file).expect("a file"),
                file,
            }
        };
        (0..).take_while(|number| file(*number, "json").exists()).map(call).collect()
    }

    /// Ends it. Its calls.
    pub fn end(mut self) -> Vec<Call> {
        self.kill();
        self.calls()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
