//! `uu sframe make`: a copy of a file with SFrame made from its `.eh_frame`, and from its code.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write as _};
use std::path::Path;
use uunwind_doctor::make::{make, make_with_code, Made};
use uunwind_doctor::write::{Beyond, VERSIONS};
use uunwind_doctor::Binary;

/// Addresses that are listed for one reason, unless `--list` is given.
const LISTED: usize = 8;
/// Bytes of a part; a file is written part by part.
const CHUNK: usize = 1 << 16;

/// Writes a copy of an x86-64 program or library with SFrame made from its .eh_frame.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "\
SFrame is in a section, and in a segment PT_GNU_SFRAME that is mapped with the rest. Each rule is read back and compared
with .eh_frame. What SFrame cannot express is listed.

Strip FILE before, not OUT after it: GNU strip and objcopy break files whose program headers are not at the start.
Exit code: 0; 125 if it cannot be made, with the reason."
)]
pub struct Options {
    /// Version of the format, 2 or 3
    #[arg(long, value_name = "N", default_value = "3", allow_negative_numbers = true)]
    version: OsString,
    /// Describe functions that .eh_frame leaves out, too, by their machine code
    #[arg(long)]
    from_code: bool,
    /// List every address that was left out
    #[arg(long)]
    list: bool,
    /// The copy
    #[arg(short, long, value_name = "OUT", required = true, value_hint = ValueHint::FilePath)]
    output: OsString,
    /// The program or library
    #[arg(value_hint = ValueHint::FilePath)]
    file: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let version = version_of(&options.version)?;
    let (file, output) = (options::path(options.file.clone(), "FILE")?, options::path(options.output.clone(), "-o")?);
    let binary = Binary::open(&file).map_err(Failure::new)?;
    let make = if options.from_code { make_with_code } else { make };
    let made = make(&binary, version).map_err(Failure::new)?;
    save(&file, &output, &made.bytes)?;
    terminal::output(report(&output, version, &made, if options.list { usize::MAX } else { LISTED }).as_bytes())?;
    Ok(0)
}

fn version_of(value: &OsString) -> Result<u8, Failure> {
    let text = value.to_string_lossy();
    text.parse().ok().filter(|n| VERSIONS.contains(n)).ok_or_else(|| {
        Failure::new(format!("--version {text}: versions {} and {} can be made", VERSIONS.start(), VERSIONS.end()))
    })
}

/// Writes a new file and moves it into place: processes that run or map the old file keep it.
fn save(from: &Path, to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("cannot write {}: {e}", to.display()));
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut beside = tempfile::Builder::new().prefix(".uu-sframe-").tempfile_in(folder).map_err(fail)?;
    write_sparse(beside.as_file_mut(), bytes)
        .and_then(|()| beside.as_file().set_permissions(std::fs::metadata(from)?.permissions()))
        .map_err(fail)?;
    beside.persist(to).map(drop).map_err(|e| fail(e.error))
}

/// Writes holes for zeroes: a program's `.bss` then takes no space on the disk.
fn write_sparse(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
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
        "Text covered: {:.2} % of {} bytes; by .eh_frame: {:.2} %. Every row equals .eh_frame's for CFA, return address and rbp.",
        share(made.by_sframe),
        made.text,
        share(made.by_eh_frame)
    );
    if made.by_code > 0 {
        let _ = writeln!(out, "By the machine code, where .eh_frame has nothing: {:.2} %.", share(made.by_code));
    }
    if !made.has_section_header {
        out.push_str("The file has no section headers, so only the segment PT_GNU_SFRAME points to it.\n");
    }
    if made.damaged > 0 {
        let _ = writeln!(out, "Entries of .eh_frame that cannot be read: {}.", made.damaged);
    }
    out.push_str("SFrame cannot describe rbx and r12 to r15: a walk that passes such a frame loses them.\n");
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
