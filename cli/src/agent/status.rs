//! What an agent does, for `uu agent status`: one JSON text for each connection to a socket that its user alone may
//! reach.

use crate::exit::Failure;
use rustix::process::geteuid;
use serde_json::Value;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_report::formats::printable;

/// The socket's name in its folder.
const NAME: &str = "agent.sock";
/// Longest time in which a reader must take what is written to it, or an agent answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a reader that an agent writes to.
const SHORT: Duration = Duration::from_secs(1);
/// Limit of an answer, in bytes.
const LIMIT: u64 = 64 << 20;

/// Where an agent is asked.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

/// Where the socket is: as given, else in the folder of this user's services.
pub fn place(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = folder("RUNTIME_DIRECTORY") {
        return Ok(folder.join(NAME));
    }
    if geteuid().is_root() {
        return Ok(Path::new("/run/uu").join(NAME));
    }
    folder("XDG_RUNTIME_DIR").map(|folder| folder.join("uu").join(NAME)).ok_or_else(|| {
        Failure::new("XDG_RUNTIME_DIR is not set, so there is no place for the agent's socket: give --socket FILE")
    })
}

impl Listener {
    /// Listens there, where no other agent does.
    pub fn at(path: PathBuf) -> Result<Listener, Failure> {
        let shown = path.display();
        let cannot = |e: std::io::Error| {
            Failure::new(format!("cannot listen at {shown}: {e}. Give another place with --socket FILE"))
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
        }
        if UnixStream::connect(&path).is_ok() {
            return Err(Failure::new(format!(
                "another agent answers at {shown}: end that one first, or give --socket FILE to have a second one"
            )));
        }
        // Left by one that was killed. What is no socket stays, and is in the way.
        let is_left = fs::symlink_metadata(&path).is_ok_and(|file| {
            std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()) && file.uid() == geteuid().as_raw()
        });
        if is_left {
            fs::remove_file(&path).map_err(cannot)?;
        }
        let socket = UnixListener::bind(&path).map_err(cannot)?;
        let listener = Listener { socket, path: path.clone() };
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(cannot)?;
        listener.socket.set_nonblocking(true).map_err(cannot)?;
        Ok(listener)
    }

    /// Becomes readable when somebody asks.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Answers all who ask.
    pub fn answer(&self, status: impl Fn() -> Value) {
        while let Ok((mut stream, _)) = self.socket.accept() {
            // A reader that takes nothing loses the rest.
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_write_timeout(Some(SHORT));
            let _ = stream.write_all(format!("{}\n", status()).as_bytes());
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What the agent says that listens there.
pub fn ask(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let mut stream = UnixStream::connect(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(format!(
            "no agent answers at {shown}: start one with `uu agent -c FILE`, or give the place of its socket with --socket"
        )),
        _ => Failure::new(format!("the agent at {shown} cannot be asked: {e}. Its socket is its user's alone")),
    })?;
    let mut text = String::new();
    let read =
        stream.set_read_timeout(Some(PATIENCE)).and_then(|()| (&mut stream).take(LIMIT).read_to_string(&mut text));
    read.map_err(|e| Failure::new(format!("the agent at {shown} does not answer: {e}")))?;
    Ok(text)
}

/// The same for people.
pub fn shown(text: &str) -> Result<String, Failure> {
    let status: Value =
        serde_json::from_str(text).map_err(|e| Failure::new(format!("the agent's answer cannot be read: {e}")))?;
    let (push, budget) = (&status["push"], &status["budget"]);
    let mut out = format!(
        "uu agent (pid {}), {}, for {} s: {} processes profiled, {} not\n",
        status["pid"],
        word(&status["config"]),
        status["seconds"],
        list(&status["processes"]).len(),
        list(&status["refused"]).len()
    );
    out += &format!(
        "pushed {} profiles ({} samples) to {}; {} wait, {} were refused, {} found no room, {} could not be made; {} \
         samples were lost in rings\n",
        push["sent"],
        push["samples"],
        word(&push["url"]),
        push["waiting"],
        push["refused"],
        push["dropped"],
        push["failed"],
        push["lost"]
    );
    out += &format!(
        "uses {:.2} % of the CPUs (of {} %), {} MB (of {}), {} processes at most; refused {} times\n",
        budget["cpu_percent"].as_f64().unwrap_or(0.0),
        budget["cpu_percent_limit"],
        budget["memory_bytes"].as_u64().unwrap_or(0) >> 20,
        budget["memory_bytes_limit"].as_u64().unwrap_or(0) >> 20,
        budget["processes_limit"],
        status["refusals"]
    );
    let row = |cells: &[&Value]| cells.iter().map(|cell| word(cell)).collect::<Vec<_>>();
    let of = |list_of: &Value, keys: &[&str]| -> Vec<Vec<String>> {
        list(list_of).iter().map(|entry| row(&keys.iter().map(|key| &entry[*key]).collect::<Vec<_>>())).collect()
    };
    out += &table(
        &["PID", "SERVICE", "RATE", "MODE", "PROFILES", "SAMPLES", "LOST", "SECONDS", "HOW"],
        &of(&status["processes"], &["pid", "service", "rate", "mode", "profiles", "samples", "lost", "seconds", "how"]),
    );
    out += &table(
        &["REFUSED", "SERVICE", "TRIES", "AGAIN IN S", "WHY"],
        &of(&status["refused"], &["pid", "service", "tries", "again_in_seconds", "why"]),
    );
    out += &table(&["RULE AT LINE", "SERVICE", "PROCESSES"], &of(&status["rules"], &["line", "service", "processes"]));
    Ok(out)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Columns as wide as they must be; nothing for no rows.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize, head: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(head.len())
    };
    let widths: Vec<usize> = heads.iter().enumerate().map(|(column, head)| width(column, head)).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let lines = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    format!("\n{}{}", line(heads.to_vec()), lines.collect::<String>())
}
