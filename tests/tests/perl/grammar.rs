//! The calls that a Perl program can make, by its source (`targets/perl/async.pl`), and stacks checked against them.

use crate::runtime::{self, IN_C};
use std::collections::BTreeMap;
use uunwind_tests::own_view::Place;
use uunwind_tests::samples::Sample;

/// The program.
#[derive(Debug, Default)]
pub struct Program {
    /// Its file name.
    file: String,
    /// Of each sub, by name: its first and last lines.
    ranges: BTreeMap<String, Vec<(u32, u32)>>,
    /// What a line may call, directly or through each other.
    calls: BTreeMap<u32, Vec<String>>,
}

/// Names of code without one.
const MAIN: &str = "(main)";
const EVAL: &str = "(eval)";

impl Program {
    /// Reads a program. Subs begin with `sub NAME` and end at a `}` of the same indentation; `package NAME;` begins a
    /// package; subs without a name and evals are on one line; `#--> NAME, ...` lists what a line may call.
    pub fn read(file: &str, source: &str) -> Program {
        let mut program = Program { file: file.to_owned(), ..Program::default() };
        let lines: Vec<&str> = source.lines().collect();
        let indentation = |line: &str| line.len() - line.trim_start().len();
        let mut package = "main".to_owned();
        program.add_range(MAIN, 1, lines.len() as u32);
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            let (code, names) = line.split_once("#--> ").unwrap_or((line, ""));
            if !names.is_empty() {
                program.calls.insert(number, names.split(", ").map(|name| name.trim().to_owned()).collect());
            }
            if let Some(name) = line.strip_prefix("package ") {
                package = name.trim_end_matches(';').to_owned();
            }
            if code.contains("sub {") || names.contains("::__ANON__") {
                program.add_range(&format!("{package}::__ANON__"), number, number);
            }
            if code.contains("eval") {
                program.add_range(EVAL, number, number);
            }
            let Some(rest) = line.strip_prefix("sub ") else { continue };
            let own: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let is_end = |l: &&str| indentation(l) == indentation(line) && l.trim_start() == "}";
            let length = lines[at..].iter().position(is_end).expect("the sub ends");
            program.add_range(&format!("{package}::{own}"), number, number + length as u32);
        }
        program
    }

    fn add_range(&mut self, name: &str, first: u32, last: u32) {
        self.ranges.entry(name.to_owned()).or_default().push((first, last));
    }

    /// Checks a stack's Perl frames: each is at a line of its own, and was called by a line that calls it, directly or
    /// through functions in C that the line names; the program is outermost. Returns their number; 0: there is none, or
    /// the program is compiled still.
    pub fn check(&self, sample: &Sample) -> Result<usize, String> {
        let frames = runtime::frames(sample);
        let is_compiled = |frame: &Place| frame.name.ends_with("::BEGIN") || frame.name == "(require)";
        let begins = sample.text().contains("perl_parse") || sample.text().contains("perl_destruct");
        if frames.is_empty() || begins || frames.iter().any(is_compiled) {
            return Ok(0);
        }
        let mut called: Vec<&str> = Vec::new();
        for frame in &frames {
            if frame.file == IN_C {
                called.push(&frame.name);
                continue;
            }
            // Evaluated code has its own lines, and calls what stands in it. While it is compiled, it is before its
            // first line or after its last one, too.
            if frame.name == EVAL && frame.file.starts_with("(eval ") {
                let is_there = frame.line == 1 || called.is_empty() && frame.line <= 2;
                if !is_there || !called.iter().all(|name| *name == "main::fib") {
                    return Err(format!("{frame:?} calls {called:?}"));
                }
                called = vec![EVAL];
                continue;
            }
            // A destructor is called in an eval, which has the line of what is left.
            let destroys = |name: &str| name.ends_with("::DESTROY");
            let is_left = self.calls.get(&frame.line).is_some_and(|calls| calls.iter().any(|call| destroys(call)));
            if frame.name == EVAL && is_left && called.iter().all(|name| destroys(name)) {
                continue;
            }
            self.check_place(frame)?;
            for name in called.drain(..) {
                if !self.calls.get(&frame.line).is_some_and(|calls| calls.iter().any(|call| call == name)) {
                    return Err(format!("{} at line {} does not call {name}", frame.name, frame.line));
                }
            }
            called.push(&frame.name);
        }
        match called[..] {
            [MAIN] => Ok(frames.len()),
            _ => Err(format!("{called:?} is outermost")),
        }
    }

    fn check_place(&self, frame: &Place) -> Result<(), String> {
        let ranges = self.ranges.get(&frame.name).ok_or_else(|| format!("there is no {}", frame.name))?;
        let here = |(first, last): &(u32, u32)| (*first..=*last).contains(&frame.line);
        if frame.file != self.file || !ranges.iter().any(here) {
            return Err(format!("{frame:?} is not in the lines of its sub: {ranges:?}"));
        }
        Ok(())
    }

    /// How often the innermost frame was at each line of a sub.
    pub fn leaf_lines(&self, samples: &[Sample], sub: &str) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for sample in samples {
            let frames = runtime::frames(sample);
            if let Some(leaf) = frames.first().filter(|frame| frame.name == sub && frame.file == self.file) {
                *counts.entry(leaf.line).or_insert(0) += 1;
            }
        }
        counts
    }

    /// The lines of a sub after its first `for` that are assignments.
    pub fn loop_lines(&self, source: &str, sub: &str) -> Vec<u32> {
        let (first, last) = self.ranges[sub][0];
        let lines = source.lines().enumerate().map(|(at, line)| (at as u32 + 1, line));
        lines.filter(|(n, line)| (first..=last).contains(n) && line.starts_with("        $")).map(|(n, _)| n).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_tests::samples::Frame;

    const SOURCE: &str = "sub f {\n  return 1;\n}\n\nsub g {\n  f(1); #--> main::f\n  \
                          first { f(1) } 1; #--> List::Util::first, main::__ANON__, main::f\n}\ng(); #--> main::g\n";

    fn sample(frames: &[(&str, u32)]) -> Sample {
        let perl = |(name, line): &(&str, u32)| Frame::Other {
            plugin: "perl".into(),
            name: (*name).into(),
            file: if *line == 0 { IN_C.into() } else { "p.pl".into() },
            line: *line,
        };
        Sample { frames: frames.iter().map(perl).collect(), ..Sample::default() }
    }

    #[test]
    fn right_stacks_pass_and_wrong_ones_do_not() {
        let program = Program::read("p.pl", SOURCE);
        let (f, g) = ("main::f", "main::g");
        assert_eq!(program.check(&sample(&[(f, 2), (g, 6), (MAIN, 9)])), Ok(3));
        let block = [(f, 2), ("main::__ANON__", 7), ("List::Util::first", 0), (g, 7), (MAIN, 9)];
        assert_eq!(program.check(&sample(&block)), Ok(5));
        assert_eq!(program.check(&sample(&[])), Ok(0));
        let wrong: [&[(&str, u32)]; 6] = [
            &[(f, 6), (g, 6), (MAIN, 9)],
            &[(f, 2), (g, 5), (MAIN, 9)],
            &[(f, 2), (MAIN, 9)],
            &[(f, 2), (g, 6)],
            &[("List::Util::first", 0), (g, 6), (MAIN, 9)],
            &[("main::h", 2), (g, 6), (MAIN, 9)],
        ];
        for frames in wrong {
            assert!(program.check(&sample(frames)).is_err(), "{frames:?}");
        }
        assert_eq!(program.leaf_lines(&[sample(&block), sample(&[])], f), BTreeMap::from([(2, 1)]));
    }
}
