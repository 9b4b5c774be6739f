//! `uu sframe`: SFrame tables of files.

mod dump;
mod make;

use crate::exit::Failure;
use crate::{help, terminal};
use std::ffi::OsString;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let first = arguments.first().map(|a| a.to_string_lossy().into_owned());
    match (first.as_deref(), arguments.get(1..).unwrap_or(&[])) {
        (Some("dump"), rest) => dump::run(rest),
        (Some("make"), rest) => make::run(rest),
        (Some("--help" | "-h"), _) => terminal::print(help::SFRAME),
        (Some(other), _) => Err(Failure::usage(&format!("there is no command \"sframe {other}\""), "uu sframe")),
        (None, _) => Err(Failure::usage("no command given: it takes dump or make", "uu sframe")),
    }
}
