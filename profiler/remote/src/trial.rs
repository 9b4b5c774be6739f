//! Whether uu may trace processes at all, found out by a try: what the kernel's settings say is not all that decides.

use crate::refusal::{refused, DumpError};
use crate::threads::Stopped;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// For how long the process of the trial may take to stand still.
const PATIENCE: Duration = Duration::from_secs(1);
/// A process that is nobody's child any more: Yama lets uu trace its own descendants. It ends with its standard input.
const ORPHAN: &str = "exec 3<&0; cat <&3 >/dev/null 2>&1 & echo $!";

/// Tries to trace a process of the same user that is no descendant of this one. `None`: there was none to try it with.
pub fn attach() -> Option<Result<(), DumpError>> {
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", ORPHAN]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn().ok()?;
    // Dropped at the end of this function, which ends the process.
    let _input = shell.stdin.take();
    let mut line = String::new();
    let read = shell.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let has_ended = shell.wait().is_ok_and(|status| status.success());
    let pid = line.trim().parse::<u32>().ok().filter(|_| has_ended && matches!(read, Some(Ok(_))))?;
    Some(match Stopped::one(pid, pid, PATIENCE) {
        Ok(stopped) => {
            stopped.let_go();
            Ok(())
        }
        Err(error) => Err(refused(pid, error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own answer to another tracer is the oracle: what reads an orphan's memory asks the same rights.
    #[test]
    fn the_trial_says_what_the_kernel_does() {
        let script = "import subprocess, sys\\n\
            p = subprocess.Popen(['sh', '-c', 'exec 3<&0; cat <&3 & echo $!'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\\n\
            pid = int(p.stdout.readline()); p.wait()\\n\
            open(f'/proc/{pid}/mem', 'rb').close()";
        let script = script.replace("\\n", "\n");
        let out = Command::new("python3").args(["-c", &script]).output().expect("python3");
        let may = out.status.success();
        assert!(may || String::from_utf8_lossy(&out.stderr).contains("PermissionError"), "{out:?}");
        assert_eq!(attach().expect("a shell").is_ok(), may);
    }
}
