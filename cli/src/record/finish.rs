//! After the recording: result, summary, exit code.

use super::arguments::Arguments;
use super::empty;
use super::places::Places;
use super::push::Push;
use crate::exit::{of_status, Failure, FAILED};
use crate::{save, terminal};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uunwind_built_in::HALVES;
use uunwind_recorder::output::with_pid;
use uunwind_recorder::{Outcome, Running};
use uunwind_recording::languages::entitle;
use uunwind_recording::{Recording, ENDED_BY, LEFT_RUNNING};
use uunwind_report::formats::{printable, render, summary, Format};
use uunwind_report::resolve::Resolver;
use uunwind_report::view::View;
use uunwind_ring::FLAG_AWAITING;

/// Writes and prints the results; returns the exit code.
pub fn finish(mut running: Running, arguments: &Arguments, places: Places, push: Option<Push>) -> Result<u8, Failure> {
    let mut outcome = running.outcome();
    let mut recording = running.take_recording();
    if let Some(recording) = &mut recording {
        complete(recording, arguments);
    }
    if let Some(recording) = recording.as_mut().filter(|_| arguments.gil) {
        recording.keep_holders();
    }
    report(&mut outcome, recording.as_ref(), arguments, &places, false);
    places.clean_up();
    let empty = empty::is_empty(outcome.samples, recording.as_ref());
    if let Some(push) = push {
        push.finish(recording, arguments.quiet);
    }
    let status = match outcome.wait_status.take() {
        Some(status) => status,
        None => {
            if !arguments.quiet {
                terminal::say("the recording is over; waiting for the program to end");
            }
            running.wait()
        }
    };
    Ok(if empty && arguments.fail_empty { FAILED } else { of_status(status) })
}

/// The same for a process that was running before; it lives on.
pub fn attached(
    mut outcome: Outcome,
    mut recording: Option<Recording>,
    arguments: &Arguments,
    places: Places,
    push: Option<Push>,
) -> u8 {
    if let Some(recording) = &mut recording {
        complete(recording, arguments);
    }
    report(&mut outcome, recording.as_ref(), arguments, &places, true);
    places.clean_up();
    let empty = empty::is_empty(outcome.samples, recording.as_ref());
    if let Some(push) = push {
        push.finish(recording, arguments.quiet);
    }
    if empty && arguments.fail_empty {
        FAILED
    } else {
        0
    }
}

/// Adds what the recorder does not know.
fn complete(recording: &mut Recording, arguments: &Arguments) {
    recording.awaiting = arguments.flags & FLAG_AWAITING != 0;
    entitle(recording, HALVES);
}

/// What is shown of the recording.
pub fn view(arguments: &Arguments) -> View {
    View { native_frames: arguments.native_frames, idle: arguments.idle, ..View::default() }
}

/// Reports on the recording, and saves the result. `is_attached`: of a process that was running before.
fn report(
    outcome: &mut Outcome,
    recording: Option<&Recording>,
    arguments: &Arguments,
    places: &Places,
    is_attached: bool,
) {
    if terminal::has_a_free_line() && !arguments.quiet {
        terminal::pass("");
    }
    if let Some(error) = &outcome.write_error {
        terminal::complain(&format!(
            "writing {} failed: {error}. What was written before stays readable; the program was not disturbed",
            outcome.output.display()
        ));
    }
    let has_crashed = recording.is_some_and(|recording| !recording.fatal.is_empty());
    if empty::is_empty(outcome.samples, recording) && !has_crashed {
        let text = format!("nothing was sampled: {}", empty::reason(outcome, recording, arguments.rate, is_attached));
        if arguments.fail_empty {
            terminal::complain(&text);
        } else {
            terminal::warn(&text);
        }
        leave_as_before(outcome, arguments, places);
        // Of a process that was running before: how it was recorded, which of it was not, and what became of what was
        // put into it.
        let notes = recording.into_iter().flat_map(|recording| &recording.notes);
        // The program's own end is said above.
        let is_said = outcome.wait_status.is_some_and(|status| libc::WIFSIGNALED(status));
        let is_shown = |note: &str| note.starts_with(LEFT_RUNNING) || note.starts_with(ENDED_BY) && !is_said;
        for note in notes.filter(|note| is_attached || is_shown(note)) {
            terminal::say(&printable(note));
        }
        return;
    }
    if let Some(older) = outcome.older.take() {
        older.discard();
    }
    let Some(recording) = recording else {
        terminal::warn(&format!("{} cannot be read back, so there is no summary", outcome.output.display()));
        return;
    };
    if !arguments.quiet && !arguments.names_later {
        let mut resolver = Resolver::new(recording);
        let shown = view(arguments).profile(Format::Summary, &mut resolver);
        let profile = shown.unwrap_or_default();
        let style = terminal::style(true, arguments.verbose);
        terminal::show(&summary::render(recording, &profile, resolver.unusable(), style));
    }
    save_result(outcome, recording, arguments, places);
    if arguments.keep && outcome.write_error.is_none() && !arguments.quiet {
        terminal::say(&format!("recording: {} (open it with `uu view`, or `uu report`)", outcome.output.display()));
    }
}

/// Removes an empty recording, which the user would find later, without the reason. What an earlier run has left under
/// the names of this one's files stays.
fn leave_as_before(outcome: &mut Outcome, arguments: &Arguments, places: &Places) {
    let older = outcome.older.take();
    let recording = older.as_ref().map(|older| older.name().to_owned());
    if arguments.keep && recording.as_ref() != Some(&outcome.output) && outcome.output.is_file() {
        let _ = std::fs::remove_file(&outcome.output);
    }
    drop(older);
    let result = places.result.as_ref().map(|result| with_pid(result, outcome.pid)).filter(|result| result.is_file());
    let left: Vec<_> = recording.into_iter().chain(result).map(|path| path.display().to_string()).collect();
    if !left.is_empty() && !arguments.quiet {
        terminal::say(&format!("left as before this run: {}", left.join(", ")));
    }
}

/// Writes the result in another format, if one was requested.
fn save_result(outcome: &Outcome, recording: &Recording, arguments: &Arguments, places: &Places) {
    let command = recording.settings.command.first().map(|word| Path::new(OsStr::from_bytes(word)));
    let program = command.and_then(Path::file_name).unwrap_or_default();
    let stem = format!("uu-{}-{}", program.to_string_lossy(), outcome.pid);
    let Some(path) = places.result(arguments.format, &outcome.output, &stem) else { return };
    let path = with_pid(&path, outcome.pid);
    let written = render(arguments.format, recording, view(arguments))
        .map_err(Failure::new)
        .and_then(|bytes| save::write(&path, &bytes));
    match written {
        Ok(()) if arguments.quiet => {}
        Ok(()) => {
            let open = arguments.format.open(&path).map_or(String::new(), |open| format!(" (to see it: {open})"));
            terminal::say(&format!("result: {}{open}", path.display()));
        }
        Err(failure) => terminal::complain(&failure.text),
    }
}
