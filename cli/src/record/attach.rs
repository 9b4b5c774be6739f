//! `uu record -p PID`: a recording of a running process.

use super::arguments::Arguments;
use super::inside::{self, Declined, Refusal};
use super::places::Places;
use super::push::Push;
use super::{begun, finish, snapshot, Shown, NAMING_SERVER, PLUGIN_SERVER};
use crate::exit::Failure;
use crate::{layout, save, terminal};
use std::ffi::OsString;
use uunwind_built_in::HALVES;
use uunwind_loader::ENV_PLUGINS;
use uunwind_recorder::Outcome;
use uunwind_recording::Recording;
use uunwind_remote::Plugins;
use uunwind_remote_sampler::record::Event;
use uunwind_remote_sampler::{record, Attach, AttachError};
use uunwind_ring::{FLAG_ALLOC, FLAG_AWAITING, FLAG_LOCK, FLAG_MAPPINGS, FLAG_WALL};
use uunwind_tables_build::Cache;

/// How the process is recorded.
pub const INSIDE: &str = "by a sampler in the process";
/// The same, where no sampler is in it.
pub const OUTSIDE: &str = "by short stops of its threads";

/// What came of a recording.
type Recorded = (Outcome, Option<Recording>);

/// Records the process; returns the exit code.
pub fn run(pid: u32, arguments: &Arguments, places: Places) -> Result<u8, Failure> {
    if let Some(result) = &places.result {
        save::check(result, "The process is not recorded")?;
    }
    let mut attach = Attach {
        pid,
        with_children: arguments.subprocesses,
        rate: arguments.rate,
        duration: arguments.duration,
        every: arguments.every,
        every_into: None,
        start_paused: arguments.start_paused,
        flags: arguments.flags & (FLAG_ALLOC | FLAG_AWAITING | FLAG_LOCK | FLAG_MAPPINGS | FLAG_WALL),
        output: places.recording.clone(),
        namer: namer()?.into(),
        named: true,
        labels: arguments.labels.clone(),
        why: INSIDE.to_owned(),
        among: None,
    };
    let push = arguments.push.as_ref().map(|push| Push::begin(push, arguments)).transpose()?;
    if let (Some(push), Some(asked)) = (&push, &arguments.push) {
        (attach.every, attach.every_into) = (Some(asked.every), Some(push.folder().to_owned()));
    }
    let mut shown = Shown::default();
    let mut show = |event: Event<'_>, why: &str| match event {
        Event::Snapshot(path, failed) if push.as_ref().is_some_and(|push| push.is_own(path)) => {
            push.iter().for_each(|push| push.window(path, failed));
        }
        Event::Begun(..) | Event::Naming(_) | Event::Snapshot(_, None) if arguments.quiet => {}
        Event::Begun(command, _) => {
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            begun(&words, pid, &arguments.sampled(), &format!(", {why}. Ctrl-C ends the recording"));
        }
        Event::Snapshot(path, why) => snapshot(path, why),
        Event::Over => {}
        Event::Left(what) => terminal::complain(what),
        Event::Naming(progress) => shown.naming(progress),
    };
    let asked = |option: &str| Some(format!("{OUTSIDE}, as {option} asks"));
    let outside = if arguments.remote {
        asked("--remote")
    } else if arguments.flags & FLAG_WALL != 0 {
        asked("--mode wall")
    } else {
        None
    };
    attach.why = match outside {
        Some(why) => why,
        None => match by_sampler(&attach, |event| show(event, INSIDE))? {
            Ok((outcome, recording)) => return Ok(finish::attached(outcome, recording, arguments, places, push)),
            Err(Refusal::Never(error)) => {
                places.clean_up();
                return Err(refused(error));
            }
            Err(Refusal::Declined(declined)) if attach.flags & (FLAG_ALLOC | FLAG_LOCK) != 0 => {
                places.clean_up();
                let mode = if attach.flags & FLAG_LOCK != 0 { "lock" } else { "alloc" };
                return Err(Failure::new(format!(
                    "process {pid} is not recorded: --mode {mode} needs a sampler in it, and none was put there, since {}. \
                     Start the program with uu record --mode {mode} -- PROGRAM; a static one cannot be recorded so",
                    declined.why
                )));
            }
            Err(Refusal::Declined(declined)) => {
                format!("{OUTSIDE}; no sampler was put into it, since {}", declined.why)
            }
        },
    };
    let (mut plugins, _) = prepare()?;
    let recorded = record(&attach, &mut plugins, &Cache::of_user(), |event| show(event, &attach.why));
    match recorded {
        Ok((outcome, recording)) => Ok(finish::attached(outcome, recording, arguments, places, push)),
        Err(error) => {
            places.clean_up();
            Err(refused(error))
        }
    }
}

/// The command that names functions.
fn namer() -> Result<Vec<OsString>, Failure> {
    Ok(vec![layout::find()?.command.into_os_string(), NAMING_SERVER.into()])
}

/// Records the process by a sampler in it, which has uu's own plugins.
fn by_sampler(attach: &Attach, show: impl FnMut(Event<'_>)) -> Result<Result<Recorded, Refusal>, Failure> {
    let layout = layout::find()?;
    let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
    let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
    let foreign = found.plugins.iter().find(|plugin| !plugin.built_in).map(|plugin| &plugin.path);
    if let Some(path) = foreign.or(found.troubles.first().map(|(path, _)| path)) {
        let why = format!("{} is not one of uu's own plugins, and is called from outside only", path.display());
        return Ok(Err(Refusal::Declined(Declined::new(why))));
    }
    Ok(inside::record(attach, &layout.inject, found.analysers, show))
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
