//! The user's defaults for options: `~/.config/uu/config.toml`, a table for each command.
//!
//! ```toml
//! [record]
//! rate = 199
//! output = "profile.uu"
//! no-children = true
//! ```
//!
//! Keys are the long names of the command's options. What the file says stands before what the command line says, and
//! so gives way to it; a flag that it sets stays set. What is not [TOML](https://toml.io/en/v1.0.0), or no setting, is an error, with its line.

use crate::exit::Failure;
use clap::{ArgAction, Command};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::de::{DeString, DeTable, DeValue};
use toml::Spanned;
use uunwind_elf::files;

/// Limit of the file's size, in bytes.
const LIMIT: u64 = 64 << 10;
/// Options that concern one run.
const OF_ONE_RUN: [&str; 2] = ["pid", "help"];

/// What the file gave to a command line.
#[derive(Default)]
pub struct Defaults {
    path: PathBuf,
    /// The options as messages may call them, `-r` and `--rate`; the key, and the value.
    options: Vec<([String; 2], String, String)>,
}

impl Defaults {
    fn new(path: PathBuf, command: &Command, words: &[String]) -> Defaults {
        let given = |word: &String| {
            let (key, value) = word.strip_prefix("--")?.split_once('=')?;
            let option = command.get_arguments().find(|arg| arg.get_long() == Some(key))?;
            let short = option.get_short().map_or_else(String::new, |short| format!("-{short}"));
            Some(([short, format!("--{key}")], key.to_owned(), value.to_owned()))
        };
        Defaults { path, options: words.iter().filter_map(given).collect() }
    }

    /// A failure that concerns a value of the file names the file and the key: the user has written no such option.
    pub fn explain(&self, failure: Failure) -> Failure {
        for (names, key, value) in &self.options {
            let why = names.iter().find_map(|name| failure.text.strip_prefix(&format!("{name} {value}: ")));
            if let Some(why) = why {
                let setting = uunwind_report::formats::printable(&format!("{key} = {value}"));
                return Failure::with_code(failure.code, format!("{}: {setting}: {why}", self.path.display()));
            }
        }
        failure
    }
}

/// The command line with the user's defaults in it, and those.
pub fn with_defaults(uu: &Command, arguments: &[OsString]) -> Result<(Vec<OsString>, Defaults), Failure> {
    let mut words = arguments.to_vec();
    let none = |words| Ok((words, Defaults::default()));
    let Some(command) = words.first().and_then(|word| uu.find_subcommand(word)) else { return none(words) };
    let Some(path) = path() else { return none(words) };
    let text = match files::read(&path, LIMIT) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| wrong(&path, "it is not UTF-8"))?,
        // No such file, or a home folder that is none or another user's, as services have.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied) => {
            return none(words);
        }
        Err(e) => return Err(wrong(&path, &format!("it cannot be read: {e}"))),
    };
    let defaults =
        parse(uu, command.get_name(), &text).map_err(|(line, why)| wrong(&path, &format!("line {line}: {why}")))?;
    let given = Defaults::new(path, command, &defaults);
    words.splice(1..1, defaults.into_iter().map(OsString::from));
    Ok((words, given))
}

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::new(format!("{}: {why}. Correct the file, or remove it", path.display()))
}

/// Where the file is, as the [XDG Base Directory
/// Specification](https://specifications.freedesktop.org/basedir-spec/latest/) has it.
fn path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("uu/config.toml"))
}

