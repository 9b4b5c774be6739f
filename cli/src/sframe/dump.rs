//! `uu sframe dump`: prints a file's tables, and every check that they fail.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::fmt::Write;
use uunwind_core::span::Span;
use uunwind_doctor::binary::Part;
use uunwind_doctor::{sframe, unwind_row, Binary};
use uunwind_sframe::function::{Extent, Function};
use uunwind_sframe::row::Row;
use uunwind_sframe::table::{Machine, Table, FRAME_POINTER, SORTED, START_FROM_FIELD};
use uunwind_sframe::{Fault, Visitor};

/// Exit code: the file was read, and a check failed.
const CHECK_FAILED: u8 = 1;

/// Prints the SFrame tables of a file, and every check that they fail.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "\
FILE is an ELF file, or holds just a section's bytes. A failed check has its offset; damage does not stop the rest.
Exit code: 0; 1 if a check failed; 125 if the file cannot be read or has no SFrame."
)]
pub struct Options {
    /// No functions and rows, only tables and failed checks
    #[arg(long)]
    check: bool,
    /// The file
    #[arg(value_hint = ValueHint::FilePath)]
    file: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let (file, only_check) = (options::path(options.file.clone(), "FILE")?, options.check);
    let binary = Binary::open(&file).map_err(Failure::new)?;
    let mut printer = Printer { out: format!("{}: ", file.display()), only_check, ..Printer::default() };
    // The bytes of a section alone (`objcopy -O binary -j .sframe`) are taken to lie at address 0; the code may be
    // anywhere.
    if binary.bytes.starts_with(&[0xe2, 0xde]) || binary.bytes.starts_with(&[0xde, 0xe2]) {
        let _ = writeln!(printer.out, "the bytes of a section, {} of them", binary.bytes.len());
        sframe::show(Part { address: 0, bytes: &binary.bytes }, Span::new(0, u64::MAX), &mut printer);
    } else {
        let view = binary.view().map_err(Failure::new)?;
        let Some((part, whence)) = view.sframe() else {
            return Err(Failure::new(binary.refuse("it has no SFrame (`uu sframe make` makes it from .eh_frame)")));
        };
        let _ = writeln!(printer.out, "{whence}, at {:#x}, {} bytes", part.address, part.bytes.len());
        if view.relocatable {
            printer.out.push_str("A relocatable object: its start addresses are not final.\n");
        }
        let text = if view.relocatable { Span::new(0, u64::MAX) } else { view.text_span() };
        sframe::show(part, text, &mut printer);
    }
    if printer.tables == 0 && printer.faults == 0 {
        printer.out.push_str("It is empty: no table begins here.\n");
    }
    let _ = writeln!(
        printer.out,
        "\n{} tables, {} functions, {} rows; {} checks failed",
        printer.tables, printer.functions, printer.rows, printer.faults
    );
    terminal::output(printer.out.as_bytes())?;
    Ok(if printer.faults == 0 { 0 } else { CHECK_FAILED })
}

#[derive(Default)]
struct Printer {
    out: String,
    only_check: bool,
    tables: usize,
    functions: usize,
    rows: usize,
    faults: usize,
}

// Writing to a string cannot fail.
impl Visitor for Printer {
    fn table(&mut self, table: &Table) {
        self.tables += 1;
        let machine = match table.machine {
            Machine::Amd64 => "AMD64",
            Machine::AArch64 => "AArch64",
            Machine::S390x => "s390x",
        };
        let order = if table.big_endian { "big-endian" } else { "little-endian" };
        let names = [
            (SORTED, "sorted"),
            (FRAME_POINTER, "frame pointers kept"),
            (START_FROM_FIELD, "start addresses count from their field"),
        ];
        let flags: Vec<_> = names.iter().filter(|(bit, _)| table.flags & bit != 0).map(|(_, name)| *name).collect();
        let _ = write!(
            self.out,
            "\nTable at offset {:#x}: version {}, {machine}, {order}; flags {:#x} ({})\n  {} functions, {} rows",
            table.at,
            table.version,
            table.flags,
            if flags.is_empty() { "none".to_owned() } else { flags.join(", ") },
            table.functions,
            table.rows
        );
        let _ = match table.fixed_ra {
            0 => writeln!(self.out),
            ra => writeln!(self.out, "; return address at CFA{ra:+}"),
        };
    }

    fn function(&mut self, _: &Table, function: &Function) {
        self.functions += 1;
        if self.only_check {
            return;
        }
        let Span { start, end } = function.range();
        let _ = write!(self.out, "\n  {start:#x}..{end:#x}  {} bytes, {} rows", function.size, function.rows);
        match function.extent {
            Extent::Whole => {}
            Extent::Blocks(size) => drop(write!(self.out, ", for each block of {size} bytes")),
            Extent::UnknownBlocks => self.out.push_str(", for each block, of a size that version 1 does not record"),
        }
        for (is, text) in [
            (function.flexible, ", flexible"),
            (function.signal, ", signal frame"),
            (function.key_b, ", signed with key B"),
        ] {
            self.out.push_str(if is { text } else { "" });
        }
        self.out.push('\n');
    }

    fn row(&mut self, table: &Table, function: &Function, row: &Row) {
        self.rows += 1;
        if self.only_check {
            return;
        }
        let signed = if row.signed_ra { ", signed" } else { "" };
        let words = unwind_row::words(&row.unwind, table.machine);
        let _ = match function.extent {
            Extent::Whole => {
                let at = function.start.wrapping_add(u64::from(row.start));
                writeln!(self.out, "    {at:#018x}  {words}{signed}")
            }
            _ => writeln!(self.out, "    block{:+}  {words}{signed}", row.start),
        };
    }

    fn fault(&mut self, fault: Fault) {
        self.faults += 1;
        let (number, text) = (fault.check as u8, fault.check.text());
        let _ = writeln!(self.out, "  ! check {number} at offset {:#x}: {text} (found {:#x})", fault.at, fault.found);
    }
}
