//! The first line of a script: which program the kernel will run for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Number of bytes of a script's first line that the kernel looks at (execve(2)).
pub const LINE_LIMIT: usize = 255;

/// What a `#!` line names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shebang {
    /// A file, not looked up in `PATH`.
    File(PathBuf),
    /// A name that `env` looks up in `PATH`.
    Name(OsString),
}

/// Reads the `#!` line at the start of a file. `None`: there is none, or it names nothing.
pub fn shebang(start: &[u8]) -> Option<Shebang> {
    let line = start.get(..start.len().min(LINE_LIMIT))?.strip_prefix(b"#!")?;
    let line = line.split(|b| *b == b'\n' || *b == 0).next()?.trim_ascii();
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(end) => (line.get(..end)?, line.get(end..)?.trim_ascii()),
        None => (line, [].as_slice()),
    };
    if interpreter.is_empty() {
        return None;
    }
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    if interpreter.file_name() == Some(OsStr::new("env")) {
        if let Some(name) = env_program(argument) {
            return Some(Shebang::Name(OsString::from_vec(name.to_vec())));
        }
    }
    Some(Shebang::File(interpreter.into()))
}

/// The program that `env` will run. It gets all that follows it as one argument, which only `-S` splits.
fn env_program(argument: &[u8]) -> Option<&[u8]> {
    let split = [b"-S".as_slice(), b"--split-string=", b"-vS"].iter().find_map(|option| argument.strip_prefix(*option));
    let Some(rest) = split else {
        return (!argument.is_empty() && !argument.starts_with(b"-")).then_some(argument);
    };
    let words = rest.split(|b| *b == b' ' || *b == b'\t').filter(|word| !word.is_empty());
    words.into_iter().find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_and_env_do() {
        let file = |path: &str| Some(Shebang::File(path.into()));
        let name = |name: &str| Some(Shebang::Name(name.into()));
        assert_eq!(shebang(b"#!/bin/sh\necho"), file("/bin/sh"));
        assert_eq!(shebang(b"#! /usr/bin/python3 -u \nx"), file("/usr/bin/python3"));
        assert_eq!(shebang(b"#!\t/bin/sh"), file("/bin/sh"));
        assert_eq!(shebang(b"#!/usr/bin/env python3\n"), name("python3"));
        assert_eq!(shebang(b"#!/usr/bin/env -S A=1 python3 -u\n"), name("python3"));
        assert_eq!(shebang(b"#!/usr/bin/env -S -i A=1 sh\n"), name("sh"));
        assert_eq!(shebang(b"#!/usr/bin/env\n"), file("/usr/bin/env"));
        assert_eq!(shebang(b"#!\n"), None);
        assert_eq!(shebang(b"#"), None);
        assert_eq!(shebang(b"\x7fELF"), None);
        assert_eq!(shebang(b""), None);
    }
}
