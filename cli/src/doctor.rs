//! `uu doctor`: for each object of a program or a process, who tells how to unwind it.

use crate::exit::Failure;
use crate::{help, options, terminal};
use lexopt::prelude::{Long, Short, Value};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_analyse::unwind::doctor::{diagnose, Diagnosis};
use uunwind_analyse::unwind::piece::words;
use uunwind_analyse::unwind::Binary;
use uunwind_sframe::table::Machine;

const COMMAND: &str = "uu doctor";
/// Lines that are listed of one kind, unless all are asked for.
const LISTED: usize = 8;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let (mut what, mut all) = (None::<PathBuf>, false);
    let mut parser = lexopt::Parser::from_args(arguments.iter().cloned());
    let malformed = |e| options::malformed(e, COMMAND);
    while let Some(argument) = parser.next().map_err(malformed)? {
        match argument {
            Long("list") => all = true,
            Short('h') | Long("help") => return terminal::print(help::DOCTOR),
            Value(value) if what.is_none() => what = Some(options::path(value, "FILE|PID")?),
            other => return Err(malformed(other.unexpected())),
        }
    }
    let what = what.ok_or_else(|| Failure::usage("no file or process given", COMMAND))?;
    let most = if all { usize::MAX } else { LISTED };
    // A file of that name goes first: `./123` and `123` are the same file, a process has one name only.
    let pid = what.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|_| !what.exists());
    let Some(pid) = pid else {
        let diagnosis = diagnose(&Binary::open(&what).map_err(Failure::new)?).map_err(Failure::new)?;
        terminal::output(tell(&what, &diagnosis, most).as_bytes())?;
        return Ok(0);
    };
    let mut out = String::new();
    for object in objects(pid)? {
        // As the process sees it: another root, or a file replaced since.
        let path =
            Path::new("/proc").join(pid.to_string()).join("root").join(object.strip_prefix("/").unwrap_or(&object));
        match Binary::open(&path).and_then(|binary| diagnose(&binary)) {
            Ok(diagnosis) => out.push_str(&tell(&object, &diagnosis, most)),
            Err(why) => {
                let _ = writeln!(out, "{}\n  not examined: {why}", object.display());
            }
        }
    }
    terminal::output(out.as_bytes())?;
    Ok(0)
}

/// Files with executable mappings.
fn objects(pid: u32) -> Result<BTreeSet<PathBuf>, Failure> {
    let maps = format!("/proc/{pid}/maps");
    let text = std::fs::read(&maps).map_err(|e| Failure::new(format!("process {pid}: cannot read {maps}: {e}")))?;
    let mut found = BTreeSet::new();
    for line in text.split(|b| *b == b'\n') {
        // address perms offset dev inode path (proc(5)); a path may hold blanks.
        let mut fields = line.splitn(6, |b| *b == b' ');
        let executable = fields.nth(1).is_some_and(|perms| perms.contains(&b'x'));
        let path = fields.nth(3).map(<[u8]>::trim_ascii_start).filter(|path| path.starts_with(b"/"));
        if let (true, Some(path)) = (executable, path) {
            found.insert(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!(
            "process {pid} has no executable mapping of a file (a kernel thread, or ended)"
        )));
    }
    Ok(found)
}

fn tell(name: &Path, d: &Diagnosis, most: usize) -> String {
    let share = |n: u64| format!("{:6.2} %", n as f64 * 100.0 / d.text.max(1) as f64);
    let mut out = format!("{}\n  text           {} bytes\n", name.display(), d.text);
    // Writing to a string cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "  {text}");
    };
    match &d.eh_frame {
        None => line(".eh_frame      none".into()),
        Some(e) => {
            line(format!(".eh_frame      {} of text, {} functions", share(e.covered), e.functions));
            if e.damaged > 0 {
                line(format!("               {} entries cannot be read", e.damaged));
            }
            if e.beyond.0 > 0 {
                line(format!(
                    "               {} ranges, {} bytes, by expressions that are not told here",
                    e.beyond.0, e.beyond.1
                ));
            }
            if let Some(why) = e.unsearchable {
                line(format!("               not searched in place: {why}"));
            }
        }
    }
    match &d.sframe {
        None => line("SFrame         none".into()),
        Some(s) => {
            let versions: Vec<_> = s.versions.iter().collect::<BTreeSet<_>>().iter().map(|v| v.to_string()).collect();
            let (functions, rows) = (s.functions, s.rows);
            let what = format!("{functions} functions, {rows} rows; version {}", versions.join(" and "));
            line(format!("SFrame         {} of text, {what}; {}", share(s.covered), s.whence));
            if s.untold > 0 {
                line(format!("               {} ranges of blocks are too many to be examined", s.untold));
            }
            for fault in s.faults.iter().take(most) {
                let (number, at) = (fault.check as u8, fault.at);
                line(format!("               check {number} fails at offset {at:#x}: {}", fault.check.text()));
            }
            if s.faults.len() > most {
                line(format!("               and {} more (`uu sframe dump` shows all)", s.faults.len() - most));
            }
        }
    }
    line(format!("neither        {} of text: frame pointers are followed there, and marked", share(d.neither)));
    line(format!("disagreements  {}", d.disagreements.len()));
    for (disagreement, section) in d.disagreements.iter().take(most) {
        let said = |rule| words(rule, Machine::Amd64);
        line(format!("  {:#x}..{:#x} in {section}", disagreement.start, disagreement.end));
        line(format!("    .eh_frame  {}", said(&disagreement.first)));
        line(format!("    SFrame     {}", said(&disagreement.second)));
    }
    if d.disagreements.len() > most {
        line(format!("  and {} more (--list shows all)", d.disagreements.len() - most));
    }
    line(format!("chosen         {}", choice(d)));
    out
}

/// Which source a walk asks, and why; the order of `ffi/src/native.rs`.
fn choice(d: &Diagnosis) -> String {
    let dwarf = d.eh_frame.as_ref().filter(|e| e.unsearchable.is_none() && e.covered > 0);
    let quick = d.sframe.as_ref().filter(|s| s.mapped && s.covered > 0);
    match (dwarf, quick) {
        (Some(_), Some(s)) if s.alone == 0 => {
            ".eh_frame: it knows all callee-saved registers, and SFrame covers nothing that it lacks".into()
        }
        (Some(_), Some(s)) => {
            let alone = s.alone;
            format!(".eh_frame, which knows all callee-saved registers; SFrame for {alone} bytes of text that it lacks")
        }
        (Some(_), None) => match &d.sframe {
            Some(s) if !s.mapped => ".eh_frame; no segment tells of SFrame, so a process does not find it".into(),
            _ => ".eh_frame: the only source".into(),
        },
        (None, Some(_)) => "SFrame: .eh_frame cannot be searched or tells nothing; only rbp is known in callers".into(),
        (None, None) => "frame pointers: there is no other source".into(),
    }
}
