//! The plugin's process: opens one plugin, describes it, and on request analyses files and decodes lines. Whatever
//! the plugin does happens here: it may crash, hang or use up its memory, and uu continues.

use crate::calls;
use crate::open::open;
use crate::wire::{decode_request, encode_answer, encode_hello, encode_lines, receive, send, Request};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{set_parent_process_death_signal, setrlimit, Resource, Rlimit, Signal};
use rustix::stdio::dup2_stdout;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use uunwind_language::Half;

/// Memory limit of the process, in bytes.
const MEMORY: u64 = 1 << 30;

/// Serves the plugin whose path is the first argument until standard input ends: its half that runs outside of
/// handlers, or, with the second argument `calls`, the other one. `halves`: those that are linked into this
/// program.
pub fn serve(arguments: &[OsString], halves: &[&dyn Half]) {
    let path = arguments.first().map_or(Path::new(""), Path::new);
    match arguments.get(1).map(OsString::as_os_str) {
        Some(what) if what == OsStr::new(calls::CALLS) => calls::serve(path),
        _ => serve_half(path, halves),
    }
}

/// Standard input and output are the two ends of [`crate::Server`].
fn serve_half(path: &Path, halves: &[&dyn Half]) {
    let Ok(mut out) = private_output() else { return };
    restrict();
    let opened = open(path, halves);
    let hello = encode_hello(&opened.as_ref().map(|o| o.plugin.clone()).map_err(clone_trouble));
    if send(&mut out, &hello).is_err() {
        return;
    }
    let Some(opened) = opened.ok().filter(|opened| opened.plugin.has_half()) else { return };
    let mut input = io::stdin().lock();
    while let Some(message) = receive(&mut input) {
        let answer = match decode_request(&message) {
            Some(Request::Analyse { file, path }) => encode_answer(&opened.half.analyse(&file, &path)),
            Some(Request::Lines(tables)) => encode_lines(&opened.half.lines(&tables)),
            None => return,
        };
        if send(&mut out, &answer).is_err() {
            return;
        }
    }
}

/// `Trouble` is not `Clone`, since it contains an `io::Error`; this copies the parts that are sent.
fn clone_trouble(trouble: &crate::Trouble) -> crate::Trouble {
    match trouble {
        crate::Trouble::NotLoadable(why) => crate::Trouble::NotLoadable(why.clone()),
        crate::Trouble::Unreadable(error) => crate::Trouble::NotLoadable(error.to_string()),
        crate::Trouble::Refused(refusal) => crate::Trouble::Refused(*refusal),
        crate::Trouble::NoEntry => crate::Trouble::NoEntry,
        _ => crate::Trouble::NoName,
    }
}

/// Moves standard output to another descriptor: what a plugin prints goes to standard error, and not among the answers.
fn private_output() -> io::Result<File> {
    let output = fcntl_dupfd_cloexec(io::stdout(), 3)?;
    dup2_stdout(io::stderr())?;
    Ok(File::from(output))
}

/// Makes the process end with uu, leave no core file, and keep within its memory limit.
pub(crate) fn restrict() {
    // Each of them is a second line of defence; the process serves without it as well.
    for (resource, most) in [(Resource::Data, MEMORY), (Resource::Core, 0)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}
