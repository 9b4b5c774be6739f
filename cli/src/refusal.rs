//! What uu says of a command line that cannot be understood: what was found, and what is likely meant.

use crate::commands::Uu;
use crate::exit::Failure;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::CommandFactory;

/// The failure for an error of the parser in the command line of `command`.
pub fn of(error: &Error, command: &str) -> Failure {
    let argument = context(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
    let option = argument.split(' ').next().unwrap_or_default();
    let text = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let group = command.strip_prefix("uu").unwrap_or_default().trim_start();
            let name = if group.is_empty() { name } else { format!("{group} {name}") };
            format!("there is no command {name:?}{}", meant(error, ContextKind::SuggestedSubcommand))
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            let hint = habit(command, option).map(str::to_owned).or_else(|| owner(option));
            let hint = hint.map(|hint| format!("; {hint}"));
            format!("invalid option '{option}'{}", hint.unwrap_or_else(|| meant(error, ContextKind::SuggestedArg)))
        }
        ErrorKind::UnknownArgument => format!("unexpected argument {argument:?}"),
        ErrorKind::InvalidValue if value.is_empty() => format!("missing argument for option '{option}'"),
        ErrorKind::InvalidValue => {
            let valid = context(error, ContextKind::ValidValue).unwrap_or_default();
            format!("{argument} {value:?}: it takes one of {valid}{}", meant(error, ContextKind::SuggestedValue))
        }
        ErrorKind::MissingRequiredArgument => missing(command, option).to_owned(),
        _ => first_line(error),
    };
    Failure::usage(&text, command)
}

/// What stands here for an option that perf, py-spy or samply have.
fn habit(command: &str, option: &str) -> Option<&'static str> {
    match (command, option) {
        ("uu record", "-F" | "--freq" | "--frequency") => Some("the rate is -r HZ"),
        ("uu record", "-g" | "--call-graph") => Some("whole stacks are always recorded"),
        ("uu record", "-n" | "--native") => Some("native frames are always recorded"),
        ("uu record", "-t" | "--threads") => {
            Some("threads are always recorded; `uu report --by thread` puts them above their stacks")
        }
        ("uu record", "-e" | "--event") => Some("uu samples CPU time, which needs no events"),
        ("uu record", "-a" | "--all-cpus") => Some("uu records a program, or a process with -p PID"),
        ("uu record", "--nonblocking") => Some("programs are never stopped; a process of -p only for each sample"),
        ("uu report", "-i" | "--input") => Some("give the recording without an option"),
        ("uu report", "-g" | "--call-graph" | "--stdio") => Some("-f folded prints whole stacks"),
        _ => None,
    }
}

/// The command that has this very option, which may not be written so anywhere else.
fn owner(option: &str) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option).strip_prefix("--")?;
    let commands = Uu::command();
    let has = |command: &&clap::Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let owners: Vec<String> =
        commands.get_subcommands().filter(has).map(|command| format!("`uu {}`", command.get_name())).collect();
    (!owners.is_empty()).then(|| format!("it is an option of {}", owners.join(", ")))
}

/// What is missing from a command line, by the command and the way that the parser names it.
fn missing(command: &str, argument: &str) -> &'static str {
    match (command, argument) {
        (_, "--output") => "no output given (-o OUT)",
        ("uu run", "--report-crashes") => "nothing to do: --report-crashes is missing",
        ("uu record" | "uu run", _) => "no program given",
        ("uu report" | "uu view" | "uu merge", _) => "no recording given",
        ("uu snapshot", _) => "no process given: it takes that of the uu that records",
        ("uu pause" | "uu resume", _) => "no process given: it takes one that is being recorded",
        ("uu diff", _) => "two recordings are compared: BEFORE and AFTER",
        ("uu dump", _) => "no process (-p PID) or core file given",
        ("uu completions", _) => "no shell given: bash, zsh or fish",
        _ => "no file given",
    }
}

fn meant(error: &Error, kind: ContextKind) -> String {
    context(error, kind).map_or(String::new(), |name| format!("; did you mean '{name}'?"))
}

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) if kind == ContextKind::InvalidArg => texts.first().cloned(),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
