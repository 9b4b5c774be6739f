//! `uu record -p PID`: a recording of a running process.

use super::arguments::{Arguments, Places};
use super::{begun, finish, snapshot, Shown, NAMING_SERVER, PLUGIN_SERVER};
use crate::exit::Failure;
use crate::{layout, save};
use std::ffi::OsString;
use uunwind_built_in::HALVES;
use uunwind_loader::ENV_PLUGINS;
use uunwind_remote::record::Event;
use uunwind_remote::{record, Attach, AttachError, Plugins};
use uunwind_ring::{FLAG_AWAITING, FLAG_WALL};
use uunwind_tables_build::Cache;

/// Why the process is recorded from outside.
const ASKED: &str = "by short stops of its threads, as --remote asks";
pub const ONLY_WAY: &str = "by short stops of its threads; this uu has no other way to record a running process";

/// Records the process; returns the exit code.
pub fn run(pid: u32, arguments: &Arguments, places: Places) -> Result<u8, Failure> {
    if let Some(result) = &places.result {
        save::check(result)?;
    }
    let (mut plugins, namer) = prepare()?;
    let why = if arguments.remote { ASKED } else { ONLY_WAY };
    let attach = Attach {
        pid,
        rate: arguments.rate,
        duration: arguments.duration,
        every: arguments.every,
        flags: arguments.flags & (FLAG_AWAITING | FLAG_WALL),
        output: places.recording.clone(),
        namer,
        named: true,
        why: why.to_owned(),
    };
    let mut shown = Shown::default();
    let recorded = record(&attach, &mut plugins, &Cache::of_user(), |event| match event {
        Event::Begun(..) | Event::Naming(_) | Event::Snapshot(_, None) if arguments.quiet => {}
        Event::Begun(command, _) => {
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            begun(&words, pid, arguments.rate, &format!(", {why}. Ctrl-C ends the recording"));
        }
        Event::Snapshot(path, why) => snapshot(path, why),
        Event::Over => {}
        Event::Naming(progress) => shown.naming(progress),
    });
    match recorded {
        Ok((outcome, recording)) => Ok(finish::attached(&outcome, recording, arguments, places)),
        Err(error) => {
            places.clean_up();
            Err(refused(error))
        }
    }
}

/// The plugins that are called here, and the command that names functions.
pub fn prepare() -> Result<(Plugins, Vec<OsString>), Failure> {
    let layout = layout::find()?;
    let namer = vec![layout.command.clone().into_os_string(), NAMING_SERVER.into()];
    let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
    let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
    Ok((Plugins::open(found, HALVES), namer))
}

/// Why the process was not recorded, with uu's exit code.
pub fn refused(error: AttachError) -> Failure {
    match &error {
        AttachError::Interrupted(signal) => Failure::with_code(128u8.wrapping_add(*signal as u8), error),
        _ => Failure::new(error),
    }
}
