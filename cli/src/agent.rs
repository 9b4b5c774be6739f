//! `uu agent`: profiles of all processes that rules name, those to come too, in a store, as long as it runs.
//!
//! ```text
//! config     its file
//! rules      which processes are profiled, and as which service; glob: their patterns
//! processes  the processes of this machine
//! kit        what all recordings share
//! target     a process that is profiled, by a thread of its own
//! profiles   what recordings have brought becomes profiles, which are sent
//! budget     what the agent may use, and does
//! watch      finds processes, begins and ends their recordings
//! status     what it does, for others
//! ```

mod budget;
mod config;
mod glob;
mod kit;
mod processes;
mod profiles;
mod rules;
mod status;
mod target;
mod watch;

use crate::exit::Failure;
use crate::{layout, options, terminal};
use clap::{Args, Subcommand};
use config::Config;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Profiles all processes that rules name, and those to come, and pushes the profiles to a store.
#[derive(Debug, Args)]
#[command(after_help = "\
A file with a store and a rule (all keys: docs/agent.md):

  [push]
  url = \"http://localhost:4040\"
  [[rule]]
  service = \"{name}\"
  user = \"www-data\"

uu agent check -c FILE shows which processes its rules name, and does nothing else. SIGTERM and SIGINT end the
agent: it leaves all processes as they were, and sends what it has. SIGHUP has the file read again.")]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The file with the store and the rules
    #[arg(short, long, value_name = "FILE", global = true, value_hint = clap::ValueHint::FilePath)]
    config: Option<OsString>,
    /// Where uu agent status asks; else agent.sock in $RUNTIME_DIRECTORY, /run/uu (root) or $XDG_RUNTIME_DIR/uu
    #[arg(long, value_name = "FILE", global = true, value_hint = clap::ValueHint::AnyPath)]
    socket: Option<OsString>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(Status),
    Check(Check),
}

/// Shows what a running agent profiles, what it does not and why, and what became of its profiles.
#[derive(Debug, Args)]
pub struct Status {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Reads the file, and shows which processes of now each rule names. Attaches to none.
#[derive(Debug, Args)]
pub struct Check {}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let socket = options.socket.as_ref().map(|path| options::path(path.clone(), "--socket")).transpose()?;
    match &options.command {
        Some(Command::Status(Status { json })) => {
            // A file that is given, or is the user's default, says where its agent is.
            let config = options.config.as_ref().filter(|_| socket.is_none()).map(|_| file(options)).transpose()?;
            let path = status::place(socket.or(config.and_then(|config| config.socket)).as_deref())?;
            let text = status::ask(&path)?;
            terminal::print(&if *json { text } else { status::shown(&text)? })
        }
        Some(Command::Check(Check {})) => terminal::print(&matches(&file(options)?)),
        None => {
            layout::check_proc()?;
            layout::check_pages()?;
            let (config, path) = (file(options)?, file_path(options)?);
            let listener = status::Listener::at(status::place(socket.or(config.socket.clone()).as_deref())?)?;
            watch::run(config, &path, listener)
        }
    }
}

fn file_path(options: &Options) -> Result<PathBuf, Failure> {
    let given =
        options.config.clone().ok_or_else(|| Failure::usage("no file with rules given: -c FILE", "uu agent"))?;
    options::path(given, "-c")
}

fn file(options: &Options) -> Result<Config, Failure> {
    config::read(Path::new(&file_path(options)?))
}

/// Which processes each rule names.
fn matches(config: &Config) -> String {
    let mut found: Vec<Vec<Vec<String>>> = config.rules.iter().map(|_| Vec::new()).collect();
    let mut own = 0;
    for process in processes::all() {
        let Some((index, wanted)) = rules::decide(&config.rules, &process) else { continue };
        if process.is_uu() {
            own += 1;
            continue;
        }
        let command = process.command().join(" ");
        let short: String = command.chars().take(80).collect();
        let pid = process.identity.pid.to_string();
        let forbidden = uunwind_remote::refusal::check(pid.parse().unwrap_or(0)).err().map(|why| why.to_string());
        let service = wanted.map_or_else(|| "(skipped)".to_owned(), |wanted| wanted.service);
        let shown = uunwind_report::formats::printable(&short);
        found.get_mut(index).into_iter().for_each(|rows| {
            rows.push(vec![pid.clone(), service.clone(), forbidden.clone().unwrap_or_else(|| shown.clone())]);
        });
    }
    let mut out = String::new();
    for (rule, rows) in config.rules.iter().zip(&found) {
        let count = rows.len();
        let service = rule.service.as_deref().unwrap_or("(skip)");
        out +=
            &format!("rule at line {}, {service}: {count} processes{}\n", rule.line, if count == 0 { "" } else { ":" });
        out += status::table(&["PID", "SERVICE", "COMMAND"], rows).trim_start_matches('\n');
        out += "\n";
    }
    if own > 0 {
        out += &format!("{own} processes are uu itself, and are never profiled\n");
    }
    out
}
