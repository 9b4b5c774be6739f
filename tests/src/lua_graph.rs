//! A generated Lua program whose calls are known, so that any stack can be checked against the graph, wherever the
//! program was interrupted: plain calls, protected calls, coroutines, metamethods, and callbacks from C.

use crate::lua::ExpectedFrame;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Number of functions.
const FUNCTIONS: usize = 48;
/// Deepest chain of them.
const DEPTH: usize = 14;

/// The program and its graph.
pub struct Program {
    /// Its text.
    pub text: String,
    /// Functions by first line: last line. The chunk's first line is 0.
    bodies: BTreeMap<u32, u32>,
    /// The functions that a line of a function may call.
    calls: BTreeMap<(u32, u32), BTreeSet<u32>>,
    /// The line of the chunk that starts the run.
    root: u32,
}

/// Writes the program.
struct Writer {
    text: String,
    line: u32,
}

impl Writer {
    fn put(&mut self, line: &str) -> u32 {
        let _ = writeln!(self.text, "{line}");
        self.line += 1;
        self.line
    }
}

impl Program {
    /// The program. It runs for `seconds` of CPU time. `prelude` is its first line.
    pub fn new(seconds: f64, prelude: &str) -> Program {
        let mut w = Writer { text: String::new(), line: 0 };
        let (mut bodies, mut calls) = (BTreeMap::new(), BTreeMap::<(u32, u32), BTreeSet<u32>>::new());
        w.put(prelude);
        w.put(
            "local pcall, wrap, gsub, setmetatable, clock = pcall, coroutine.wrap, string.gsub, setmetatable, os.clock",
        );
        let spin = w.put("local function spin(r)");
        w.put("  for i = 1, 60 do");
        w.put("    r = (r * 75 + 74) % 65537");
        w.put("    r = r + i % 7");
        w.put("  end");
        w.put("  return r");
        bodies.insert(spin, w.put("end"));
        let mut firsts = Vec::new();
        let mut sites = Vec::new();
        for i in 0..FUNCTIONS {
            let first = w.put(&format!("function f{i}(s, d)"));
            firsts.push(first);
            w.put("  local r = s % 1000");
            w.put("  if d == 0 then");
            let leaf = w.put("    r = spin(r)");
            calls.entry((first, leaf)).or_default().insert(spin);
            w.put("    return r");
            w.put("  end");
            w.put("  local k = s % 4");
            for k in 0..4 {
                let callee = (i * (2 * k + 3) + 17 * k * k + 5) % FUNCTIONS;
                w.put(&format!("  {} k == {k} then", if k == 0 { "if" } else { "elseif" }));
                let argument = format!("(s * {} + {}) % 65521, d - 1", 2 * k + 3, k + 1);
                let direct = format!("    r = f{callee}({argument}) + {k}");
                // Coroutines are few: while the stack of a new one grows, its frames are nowhere complete.
                match if i % 2 == 0 { (i + k) % 9 } else { 1 + (i + k) % 4 } {
                    3 => {
                        let line = w.put(&format!("    local _, v = pcall(f{callee}, {argument})"));
                        sites.push((first, line, callee));
                        w.put("    r = v");
                    }
                    5 => sites.push((first, w.put(&format!("    r = wrap(f{callee})({argument})")), callee)),
                    7 => {
                        // A closure in the line's function, and the call in the closure.
                        let closure = w.put("    local t = setmetatable({}, { __concat = function(_, x)");
                        let line = w.put(&format!("      local v = f{callee}((s + x) % 65521, d - 1)"));
                        w.put("      return v");
                        bodies.insert(closure, w.put("    end })"));
                        sites.push((closure, line, callee));
                        let call = w.put("    r = t .. 3");
                        calls.entry((first, call)).or_default().insert(closure);
                    }
                    8 => {
                        let closure = w.put("    gsub(\"x\", \"x\", function()");
                        let line = w.put(&format!("      r = f{callee}({argument}) + r"));
                        let end = w.put("    end)");
                        bodies.insert(closure, end);
                        sites.push((closure, line, callee));
                        // A call of several lines is reported at its first or its last line, depending on the version.
                        for line in closure..=end {
                            calls.entry((first, line)).or_default().insert(closure);
                        }
                    }
                    _ => sites.push((first, w.put(&direct), callee)),
                }
            }
            w.put("  end");
            w.put("  return (r * 31 + d) % 65521");
            bodies.insert(first, w.put("end"));
        }
        for (caller, line, callee) in sites {
            calls.entry((caller, line)).or_default().insert(firsts[callee]);
        }
        let run = w.put("local function run()");
        w.put("  local s, r = 1, 0");
        w.put(&format!("  while clock() < {seconds} do"));
        w.put("    for i = 1, 50 do");
        w.put("      s = (s * 75 + 74) % 65537");
        let line = w.put(&format!("      r = r + f0(s, s % {DEPTH})"));
        calls.entry((run, line)).or_default().insert(firsts[0]);
        w.put("    end");
        w.put("  end");
        w.put("  return r");
        bodies.insert(run, w.put("end"));
        let root = w.put("local result = run()");
        calls.entry((0, root)).or_default().insert(run);
        bodies.insert(0, w.put("assert(result)"));
        Program { text: w.text, bodies, calls, root }
    }

    /// Checks the Lua frames of a stack, outermost first. Returns how many there were.
    pub fn check(&self, frames: &[ExpectedFrame]) -> Result<usize, String> {
        let Some(root) = frames.first() else { return Ok(0) };
        if root.first != 0 {
            return Err(format!("the outermost frame is {root:?}, not the chunk"));
        }
        // Before and after the run there is only the chunk.
        if frames.len() > 1 && root.line != self.root {
            return Err(format!("the chunk is at line {}, and calls something", root.line));
        }
        for frame in frames {
            let last =
                self.bodies.get(&frame.first).ok_or_else(|| format!("no function begins where {frame:?} does"))?;
            if frame.line < frame.first || frame.line > *last {
                return Err(format!("{frame:?} is outside its function, which ends at {last}"));
            }
        }
        for pair in frames.windows(2) {
            let [outer, inner] = pair else { continue };
            if !self.calls.get(&(outer.first, outer.line)).is_some_and(|callees| callees.contains(&inner.first)) {
                return Err(format!("{outer:?} does not call {inner:?}"));
            }
        }
        Ok(frames.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u32, line: u32) -> ExpectedFrame {
        ExpectedFrame { name: String::new(), file: String::new(), line, first }
    }

    #[test]
    fn a_chain_that_the_graph_does_not_have_is_wrong() {
        let program = Program::new(1.0, "");
        let (run, line, f0) = {
            let (place, callees) = program.calls.iter().rev().find(|((first, _), _)| *first != 0).expect("run calls");
            (place.0, place.1, *callees.first().expect("f0"))
        };
        let chunk = frame(0, program.root);
        assert_eq!(program.check(&[chunk, frame(run, line), frame(f0, f0 + 1)]), Ok(3));
        let chunk = || frame(0, program.root);
        let wrong = [
            vec![frame(run, line)],
            vec![chunk(), frame(f0, f0 + 1)],
            vec![chunk(), frame(run, line + 1), frame(f0, f0 + 1)],
            vec![chunk(), frame(run, line), frame(f0 + 1, f0 + 2)],
            vec![chunk(), frame(run, 2)],
            vec![frame(0, 1), frame(run, line)],
        ];
        for frames in wrong {
            assert!(program.check(&frames).is_err(), "{frames:?}");
        }
    }
}
