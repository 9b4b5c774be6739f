//! The calls that a PHP program can make, by its sources (`targets/php/async.php`), and stacks checked against them.

use crate::runtime;
use std::collections::BTreeMap;
use uunwind_tests::own_view::Place;
use uunwind_tests::samples::Sample;

/// The program.
#[derive(Debug, Default)]
pub struct Program {
    /// Its file name.
    file: String,
    /// Of each function and file, by name: its file, and its first and last lines.
    ranges: BTreeMap<String, Vec<(String, u32, u32)>>,
    /// Functions that a line may call, directly or through each other.
    calls: BTreeMap<(String, u32), Vec<String>>,
}

/// Names of code without one.
const MAIN: &str = "{main}";
const INCLUDE: &str = "{include}";
const EVAL: &str = "{eval}";
const CLOSURE: &str = "{closure}";
/// The file of functions in C.
const INTERNAL: &str = "<internal>";

impl Program {
    /// Reads a program, and the files that it includes. Functions begin with `function NAME(` and end at a `}` of the
    /// same indentation; classes begin with `final class NAME`; `#--> NAME, ...` lists the functions that a line may
    /// call.
    pub fn read(sources: &[(String, String)]) -> Program {
        let mut program = Program { file: sources[0].0.clone(), ..Program::default() };
        for (at, (file, source)) in sources.iter().enumerate() {
            let whole = if at == 0 { MAIN } else { INCLUDE };
            program.add_range(whole, file, 1, source.lines().count() as u32);
            program.add(file, source);
        }
        program
    }

    fn add_range(&mut self, name: &str, file: &str, first: u32, last: u32) {
        self.ranges.entry(name.to_owned()).or_default().push((file.to_owned(), first, last));
    }

