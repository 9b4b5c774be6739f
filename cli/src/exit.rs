//! Exit codes, and failures that end uu.

use std::fmt::Display;

/// uu itself failed, or nothing was sampled and `--fail-empty` makes that a failure.
pub const FAILED: u8 = 125;
/// The program was found and cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;

/// A failure that ends uu: its message and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// What failed, what was found, and what to do.
    pub text: String,
    /// Exit code.
    pub code: u8,
}

impl Failure {
    /// A failure of uu itself, with code [`FAILED`].
    pub fn new(text: impl Display) -> Failure {
        Failure { text: text.to_string(), code: FAILED }
    }

    /// A failure with another exit code.
    pub fn with_code(code: u8, text: impl Display) -> Failure {
        Failure { text: text.to_string(), code }
    }

    /// A command line that cannot be understood.
    pub fn usage(text: &str, command: &str) -> Failure {
        let stop = if text.ends_with('?') { "" } else { "." };
        Failure::new(format!("{text}{stop} See `{command} --help`"))
    }
}

/// The exit code that a shell gives for a raw wait status: the program's own, or 128 + the signal that ended it.
pub fn of_status(status: i32) -> u8 {
    if libc::WIFSIGNALED(status) {
        128u8.wrapping_add(libc::WTERMSIG(status) as u8)
    } else {
        libc::WEXITSTATUS(status) as u8
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn codes_of_wait_statuses() {
        // wait(2): the low seven bits are the signal, bits 8-15 the exit status.
        assert_eq!(super::of_status(0), 0);
        assert_eq!(super::of_status(7 << 8), 7);
        assert_eq!(super::of_status(libc::SIGKILL), 137);
        assert_eq!(super::of_status(libc::SIGSEGV | 0x80), 139, "core dumped");
    }
}
