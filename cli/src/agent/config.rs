//! The agent's file: where profiles go, how much the agent may use, and the rules ([docs/agent.md]).
//!
//! What is wrong there is said with its line and key, and with what is allowed. Keys that nobody knows are wrong: a
//! misspelt one would otherwise be left out in silence.
//!
//! [docs/agent.md]: ../../../../docs/agent.md

use super::rules::{check, example, Field, Rule};
use crate::exit::Failure;
use crate::options::{self, Mode};
use crate::record::store::{credentials, variable};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeString, DeTable, DeValue};
use toml::Spanned;
use uunwind_elf::files;
use uunwind_push::{Target, TargetError};

/// Limit of the file's size, in bytes.
const LIMIT: u64 = 1 << 20;
/// Limit of the number of rules.
const RULES: usize = 1000;
/// The fastest sampling of a process: above it, perf events would time the samples, which an agent does not open.
const FASTEST: i64 = 1000;

const TABLES: &str = "[push], [agent] and [[rule]]";
const OF_PUSH: &[&str] = &["url", "every"];
const OF_AGENT: &[&str] = &["rate", "mode", "outside", "labels", "scan", "cpu", "memory", "processes", "socket"];
const OF_RULE: &[&str] =
    &["service", "skip", "name", "command", "cgroup", "container", "user", "env", "rate", "mode", "outside", "labels"];

/// What the file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where profiles go.
    pub url: String,
    /// Time between the profiles of a process.
    pub every: Duration,
    /// Time between looks for processes.
    pub scan: Duration,
    /// How much of the CPUs' time the agent may use, in percent.
    pub cpu: f64,
    /// How much memory, in bytes.
    pub memory: u64,
    /// How many processes are profiled at a time.
    pub processes: usize,
    /// Where `uu agent status` asks.
    pub socket: Option<PathBuf>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// What is wrong, and its offset in the file.
type Wrong = (usize, String);

