//! Core files that gdb writes of running programs.

use crate::{process, uu};
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What [`gcore`] says of memory that gdb has left out.
pub const LOST: &str = "gdb has left out the memory at";

/// Whether gdb's gcore is installed.
pub fn has_gcore() -> bool {
    let mut gcore = Command::new("gcore");
    gcore.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A core file that gdb has written.
pub struct Core {
    /// Where it lies.
    pub path: PathBuf,
    /// Addresses whose memory gdb has left out: zeros are in their place.
    pub lost: Vec<Range<u64>>,
}

impl Core {
    /// Has gdb left out the memory at the stack pointer of a thread, as `uu dump --json` shows it?
    ///
    /// # Panics
    /// If the thread has no stack pointer.
    pub fn lacks_stack_of(&self, thread: &Value) -> bool {
        let register = thread["registers"]["rsp"].as_str().and_then(hexadecimal);
        let stack_pointer = register.unwrap_or_else(|| panic!("{thread}"));
        self.lost.iter().any(|lost| lost.contains(&stack_pointer))
    }
}

/// Lets gcore write a core file of a process, which lives on. Error: what gdb says if it has failed.
///
/// The vsyscall page cannot be read by anybody. Where stacks have guard pages of `MADV_GUARD_INSTALL` (glibc 2.42), gdb
/// leaves out all of the 1 MiB that it reads at once, if one of these pages is in it.
pub fn gcore_with_losses(pid: u32, folder: &Path) -> Result<Core, String> {
    let mut gcore = Command::new("gcore");
    gcore.arg("-o").arg(folder.join("gdb")).arg(pid.to_string());
    let out = process::run(&mut gcore, folder, uu::LIMIT);
    if out.code() != 0 {
        return Err(out.text());
    }
    let lost = out.stderr.lines().chain(out.stdout.lines()).filter_map(lost).collect();
    Ok(Core { path: folder.join(format!("gdb.{pid}")), lost })
}

/// The memory that a line of gdb says to be left out.
fn lost(line: &str) -> Option<Range<u64>> {
    let (_, said) = line.split_once("Memory read failed for corefile section, ")?;
    let (len, start) = said.split_once(" bytes at ")?;
    let start = hexadecimal(start.trim_end_matches('.'))?;
    Some(start..start.saturating_add(len.parse().ok()?))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// As [`gcore_with_losses`]. Error: also if gdb has left out memory, but for the vsyscall page.
pub fn gcore(pid: u32, folder: &Path) -> Result<PathBuf, String> {
    const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
    let Core { path, lost } = gcore_with_losses(pid, folder)?;
    match lost.iter().find(|lost| lost.start != VSYSCALL) {
        Some(lost) => {
            std::fs::remove_file(path).expect("a core file");
            Err(format!("{LOST} {lost:#x?}"))
        }
        None => Ok(path),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_gdb_left_out_is_read() {
        let said = "warning: Memory read failed for corefile section, 1048576 bytes at 0x7f18e6b00000.";
        assert_eq!(lost(said), Some(0x7f18_e6b0_0000..0x7f18_e6c0_0000));
        for other in ["", "Saved corefile gdb.1", "warning: Memory read failed for corefile section, x bytes at y."] {
            assert_eq!(lost(other), None, "{other}");
        }
        let core = Core { path: PathBuf::new(), lost: lost(said).into_iter().collect() };
        let thread = |rsp: &str| json!({"registers": {"rsp": rsp}});
        assert!(core.lacks_stack_of(&thread("0x7f18e6bffff8")));
        assert!(!core.lacks_stack_of(&thread("0x7f18e6c00000")));
    }
}
