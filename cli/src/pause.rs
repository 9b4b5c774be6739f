//! `uu pause` and `uu resume`: switch a recording off and on while it goes on.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::Args;
use std::ffi::OsString;
use uunwind_recorder::switch::ask;

/// Pauses the recording of a process: nothing is sampled until `uu resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
The recording is paused when this command has ended, for all its processes. They run on, and are not
looked at. The summary says how long it was paused. `uu record --start-paused` begins so.
Exit code: 0, or 125 if nothing records the process.")]
pub struct Pause {
    /// A process that is being recorded, by `uu record` or `uu record -p`; or that uu itself
    #[arg(value_name = "PID")]
    pid: OsString,
}

/// Goes on with a recording that was paused.
#[derive(Debug, Args)]
#[command(after_help = "\
It goes on when this command has ended, for all its processes, also for those that have paused themselves
by uu_record_stop() of uu.h. Exit code: 0, or 125 if nothing records the process.")]
pub struct Resume {
    /// A process that is being recorded, by `uu record` or `uu record -p`; or that uu itself
    #[arg(value_name = "PID")]
    pid: OsString,
}

/// Runs `uu pause`; returns the exit code.
pub fn pause(options: &Pause) -> Result<u8, Failure> {
    switch(&options.pid, true)
}

/// Runs `uu resume`; returns the exit code.
pub fn resume(options: &Resume) -> Result<u8, Failure> {
    switch(&options.pid, false)
}

fn switch(pid: &OsString, paused: bool) -> Result<u8, Failure> {
    let pid = options::pid(pid, "PID")?;
    let recorder = ask(pid, paused).map_err(Failure::new)?;
    let now = if paused { "paused" } else { "going on" };
    let what = if recorder == pid { String::new() } else { format!(" of process {pid}") };
    terminal::print(&format!("the recording{what} by uu (process {recorder}) is {now}\n"))
}
