//! Longer campaigns, and replays of single inputs. See README.md.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use uunwind_fuzz::campaign::Campaign;
use uunwind_fuzz::runner::{keep, Runner};
use uunwind_fuzz::targets::{self, Target};
use uunwind_fuzz::{alloc, corpus};

/// Time limit of one input.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of failures that end a campaign: further ones are mostly the same.
const FAILURES: u32 = 5;

const USAGE: &str = "\
usage: uunwind-fuzz TARGET|all [--seconds N] [--seed N]   damaged seeds for N seconds each (60)
       uunwind-fuzz TARGET FILE...                        the target on these inputs
       uunwind-fuzz names                                 the targets' names, a line each
targets:";

fn main() -> ExitCode {
    if !cfg!(debug_assertions) {
        eprintln!("overflows are not checked in this build: see README.md");
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            targets::ALL.iter().for_each(|target| eprintln!("  {:<15} {}", target.name, target.about));
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let (name, rest) = arguments.split_first().ok_or("no target given")?;
    if name == "names" {
        targets::ALL.iter().for_each(|target| println!("{}", target.name));
        return Ok(true);
    }
    let (mut seconds, mut number, mut files) = (60, 1, Vec::new());
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            let text = rest.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|e| format!("{argument} {text}: {e}"))
        };
        match argument.as_str() {
            "--seconds" => seconds = value()?,
            "--seed" => number = value()?,
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            file => files.push(file),
        }
    }
    let chosen = match targets::find(name) {
        Some(target) => std::slice::from_ref(target),
        None if name == "all" && files.is_empty() => targets::ALL,
        None => return Err(format!("no target {name}")),
    };
    let mut good = true;
    for target in chosen {
        good &= if files.is_empty() { campaign(target, seconds, number) } else { again(target, &files)? };
    }
    Ok(good)
}

fn again(target: &'static Target, files: &[&str]) -> Result<bool, String> {
    let mut runner = Runner::new(target, LIMIT);
    let mut good = true;
    for file in files {
        let input = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        match runner.run(&input) {
            Ok(taken) => println!("{file}: {}", if taken { "taken" } else { "refused" }),
            Err(panic) => {
                good = false;
                println!("{file}: {panic}");
            }
        }
    }
    Ok(good)
}

fn campaign(target: &'static Target, seconds: u64, number: u64) -> bool {
    let seeds = corpus::seeds(target.name).into_iter().map(|(_, bytes)| bytes).collect();
    let mut campaign = Campaign::new(seeds, number);
    let mut runner = Runner::new(target, LIMIT);
    let (begun, until) = (Instant::now(), Duration::from_secs(seconds));
    let (mut runs, mut taken, mut failed) = (0u64, 0u64, 0);
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < until && failed < FAILURES {
        let input = campaign.next_input();
        let before = Instant::now();
        match runner.run(&input) {
            Ok(took) => {
                taken += u64::from(took);
                slowest = slowest.max(before.elapsed());
                campaign.record(input, took);
            }
            Err(panic) => {
                failed += 1;
                let small = runner.shrink(&input);
                println!("{}: {panic}\n{}", target.name, keep(target, &small));
            }
        }
        runs += 1;
    }
    println!(
        "{:<15} {runs} runs in {:.0} s, {:.1} % taken, slowest {slowest:?}, at most {} KiB allocated, {failed} failed",
        target.name,
        begun.elapsed().as_secs_f64(),
        taken as f64 * 100.0 / runs.max(1) as f64,
        alloc::most() >> 10,
    );
    failed == 0
}
