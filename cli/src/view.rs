//! `uu view`: opens a recording, or a picture of one, in the browser.

use crate::exit::Failure;
use crate::{options, terminal};
use clap::{Args, ValueHint};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
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

Environment: BROWSER (the program that opens it, or several between colons; otherwise xdg-open).")]
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
    // Printed in any case: on a machine without a screen, the file is what there is to see. And before a browser is
    // started, which may be one that runs until it is closed.
    terminal::print(&format!("{}\n", page.display()))?;
    let named = std::env::var_os("BROWSER").filter(|named| !named.is_empty()).unwrap_or("xdg-open".into());
    let mut why = Vec::new();
    for mut browser in browsers(named.as_bytes(), &page) {
        let name = browser.get_program().to_string_lossy().into_owned();
        match browser.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => return Ok(0),
            Ok(status) => why.push(format!("{name}: ended with {status}")),
            Err(e) => why.push(format!("{name}: {e}")),
        }
    }
    let why = if why.is_empty() { "BROWSER names no program".to_owned() } else { why.join("; ") };
    Err(Failure::new(format!("{why}. Open the file in a browser yourself, or name one in BROWSER")))
}

/// The commands in BROWSER: between colons, the next one for when one fails; `%s` stands for the page, which otherwise
/// follows; after a program's name there may be options
/// ([xdg-open(1)](https://manpages.debian.org/bookworm/xdg-utils/xdg-open.1.en.html)).
fn browsers<'a>(named: &[u8], page: &'a Path) -> impl Iterator<Item = Command> + use<'a> {
    let mut commands: Vec<Vec<u8>> = Vec::new();
    for part in named.split(|byte| *byte == b':') {
        // A colon before two slashes is an address's.
        match commands.last_mut().filter(|_| part.starts_with(b"//")) {
            Some(before) => before.extend([b":", part].concat()),
            None => commands.push(part.to_vec()),
        }
    }
    commands.into_iter().filter(|command| !command.trim_ascii().is_empty()).map(move |command| {
        // A program whose path has spaces is one word.
        let path = OsStr::from_bytes(&command);
        let words = match Path::new(path).is_file() {
            true => vec![&command[..]],
            false => command.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect(),
        };
        let mut browser = Command::new(OsStr::from_bytes(words.first().copied().unwrap_or_default()));
        let mut has_page = false;
        for word in words.into_iter().skip(1) {
            let Some(at) = word.windows(2).position(|two| two == b"%s") else {
                browser.arg(OsStr::from_bytes(word));
                continue;
            };
            has_page = true;
            browser.arg(OsStr::from_bytes(&[&word[..at], page.as_os_str().as_bytes(), &word[at + 2..]].concat()));
        }
        if !has_page {
            browser.arg(page);
        }
        browser
    })
}

/// Makes the page of a recording, in a file that only this user can read.
fn page_of(file: &Path) -> Result<PathBuf, Failure> {
    let mut recording = Recording::read(file).map_err(Failure::new)?.to_show(file);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_may_have_options_and_successors() {
        let said = |named: &str| -> Vec<String> {
            browsers(named.as_bytes(), Path::new("/tmp/x y.html"))
                .map(|browser| {
                    let words = std::iter::once(browser.get_program()).chain(browser.get_args());
                    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
                })
                .collect()
        };
        assert_eq!(said("firefox"), ["firefox|/tmp/x y.html"]);
        assert_eq!(said("firefox -P work"), ["firefox|-P|work|/tmp/x y.html"]);
        assert_eq!(said("w3m %s -T text/html::lynx"), ["w3m|/tmp/x y.html|-T|text/html", "lynx|/tmp/x y.html"]);
        assert_eq!(said("chromium --app=file://%s"), ["chromium|--app=file:///tmp/x y.html"]);
        assert_eq!(said(":"), Vec::<String>::new());
    }
}
