//! The calls that a Ruby program can make, by its source (`targets/ruby/async.rb`), and stacks checked against them.

use crate::runtime;
use std::collections::BTreeMap;
use uunwind_tests::own_view::Place;
use uunwind_tests::samples::Sample;

/// The program.
#[derive(Debug, Default)]
pub struct Program {
    /// Its file name.
    file: String,
    /// First and last lines of methods and class bodies, by their own names.
    ranges: BTreeMap<String, Vec<(u32, u32)>>,
    /// Functions that a line may call, directly or through each other.
    calls: BTreeMap<u32, Vec<String>>,
}

/// Name of the program's outermost code.
const MAIN: &str = "<main>";

impl Program {
    /// Reads a program: methods begin with `def NAME` and classes with `class NAME`, and end at an `end` of the same
    /// indentation; `#--> NAME, ...` lists the functions that a line may call.
    pub fn read(file: &str, source: &str) -> Program {
        let mut program = Program { file: file.to_owned(), ..Program::default() };
        let lines: Vec<&str> = source.lines().collect();
        let indentation = |line: &str| line.len() - line.trim_start().len();
        program.ranges.insert(MAIN.to_owned(), vec![(1, lines.len() as u32)]);
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            if let Some((_, names)) = line.split_once("#--> ") {
                program.calls.insert(number, names.split(", ").map(|name| name.trim().to_owned()).collect());
            }
            let text = line.trim_start();
            let (name, is_class) = match (text.strip_prefix("def "), text.strip_prefix("class ")) {
                (Some(rest), _) => (rest.trim_start_matches("self."), false),
                (_, Some(rest)) => (rest, true),
                _ => continue,
            };
            let own: String = name.chars().take_while(|c| !matches!(c, '(' | ' ')).collect();
            let is_end = |l: &&str| indentation(l) == indentation(line) && l.trim_start() == "end";
            let length = match name.contains(" = ") && !is_class && !name.contains("(a, b = ") {
                true => 0,
                false => lines[at..].iter().position(is_end).expect("the method ends"),
            };
            let key = if is_class { format!("<class:{own}>") } else { own };
            program.ranges.entry(key).or_default().push((number, number + length as u32));
        }
        program
    }

    /// Checks a stack's Ruby frames: each is at a line of its own, and was called by a line that calls it, directly or
    /// through C functions that the line names; the program is outermost. Returns their number; 0: it is none of the
    /// program's, as when the interpreter starts.
    pub fn check(&self, sample: &Sample) -> Result<usize, String> {
        let frames = runtime::frames(sample);
        if !frames.iter().any(|frame| frame.file == self.file) {
            return Ok(0);
        }
        let mut called: Vec<&str> = Vec::new();
        for frame in &frames {
            // Newer versions have some of their own methods in Ruby instead of C. What these call is their own affair.
            let is_internal = frame.file.starts_with("<internal:");
            if is_internal {
                called.retain(|name| name.contains("block ") || self.ranges.contains_key(method(name)));
            }
            if frame.file == "<cfunc>" || is_internal {
                called.push(&frame.name);
                continue;
            }
            self.check_place(frame)?;
            // Code that is evaluated begins at line 1.
            let is_evaluated = frame.file.starts_with("(eval");
            for name in called.drain(..) {
                if !is_evaluated
                    && !self.calls.get(&frame.line).is_some_and(|calls| calls.iter().any(|call| call == name))
                {
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
        let own = method(&frame.name);
        if frame.file.starts_with("(eval") {
            return Ok(());
        }
        let ranges = self.ranges.get(own).ok_or_else(|| format!("there is no {own}"))?;
        let here = ranges.iter().any(|(first, last)| (*first..=*last).contains(&frame.line));
        if frame.file != self.file || !here {
            return Err(format!("{frame:?} is not in the lines of its method: {ranges:?}"));
        }
        Ok(())
    }

    /// How often the innermost frame was at each line of a function.
    pub fn leaf_lines(&self, samples: &[Sample], function: &str) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for sample in samples {
            let frames = runtime::frames(sample);
            if let Some(leaf) = frames.first().filter(|frame| frame.name == function) {
                *counts.entry(leaf.line).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// The name of the method that a label is about, without its class.
fn method(label: &str) -> &str {
    let own = label.rsplit_once(" in ").map_or(label, |(_, own)| own);
    match own.rfind(['#', '.']) {
        Some(at) if !own.starts_with('<') => &own[at + 1..],
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_tests::samples::Frame;

    const SOURCE: &str = "def f(n)\n  n\nend\n\ndef g\n  f(1) #--> Object#f\n  [1].each { |x| f(x) } #--> Array#each, \
                          block in Object#g, Object#f\nend\ng #--> Object#g\n";

    fn sample(frames: &[(&str, u32)]) -> Sample {
        let ruby = |(name, line): &(&str, u32)| Frame::Other {
            plugin: "ruby".into(),
            name: (*name).into(),
            file: if *line == 0 { "<cfunc>".into() } else { "p.rb".into() },
            line: *line,
        };
        Sample { frames: frames.iter().map(ruby).collect(), ..Sample::default() }
    }

    #[test]
    fn right_stacks_pass_and_wrong_ones_do_not() {
        let program = Program::read("p.rb", SOURCE);
        assert_eq!(program.check(&sample(&[("Object#f", 2), ("Object#g", 6), (MAIN, 9)])), Ok(3));
        let block = [("Object#f", 2), ("block in Object#g", 7), ("Array#each", 0), ("Object#g", 7), (MAIN, 9)];
        assert_eq!(program.check(&sample(&block)), Ok(5));
        assert_eq!(program.check(&sample(&[])), Ok(0));
        let wrong: [&[(&str, u32)]; 6] = [
            &[("Object#f", 6), ("Object#g", 6), (MAIN, 9)],
            &[("Object#f", 2), ("Object#g", 5), (MAIN, 9)],
            &[("Object#f", 2), (MAIN, 9)],
            &[("Object#f", 2), ("Object#g", 6)],
            &[("Array#each", 0), ("Object#g", 6), (MAIN, 9)],
            &[("Object#h", 2), ("Object#g", 6), (MAIN, 9)],
        ];
        for frames in wrong {
            assert!(program.check(&sample(frames)).is_err(), "{frames:?}");
        }
        assert_eq!(program.leaf_lines(&[sample(&block), sample(&[])], "Object#f"), BTreeMap::from([(2, 1)]));
    }
}
