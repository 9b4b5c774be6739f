//! Where `--push` sends profiles, and labels.

use super::command_line::Options;
use crate::exit::Failure;
use crate::options;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;
use uunwind_push::{Credentials, Target, TargetError};
use uunwind_remote::dump::command;
use uunwind_ring::labels::{labels as all, with, KEY_BYTES, LABELS, TEXT_BYTES, VALUE_BYTES};

/// What `--push` asks for.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where profiles go.
    pub target: Target,
    /// Time between them.
    pub every: Duration,
}

impl Store {
    pub(super) fn of(url: &OsString, options: &Options) -> Result<Store, Failure> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let pid = options.pid.as_ref().map(|pid| options::pid(pid, "-p")).transpose()?;
        let of_program = || {
            // Of a process that is gone, nothing will be recorded.
            let command = pid.map(command).unwrap_or_default();
            let first = command.into_iter().next().map(OsString::from_vec);
            let first = first.or_else(|| options.command.first().cloned()).unwrap_or_default();
            let name = Path::new(&first).file_name().unwrap_or(OsStr::new("process"));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            name.to_string_lossy().chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
        };
        let service = options.service.as_ref().map(text);
        let program: String = of_program();
        let labels: Vec<String> = options.label.iter().map(text).collect();
        let wrong = |error: TargetError| {
            let (option, value) = match error {
                TargetError::Service | TargetError::ServiceText => {
                    ("--service", service.clone().unwrap_or_else(|| program.clone()))
                }
                TargetError::Label | TargetError::Attribute => ("--label", labels.join(" ")),
                TargetError::Credentials | TargetError::Variable(_) | TargetError::Header(_) => {
                    ("--push", "the environment".to_owned())
                }
                // It may have a password.
                TargetError::Secret => ("--push", "URL".to_owned()),
                // Its value may have a password, too.
                TargetError::Proxy(_) => ("--push", text(url)),
                TargetError::Url | TargetError::Path => ("--push", text(url)),
            };
            Failure::new(format!("{option} {value}: {error}"))
        };
        let target = Target::new(&text(url), service.as_deref(), &program, &labels, credentials(), pid, &variable)
            .map_err(wrong)?;
        let every = options.push_every.as_ref().map(|time| options::seconds(time, "--push-every")).transpose()?;
        Ok(Store { target, every: every.unwrap_or(PUSHED) })
    }
}

/// The labels of all samples, where nothing is pushed: `KEY=VALUE` each.
pub(super) fn labels(given: &[OsString]) -> Result<Vec<(String, String)>, Failure> {
    let mut text = [0; TEXT_BYTES];
    let mut len = 0;
    for word in given {
        let word = word.to_string_lossy();
        let refused = || {
            Failure::new(format!(
                "--label {word}: a label is KEY=VALUE; the key has {KEY_BYTES} bytes at most, the value {VALUE_BYTES}, and \
                 there are {LABELS} labels at most, of {TEXT_BYTES} bytes in all"
            ))
        };
        let (key, value) = word.split_once('=').ok_or_else(refused)?;
        let so_far = text.get(..len).unwrap_or_default();
        (text, len) = with(so_far, key.as_bytes(), Some(value.as_bytes())).map_err(|_| refused())?;
    }
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(all(text.get(..len).unwrap_or_default()).map(|label| (part(label.key), part(label.value))).collect())
}

/// Time between profiles that are pushed.
const PUSHED: Duration = Duration::from_secs(10);

/// A variable of the environment that is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Who pushes: not in options, which others can see.
pub fn credentials() -> Credentials {
    match (variable("UU_PUSH_TOKEN"), variable("UU_PUSH_USER")) {
        (Some(token), _) => Credentials::Bearer(token),
        (None, Some(user)) => Credentials::Basic(user, variable("UU_PUSH_PASSWORD").unwrap_or_default()),
        (None, None) => Credentials::None,
    }
}
