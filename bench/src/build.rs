//! Building rule tables, beside gimli's parse of the same `.eh_frame`.
//!
//! `uunwind-bench build [FILE...]`. Both take turns in each round, on bytes that are in memory; gimli goes through
//! every FDE and every row, and keeps nothing. The sizes are those of the table and of `.eh_frame` without its index.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;
use uunwind_elf::Image;
use uunwind_tables_build::of_image;

const ROUNDS: usize = 15;

/// Prints a line for each file; without any, for some that most machines have.
pub fn run(files: Vec<String>) {
    let files: Vec<PathBuf> = if files.is_empty() { usual() } else { files.iter().map(PathBuf::from).collect() };
    println!("\n### Rule tables: built once per build-id\n");
    println!("| object | FDEs | rows | .eh_frame, bytes | table, bytes (ratio) | gimli, ms | built, ms (ratio) |");
    println!("|---|---|---|---|---|---|---|");
    let (mut theirs, mut ours) = (0.0, 0.0);
    for file in files {
        match one(&file) {
            Ok((parsed, built)) => (theirs, ours) = (theirs + parsed, ours + built),
            Err(why) => println!("| {} | {why} |", file.display()),
        }
    }
    println!("| all | | | | | {theirs:.2} | {ours:.2} ({:.2}) |", ours / theirs);
}

fn usual() -> Vec<PathBuf> {
    let lib = "/usr/lib/x86_64-linux-gnu";
    let mut all: Vec<PathBuf> =
        ["libc.so.6", "libstdc++.so.6", "libcrypto.so.3"].iter().map(|name| Path::new(lib).join(name)).collect();
    all.extend(["python3", "git", "node", "true"].map(|name| Path::new("/usr/bin").join(name)));
    // Where python3 is a small program, most of it is here.
    let script = "from sysconfig import get_config_var as v; print(v('LIBDIR'), v('INSTSONAME'), sep='/')";
    let said = std::process::Command::new("python3").args(["-c", script]).output();
    all.extend(said.ok().map(|out| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())));
    all.retain(|path| path.is_file());
    all
}

/// Medians, in milliseconds: gimli's, and ours.
fn one(path: &Path) -> Result<(f64, f64), String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let elf = object::File::parse(&*bytes).map_err(|e| e.to_string())?;
    let section = elf.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let frame = EhFrame::new(section.data().map_err(|e| e.to_string())?, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let image = Image::open(path).map_err(|e| e.to_string())?;
    let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut counts, mut size) = ((0, 0), 0);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        counts = black_box(parse(&frame, &bases));
        let parsed = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let table = black_box(of_image(&image, 1).map_err(|why| why.to_string())?);
        let built = begun.elapsed().as_secs_f64();
        size = table.len();
        theirs.push(parsed * 1e3);
        ours.push(built * 1e3);
        ratios.push(built / parsed);
    }
    println!(
        "| {} | {} | {} | {} | {size} ({:.2}) | {:.2} | {:.2} ({:.2}) |",
        path.display(),
        counts.0,
        counts.1,
        section.size(),
        size as f64 / section.size() as f64,
        crate::table::median(theirs.clone()),
        crate::table::median(ours.clone()),
        crate::table::median(ratios),
    );
    Ok((crate::table::median(theirs), crate::table::median(ours)))
}

/// FDEs and rows, by gimli.
fn parse(frame: &EhFrame<gimli::EndianSlice<'_, LittleEndian>>, bases: &BaseAddresses) -> (usize, usize) {
    let mut context = UnwindContext::new();
    let mut entries = frame.entries(bases);
    let mut counts = (0, 0);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        counts.0 += 1;
        let Ok(mut rows) = fde.rows(frame, bases, &mut context) else { continue };
        while let Ok(Some(row)) = rows.next_row() {
            counts.1 += 1;
            black_box(row);
        }
    }
    counts
}