/// The options that the file gives for a command. The error: the line, and what is wrong there. All tables are checked,
/// whichever is used.
fn parse(uu: &Command, wanted: &str, text: &str) -> Result<Vec<String>, (usize, String)> {
    let fail = |at: usize, why: &str| {
        let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        (line, uunwind_report::formats::printable(why))
    };
    let file = DeTable::parse(text).map_err(|error| {
        fail(error.span().map_or(0, |span| span.start), &format!("this is not TOML: {}", error.message()))
    })?;
    let mut found = Vec::new();
    for (name, table) in in_order(file.get_ref()) {
        let at = name.span().start;
        let name = name.get_ref().as_ref();
        let Some(settings) = table.get_ref().as_table() else {
            return Err(fail(at, &format!("{name} is outside of the table of a command, such as [record]")));
        };
        let command = uu.get_subcommands().find(|command| command.get_name() == name);
        let command = command.ok_or_else(|| fail(at, &format!("[{name}] is no command of uu, such as [record]")))?;
        for (key, value) in in_order(settings) {
            let word = option(command, key.get_ref(), value.get_ref()).map_err(|why| fail(key.span().start, &why))?;
            found.extend(word.filter(|_| name == wanted));
        }
    }
    Ok(found)
}

/// The entries of a table as they follow one another in the file.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The word of the command line for a setting; `None`: a flag that is not set.
fn option(command: &Command, key: &str, value: &DeValue<'_>) -> Result<Option<String>, String> {
    let option = command.get_arguments().find(|arg| arg.get_long() == Some(key));
    let Some(option) = option.filter(|_| !OF_ONE_RUN.contains(&key)) else {
        return Err(format!("uu {} has no option --{key} that can have a default", command.get_name()));
    };
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    match value {
        DeValue::Boolean(given) if is_flag => Ok(given.then(|| format!("--{key}"))),
        _ if is_flag => Err(format!("{key} takes true or false, not {}", value.type_str())),
        DeValue::String(text) => Ok(Some(format!("--{key}={text}"))),
        DeValue::Integer(number) if number.radix() == 10 => Ok(Some(format!("--{key}={number}"))),
        DeValue::Float(number) => Ok(Some(format!("--{key}={number}"))),
        _ => Err(format!("{key} takes a string or a decimal number, not {}", value.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(text: &str) -> Result<Vec<String>, (usize, String)> {
        parse(&crate::commands::Uu::command(), "record", text)
    }

    #[test]
    fn options_of_the_command_are_taken() {
        let text =
            "# mine\n[record] # all\nrate = 199\nformat = \"svg\" # picture\nno-children = true\ngil = false\n\n\
                    [report]\ncolumns = true\n";
        assert_eq!(parsed(text).expect("valid"), ["--rate=199", "--format=svg", "--no-children"]);
        assert_eq!(parsed("[record]\noutput = 'a b#c.uu'").expect("valid"), ["--output=a b#c.uu"]);
        assert_eq!(parsed("record.output = \"a\\tb\"").expect("valid"), ["--output=a\tb"]);
        assert_eq!(parsed("").expect("valid"), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, says) in [
            ("rate = 1", 1, "outside of the table of a command"),
            ("[recrod]", 1, "is no command"),
            ("[record", 1, "is not TOML"),
            ("[record]\nrat = 1", 2, "no option --rat"),
            ("[record]\npid = 1", 2, "no option --pid"),
            ("[record]\n\nrate", 3, "is not TOML"),
            ("[record]\nrate = [1]", 2, "not array"),
            ("[record]\nrate = 0x63", 2, "decimal"),
            ("[record]\nrate = 1 2", 2, "is not TOML"),
            ("[record]\nrate = true", 2, "takes a string or a decimal number"),
            ("[record]\ngil = 1", 2, "takes true or false, not integer"),
            ("[record]\ngil = true\ngil = true", 3, "duplicate key"),
            ("[record]\noutput = \"a", 2, "is not TOML"),
            ("[report]\n\"what\\u001b[1m\" = 1", 2, "what\\u{1b}[1m"),
            ("[record]\nzzz = 1\nrat = 1", 2, "no option --zzz"),
        ] {
            let (at, why) = parsed(text).expect_err(text);
            assert!(at == line && why.contains(says), "{text:?}: {at}: {why}");
        }
    }
}
