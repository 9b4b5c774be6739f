//! Writing to people: standard error for messages, standard output for results that were asked for there.

use crate::exit::Failure;
use crate::help;
use std::io::{self, IsTerminal, Write};
use uunwind_report::formats::summary::Style;

/// Columns when there is no terminal to ask.
const WIDTH: usize = 100;

/// Writes a message to standard error. One that cannot be written is dropped: the program's run matters more.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "uu: {text}");
}

/// Writes an error.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "uu: error: {text}");
}

/// Writes a warning.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "uu: warning: {text}");
}

/// Writes plain text to standard error.
pub fn show(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints a help text and ends well.
pub fn print(text: &str) -> Result<u8, Failure> {
    output(help::filled(text).as_bytes())?;
    Ok(0)
}

/// Writes a result to standard output. A reader that has seen enough is no failure.
pub fn output(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(format!("cannot write to standard output: {e}"))),
        Ok(()) => Ok(()),
    }
}

/// Whether progress may be shown.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Style for a summary on standard error, or on standard output.
pub fn style(on_stderr: bool) -> Style {
    let (terminal, fd) = if on_stderr {
        (io::stderr().is_terminal(), libc::STDERR_FILENO)
    } else {
        (io::stdout().is_terminal(), libc::STDOUT_FILENO)
    };
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    Style { colour: terminal && !dumb && !set("NO_COLOR"), width: if terminal { columns(fd) } else { WIDTH } }
}

fn columns(fd: i32) -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills the structure given.
    let result = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) };
    if result == 0 && size.ws_col >= 40 {
        usize::from(size.ws_col)
    } else {
        WIDTH
    }
}
