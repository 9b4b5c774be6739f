//! The command line: what is parsed, shown as help, completed in shells and described in manual pages.

use crate::exit::Failure;
use crate::{config, doctor, record, refusal, report, sframe, terminal};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// uu shows where a program spends its CPU time: one picture, every language in it.
#[derive(Debug, Parser)]
#[command(
    name = "uu",
    version,
    after_help = "\
Try: uu record -o flame.svg -- python3 app.py

Defaults for options: ~/.config/uu/config.toml, with a table for each command, such as [record] and a line rate = 199."
)]
pub struct Uu {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(Box<record::Options>),
    Run(crate::run::Options),
    Report(report::Options),
    View(crate::view::Options),
    Diff(crate::diff::Options),
    Merge(crate::merge::Options),
    Dump(crate::dump::Options),
    Snapshot(crate::snapshot::Options),
    Agent(crate::agent::Options),
    Pause(crate::pause::Pause),
    Resume(crate::pause::Resume),
    Top(crate::top::Options),
    Doctor(doctor::Options),
    Sframe(sframe::Options),
    KernelEvents(crate::kernel_events::Options),
    Completions(Completions),
    Man(Man),
}

/// Prints a script that completes uu's commands, options and formats in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
bash: uu completions bash >~/.local/share/bash-completion/completions/uu
zsh:  uu completions zsh >DIRECTORY/_uu, where DIRECTORY is one of $fpath
fish: uu completions fish >~/.config/fish/completions/uu.fish")]
struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the manual page of uu, or of one of its commands, as troff source.
#[derive(Debug, Args)]
#[command(after_help = "To read it: uu man record | man -l -")]
struct Man {
    /// The command, such as record, or sframe make; none: uu itself
    command: Vec<String>,
    /// Writes the pages of uu and of all its commands into this folder: uu.1, uu-record.1 and so on
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    all: Option<PathBuf>,
}

/// Runs what `arguments` (without the program's name) ask for; returns the exit code.
pub fn run(arguments: &[OsString]) -> Result<u8, Failure> {
    let (words, defaults) = config::with_defaults(&Uu::command(), arguments)?;
    let words = std::iter::once(OsString::from("uu")).chain(words);
    match Uu::try_parse_from(words) {
        Ok(Uu { command: Some(command) }) => command.run().map_err(|failure| defaults.explain(failure)),
        Ok(Uu { command: None }) => terminal::print(&Uu::command().render_help().to_string()),
        Err(text) if !text.use_stderr() => terminal::print(&text.to_string()),
        Err(error) => Err(refusal::of(&error, &path(arguments))),
    }
}

impl Command {
    fn run(self) -> Result<u8, Failure> {
        match self {
            Command::Record(options) => record::run(&options),
            Command::Run(options) => crate::run::run(&options),
            Command::Report(options) => report::run(options),
            Command::View(options) => crate::view::run(options),
            Command::Diff(options) => crate::diff::run(options),
            Command::Merge(options) => crate::merge::run(options),
            Command::Dump(options) => crate::dump::run(&options),
            Command::Snapshot(options) => crate::snapshot::run(&options),
            Command::Agent(options) => crate::agent::run(&options),
            Command::Pause(options) => crate::pause::pause(&options),
            Command::Resume(options) => crate::pause::resume(&options),
            Command::Top(options) => crate::top::run(&options),
            Command::Doctor(options) => doctor::run(&options),
            Command::Sframe(options) => sframe::run(&options),
            Command::KernelEvents(options) => crate::kernel_events::run(&options),
            Command::Completions(Completions { shell }) => terminal::print(&completions(shell)),
            Command::Man(Man { all: Some(folder), .. }) => manuals(&folder),
            Command::Man(Man { command, all: None }) => terminal::print(&manual(&command)?),
        }
    }
}

/// The command that the arguments begin with, for messages: `uu`, `uu record`, `uu sframe make`.
fn path(arguments: &[OsString]) -> String {
    let mut path = "uu".to_owned();
    let mut command = &Uu::command();
    for word in arguments {
        match command.find_subcommand(word) {
            Some(next) => command = next,
            None => break,
        }
        path = format!("{path} {}", command.get_name());
    }
    path
}

fn completions(shell: Shell) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut completed(), "uu", &mut out);
    let mut script = String::from_utf8_lossy(&out).into_owned();
    if shell == clap_complete::Shell::Fish {
        // `clap_complete` writes options and subcommands for fish, no arguments.
        for (command, offered) in [("completions", "bash zsh fish"), ("man", &names().join(" "))] {
            let condition = format!("__fish_uu_using_subcommand {command}");
            script += &format!("complete -c uu -n \"{condition}\" -f -a \"{offered}\"\n");
        }
    }
    script
}

/// The names of uu's commands, which are never freed: a parser keeps names for ever.
fn names() -> Vec<&'static str> {
    Uu::command().get_subcommands().map(|sub| &*sub.get_name().to_owned().leak()).collect()
}

/// The command line as shells complete it: where a number is to be given, no file is offered, and a command is offered
/// where one is.
fn completed() -> clap::Command {
    fn numbers(command: clap::Command) -> clap::Command {
        let is_number = |arg: &Arg| arg.get_value_hint() == ValueHint::Unknown && arg.get_possible_values().is_empty();
        let command = command.mut_args(|arg| if is_number(&arg) { arg.value_hint(ValueHint::Other) } else { arg });
        command.mut_subcommands(numbers)
    }
    let names = PossibleValuesParser::new(names());
    numbers(Uu::command()).mut_subcommand("man", |man| man.mut_arg("command", |arg| arg.value_parser(names)))
}

