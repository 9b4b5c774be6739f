//! After the recording: result, summary, exit code.

use super::arguments::{Arguments, Places};
use crate::exit::{of_status, Failure, FAILED};
use crate::{save, terminal};
use std::path::Path;
use uunwind_recorder::{Outcome, Running};
use uunwind_report::formats::{render, summary, Format};
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;
use uunwind_report::Recording;

/// Writes and prints what was asked for; gives the exit code.
pub fn finish(mut running: Running, arguments: &Arguments, places: Places) -> Result<u8, Failure> {
    let mut outcome = running.outcome();
    let recording = running.take_recording();
    let failed = tell(&outcome, recording.as_ref(), arguments, &places);
    places.clean_up();
    let status = match outcome.wait_status.take() {
        Some(status) => status,
        None => {
            if terminal::stderr_is_terminal() {
                terminal::say("the recording is over; waiting for the program to end");
            }
            running.wait()
        }
    };
    let code = of_status(status);
    // A program that failed keeps its own code.
    Ok(if failed && code == 0 { FAILED } else { code })
}

/// Tells how it went. True: uu failed, or nothing was sampled.
fn tell(outcome: &Outcome, recording: Option<&Recording>, arguments: &Arguments, places: &Places) -> bool {
    if let Some(error) = &outcome.write_error {
        terminal::complain(&format!(
            "writing {} failed: {error}. What was written before stays readable; the program was not disturbed",
            outcome.output.display()
        ));
    }
    if outcome.samples == 0 {
        terminal::complain(&format!("nothing was sampled: {}", why_nothing(outcome, recording, arguments.rate)));
        if arguments.keep && outcome.output.is_file() {
            // An empty recording would only be found later, and wondered at.
            let _ = std::fs::remove_file(&outcome.output);
        }
        return true;
    }
    let Some(recording) = recording else {
        terminal::warn(&format!("{} cannot be read back, so there is no summary", outcome.output.display()));
        return outcome.write_error.is_some();
    };
    let mut resolver = Resolver::new(recording);
    let profile = Merger::new(&mut resolver, arguments.native_frames).profile();
    terminal::show(&summary::render(recording, &profile, resolver.unusable(), terminal::style(true)));
    let saved = save_result(outcome, recording, arguments, places);
    if arguments.keep && outcome.write_error.is_none() {
        terminal::say(&format!("recording: {} (open it with `uu report`)", outcome.output.display()));
    }
    // Part of the recording is missing, or what was asked for: uu failed, whatever could be saved.
    !saved || outcome.write_error.is_some()
}

/// Writes the result in another format, if one was asked for. False: that failed.
fn save_result(outcome: &Outcome, recording: &Recording, arguments: &Arguments, places: &Places) -> bool {
    let program = arguments.command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let stem = format!("uu-{}-{}", program.to_string_lossy(), outcome.pid);
    let Some(path) = places.result(arguments.format, &outcome.output, &stem) else { return true };
    let written = render(arguments.format, recording, arguments.native_frames)
        .map_err(Failure::new)
        .and_then(|bytes| save::write(&path, &bytes));
    match written {
        Ok(()) => {
            let hint = if arguments.format == Format::Svg { " (open it in a browser)" } else { "" };
            terminal::say(&format!("result: {}{hint}", path.display()));
            true
        }
        Err(failure) => {
            terminal::complain(&failure.text);
            false
        }
    }
}

/// The likely reason for an empty recording.
fn why_nothing(outcome: &Outcome, recording: Option<&Recording>, rate: u32) -> String {
    let used = outcome.cpu_used as f64 / 1e6;
    let period = 1e3 / f64::from(rate.max(1));
    let disabled = recording.and_then(|r| {
        let (process, counters) = r.counters.iter().find(|(_, c)| c.disabled != 0)?;
        Some((r.processes.get(*process as usize)?.pid, counters.disabled))
    });
    if let Some((pid, errno)) = disabled {
        let why = std::io::Error::from_raw_os_error(errno as i32);
        return format!("process {pid} stopped recording: {why}");
    }
    if recording.is_some_and(|r| r.processes.is_empty()) {
        return format!(
            "no process took part. Something between uu and the program may clear LD_PRELOAD or change the user, as sudo, \
             containers and set-uid programs do (the program used {used:.1} ms of CPU)"
        );
    }
    if used < period {
        return format!(
            "the program used {used:.1} ms of CPU, under one period of the sampling timer ({period:.1} ms at {rate} Hz). \
             Give it more work, or a higher rate with -r"
        );
    }
    format!(
        "the program used {used:.1} ms of CPU, but in no single recorded thread a whole period of the sampling timer \
         ({period:.1} ms at {rate} Hz). Give it more work, or a higher rate with -r"
    )
}
