//! Output for people: standard error for messages, standard output for results that were requested there.

use crate::exit::Failure;
use rustix::termios::tcgetwinsize;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use uunwind_report::formats::summary::Style;
use uunwind_report::formats::Format;

/// Columns to assume without a terminal.
const WIDTH: usize = 100;

/// Writes a message to standard error. A message that cannot be written is dropped: the program's run matters more.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "uu: {text}");
}

/// Shows a line on a terminal that the next one replaces; an empty one clears it.
pub fn pass(text: &str) {
    let own = if text.is_empty() { "" } else { "uu: " };
    let _ = write!(io::stderr(), "\r\x1b[K{own}{text}");
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

/// Prints a text and returns exit code 0.
pub fn print(text: &str) -> Result<u8, Failure> {
    output(text.as_bytes())?;
    Ok(0)
}

/// Writes a result to standard output. A reader that closes it early is no failure.
pub fn output(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(format!("cannot write to standard output: {e}"))),
        Ok(()) => Ok(()),
    }
}

/// Fails if a result would go to a terminal that nobody can read there, and that the terminal would obey.
/// `output`: where it goes, `-` is standard output.
pub fn check_readable(format: Format, output: &Path) -> Result<(), Failure> {
    let is_terminal = || match output.as_os_str() == "-" {
        true => io::stdout().is_terminal(),
        // Nothing else is opened: that of a FIFO would wait for its writer.
        false => {
            let is_device = std::fs::metadata(output).is_ok_and(|meta| meta.file_type().is_char_device());
            is_device && File::options().write(true).open(output).is_ok_and(|file| file.is_terminal())
        }
    };
    if !format.is_binary() || !is_terminal() {
        return Ok(());
    }
    let offer = format.offer();
    Err(Failure::new(format!(
        "the format {} is no text, and would go to a terminal: give a file, such as -o profile{}, or a pipe",
        offer.name,
        offer.extensions.first().unwrap_or(&"")
    )))
}

/// Whether progress may be shown.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether a person can be asked.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a person; whether the answer is yes.
pub fn ask(question: &str) -> bool {
    let _ = write!(io::stderr(), "uu: {question} ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Whether a line may be shown that the next one replaces: not where the program writes to the same terminal.
pub fn has_a_free_line() -> bool {
    io::stderr().is_terminal() && !io::stdout().is_terminal()
}

/// Style for a summary on standard error, or on standard output; with what concerns uu itself if it is `verbose`.
pub fn style(on_stderr: bool, verbose: bool) -> Style {
    let (terminal, columns) = if on_stderr {
        (io::stderr().is_terminal(), columns(io::stderr()))
    } else {
        (io::stdout().is_terminal(), columns(io::stdout()))
    };
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    Style { colour: terminal && !dumb && !set("NO_COLOR"), width: if terminal { columns } else { WIDTH }, verbose }
}

fn columns(fd: impl AsFd) -> usize {
    tcgetwinsize(fd).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(WIDTH)
}
