//! The user's defaults for options: `~/.config/uu/config.toml`, a table for each command.
//!
//! ```toml
//! [record]
//! rate = 199
//! output = "profile.uu"
//! no-children = true
//! ```
//!
//! Keys are the long names of the command's options. What the file says stands before what the command line says, and so
//! gives way to it. Of [TOML](https://toml.io/en/v1.0.0), tables, strings of one line, numbers, true and false are read,
//! which is all that options take; anything else is an error, with its line.

use crate::exit::Failure;
use clap::{ArgAction, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use uunwind_elf::files;

/// Limit of the file's size, in bytes.
const LIMIT: u64 = 64 << 10;
/// Options that concern one run.
const OF_ONE_RUN: [&str; 2] = ["pid", "help"];

/// The command line with the user's defaults in it.
pub fn with_defaults(uu: &Command, arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut words = arguments.to_vec();
    let Some(command) = words.first().and_then(|word| uu.find_subcommand(word)) else { return Ok(words) };
    let Some(path) = path() else { return Ok(words) };
    let text = match files::read(&path, LIMIT) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| wrong(&path, "it is not UTF-8"))?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(words),
        Err(e) => return Err(wrong(&path, &format!("it cannot be read: {e}"))),
    };
    let defaults =
        parse(uu, command.get_name(), &text).map_err(|(line, why)| wrong(&path, &format!("line {line}: {why}")))?;
    words.splice(1..1, defaults.into_iter().map(OsString::from));
    Ok(words)
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
    let (mut table, mut found, mut seen): (Option<&Command>, Vec<String>, Vec<(&str, &str)>) = Default::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let fail = |why: String| Err((number, uunwind_report::formats::printable(&why)));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split_once(']').filter(|(_, rest)| is_rest(rest)).map(|(name, _)| name.trim());
            table = name.and_then(|name| uu.get_subcommands().find(|command| command.get_name() == name));
            if table.is_none() {
                return fail(format!("{line} is no command of uu, such as [record]"));
            }
            continue;
        }
        let Some(command) = table else {
            return fail("a setting stands in the table of a command, such as [record]".to_owned());
        };
        let Some((key, rest)) = line.split_once('=').map(|(key, rest)| (key.trim(), rest.trim())) else {
            return fail(format!("{line:?} is no setting: KEY = VALUE"));
        };
        let name = command.get_name();
        let option = command.get_arguments().find(|arg| arg.get_long() == Some(key));
        let Some(option) = option.filter(|_| !OF_ONE_RUN.contains(&key)) else {
            return fail(format!("uu {name} has no option --{key} that can have a default"));
        };
        if seen.contains(&(name, key)) {
            return fail(format!("{key} is set twice"));
        }
        seen.push((name, key));
        let Some(value) = value(rest) else {
            return fail(format!("{rest:?} is no string, number, true or false"));
        };
        let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
        let word = match value {
            Value::Flag(given) if is_flag => given.then(|| format!("--{key}")),
            Value::Text(text) if !is_flag => Some(format!("--{key}={text}")),
            _ if is_flag => return fail(format!("{key} takes true or false")),
            _ => return fail(format!("{key} takes a string or a number")),
        };
        found.extend(word.filter(|_| name == wanted));
    }
    Ok(found)
}

enum Value {
    Flag(bool),
    /// A string, or a number as it is written.
    Text(String),
}

/// A value, with nothing but a comment after it.
fn value(text: &str) -> Option<Value> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            let (inner, rest) = rest.split_once(quote)?;
            // Escapes are TOML's, too, but no option needs one.
            let plain = quote == '\'' || !inner.contains('\\');
            return (plain && is_rest(rest)).then(|| Value::Text(inner.to_owned()));
        }
    }
    let (word, rest) = text.split_at(text.find([' ', '\t', '#']).unwrap_or(text.len()));
    match word {
        _ if !is_rest(rest) => None,
        "true" => Some(Value::Flag(true)),
        "false" => Some(Value::Flag(false)),
        _ => word.parse::<f64>().ok().filter(|n| n.is_finite()).map(|_| Value::Text(word.to_owned())),
    }
}

fn is_rest(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with('#')
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
        assert_eq!(parsed("").expect("valid"), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, says) in [
            ("rate = 1", 1, "in the table of a command"),
            ("[recrod]", 1, "is no command"),
            ("[record", 1, "is no command"),
            ("[record]\nrat = 1", 2, "no option --rat"),
            ("[record]\npid = 1", 2, "no option --pid"),
            ("[record]\n\nrate", 3, "KEY = VALUE"),
            ("[record]\nrate = [1]", 2, "is no string"),
            ("[record]\nrate = 1 2", 2, "is no string"),
            ("[record]\nrate = true", 2, "takes a string or a number"),
            ("[record]\ngil = 1", 2, "takes true or false"),
            ("[record]\ngil = true\ngil = true", 3, "set twice"),
            ("[record]\noutput = \"a\\nb\"", 2, "is no string"),
            ("[record]\noutput = \"a", 2, "is no string"),
            ("[report]\nwhat\u{1b}[1m = 1", 2, "what\\u{1b}[1m"),
        ] {
            let (at, why) = parsed(text).expect_err(text);
            assert!(at == line && why.contains(says), "{text:?}: {at}: {why}");
        }
    }
}