fn manual(words: &[String]) -> Result<String, Failure> {
    // The full names of the commands, such as "uu-sframe-make", are set when it is built.
    let mut uu = Uu::command();
    uu.build();
    let mut command = &uu;
    for word in words {
        let unknown = || Failure::usage(&format!("there is no command {:?}", words.join(" ")), "uu");
        command = command.find_subcommand(word).ok_or_else(unknown)?;
    }
    page(command)
}

/// The page of one command, whose full name was set.
fn page(command: &clap::Command) -> Result<String, Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut out = Vec::new();
    let source = concat!("uu ", env!("CARGO_PKG_VERSION"));
    // `help` has no page.
    let mut command = command.clone();
    if command.find_subcommand("help").is_some() {
        command = command.mut_subcommand("help", |help| help.hide(true));
    }
    let page = clap_mangen::Man::new(command).title(name).source(source);
    page.render(&mut out).map_err(|e| Failure::new(format!("cannot make the manual page: {e}")))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Writes the pages of uu and of all its commands into a folder.
fn manuals(folder: &Path) -> Result<u8, Failure> {
    let mut uu = Uu::command();
    uu.build();
    let mut pages = vec![&uu];
    while let Some(command) = pages.pop() {
        pages.extend(command.get_subcommands().filter(|sub| sub.get_name() != "help"));
        let name = command.get_display_name().unwrap_or(command.get_name());
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?)
            .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = include_str!("../../README.md");

    /// All commands with their names as a person writes them.
    fn commands() -> Vec<(String, clap::Command)> {
        fn add(prefix: &str, command: &clap::Command, all: &mut Vec<(String, clap::Command)>) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let name = format!("{prefix} {}", sub.get_name());
                add(&name, sub, all);
                all.push((name, sub.clone()));
            }
        }
        let mut all = Vec::new();
        // Commands get the options of their groups then.
        let mut uu = Uu::command();
        uu.build();
        add("uu", &uu, &mut all);
        all
    }

    /// Whether an option, as it is written (`-r`, `--rate`, `--rate=7`), is one of the command's.
    fn takes(command: &clap::Command, option: &str) -> bool {
        let name = option.split('=').next().unwrap_or(option);
        let is = |arg: &Arg| {
            let short = arg.get_short().is_some_and(|short| name == format!("-{short}"));
            short || arg.get_long().is_some_and(|long| name == format!("--{long}"))
        };
        matches!(name, "-h" | "--help") || command.get_arguments().any(is)
    }

    /// The options in text about uu that no command there has: in each span of code or line of a code block that begins
    /// with a command, those before `--`.
    fn unknown_options(text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for span in text.split(['`', '\n']) {
            let span = span.trim_start().trim_start_matches("target/uu/bin/").split(" #").next().unwrap_or_default();
            let Some((_, command)) = commands().into_iter().find(|(name, _)| span.starts_with(name.as_str())) else {
                continue;
            };
            let words = span.split([' ', '[', ']', '|']).take_while(|word| *word != "--");
            wrong.extend(words.filter(|w| w.starts_with('-') && !takes(&command, w)).map(|w| format!("{w} in {span}")));
        }
        wrong
    }

    #[test]
    fn the_definition_is_consistent() {
        Uu::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_help_and_the_readme_has_every_command() {
        for (name, command) in commands() {
            assert!(command.get_about().is_some(), "{name}");
            let has_help = |arg: &&Arg| arg.get_help().is_none();
            assert_eq!(command.get_arguments().find(has_help).map(Arg::get_id), None, "{name}");
            let leaf = command.get_subcommands().next().is_none();
            assert!(!leaf || README.contains(&name), "the README does not have {name}");
        }
    }

    #[test]
    fn options_in_the_readme_and_in_help_texts_exist() {
        let bad = "a `uu record --what -r 7 -- x --that`\n    uu report -q";
        assert_eq!(unknown_options(bad), ["--what in uu record --what -r 7 -- x --that", "-q in uu report -q"]);
        assert_eq!(unknown_options(README), Vec::<String>::new());
        for (name, mut command) in commands() {
            assert_eq!(unknown_options(&command.render_long_help().to_string()), Vec::<String>::new(), "{name}");
        }
        // The line of usage has every option of `uu record` that is no fine point.
        let usage = README.split('`').find(|span| span.starts_with("uu record [")).expect("a line of usage");
        for option in ["-r", "-d", "-o", "-f", "--native-frames", "--no-children", "--fail-empty"] {
            assert!(usage.contains(&format!("[{option}")), "{option}");
        }
    }

    #[test]
    fn scripts_and_pages_have_commands_options_and_formats() {
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            for word in ["record", "native-frames", "folded", "pprof", "sframe", "check"] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
        let page = manual(&["sframe".into(), "make".into()]).expect("a page");
        assert!(page.contains(".TH uu-sframe-make") && page.contains("Strip FILE"), "{page}");
        assert!(manual(&[]).expect("a page").contains(".TH uu "));
        let folder = std::env::temp_dir().join(format!("uu-pages-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        manuals(&folder).expect("pages");
        let mut names: Vec<_> = commands().into_iter().map(|(name, _)| name.replace(' ', "-") + ".1").collect();
        names.push("uu.1".to_owned());
        for name in names {
            let text = std::fs::read_to_string(folder.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(!text.contains("help(1)"), "{name} refers to a page that is not there: {text}");
        }
        std::fs::remove_dir_all(&folder).expect("cleared");
        assert!(manual(&["wat".into()]).expect_err("no such command").text.contains("\"wat\""));
    }
}
