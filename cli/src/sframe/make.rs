//! `uu sframe make`: a copy of a file with SFrame made from its `.eh_frame`.

use crate::exit::Failure;
use crate::{help, options, terminal};
use lexopt::prelude::{Long, Short, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use uunwind_analyse::unwind::make::{make, Made};
use uunwind_analyse::unwind::write::{Beyond, VERSIONS};
use uunwind_analyse::unwind::Binary;

const COMMAND: &str = "uu sframe make";
/// Addresses that are listed for one reason, unless all are asked for.
const LISTED: usize = 8;
/// A file is written in parts of so many bytes.
const CHUNK: usize = 1 << 16;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let (mut file, mut output, mut version, mut all) = (None::<PathBuf>, None::<PathBuf>, *VERSIONS.end(), false);
    let mut parser = lexopt::Parser::from_args(arguments.iter().cloned());
    let malformed = |e| options::malformed(e, COMMAND);
    while let Some(argument) = parser.next().map_err(malformed)? {
        match argument {
            Short('o') | Long("output") => output = Some(options::path(parser.value().map_err(malformed)?, "-o")?),
            Long("version") => version = version_of(&parser.value().map_err(malformed)?)?,
            Long("list") => all = true,
            Short('h') | Long("help") => return terminal::print(help::SFRAME),
            Value(value) if file.is_none() => file = Some(options::path(value, "FILE")?),
            other => return Err(malformed(other.unexpected())),
        }
    }
    let file = file.ok_or_else(|| Failure::usage("no file given", COMMAND))?;
    let output = output.ok_or_else(|| Failure::usage("no output given (-o OUT)", COMMAND))?;
    let binary = Binary::open(&file).map_err(Failure::new)?;
    let made = make(&binary, version).map_err(Failure::new)?;
    save(&file, &output, &made.bytes)?;
    terminal::output(report(&output, version, &made, if all { usize::MAX } else { LISTED }).as_bytes())?;
    Ok(0)
}

fn version_of(value: &OsString) -> Result<u8, Failure> {
    let text = value.to_string_lossy();
    text.parse().ok().filter(|n| VERSIONS.contains(n)).ok_or_else(|| {
        Failure::new(format!("--version {text}: versions {} and {} can be made", VERSIONS.start(), VERSIONS.end()))
    })
}

/// Writes beside the place and moves it there: what runs or is mapped from the old file stays as it is.
fn save(from: &Path, to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("cannot write {}: {e}", to.display()));
    let mut name = to.file_name().map(OsString::from).unwrap_or_default();
    name.push(format!(".{}.new", std::process::id()));
    let beside = to.with_file_name(name);
    let written = write_sparse(&beside, bytes)
        .and_then(|()| std::fs::set_permissions(&beside, std::fs::metadata(from)?.permissions()))
        .and_then(|()| std::fs::rename(&beside, to));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&beside);
        fail(e)
    })
}

/// Leaves holes where there are zeroes: a program's `.bss` needs no room on the disk.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    for (n, chunk) in (0u64..).zip(bytes.chunks(CHUNK)) {
        if chunk.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(n * CHUNK as u64))?;
            file.write_all(chunk)?;
        }
    }
    file.set_len(bytes.len() as u64)
}

fn report(output: &Path, version: u8, made: &Made, most: usize) -> String {
    let share = |n: u64| n as f64 * 100.0 / made.text.max(1) as f64;
    let (written, mut out) = (&made.written, String::new());
    let _ = writeln!(
        out,
        "{}: SFrame version {version} at {:#x}: {} functions, {} rows, {} bytes",
        output.display(),
        made.address,
        written.functions,
        written.rows,
        written.bytes.len()
    );
    let _ = writeln!(
        out,
        "Text told of: {:.2} % of {} bytes; by .eh_frame: {:.2} %. Every row equals .eh_frame's for CFA, return address and rbp.",
        share(made.by_sframe),
        made.text,
        share(made.by_eh_frame)
    );
    if !made.has_section_header {
        out.push_str("The file has no section headers, so only the segment PT_GNU_SFRAME tells of it.\n");
    }
    if made.damaged > 0 {
        let _ = writeln!(out, "Entries of .eh_frame that cannot be read: {}.", made.damaged);
    }
    out.push_str("SFrame has no words for rbx and r12 to r15: a walk that passes such a frame does not know them.\n");
    let mut reasons: BTreeMap<&str, Vec<&Beyond>> = BTreeMap::new();
    written.beyond.iter().for_each(|b| reasons.entry(b.why).or_default().push(b));
    if reasons.is_empty() {
        out.push_str("Nothing else was left out.\n");
    }
    for (why, list) in reasons {
        let bytes: u64 = list.iter().map(|b| b.end - b.start).sum();
        let _ = writeln!(out, "Left out, {} ranges, {bytes} bytes: {why}", list.len());
        for beyond in list.iter().take(most) {
            let _ = writeln!(out, "  {:#x}..{:#x}", beyond.start, beyond.end);
        }
        if list.len() > most {
            let _ = writeln!(out, "  and {} more (--list shows all)", list.len() - most);
        }
    }
    out
}
