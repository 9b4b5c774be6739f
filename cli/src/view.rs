//! `uu view`: opens a recording, or a picture of one, in the browser.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uunwind_built_in::HALVES;
use uunwind_recording::languages::complete;
use uunwind_recording::Recording;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;

/// Shows a recording in the browser: a flame graph with search, time axis, threads and lines.
#[derive(Debug, Args)]
#[command(after_help = "\
The page of a recording is a temporary file, whose path is printed; it needs no network. `uu report FILE -o x.html` makes
one to keep or to pass on.

Environment: BROWSER (the program that opens it; otherwise xdg-open).")]
pub struct Options {
    /// The recording, or an html or svg file made of one
    #[arg(value_hint = ValueHint::FilePath)]
    file: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: Options) -> Result<u8, Failure> {
    let file = options::path(options.file, "FILE")?;
    let page = match Format::by_extension(&file) {
        Some(Format::Html | Format::Svg) => {
            std::fs::canonicalize(&file).map_err(|e| Failure::new(format!("cannot open {}: {e}", file.display())))?
        }
        _ => page_of(&file)?,
    };
    let browser = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()).unwrap_or("xdg-open".into());
    let opened =
        Command::new(&browser).arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    // Printed in any case: on a machine without a screen, the file is what there is to see.
    terminal::print(&format!("{}\n", page.display()))?;
    match opened {
        Ok(status) if status.success() => Ok(0),
        Ok(status) => Err(unopened(&browser, &format!("ended with {status}"))),
        Err(e) => Err(unopened(&browser, &e.to_string())),
    }
}

fn unopened(browser: &OsString, why: &str) -> Failure {
    let browser = browser.to_string_lossy();
    Failure::new(format!("{browser}: {why}. Open the file in a browser yourself, or name one in BROWSER"))
}

/// Makes the page of a recording, in a file that only this user can read.
fn page_of(file: &Path) -> Result<PathBuf, Failure> {
    let mut recording = Recording::read(file).map_err(Failure::new)?;
    crate::offline::walk(&mut recording, &[])?;
    complete(&mut recording, HALVES);
    for warning in &recording.warnings {
        terminal::warn(&uunwind_report::formats::printable(warning));
    }
    let bytes = render(Format::Html, &recording, NativeFrames::Hide)
        .map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
    let written = tempfile::Builder::new().prefix("uu-").suffix(".html").tempfile().and_then(|mut page| {
        page.write_all(&bytes)?;
        Ok(page.keep()?.1)
    });
    written.map_err(|e| {
        let place = std::env::temp_dir();
        Failure::new(format!("cannot write a page in {}: {e}. Set TMPDIR", place.display()))
    })
}
