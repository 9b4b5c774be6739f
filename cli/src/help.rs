//! What `--help` prints.

/// `uu --help`.
pub const UU: &str = "\
uu shows where a program spends its CPU time: one picture, every language in it.

Usage:
  uu record [OPTIONS] -- PROGRAM [ARGUMENTS]   run a program and record it
  uu report [OPTIONS] FILE                     show a recording, or convert it
  uu doctor FILE|PID                           who tells how to unwind each object
  uu sframe dump|make FILE                     show SFrame tables, or make them
  uu help [COMMAND]                            more about a command
  uu --version

Try: uu record -o flame.svg -- python3 app.py
";

/// `uu record --help`.
pub const RECORD: &str = "\
Runs PROGRAM and records where it spends its CPU time, until it ends. Its children are recorded too.

Usage: uu record [OPTIONS] [--] PROGRAM [ARGUMENTS]

Options:
  -r, --rate HZ            samples per second of CPU time, per thread (1 to 10000) [99]
  -d, --duration SECONDS   end the recording after this time; the program runs on, and uu waits for it
  -o, --output FILE        where the result goes [uu-PROGRAM-PID.uu]
  -f, --format FORMAT      format of the result [by the extension of FILE]
      --native-frames MODE hide: leave out an interpreter's own frames; show: keep them [hide]
      --no-keep            do not keep the recording (.uu) beside a result in another format
      --no-children        do not record child processes
      --explicit           a SIGPROF that a thread sends itself takes a sample
  -h, --help

Formats:
@FORMATS@
A recording (.uu) is kept beside any other result, so that more can be made from it without running PROGRAM again.
A summary goes to standard error; the program's own output is left alone.

Ctrl-C ends the program as usual, and the recording with it. SIGTERM to uu is passed on to the program.

Exit code: the program's; 128 + n if signal n ended it; 126 if it cannot be executed, 127 if it was not found;
125 if uu failed, or if nothing was sampled and the program had succeeded.

Environment: UU_PLUGINS (plugin files or folders, separated by colons), NO_COLOR.
";

/// `uu report --help`.
pub const REPORT: &str = "\
Shows a recording made by `uu record`, or converts it.

Usage: uu report [OPTIONS] FILE

Options:
  -o, --output FILE        where the result goes [standard output]
  -f, --format FORMAT      format of the result [by the extension of the output, else summary]
      --native-frames MODE hide: leave out an interpreter's own frames; show: keep them [hide]
  -h, --help

Formats:
@FORMATS@
Exit code: 0, or 125 if the recording cannot be read or the result cannot be written. A truncated recording is reported
as far as it goes, with a warning.
";

/// `uu doctor --help`.
pub const DOCTOR: &str = "\
Shows who tells how to unwind an ELF file, or each object of a process: which sources there are (rule table, .eh_frame,
.debug_frame, SFrame), how much of the text each covers, where two disagree, and which one walks choose where, and why.

Usage: uu doctor [--list] FILE|PID

      --list               list every disagreement and every range of code

Of a process, the vDSO is examined too, and code that lies in no file (of a JIT) is named.
Exit code: 0; 125 if the file or the process cannot be examined.
";

/// `uu sframe --help`.
pub const SFRAME: &str = "\
SFrame: stack trace tables that are quicker to read than .eh_frame, and that hardly any distribution ships.

Usage: uu sframe dump [--check] FILE
       uu sframe make [--version 2|3] [--list] -o OUT FILE

dump prints the tables of an ELF file, or of a file that holds just a section's bytes, and names every check that they
fail, with its offset. Damage does not stop it.
      --check              no functions and rows, only tables and failed checks
Exit code: 0; 1 if a check failed; 125 if the file cannot be read or has no SFrame.

make writes a copy of an x86-64 program or library with SFrame made from its .eh_frame: in a section, and in a segment
PT_GNU_SFRAME that is mapped with the rest. Each rule is read back and compared with .eh_frame. What SFrame cannot say is listed.
Strip FILE before, not OUT after it: GNU strip and objcopy break files whose program headers are not at the start.
      --version N          version of the format [3]
      --list               list every address that was left out
  -o, --output OUT         the copy
Exit code: 0; 125 if it cannot be made, with the reason.
";

/// Help of a subcommand.
pub fn of(command: &str) -> Option<&'static str> {
    match command {
        "record" => Some(RECORD),
        "report" => Some(REPORT),
        "doctor" => Some(DOCTOR),
        "sframe" => Some(SFRAME),
        _ => None,
    }
}

/// A help text with the list of formats filled in.
pub fn filled(text: &str) -> String {
    text.replace("@FORMATS@\n", &uunwind_report::formats::Format::list())
}
