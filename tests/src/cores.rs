//! Core files that gdb writes of running programs.

use crate::{process, uu};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What gdb says of memory that it has left out.
pub const LOST: &str = "Memory read failed";

/// Whether gdb's gcore is installed.
pub fn has_gcore() -> bool {
    let mut gcore = Command::new("gcore");
    gcore.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Lets gcore write a core file of a process, which lives on. Error: what gdb says if it has failed, or left out
/// memory.
pub fn gcore(pid: u32, folder: &Path) -> Result<PathBuf, String> {
    let mut gcore = Command::new("gcore");
    gcore.arg("-o").arg(folder.join("gdb")).arg(pid.to_string());
    let out = process::run(&mut gcore, folder, uu::LIMIT);
    if out.code() != 0 {
        return Err(out.text());
    }
    // The vsyscall page cannot be read by anybody. Stacks with guard pages of MADV_GUARD_INSTALL (glibc 2.42)
    // can, in parts, which gdb does not try.
    let lost = |line: &&str| line.contains(LOST) && !line.contains("0xffffffffff600000");
    let core = folder.join(format!("gdb.{pid}"));
    match out.stderr.lines().chain(out.stdout.lines()).find(lost) {
        Some(line) => {
            std::fs::remove_file(core).expect("a core file");
            Err(line.to_owned())
        }
        None => Ok(core),
    }
}

/// As [`gcore`], of a process whose threads may end meanwhile: gdb fails if one ends while it attaches to all.
pub fn gcore_of_any(pid: u32, folder: &Path) -> Result<PathBuf, String> {
    const TIMES: usize = 20;
    let mut said = String::new();
    for _ in 0..TIMES {
        match gcore(pid, folder) {
            Err(failed) if failed.contains("ptrace: No such process") => said = failed,
            other => return other,
        }
    }
    Err(said)
}
