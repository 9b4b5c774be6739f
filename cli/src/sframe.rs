//! `uu sframe`: SFrame tables of files.

mod dump;
mod make;

use crate::exit::Failure;
use clap::{Args, Subcommand};

/// SFrame: stack trace tables that are quicker to read than .eh_frame, and that hardly any distribution ships.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dump(dump::Options),
    Make(make::Options),
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    match &options.command {
        Some(Command::Dump(options)) => dump::run(options),
        Some(Command::Make(options)) => make::run(options),
        None => Err(Failure::usage("no command given: it takes dump or make", "uu sframe")),
    }
}
