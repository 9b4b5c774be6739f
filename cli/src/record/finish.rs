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
    too_short(used, rate, recording.map_or(0, |r| r.settings.kernel_hz))
}

/// Of a program that used so many ms of CPU; `kernel_hz` is 0 where it is not known.
fn too_short(used: f64, rate: u32, kernel_hz: u32) -> String {
    let period = 1e3 / f64::from(rate.max(1));
    if kernel_hz != 0 && kernel_hz < rate {
        let tick = 1e3 / f64::from(kernel_hz);
        return format!(
            "the program used {used:.1} ms of CPU, and the kernel looks at CPU timers only at its ticks, every {tick:.1} ms: \
             a thread that lives shorter may meet none. Give it more work"
        );
    }
    let why = if used < period { "under one period" } else { "but in no single recorded thread a whole period" };
    format!(
        "the program used {used:.1} ms of CPU, {why} of the sampling timer ({period:.1} ms at {rate} Hz). Give it more work, or \
         a higher rate with -r"
    )
}

#[cfg(test)]
mod tests {
    use super::too_short;

    #[test]
    fn a_higher_rate_is_advised_only_where_the_kernels_tick_lets_it_help() {
        for (used, rate, kernel_hz, words, higher) in [
            (1.7, 99, 250, "under one period of the sampling timer (10.1 ms at 99 Hz)", true),
            (30.0, 99, 250, "in no single recorded thread a whole period of the sampling timer (10.1 ms", true),
            (2.3, 1000, 250, "at its ticks, every 4.0 ms", false),
            (16.1, 10_000, 100, "at its ticks, every 10.0 ms", false),
            (0.5, 1000, 0, "under one period of the sampling timer (1.0 ms at 1000 Hz)", true),
        ] {
            let text = too_short(used, rate, kernel_hz);
            assert!(text.contains(words) && text.contains(&format!("{used:.1} ms of CPU")), "{text}");
            assert_eq!(text.contains("higher rate"), higher, "{text}");
        }
    }
}
