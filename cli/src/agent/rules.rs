//! Rules: which processes are profiled, and as which service.

use super::glob::fits;
use super::processes::{user_id, user_name, Process};
use crate::options::Mode;

/// What stands in for a process in a service's name or a label, besides `env:KEY`.
const WORDS: [&str; 5] = ["name", "user", "container", "cgroup", "pid"];

/// Something that a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The name of the process or its program.
    Name,
    /// The words of its command line, with spaces between them.
    Command,
    /// The path of its control group.
    Cgroup,
    /// The id of its container.
    Container,
    /// Its user.
    User,
    /// This variable of its environment.
    Variable(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its line in the file.
    pub line: usize,
    /// What must be so of a process, all of it.
    pub conditions: Vec<(Field, String)>,
    /// The service that a process is pushed as, with `{name}` and the like; `None`: it is not profiled.
    pub service: Option<String>,
    /// Samples a second.
    pub rate: u32,
    /// What is sampled.
    pub mode: Mode,
    /// Where no sampler can be put into a process, it is sampled from outside.
    pub outside: bool,
    /// Labels: keys, and values with `{name}` and the like.
    pub labels: Vec<(String, String)>,
}

/// How a process is to be profiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The line of its rule.
    pub line: usize,
    /// The service.
    pub service: String,
    /// `KEY=VALUE` each.
    pub labels: Vec<String>,
    /// Samples a second.
    pub rate: u32,
    /// What is sampled.
    pub mode: Mode,
    /// See [`Rule::outside`].
    pub outside: bool,
}

impl Rule {
    /// Whether all conditions hold.
    pub fn fits(&self, process: &Process) -> bool {
        self.conditions.iter().all(|(field, pattern)| match field {
            Field::Name => [&*process.comm, process.program(), process.name()].iter().any(|name| fits(pattern, name)),
            Field::Command => fits(pattern, &process.command().join(" ")),
            Field::Cgroup => fits(pattern, process.cgroup()),
            Field::Container => !process.container().is_empty() && fits(pattern, process.container()),
            Field::User => user_id(pattern) == Some(process.user()),
            Field::Variable(key) => process.variable(key).is_some_and(|value| fits(pattern, value)),
        })
    }

    /// How this process is to be profiled, if it is.
    fn wanted(&self, process: &Process) -> Option<Wanted> {
        let label = |(key, value): &(String, String)| {
            let value = filled(value, process, ' ');
            (!value.is_empty()).then(|| format!("{key}={value}"))
        };
        let service = filled(self.service.as_ref()?, process, '/');
        Some(Wanted {
            line: self.line,
            service: if service.is_empty() { "process".to_owned() } else { service },
            labels: self.labels.iter().filter_map(label).collect(),
            rate: self.rate,
            mode: self.mode,
            outside: self.outside,
        })
    }
}

/// The first rule that a process fits, and how it is to be profiled, if it is.
pub fn decide(rules: &[Rule], process: &Process) -> Option<(usize, Option<Wanted>)> {
    let (index, rule) = rules.iter().enumerate().find(|(_, rule)| rule.fits(process))?;
    Some((index, rule.wanted(process)))
}

/// The places of a text to be filled in. Error: the first that nothing stands for.
pub fn check(text: &str) -> Result<(), String> {
    let is_known = |word: &str| WORDS.contains(&word) || word.strip_prefix("env:").is_some_and(|key| !key.is_empty());
    parts(text).into_iter().try_for_each(|part| match part {
        Part::Text(_) => Ok(()),
        Part::Word(word) if is_known(word) => Ok(()),
        Part::Word(word) => Err(format!("{{{word}}}")),
    })
}

/// The text, with a letter in each place to be filled in.
pub fn example(text: &str) -> String {
    let part = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Word(_) => "x".to_owned(),
    };
    parts(text).into_iter().map(part).collect()
}

enum Part<'t> {
    Text(&'t str),
    Word(&'t str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((word, after)) = after.split_once('}') else { break };
        parts.extend([Part::Text(before), Part::Word(word)]);
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

/// The text, with what stands for the process. `also`: a character that stays in this, besides those of names.
fn filled(text: &str, process: &Process, also: char) -> String {
    let word = |word: &str| match word {
        "name" => process.name().to_owned(),
        "user" => user_name(process.user()),
        "container" => process.container().chars().take(12).collect(),
        "cgroup" => process.cgroup().rsplit('/').next().unwrap_or_default().to_owned(),
        "pid" => process.identity.pid.to_string(),
        _ => process.variable(word.strip_prefix("env:").unwrap_or(word)).unwrap_or_default().to_owned(),
    };
    let part = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Word(name) => plain(&word(name), also),
    };
    parts(text).into_iter().map(part).collect()
}

/// The text, with `-` for whatever stores may refuse in names. `also`: one more character that stays.
fn plain(text: &str, also: char) -> String {
    let stays = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || c == also;
    text.chars().take(128).map(|c| if stays(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(conditions: &[(Field, &str)], service: Option<&str>) -> Rule {
        Rule {
            line: 1,
            conditions: conditions.iter().map(|(field, text)| (field.clone(), (*text).to_owned())).collect(),
            service: service.map(str::to_owned),
            rate: 19,
            mode: Mode::Cpu,
            outside: true,
            labels: vec![("who".to_owned(), "{user}".to_owned()), ("none".to_owned(), "{env:NO_SUCH}".to_owned())],
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let own = Process::of(std::process::id()).expect("this process");
        let user = own.user().to_string();
        let path = own.variable("PATH").expect("a path").to_owned();
        let rules = [
            rule(&[(Field::Name, "no such *")], Some("a")),
            rule(&[(Field::Name, "*"), (Field::Container, "no such")], Some("b")),
            rule(&[(Field::User, &user), (Field::Variable("PATH".to_owned()), &path)], Some("s {name}-{pid}")),
            rule(&[(Field::Command, "*")], None),
        ];
        let (index, wanted) = decide(&rules, &own).expect("a rule");
        let wanted = wanted.expect("a service");
        assert_eq!((index, wanted.service), (2, format!("s {}-{}", own.name(), own.identity.pid)));
        assert_eq!(wanted.labels, [format!("who={}", user_name(own.user()))]);
        assert_eq!(decide(&rules[3..], &own), Some((0, None)));
        assert_eq!(decide(&rules[..2], &own), None);
    }

    #[test]
    fn places_that_nothing_stands_for_are_named() {
        assert_eq!(check("a{name}{user}{container}{cgroup}{pid}{env:X}b{"), Ok(()));
        assert_eq!(check("{name}-{nam}"), Err("{nam}".to_owned()));
        assert_eq!(example("a/{name}b{pid}{c"), "a/xbx{c");
        assert_eq!(check("{env:}"), Err("{env:}".to_owned()));
    }
}
