//! Which options of `uu record` go together, and what each needs.

use super::command_line::{Options, DEFAULT_RATE};
use super::inside;
use crate::exit::Failure;
use crate::options::{self, Mode};
use uunwind_report::formats::Format;

/// Bytes from a sampled allocation to the next, on average.
const DEFAULT_BYTES: u32 = 512 << 10;
/// Ns of waiting from a sampled wait to the next, on average.
const DEFAULT_WAIT: u32 = 100_000;

/// The distance of sampled events, in bytes or ns, 1 for all, if these are recorded.
pub(super) fn check_events(options: &Options, mode: Mode) -> Result<Option<u32>, Failure> {
    let of_alloc = [
        (options.every_bytes.is_some(), "--every-bytes"),
        (options.python_malloc, "--python-malloc"),
        (options.mmap, "--mmap"),
    ];
    if let (true, Some((_, option))) = (mode != Mode::Alloc, of_alloc.iter().find(|(is_given, _)| *is_given)) {
        return Err(Failure::new(format!("{option} is for --mode alloc: give that, too")));
    }
    let (name, event, follows) = match mode {
        Mode::Alloc => ("alloc", "allocation", "from --every-bytes"),
        Mode::Lock => ("lock", "wait", "from the waits"),
        Mode::Cpu | Mode::Wall if options.all => {
            return Err(Failure::new("--all is for --mode alloc and --mode lock: give one of them, too"));
        }
        Mode::Cpu | Mode::Wall => return Ok(None),
    };
    let others = [
        (options.unwind != "live", "--unwind", format!("the stack of each {event} is walked at once")),
        (options.kernel, "--kernel", format!("no {event} is made by the kernel")),
        (options.explicit, "--explicit", format!("samples are those of {event}s")),
        (options.rate != DEFAULT_RATE, "-r (--rate)", format!("what is sampled follows {follows}")),
    ];
    match others.iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => Err(Failure::new(format!("{option} and --mode {name} do not go together: {why}"))),
        None if options.all => Ok(Some(1)),
        None if mode == Mode::Lock => Ok(Some(DEFAULT_WAIT)),
        None => {
            options.every_bytes.as_ref().map_or(Ok(DEFAULT_BYTES), |b| options::bytes(b, "--every-bytes")).map(Some)
        }
    }
}

/// Options that exclude each other, or need another one. `format`: that of the result.
pub(super) fn check(options: &Options, mode: Mode, format: Format) -> Result<(), Failure> {
    let is_wall = mode == Mode::Wall;
    let (with_pid, without_pid) = (options.pid.is_some(), options.pid.is_none());
    let (is_late, is_pushed) = (options.unwind != "live", options.push.is_some());
    let above_1000 = || options.rate.to_string_lossy().parse().is_ok_and(|rate: u32| rate > 1000);
    let cases = [
        (
            options.start_paused && (options.kernel || above_1000()),
            "--start-paused does not go together with --kernel or a rate above 1000: perf events, which time the \
             samples then, are not paused. Leave one of them out",
        ),
        (options.idle && !is_wall, "-i shows threads that only wait, which --mode wall samples: give that, too"),
        (is_late && inside::NO_COPIES.is_some(), inside::NO_COPIES.unwrap_or_default()),
        (is_wall && is_late, "--unwind offline and --mode wall do not go together: leave one of them out"),
        (
            options.kernel && is_late,
            "--kernel and --unwind offline do not go together: the kernel's stack belongs on one that is walked at \
             once. Leave one of them out",
        ),
        (
            options.awaiting && options.unwind == "offline",
            "--async and --unwind offline do not go together: stacks that are walked afterwards have no frames of \
             Python. Leave one of them out",
        ),
        (
            options.kernel && is_wall,
            "--kernel and --mode wall do not go together: perf events count CPU time. Leave one of them out",
        ),
        (with_pid && is_late, "--unwind takes a PROGRAM: a running process (-p) is walked at once"),
        (with_pid && options.explicit, "--explicit takes a PROGRAM: uu puts no handler into a running process (-p)"),
        (
            without_pid && options.subprocesses,
            "-s takes a running process (-p PID): children of a PROGRAM are recorded anyway, unless --no-children is \
             given",
        ),
        (without_pid && options.remote, "--remote takes a running process: give it with -p PID"),
        (
            options.names == "later" && format != Format::Recording,
            "--names later keeps a recording (.uu) alone: any other result needs the names. Leave one of them out",
        ),
        (
            with_pid && options.remote && mode == Mode::Alloc,
            "--remote and --mode alloc do not go together: allocations are seen in the process. Leave one of them out",
        ),
        (
            with_pid && options.remote && mode == Mode::Lock,
            "--remote and --mode lock do not go together: waits are seen in the process. Leave one of them out, or take \
             --mode wall, which samples waiting threads from outside",
        ),
        (
            with_pid && options.python_malloc,
            "--python-malloc and -p (--pid) do not go together: Python reads it when it starts. Leave one of them out",
        ),
        (
            options.push_every.is_some() && !is_pushed,
            "--push-every says something of profiles that are sent: give --push URL, too",
        ),
        (
            options.service.is_some() && !is_pushed,
            "--service says something of profiles that are sent: give --push URL, too",
        ),
        (
            is_pushed && (options.names == "later" || is_late),
            "--push sends profiles with names while the program runs: leave --names and --unwind out",
        ),
    ];
    match cases.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, text)) => Err(Failure::new(text)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::tests::parsed;

    #[test]
    fn what_does_not_go_together_is_named() {
        let late = "--unwind=offline";
        for (words, named) in [
            (&["--start-paused", "-r", "2000", "p"][..], "--start-paused"),
            (&["-i", "p"], "--mode wall"),
            (&["--mode", "wall", late, "p"], "--mode wall"),
            (&["--kernel", late, "p"], "--kernel"),
            (&["--async", late, "p"], "--async"),
            (&["--kernel", "--mode", "wall", "p"], "--kernel"),
            (&["-s", "p"], "-p PID"),
            (&["--names", "later", "-f", "svg", "p"], "--names later"),
            (&["--push-every", "5", "p"], "--push-every"),
            (&["--service", "s", "p"], "--service"),
            (&["--label", "a", "p"], "--label a: "),
            (&["--label", "=b", "p"], "--label =b: "),
            (&["--push", "http://localhost:1", "--names", "later", "p"], "--names"),
            (&["--every-bytes", "5", "p"], "--every-bytes is for --mode alloc"),
            (&["--mmap", "p"], "--mmap is for --mode alloc"),
            (&["--all", "p"], "--all is for"),
            (&["--mode", "lock", "-r", "5", "p"], "-r (--rate)"),
            (&["--mode", "lock", "-p", "5", "-r", "5"], "-r (--rate)"),
            (&["--mode", "lock", "-p", "5", "--remote"], "--remote"),
            (&["--mode", "alloc", "-p", "5", "--remote"], "--remote"),
            (&["--mode", "alloc", "-p", "5", "--python-malloc"], "--python-malloc"),
        ] {
            let error = parsed(words).expect_err("it is refused");
            assert!(error.contains(named), "{words:?}: {error}");
        }
    }
}
