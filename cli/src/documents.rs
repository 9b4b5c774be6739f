//! Tests: the commands in documents are those of the command line.

use crate::commands::Uu;
use clap::Parser;

/// The commands of uu in a document: spans of code, and lines of blocks of code, that begin with `uu`.
fn commands(document: &str) -> Vec<&str> {
    let spans = document.split(['`', '\n']).map(|span| span.split(" #").next().unwrap_or_default().trim());
    spans.filter(|span| span.starts_with("uu ")).collect()
}

/// Parses a command as the command line does. What stands for a number is one here.
fn parse(command: &str) -> Result<(), String> {
    let words = command.split_whitespace().take_while(|word| !matches!(*word, "|" | "||" | ">" | "&&"));
    let words = words.map(|word| if word == "PID" { "1" } else { word });
    match Uu::try_parse_from(words) {
        Err(error) if error.use_stderr() => Err(format!("{command}: {error}")),
        _ => Ok(()),
    }
}

#[track_caller]
fn check(document: &str, least: usize) {
    let commands = commands(document);
    assert!(commands.len() >= least, "{} commands", commands.len());
    let wrong: Vec<String> = commands.into_iter().filter_map(|command| parse(command).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_commands_are_found() {
    let document = "As `uu record --what x`, or\n```sh\nuu reprot x # no\nuu dump -p PID | less\n```\n`uu record -p`\n`uu view A B`";
    let found = commands(document);
    assert_eq!(found, ["uu record --what x", "uu reprot x", "uu dump -p PID | less", "uu record -p", "uu view A B"]);
    let wrong: Vec<bool> = found.into_iter().map(|command| parse(command).is_err()).collect();
    assert_eq!(wrong, [true, true, false, true, true]);
}

#[test]
fn commands_for_users_of_other_profilers_exist() {
    check(include_str!("../../docs/coming-from.md"), 70);
}

#[test]
fn commands_of_the_recipes_exist() {
    check(include_str!("../../docs/recipes.md"), 14);
}

#[test]
fn commands_of_the_tutorial_exist() {
    check(include_str!("../../docs/tutorial.md"), 12);
}
