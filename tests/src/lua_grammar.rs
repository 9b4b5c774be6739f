//! The calls that a Lua program can make, by its source (`targets/lua/async.lua`), and stacks checked against them.

use crate::samples::{Frame, Sample};
use std::collections::BTreeMap;

/// One function.
#[derive(Debug)]
struct Function {
    name: String,
    last: u32,
}

/// The program.
#[derive(Debug, Default)]
pub struct Program {
    /// Functions by first line. The chunk has 0.
    functions: BTreeMap<u32, Function>,
    /// Functions that a line may call.
    calls: BTreeMap<u32, Vec<String>>,
}

/// Name of the chunk.
const CHUNK: &str = "main chunk";

impl Program {
    /// Reads a program: functions begin with `function NAME(` and end at an `end` of the same indentation; `-->
    /// NAME...` lists the functions that a line may call. Functions without a name belong to their line.
    pub fn read(source: &str) -> Program {
        let mut program = Program::default();
        let lines: Vec<&str> = source.lines().collect();
        let indentation = |line: &str| line.len() - line.trim_start().len();
        program.functions.insert(0, Function { name: CHUNK.to_owned(), last: lines.len() as u32 });
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            if let Some((_, names)) = line.split_once("-->") {
                program.calls.insert(number, names.split_whitespace().map(str::to_owned).collect());
            }
            let Some((_, rest)) = line.split_once("function ") else { continue };
            let Some((name, _)) = rest.split_once('(').filter(|(name, _)| !name.is_empty()) else { continue };
            let end = |l: &&str| indentation(l) == indentation(line) && l.trim_start().starts_with("end");
            let length = lines[at..].iter().position(end).expect("the function ends");
            program.functions.insert(number, Function { name: name.to_owned(), last: number + length as u32 });
        }
        program
    }

    /// The function that begins at a line.
    pub fn name(&self, first: u32) -> &str {
        self.functions.get(&first).map_or("?", |function| &function.name)
    }

    /// Checks a stack's Lua frames: each function is at a line of its own, called by a line that calls it; the chunk is
    /// outermost. Returns their number.
    pub fn check(&self, sample: &Sample) -> Result<usize, String> {
        let frames: Vec<(u32, u32, &str)> = sample
            .frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::Lua { name, line, first, file } if file != "builtin" => Some((*first, *line, &**name)),
                _ => None,
            })
            .collect();
        let mut callee: Option<&str> = None;
        for (first, line, shown) in &frames {
            let Some(function) = self.functions.get(first) else {
                return Err(format!("{shown}: no function begins at line {first}"));
            };
            if *line < *first || *line > function.last {
                return Err(format!("{} at line {line}, but it ends at {}", function.name, function.last));
            }
            if let Some(callee) = callee {
                if !self.calls.get(line).is_some_and(|calls| calls.iter().any(|name| name == callee)) {
                    return Err(format!("{} at line {line} does not call {callee}", function.name));
                }
            }
            callee = Some(&function.name);
        }
        match callee {
            Some(CHUNK) | None => Ok(frames.len()),
            Some(other) => Err(format!("{other} is outermost")),
        }
    }

    /// How often the innermost frame was at each line of a function.
    pub fn leaf_lines(&self, samples: &[Sample], function: &str) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for sample in samples {
            let leaf = sample.frames.iter().find(|frame| matches!(frame, Frame::Lua { .. }));
            let Some(Frame::Lua { line, first, .. }) = leaf else { continue };
            if self.functions.get(first).is_some_and(|f| f.name == function) {
                *counts.entry(*line).or_insert(0) += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "local function f(n)\n  return n\nend\n\nlocal function g()\n  f(1) --> f\nend\ng() --> g\n";

    fn sample(frames: &[(u32, u32)]) -> Sample {
        let lua =
            |(first, line): &(u32, u32)| Frame::Lua { name: "x".into(), file: "p".into(), line: *line, first: *first };
        Sample { frames: frames.iter().map(lua).collect(), ..Sample::default() }
    }

    #[test]
    fn right_stacks_pass_and_wrong_ones_do_not() {
        let program = Program::read(SOURCE);
        assert_eq!(program.check(&sample(&[(1, 2), (5, 6), (0, 8)])), Ok(3));
        assert_eq!(program.check(&sample(&[])), Ok(0));
        let wrong: [&[(u32, u32)]; 5] =
            [&[(1, 5), (5, 6), (0, 8)], &[(1, 2), (5, 7), (0, 8)], &[(1, 2), (0, 8)], &[(2, 2)], &[(1, 2), (5, 6)]];
        for frames in wrong {
            assert!(program.check(&sample(frames)).is_err(), "{frames:?}");
        }
        assert_eq!(program.leaf_lines(&[sample(&[(1, 2)]), sample(&[(5, 6)])], "f"), BTreeMap::from([(2, 1)]));
    }
}
