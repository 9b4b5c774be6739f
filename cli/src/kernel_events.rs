//! `uu kernel-events`: opens perf events for a user who may not.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use uunwind_recorder::kernel::helper::{Helper, Owner};

/// Opens perf events for one user's `uu record --kernel`, until it is ended; run it as root.
#[derive(Debug, Args)]
#[command(after_help = "\
The user then records with uu record --kernel --events-from SOCKET, or has the line events-from = \"SOCKET\" in the
table [record] of ~/.config/uu/config.toml.

Only this user may connect. Only events that sample this user's own threads are opened, and only as uu record needs
them; threads of set-user-ID programs and of programs that have dropped rights are refused. What the user learns that
the system would keep from it (kernel.perf_event_paranoid, kernel.kptr_restrict): in which functions of the kernel its
own programs are, and where the kernel's code lies in memory.")]
pub struct Options {
    /// Where to listen: a path for a socket, in a folder that the user may enter
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    socket: OsString,
    /// The user, by name or number
    #[arg(long, value_name = "USER", value_hint = ValueHint::Username)]
    user: OsString,
}

/// Runs the subcommand, which ends by a signal or a failure only.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let path = options::path(options.socket.clone(), "--socket")?;
    let owner = Owner::of(&options.user)
        .ok_or_else(|| Failure::new(format!("there is no user {}: give --user a name", options.user.display())))?;
    if owner.uid == 0 {
        return Err(Failure::new("--user root: root may open perf events itself; give the user who may not"));
    }
    let mut helper = Helper::listen(&path, owner).map_err(|e| {
        let needs = match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ". Run it as root",
            Some(libc::EADDRINUSE) => ": another one listens there, or a file has this name. Give another path",
            _ => "",
        };
        Failure::new(format!("cannot listen at {}: {e}{needs}", path.display()))
    })?;
    terminal::say(&format!("perf events for user {} at {}. Ctrl-C ends it", owner.uid, path.display()));
    let ended = helper.serve();
    Err(Failure::new(format!("cannot listen at {} any longer: {ended}", path.display())))
}
