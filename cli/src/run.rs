//! `uu run`: runs a program with an object preloaded, which reports its crashes.

mod found;
mod names;

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use crate::{layout, program};
use clap::{Args, ValueHint};
pub use names::{serve as add_names, CRASH_NAMES};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_recorder::safe_path::SafePaths;
use uunwind_recorder::spawn::{preload_value, users_preload};

/// Runs a program; if it crashes, shows what each of its threads was doing.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "uu run --report-crashes [OPTIONS] [--] PROGRAM [ARGUMENTS]",
    after_help = "\
uu becomes the program: its exit code, signals and core dumps are its own. Its children are
watched, too. After a report is written, uu is started once more by the process that crashed, which
waits for it, and adds the names and lines that the files have, and Python's names of threads."
)]
pub struct Options {
    /// On a fatal signal, write the whole stacks of all threads, with registers and build-ids
    #[arg(long, required = true)]
    report_crashes: bool,
    /// Write JSON lines instead of text
    #[arg(long)]
    json: bool,
    /// Where reports go, %p in it becoming the process id; it is made when a crash comes [default: stderr]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Runs the subcommand. Returns only if the program cannot be run.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let (name, arguments) =
        options.command.split_first().map_or((OsStr::new(""), &[][..]), |(n, a)| (n.as_os_str(), a));
    let layout = layout::find()?;
    let checked = program::check(name, program::FROM_OUTSIDE)?;
    let destination = destination(options.output.as_deref())?;
    let (mut object, mut library) = (layout.crash, layout.library);
    if !object.is_file() {
        let text = format!("{} is missing: install uu as a whole, or build it with ci/build", object.display());
        return Err(Failure::new(text));
    }
    // The program and its children use the links.
    let mut safe = SafePaths::make(&mut [&mut object, &mut library]).map_err(Failure::new)?;
    safe.keep();
    let mut command = Command::new(name);
    command.args(arguments);
    let preloaded = [&object, &library];
    command.env("LD_PRELOAD", preload_value(checked.asan_runtime.as_ref(), &preloaded, users_preload()));
    command.env("UU_REPORT_CRASHES", destination);
    command.env("UU_REPORT_CRASHES_NAMER", &layout.command);
    match options.json {
        true => command.env("UU_REPORT_CRASHES_FORMAT", "json"),
        false => command.env_remove("UU_REPORT_CRASHES_FORMAT"),
    };
    uunwind_recorder::inherited::restore_for(&mut command);
    let error = command.exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Err(Failure::with_code(code, format!("{} cannot be run: {error}", name.to_string_lossy())))
}

/// The value of `UU_REPORT_CRASHES`: stderr, or a path that the program's working folder does not change.
fn destination(output: Option<&OsStr>) -> Result<OsString, Failure> {
    let Some(output) = output else { return Ok("2".into()) };
    let failed = |why: &str| Failure::new(format!("-o {}: {why}", output.to_string_lossy()));
    let path = std::path::absolute(output).map_err(|error| failed(&error.to_string()))?;
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    if !folder.is_dir() {
        return Err(failed(&format!("there is no folder {}. Make it, or name another file", folder.display())));
    }
    if path.is_dir() {
        return Err(failed("it is a folder. Name a file"));
    }
    Ok(path.into_os_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_go_to_stderr_or_to_an_absolute_path() {
        assert_eq!(destination(None).expect("stderr"), "2");
        let path = destination(Some("7".as_ref())).expect("a path");
        assert_eq!(Path::new(&path), std::env::current_dir().expect("a folder").join("7"), "no descriptor's number");
        let missing = destination(Some("/no/such/folder/x".as_ref())).expect_err("no folder");
        assert!(missing.text.contains("/no/such/folder"), "{}", missing.text);
        assert!(destination(Some("/".as_ref())).is_err());
    }
}
