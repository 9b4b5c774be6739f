//! Core files that gdb writes of running programs.

use crate::{process, uu};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether gdb's gcore is installed.
pub fn has_gcore() -> bool {
    let mut gcore = Command::new("gcore");
    gcore.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Lets gcore write a core file of a process, which lives on. Error: gdb has left out memory, as it says.
///
/// # Panics
/// If gcore fails.
#[track_caller]
pub fn gcore(pid: u32, folder: &Path) -> Result<PathBuf, String> {
    let mut gcore = Command::new("gcore");
    gcore.arg("-o").arg(folder.join("gdb")).arg(pid.to_string());
    let out = process::run(&mut gcore, folder, uu::LIMIT).expect_code(0);
    // The vsyscall page cannot be read by anybody. Stacks with guard pages of MADV_GUARD_INSTALL (glibc 2.42)
    // can, in parts, which gdb does not try.
    let lost = |line: &&str| line.contains("Memory read failed") && !line.contains("0xffffffffff600000");
    match out.stderr.lines().chain(out.stdout.lines()).find(lost) {
        Some(line) => Err(line.to_owned()),
        None => Ok(folder.join(format!("gdb.{pid}"))),
    }
}
