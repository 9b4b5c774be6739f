//! `uu doctor`: for each object of a program or a process, who tells how to unwind it.

mod process;
mod tell;

use crate::exit::Failure;
use crate::{help, options, terminal};
use lexopt::prelude::{Long, Short, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use tell::tell;
use uunwind_analyse::unwind::doctor::diagnose;
use uunwind_analyse::unwind::Binary;

const COMMAND: &str = "uu doctor";
/// Lines that are listed of one kind, unless all are asked for.
const LISTED: usize = 8;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let (mut what, mut all) = (None::<PathBuf>, false);
    let mut parser = lexopt::Parser::from_args(arguments.iter().cloned());
    let malformed = |e| options::malformed(e, COMMAND);
    while let Some(argument) = parser.next().map_err(malformed)? {
        match argument {
            Long("list") => all = true,
            Short('h') | Long("help") => return terminal::print(help::DOCTOR),
            Value(value) if what.is_none() => what = Some(options::path(value, "FILE|PID")?),
            other => return Err(malformed(other.unexpected())),
        }
    }
    let what = what.ok_or_else(|| Failure::usage("no file or process given", COMMAND))?;
    let most = if all { usize::MAX } else { LISTED };
    // A file of that name goes first: `./123` and `123` are the same file, a process has one name only.
    let pid = what.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|_| !what.exists());
    let out = match pid {
        Some(pid) => process::tell_all(pid, most)?,
        None => {
            let diagnosis = diagnose(&Binary::open(&what).map_err(Failure::new)?).map_err(Failure::new)?;
            tell(&what.display(), &diagnosis, most)
        }
    };
    terminal::output(out.as_bytes())?;
    Ok(0)
}
