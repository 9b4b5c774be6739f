//! `uu record`: runs a program and records it.

mod arguments;
mod finish;

use crate::exit::{Failure, FAILED, NOT_EXECUTABLE, NOT_FOUND};
use crate::{layout, program, save, terminal};
use arguments::{Arguments, Places};
use std::ffi::OsString;
use uunwind_loader::ENV_PLUGINS;
use uunwind_recorder::{record, Config, Event, RecordError};

/// The subcommand with which uu starts itself, for each plugin.
pub const PLUGIN_SERVER: &str = "plugin-server";

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let Some(arguments) = arguments::parse(arguments)? else {
        return terminal::print(crate::help::RECORD);
    };
    let places = Places::choose(&arguments)?;
    // What can be known to fail is found before the program runs.
    let layout = layout::find()?;
    let program = program::check(arguments.command.first().map_or("".as_ref(), OsString::as_os_str))?;
    if let Some(result) = &places.result {
        save::check(result)?;
    }
    let mut objects = vec![layout.library];
    let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
    let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
    for (path, trouble) in found.troubles {
        terminal::warn(&format!("plugin {} {trouble}; it is left out", path.display()));
    }
    objects.extend(found.plugins.into_iter().map(|plugin| plugin.path));
    let config = Config {
        command: arguments.command.clone(),
        executable: program.executable,
        closure: program.closure,
        rate: arguments.rate,
        flags: arguments.flags,
        duration: arguments.duration,
        output: places.recording.clone(),
        preload: layout.preload,
        objects,
        asan_runtime: program.asan_runtime,
        notes: program.notes,
    };
    let running = match record(&config, found.analysers, |event| progress(&arguments, event)) {
        Ok(running) => running,
        Err(error) => {
            places.clean_up();
            return Err(refused(error));
        }
    };
    finish::finish(running, &arguments, places)
}

/// The exit code for a program that did not start is the one `env` gives.
fn refused(error: RecordError) -> Failure {
    let code = match &error {
        RecordError::Spawn(_, e) if e.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        RecordError::Spawn(..) => NOT_EXECUTABLE,
        _ => FAILED,
    };
    Failure::with_code(code, error)
}

fn progress(arguments: &Arguments, event: Event<'_>) {
    if !terminal::stderr_is_terminal() {
        return;
    }
    match event {
        Event::Started { pid, .. } => {
            let words: Vec<_> = arguments.command.iter().map(|w| w.to_string_lossy()).collect();
            let command = uunwind_report::formats::printable(&words.join(" "));
            terminal::say(&format!("recording {command} (pid {pid}) at {} Hz", arguments.rate));
        }
        Event::Naming => terminal::say("naming functions"),
    }
}