/// Reads a file.
pub fn read(path: &Path) -> Result<Config, Failure> {
    let shown = path.display();
    let bytes = files::read(path, LIMIT).map_err(|e| Failure::new(format!("{shown} cannot be read: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::new(format!("{shown}: it is not UTF-8")))?;
    parse(&text).map_err(|(at, why)| {
        Failure::new(format!("{shown}: line {}: {}", line(&text, at), uunwind_report::formats::printable(&why)))
    })
}

fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The target of a service, which says whether its name and labels will do.
pub fn target(url: &str, service: &str, labels: &[String], pid: Option<u32>) -> Result<Target, TargetError> {
    Target::new(url, Some(service), service, labels, credentials(), pid, &variable)
}

fn parse(text: &str) -> Result<Config, Wrong> {
    let file = DeTable::parse(text).map_err(|error| {
        (error.span().map_or(0, |span| span.start), format!("this is not TOML: {}", error.message()))
    })?;
    let all = file.get_ref();
    for (key, value) in in_order(all) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        let is_right = match name {
            "push" | "agent" => value.get_ref().is_table(),
            "rule" => value.get_ref().is_array(),
            _ => return Err((at, format!("[{name}] is unknown: the tables are {TABLES}"))),
        };
        if !is_right {
            let form = if name == "rule" { "[[rule]]" } else { name };
            return Err((at, format!("{name}: the tables are {TABLES}; write {form} as one of them")));
        }
    }
    let empty = DeTable::new();
    let push = Table::of(all, "push", OF_PUSH, &empty)?;
    let agent = Table::of(all, "agent", OF_AGENT, &empty)?;
    let url = push.text("url")?.ok_or_else(|| {
        (push.at, "push.url is missing: the store, such as url = \"http://localhost:4040\", under [push]".to_owned())
    })?;
    if let Err(error) = target(&url, "x", &[], None) {
        // An URL with a password is not repeated.
        let shown = if matches!(error, TargetError::Secret) { "URL" } else { &url };
        return Err((push.place("url"), format!("push.url {shown}: {error}")));
    }
    let base = Base {
        rate: agent.rate(19)?,
        mode: agent.mode(Mode::Cpu)?,
        outside: agent.flag("outside", true)?,
        labels: agent.labels()?,
    };
    let mut rules = Vec::new();
    let listed = all.iter().find(|(key, _)| key.get_ref() == "rule").and_then(|(_, value)| value.get_ref().as_array());
    for (index, value) in listed.into_iter().flat_map(|list| list.iter()).enumerate() {
        let at = value.span().start;
        let table = value.get_ref().as_table().ok_or((at, "rule: write [[rule]], and its keys below it".to_owned()))?;
        if index == RULES {
            return Err((at, format!("there are more than {RULES} rules")));
        }
        let table = Table { name: "rule", table, at };
        table.check(OF_RULE)?;
        rules.push(table.to_rule(&base, &url, line(text, at))?);
    }
    if rules.is_empty() {
        return Err((text.len(), "there is no [[rule]]: without one, no process is profiled".to_owned()));
    }
    Ok(Config {
        url,
        every: push.seconds("every", 60)?,
        scan: agent.seconds("scan", 5)?,
        cpu: agent.percent("cpu", 2.0)?,
        memory: agent.bytes("memory", 256 << 20)?,
        processes: agent.number("processes", 200, 1..=10_000)? as usize,
        socket: agent.text("socket")?.map(PathBuf::from),
        rules,
    })
}

/// What rules have that do not say it themselves.
struct Base {
    rate: u32,
    mode: Mode,
    outside: bool,
    labels: Vec<(String, String)>,
}

/// The entries of a table as they follow one another in the file.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A table of the file.
struct Table<'t, 'i> {
    name: &'static str,
    table: &'t DeTable<'i>,
    /// Its offset.
    at: usize,
}

impl<'t, 'i> Table<'t, 'i> {
    fn of(
        all: &'t DeTable<'i>,
        name: &'static str,
        keys: &[&str],
        empty: &'t DeTable<'i>,
    ) -> Result<Table<'t, 'i>, Wrong> {
        let found = all.iter().find(|(key, _)| key.get_ref() == name);
        let found = found.and_then(|(key, value)| Some((value.get_ref().as_table()?, key.span().start)));
        let (table, at) = found.unwrap_or((empty, 0));
        let table = Table { name, table, at };
        table.check(keys)?;
        Ok(table)
    }

    fn check(&self, keys: &[&str]) -> Result<(), Wrong> {
        let unknown = in_order(self.table).into_iter().find(|(key, _)| !keys.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |(key, _)| {
            let (name, key_name) = (self.name, key.get_ref());
            Err((key.span().start, format!("{name}.{key_name} is unknown: the keys are {}", keys.join(", "))))
        })
    }

    fn get(&self, key: &str) -> Option<(usize, &'t DeValue<'i>)> {
        let (found, value) = self.table.iter().find(|(found, _)| found.get_ref() == key)?;
        Some((found.span().start, value.get_ref()))
    }

    fn place(&self, key: &str) -> usize {
        self.get(key).map_or(self.at, |(at, _)| at)
    }

    fn wrong(&self, key: &str, what: impl std::fmt::Display) -> Wrong {
        (self.place(key), format!("{}.{key} {what}", self.name))
    }

    fn text(&self, key: &str) -> Result<Option<String>, Wrong> {
        match self.get(key) {
            None => Ok(None),
            Some((_, DeValue::String(text))) if !text.is_empty() => Ok(Some(text.to_string())),
            Some((_, DeValue::String(_))) => Err(self.wrong(key, "is empty: leave it out, or give a text")),
            Some((_, other)) => Err(self.wrong(key, format!("is of type {}: it takes a string", other.type_str()))),
        }
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, Wrong> {
        match self.get(key) {
            None => Ok(default),
            Some((_, DeValue::Boolean(is_set))) => Ok(*is_set),
            Some((_, other)) => {
                Err(self.wrong(key, format!("is of type {}: it takes true or false", other.type_str())))
            }
        }
    }

    fn number(&self, key: &str, default: i64, range: std::ops::RangeInclusive<i64>) -> Result<i64, Wrong> {
        let takes = || format!("it takes a whole number from {} to {}", range.start(), range.end());
        match self.get(key) {
            None => Ok(default),
            Some((_, DeValue::Integer(number))) => {
                let value = number.as_str().parse().ok().filter(|value| number.radix() == 10 && range.contains(value));
                value.ok_or_else(|| self.wrong(key, format!("{number}: {}", takes())))
            }
            Some((_, other)) => Err(self.wrong(key, format!("is of type {}: {}", other.type_str(), takes()))),
        }
    }

    fn rate(&self, default: u32) -> Result<u32, Wrong> {
        Ok(self.number("rate", default.into(), 1..=FASTEST)? as u32)
    }

    fn seconds(&self, key: &str, default: u64) -> Result<Duration, Wrong> {
        Ok(Duration::from_secs(self.number(key, default as i64, 1..=86_400)? as u64))
    }

    fn percent(&self, key: &str, default: f64) -> Result<f64, Wrong> {
        let value = match self.get(key) {
            None => return Ok(default),
            Some((_, DeValue::Integer(number))) => number.as_str().parse::<f64>().ok(),
            Some((_, DeValue::Float(number))) => number.as_str().parse::<f64>().ok(),
            Some(_) => None,
        };
        let value = value.filter(|value| *value > 0.0 && *value <= 100.0);
        value.ok_or_else(|| {
            self.wrong(key, "is a share of all CPUs in percent: a number above 0, up to 100, such as 2.5")
        })
    }

    fn bytes(&self, key: &str, default: u64) -> Result<u64, Wrong> {
        let Some(text) = self.text(key)? else { return Ok(default) };
        let bytes = options::bytes(&OsString::from(&text), key);
        Ok(bytes
            .map_err(|_| self.wrong(key, format!("{text:?}: it takes bytes as a string, such as \"256M\"")))?
            .into())
    }

    fn mode(&self, default: Mode) -> Result<Mode, Wrong> {
        let Some(text) = self.text("mode")? else { return Ok(default) };
        match &*text {
            "cpu" => Ok(Mode::Cpu),
            "wall" => Ok(Mode::Wall),
            _ => Err(self.wrong("mode", format!("{text:?}: it takes \"cpu\" or \"wall\""))),
        }
    }

    /// A table of strings, such as `{ zone = "b" }`.
    fn pairs(&self, key: &str) -> Result<Vec<(String, String)>, Wrong> {
        let Some((_, value)) = self.get(key) else { return Ok(Vec::new()) };
        let takes = "it takes a table of strings, such as { zone = \"b\" }";
        let table =
            value.as_table().ok_or_else(|| self.wrong(key, format!("is of type {}: {takes}", value.type_str())))?;
        let pair = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| match value.get_ref() {
            DeValue::String(text) => Ok((name.get_ref().to_string(), text.to_string())),
            other => Err((
                name.span().start,
                format!("{}.{key}.{} is of type {}: {takes}", self.name, name.get_ref(), other.type_str()),
            )),
        };
        in_order(table).into_iter().map(pair).collect()
    }

    fn labels(&self) -> Result<Vec<(String, String)>, Wrong> {
        let labels = self.pairs("labels")?;
        for (_, value) in &labels {
            self.check_places("labels", value)?;
        }
        Ok(labels)
    }

    fn check_places(&self, key: &str, text: &str) -> Result<(), Wrong> {
        check(text).map_err(|place| {
            let allowed = "{name}, {user}, {container}, {cgroup}, {pid} and {env:VARIABLE}";
            self.wrong(key, format!("{text:?}: {place} stands for nothing; what does is {allowed}"))
        })
    }

    fn to_rule(&self, base: &Base, url: &str, line: usize) -> Result<Rule, Wrong> {
        let mut conditions = Vec::new();
        for (key, field) in [
            ("name", Field::Name),
            ("user", Field::User),
            ("cgroup", Field::Cgroup),
            ("container", Field::Container),
            ("command", Field::Command),
        ] {
            conditions.extend(self.text(key)?.map(|pattern| (field, pattern)));
        }
        conditions.extend(self.pairs("env")?.into_iter().map(|(key, pattern)| (Field::Variable(key), pattern)));
        if conditions.is_empty() {
            let keys = "name, command, cgroup, container, user, env";
            return Err((self.at, format!("this rule has no condition: it takes one or more of {keys}")));
        }
        let unknown =
            |(field, name): &&(Field, String)| *field == Field::User && super::processes::user_id(name).is_none();
        if let Some((_, name)) = conditions.iter().find(unknown) {
            return Err(self.wrong("user", format!("{name:?}: /etc/passwd has no such user; give a name or a number")));
        }
        let (service, skip) = (self.text("service")?, self.flag("skip", false)?);
        match &service {
            Some(_) if skip => {
                return Err(self.wrong("skip", "and rule.service do not go together: processes to skip are no service"))
            }
            None if !skip => {
                let what = "is missing: the service's name, such as \"shop\" or \"{name}\"; or skip = true";
                return Err(self.wrong("service", what));
            }
            _ => {}
        }
        let mut labels = self.labels()?;
        let own: Vec<String> = labels.iter().map(|(key, _)| key.clone()).collect();
        labels.extend(base.labels.iter().filter(|(key, _)| !own.contains(key)).cloned());
        if let Some(name) = &service {
            self.check_places("service", name)?;
            // What stands in for a process is made to fit.
            let texts: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={}", example(value))).collect();
            target(url, &example(name), &texts, None).map_err(|error| match error {
                TargetError::Label | TargetError::Attribute => self.wrong("labels", format!("{texts:?}: {error}")),
                error => self.wrong("service", format!("{name:?}: {error}")),
            })?;
        }
        Ok(Rule {
            line,
            conditions,
            service,
            rate: self.rate(base.rate)?,
            mode: self.mode(base.mode)?,
            outside: self.flag("outside", base.outside)?,
            labels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: &str = "[push]\nurl = \"http://localhost:4040\"\n";

    #[test]
    fn a_whole_file() {
        let text = format!(
            "{PUSH}every = 30\n[agent]\nrate = 49\ncpu = 1\nmemory = \"64M\"\nprocesses = 5\nlabels = {{ zone = \"b\" }}\n\
             [[rule]]\nservice = \"shop-{{name}}\"\nname = \"gunicorn*\"\nenv = {{ STAGE = \"prod\" }}\nmode = \"wall\"\n\
             [[rule]]\nskip = true\nuser = \"root\"\nrate = 7\nlabels.zone = \"a\"\n"
        );
        let config = parse(&text).expect("valid");
        assert_eq!((config.every, config.scan), (Duration::from_secs(30), Duration::from_secs(5)));
        assert_eq!((config.cpu, config.memory, config.processes), (1.0, 64 << 20, 5));
        let [first, second] = &config.rules[..] else { panic!("two rules") };
        assert_eq!((first.line, first.rate, first.mode), (10, 49, Mode::Wall));
        let wanted = [(Field::Name, "gunicorn*"), (Field::Variable("STAGE".to_owned()), "prod")];
        assert_eq!(first.conditions, wanted.map(|(field, text)| (field, text.to_owned())));
        assert_eq!(first.labels, [("zone".to_owned(), "b".to_owned())]);
        assert_eq!((second.rate, second.service.as_deref()), (7, None));
        assert_eq!(second.labels, [("zone".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_key() {
        let rule = "[[rule]]\nname = \"x\"\nservice = \"x\"\n";
        for (text, line_of, says) in [
            ("[push", 1, "is not TOML"),
            ("[pusch]\n", 1, "[pusch] is unknown: the tables are [push], [agent] and [[rule]]"),
            ("push = 1\n", 1, "the tables are [push]"),
            ("[agent]\n[[rule]]\nname = \"x\"\nservice = \"x\"", 1, "push.url is missing"),
            ("[push]\nurl = \"localhost\"\n", 2, "push.url localhost: give an URL"),
            ("[push]\nurl = \"http://a:b@c\"\n", 2, "push.url URL: credentials stand in the environment"),
            ("[push]\nurl = 4040\n", 2, "push.url is of type integer: it takes a string"),
            ("[push]\nurl = \"\"\n", 2, "push.url is empty"),
            ("[push]\nurl = \"http://h\"\nevry = 1\n", 3, "push.evry is unknown: the keys are url, every"),
            (
                "[push]\nurl = \"http://h\"\nevery = 0\n[[rule]]\nname = \"x\"\nskip = true\n",
                3,
                "push.every 0: it takes",
            ),
            (&format!("{PUSH}[rule]\n"), 3, "write [[rule]] as one of them"),
            (PUSH, 3, "there is no [[rule]]"),
            (
                &format!("{PUSH}[[rule]]\nservice = \"x\"\n"),
                3,
                "this rule has no condition: it takes one or more of name",
            ),
            (&format!("{PUSH}[[rule]]\nname = \"x\"\n"), 3, "rule.service is missing"),
            (&format!("{PUSH}{rule}skip = true\n"), 6, "rule.skip and rule.service do not go together"),
            (&format!("{PUSH}{rule}rate = 1001\n"), 6, "rule.rate 1001: it takes a whole number from 1 to 1000"),
            (&format!("{PUSH}{rule}rate = \"9\"\n"), 6, "rule.rate is of type string: it takes a whole number"),
            (&format!("{PUSH}{rule}mode = \"alloc\"\n"), 6, "rule.mode \"alloc\": it takes \"cpu\" or \"wall\""),
            (&format!("{PUSH}{rule}user = \"no such\"\n"), 6, "/etc/passwd has no such user"),
            (&format!("{PUSH}{rule}env = \"A=b\"\n"), 6, "rule.env is of type string: it takes a table of strings"),
            (&format!("{PUSH}{rule}env = {{ A = 1 }}\n"), 6, "rule.env.A is of type integer"),
            (&format!("{PUSH}{rule}outside = 1\n"), 6, "rule.outside is of type integer: it takes true or false"),
            (
                &format!("{PUSH}{rule}labels = {{ \"a b\" = \"c\" }}\n"),
                6,
                "rule.labels [\"a b=c\"]: a label is KEY=VALUE",
            ),
            (
                &format!("{PUSH}[[rule]]\nname = \"x\"\nservice = \"a b\"\n"),
                5,
                "rule.service \"a b\": the service's name",
            ),
            (&format!("{PUSH}[[rule]]\nname = \"x\"\nservice = \"{{nam}}\"\n"), 5, "{nam} stands for nothing"),
            (&format!("{PUSH}[agent]\ncpu = 0\n{rule}"), 4, "agent.cpu is a share of all CPUs in percent"),
            (&format!("{PUSH}[agent]\nmemory = \"x\"\n{rule}"), 4, "agent.memory \"x\": it takes bytes"),
            (&format!("{PUSH}[agent]\nprocesses = 0\n{rule}"), 4, "agent.processes 0: it takes a whole number"),
        ] {
            let (at, why) = parse(text).expect_err(text);
            assert!(line(text, at) == line_of && why.contains(says), "{text:?}: {}: {why}", line(text, at));
        }
    }
}
