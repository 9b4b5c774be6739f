//! The stacks of threads by which a signal ended their process.

use super::Style;
use crate::paths;
use crate::stacks::{Kind, Profile};
use std::collections::BTreeSet;
use std::fmt::Write;
use uunwind_recording::{signal_name, Recording};

/// Processes that are shown. Others are counted.
const PROCESSES: usize = 5;
/// Frames that are shown: the innermost ones, and the outermost.
const INNER: usize = 24;
const OUTER: usize = 6;

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// One block for each process. Threads that crashed a moment later are left out.
pub fn render(recording: &Recording, profile: &Profile, style: Style) -> Vec<String> {
    let mut blocks = Vec::new();
    let lines_said = paths::shortened(recording, &profile.lines);
    let mut seen = BTreeSet::new();
    let mut omitted = 0;
    for (sample, lines) in recording.fatal.iter().zip(&profile.fatal) {
        let Some(thread) = recording.threads.get(sample.thread as usize) else { continue };
        if !seen.insert(thread.process) {
            continue;
        }
        if seen.len() > PROCESSES {
            omitted += 1;
            continue;
        }
        let pid = recording.processes.get(thread.process as usize).map_or(0, |process| process.pid);
        let of = if thread.tid == pid {
            format!("process {pid}")
        } else {
            format!("thread {} of process {pid}", thread.tid)
        };
        let name = crate::formats::printable(&thread.name);
        let said = format!("{of} ({name}) ended by {}, in", signal_name(sample.weight));
        let mut out = format!("{}\n", style.heading(&said));
        for (index, line) in lines.iter().enumerate() {
            if lines.len() > INNER + OUTER && index == INNER {
                let _ = writeln!(out, "  … {} more", lines.len() - INNER - OUTER);
            }
            if lines.len() > INNER + OUTER && (INNER..lines.len() - OUTER).contains(&index) {
                continue;
            }
            let Some(line) = lines_said.get(*line as usize) else { continue };
            let at = match (line.kind, line.line) {
                (Kind::Native | Kind::Inlined, 1..) if !line.file.is_empty() => {
                    format!("{} ({}:{})", line.function, line.file, line.line)
                }
                _ => line.folded(),
            };
            let _ = writeln!(out, "  {}", style.name(&at, 2));
        }
        blocks.push(out);
    }
    if omitted > 0 {
        blocks.push(format!("{} more were ended by signals\n", super::counted(omitted, "process", "processes")));
    }
    blocks
}
