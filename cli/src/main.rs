//! The `uu` command: one file per subcommand.

#![forbid(unsafe_code)]

mod agent;
mod commands;
mod config;
mod diff;
mod doctor;
#[cfg(test)]
mod documents;
mod dump;
mod exit;
mod kernel_events;
mod layout;
mod merge;
mod offline;
mod options;
mod pause;
mod program;
mod record;
mod refusal;
mod report;
mod run;
mod save;
mod sframe;
mod snapshot;
mod terminal;
mod top;
mod view;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match run(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            terminal::complain(&failure.text);
            failure.code
        }
    };
    ExitCode::from(code)
}

fn run(arguments: &[OsString]) -> Result<u8, exit::Failure> {
    // Three commands are not for people: uu starts itself with them, or a process that has crashed does.
    match arguments.split_first() {
        Some((first, rest)) if first == record::PLUGIN_SERVER => {
            uunwind_loader::serve(rest, uunwind_built_in::HALVES);
            Ok(0)
        }
        Some((first, _)) if first == record::NAMING_SERVER => {
            uunwind_recorder::naming::serve();
            Ok(0)
        }
        Some((first, rest)) if first == run::CRASH_NAMES => {
            run::add_names(rest.first().and_then(|pid| pid.to_str()?.parse().ok()));
            Ok(0)
        }
        _ => commands::run(arguments),
    }
}