    fn add(&mut self, file: &str, source: &str) {
        let lines: Vec<&str> = source.lines().collect();
        let indentation = |line: &str| line.len() - line.trim_start().len();
        let mut class = String::new();
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            if let Some((_, names)) = line.split_once("#--> ") {
                let names = names.split(", ").map(|name| name.trim().to_owned()).collect();
                self.calls.insert((file.to_owned(), number), names);
            }
            if let Some(name) = line.strip_prefix("final class ") {
                class = name.split(' ').next().unwrap_or_default().to_owned() + "::";
            } else if *line == "}" {
                class.clear();
            }
            if line.contains("fn(") || line.contains("function (") {
                self.add_range(&format!("{class}{CLOSURE}"), file, number, number);
                // In an included file it has the class of the function around the `include`.
                self.add_range(&format!("Value::{CLOSURE}"), file, number, number);
            }
            let Some((_, rest)) = line.split_once("function ").filter(|(_, rest)| !rest.starts_with('(')) else {
                continue;
            };
            let own: String = rest.chars().take_while(|c| *c != '(').collect();
            let is_end = |l: &&str| indentation(l) == indentation(line) && l.trim_start() == "}";
            let length = lines[at..].iter().position(is_end).expect("the function ends");
            self.add_range(&format!("{class}{own}"), file, number, number + length as u32);
        }
    }

    /// Checks a stack's PHP frames: each is at a line of its own, and was called by a line that calls it, directly or
    /// through functions in C that the line names; the program is outermost. Returns their number; 0: there is none.
    pub fn check(&self, sample: &Sample) -> Result<usize, String> {
        let mut frames = runtime::frames(sample);
        if frames.is_empty() {
            return Ok(0);
        }
        frames.iter_mut().for_each(|frame| frame.name = without_place(&frame.name));
        let mut called: Vec<&str> = Vec::new();
        for frame in &frames {
            if frame.file == INTERNAL {
                called.push(&frame.name);
                continue;
            }
            let place = self.place(frame)?;
            for name in called.drain(..) {
                if !self.calls.get(&place).is_some_and(|calls| calls.iter().any(|call| call == name)) {
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

    /// The place that a frame is at, in the sources.
    fn place(&self, frame: &Place) -> Result<(String, u32), String> {
        // Evaluated code has its own lines, and the place where it was evaluated in its file's name.
        if let Some(at) = frame.file.strip_suffix(") : eval()'d code") {
            let (file, line) = at.rsplit_once('(').ok_or("no place")?;
            let line = line.parse().map_err(|_| format!("{} has no line", frame.file))?;
            return match (&*frame.name, frame.line) {
                (EVAL, 1) => Ok((format!("{file}:eval"), line)),
                _ => Err(format!("{frame:?} is no evaluated code")),
            };
        }
        let ranges = self.ranges.get(&frame.name).ok_or_else(|| format!("there is no {}", frame.name))?;
        let here =
            |(file, first, last): &(String, u32, u32)| *file == frame.file && (*first..=*last).contains(&frame.line);
        if !ranges.iter().any(here) {
            return Err(format!("{frame:?} is not in the lines of its function: {ranges:?}"));
        }
        Ok((frame.file.clone(), frame.line))
    }

    /// What evaluated code calls.
    pub fn evaluates(mut self, file: &str, line: u32, names: &[&str]) -> Program {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.calls.insert((format!("{file}:eval"), line), names);
        self
    }

    /// How often the innermost frame was at each line of a function.
    pub fn leaf_lines(&self, samples: &[Sample], function: &str) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for sample in samples {
            let frames = runtime::frames(sample);
            if let Some(leaf) = frames.first().filter(|frame| frame.name == function && frame.file == self.file) {
                *counts.entry(leaf.line).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// A function's name, without what closures have in theirs from PHP 8.4 on: where they were written.
fn without_place(name: &str) -> String {
    match name.split_once("{closure:") {
        Some((before, _)) if name.ends_with('}') => format!("{before}{CLOSURE}"),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_tests::samples::Frame;

    const SOURCE: &str = "<?php\nfunction f($n)\n{\n  return $n;\n}\n\nfunction g()\n{\n  f(1); #--> f\n  \
                          array_map(fn($x) => f($x), [1]); #--> array_map, {closure}, f\n}\ng(); #--> g\n";

    fn sample(frames: &[(&str, u32)]) -> Sample {
        let php = |(name, line): &(&str, u32)| Frame::Other {
            plugin: "php".into(),
            name: (*name).into(),
            file: if *line == 0 { INTERNAL.into() } else { "p.php".into() },
            line: *line,
        };
        Sample { frames: frames.iter().map(php).collect(), ..Sample::default() }
    }

    #[test]
    fn right_stacks_pass_and_wrong_ones_do_not() {
        let program = Program::read(&[("p.php".into(), SOURCE.into())]);
        assert_eq!(program.check(&sample(&[("f", 4), ("g", 9), (MAIN, 12)])), Ok(3));
        let closure = [("f", 4), (CLOSURE, 10), ("array_map", 0), ("g", 10), (MAIN, 12)];
        assert_eq!(program.check(&sample(&closure)), Ok(5));
        let named = [("f", 4), ("{closure:g():10}", 10), ("array_map", 0), ("g", 10), (MAIN, 12)];
        assert_eq!(program.check(&sample(&named)), Ok(5));
        assert_eq!(program.check(&sample(&[])), Ok(0));
        let wrong: [&[(&str, u32)]; 6] = [
            &[("f", 9), ("g", 9), (MAIN, 12)],
            &[("f", 4), ("g", 8), (MAIN, 12)],
            &[("f", 4), (MAIN, 12)],
            &[("f", 4), ("g", 9)],
            &[("array_map", 0), ("g", 9), (MAIN, 12)],
            &[("h", 4), ("g", 9), (MAIN, 12)],
        ];
        for frames in wrong {
            assert!(program.check(&sample(frames)).is_err(), "{frames:?}");
        }
        assert_eq!(program.leaf_lines(&[sample(&closure), sample(&[])], "f"), BTreeMap::from([(4, 1)]));
    }
}
