//! `uu snapshot`: asks a running `uu record` to write what it has so far.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::Args;
use rustix::process::{kill_process, Pid, Signal};
use std::ffi::OsString;
use std::fs;
use uunwind_elf::process;

/// Asks a running `uu record` to write what it has so far.
#[derive(Debug, Args)]
#[command(after_help = "\
The same as SIGUSR2 to that uu, which says on its standard error where the snapshot is: beside the
recording, with .1.uu, .2.uu and so on at its end. Exit code: 0, or 125 if there is no such uu.")]
pub struct Options {
    /// The process of the `uu record`, not that of the program that it records
    #[arg(value_name = "PID")]
    pid: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let number = options::pid(&options.pid, "PID")?;
    if let Some(process) = uunwind_remote::process_of(number) {
        return Err(Failure::new(uunwind_remote::DumpError::Thread(number, process)));
    }
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw).filter(|_| records(number));
    let pid = pid.ok_or_else(|| {
        Failure::new(format!(
            "process {number} is no `uu record` whose recording has begun: give the process id of uu, not the program's"
        ))
    })?;
    kill_process(pid, Signal::USR2).map_err(|error| Failure::new(format!("process {number}: {error}")))?;
    terminal::print(&format!("uu (process {number}) is asked for a snapshot, and says where it writes it\n"))
}

/// Whether it is a `uu record` that handles the signal, which would end another program.
fn records(pid: u32) -> bool {
    let words = fs::read(process::file(pid, "cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    let is_uu = words.next().is_some_and(|program| program.rsplit(|byte| *byte == b'/').next() == Some(b"uu"));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let is_caught = caught >> (Signal::USR2.as_raw() - 1) & 1 != 0;
    is_uu && words.next() == Some(b"record") && is_caught
}
