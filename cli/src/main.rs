//! The `uu` command: one file per subcommand.

mod doctor;
mod exit;
mod help;
mod layout;
mod options;
mod program;
mod record;
mod report;
mod save;
mod sframe;
mod terminal;

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
    let (first, rest) = match arguments.split_first() {
        Some((first, rest)) => (first.to_string_lossy().into_owned(), rest),
        None => return Err(exit::Failure::usage("no command given", "uu")),
    };
    match first.as_str() {
        "record" => record::run(rest),
        "report" => report::run(rest),
        "doctor" => doctor::run(rest),
        "sframe" => sframe::run(rest),
        // Not for people: see `record::PLUGIN_SERVER`.
        record::PLUGIN_SERVER => {
            uunwind_loader::serve(rest.first().map_or("".as_ref(), OsString::as_ref));
            Ok(0)
        }
        "--help" | "-h" => terminal::print(help::UU),
        "help" => match rest.first().map(|topic| topic.to_string_lossy()) {
            Some(topic) => match help::of(&topic) {
                Some(text) => terminal::print(text),
                None => Err(exit::Failure::usage(&format!("there is no command {topic:?}"), "uu")),
            },
            None => terminal::print(help::UU),
        },
        "--version" | "-V" => terminal::print(&format!("uu {}\n", env!("CARGO_PKG_VERSION"))),
        option if option.starts_with('-') => Err(exit::Failure::usage(&format!("invalid option '{option}'"), "uu")),
        other => Err(exit::Failure::usage(&format!("there is no command {other:?}"), "uu")),
    }
}
