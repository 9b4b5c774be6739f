//! `uu doctor`: for each object of a program or a process, which unwind information describes its code; for one
//! address, every source's rule; without arguments, what the system has that uu works with.

mod address;
mod describe;
mod process;
mod system;

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use describe::describe;
use std::ffi::OsString;
use uunwind_doctor::doctor::diagnose;
use uunwind_doctor::Binary;

/// Lines that are listed of one kind, unless `--list` is given.
const LISTED: usize = 8;

/// Shows which unwind information an ELF file, each object of a process, or one address has; without arguments, what
/// this system lacks.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "uu doctor\n       uu doctor [--list] FILE|PID\n       uu doctor FILE@ADDRESS",
    after_help = AFTER_HELP
)]
pub struct Options {
    /// List every disagreement and every range of code
    #[arg(long)]
    list: bool,
    /// An ELF file, an address in it, or a process; without one, this system
    #[arg(value_name = "FILE|FILE@ADDRESS|PID", value_hint = ValueHint::FilePath)]
    what: Option<OsString>,
}

const AFTER_HELP: &str = "\
Shown are the sources (rule table, .eh_frame, .debug_frame, SFrame), how much of the text each covers, where two disagree,
and which one walks choose where, and why.

With ADDRESS: what each source has for that address of FILE, in the order in which walks try them, and which one a walk
takes. ADDRESS is a file address in hexadecimal, as readelf, objdump and nm show it (of a process address, subtract the
load bias), or FUNCTION, or FUNCTION+0xOFFSET. It counts as the address of an interrupted instruction; one that follows
a call is looked up as a return address, too. `uu report -f samples` prints such addresses.

For a process, the vDSO is examined too, and code that lies in no file (a JIT's) is listed.
Without arguments: what uu works with on this system (kernel, C library, rights, limits), and what each thing that is
missing costs.
Exit code: 0; 125 if the file or the process cannot be examined.";

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let Some(what) = options.what.clone() else {
        terminal::output(system::describe().as_bytes())?;
        return Ok(0);
    };
    let what = options::path(what, "FILE|FILE@ADDRESS|PID")?;
    let most = if options.list { usize::MAX } else { LISTED };
    // A file of that name takes precedence: a process has one name only, but `123` can be written as `./123`.
    let pid = what.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|_| !what.exists());
    let out = match (pid, address::split(&what)) {
        (Some(pid), _) => process::describe_all(pid, most)?,
        (None, Some((file, place))) => address::describe(&file, &place)?,
        (None, None) => {
            let diagnosis = diagnose(&Binary::open(&what).map_err(Failure::new)?).map_err(Failure::new)?;
            describe(&what.display(), &diagnosis, most)
        }
    };
    terminal::output(out.as_bytes())?;
    Ok(0)
}
