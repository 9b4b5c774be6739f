//! The runtime's own view of a Python stack, as `targets/python/snap.py` writes it, and its comparison with a sample.

use crate::samples::{beside, Frame, Sample};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One line of an oracle file.
#[derive(Debug)]
pub struct Expected {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Python frames, innermost first.
    pub frames: Vec<ExpectedFrame>,
    /// Index of the first frame whose instruction did not move between the oracle and the sample.
    pub lasti_from: usize,
    /// Alternatives for the shape of the whole stack; empty if only the Python frames are compared.
    pub shapes: Vec<String>,
}

/// One Python frame, as `sys._getframe` shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct ExpectedFrame {
    /// `None`: not compared.
    code: Option<u64>,
    /// `None`: not available.
    lasti: Option<u64>,
    line: u32,
    first: u32,
    name: String,
    file: String,
}

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| expected(&serde_json::from_str(line).expect("the oracle is JSON"))).collect()
}

fn expected(line: &Value) -> Expected {
    let number = |v: &Value| v.as_u64().expect("a number");
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let frame = |f: &Value| ExpectedFrame {
        code: f[0].as_u64(),
        lasti: f[1].as_u64(),
        line: number(&f[2]) as u32,
        first: number(&f[3]) as u32,
        name: text(&f[4]),
        file: text(&f[5]),
    };
    Expected {
        pid: number(&line["pid"]) as u32,
        tid: number(&line["tid"]) as u32,
        frames: line["frames"].as_array().expect("frames").iter().map(frame).collect(),
        lasti_from: number(&line["lasti_from"]) as usize,
        shapes: line["shapes"].as_array().into_iter().flatten().map(text).collect(),
    }
}

impl ExpectedFrame {
    /// The frame as reports show it.
    pub fn text(&self) -> String {
        format!("{} ({}:{})", self.name, self.file, self.line)
    }
}

impl Expected {
    /// Code objects are not compared.
    pub fn without_code(&mut self) {
        self.frames.iter_mut().for_each(|frame| frame.code = None);
    }
}

/// Pairs the oracle's lines with the explicit samples: those of one thread come in the same order in both.
pub fn pair<'a>(oracle: &'a [Expected], samples: &'a [Sample]) -> Result<Vec<(&'a Expected, &'a Sample)>, String> {
    let mut by_thread: BTreeMap<(u32, u32), Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.kind == "explicit") {
        by_thread.entry((sample.pid, sample.tid)).or_default().push(sample);
    }
    let total = oracle.len();
    let mut pairs = Vec::new();
    for line in oracle {
        let Some(list) = by_thread.get_mut(&(line.pid, line.tid)).filter(|list| !list.is_empty()) else {
            let what = format!("of {total} samples, one of pid {} tid {} is missing", line.pid, line.tid);
            return Err(format!("{what}\n{}", beside(&leaves(oracle), samples)));
        };
        let sample = list.remove(0);
        pairs.push((line, sample));
    }
    match by_thread.values().map(Vec::len).sum() {
        0 => Ok(pairs),
        more => {
            let what = format!("{more} explicit samples more than the {total} that were taken");
            Err(format!("{what}\n{}", beside(&leaves(oracle), samples)))
        }
    }
}

/// The innermost function of each stack.
fn leaves(oracle: &[Expected]) -> Vec<String> {
    let leaf = |line: &Expected| line.frames.first().map_or(String::new(), |f| format!("{}:{}", f.name, f.line));
    oracle.iter().map(|line| format!("{}, tid {}", leaf(line), line.tid)).collect()
}

/// Compares the Python frames: count, order, code object, line, instruction, names. `whole`: all of them must be there;
/// otherwise those nearest the leaf.
pub fn compare_python(expected: &Expected, sample: &Sample, whole: bool) -> Result<(), String> {
    let got: Vec<(usize, &Frame)> = sample.placed(Frame::is_python).collect();
    let count = got.last().map_or(0, |(last, _)| last + 1);
    if whole && count != expected.frames.len() || count > expected.frames.len() {
        return Err(format!("{count} Python frames, expected {}", expected.frames.len()));
    }
    for (index, frame) in got {
        let want = &expected.frames[index];
        let Frame::Python { name, file, line, code, position, first } = frame else { unreachable!("filtered above") };
        let lasti = if index < expected.lasti_from { *position } else { want.lasti.unwrap_or(*position) };
        let same = (code, line, first, name, file)
            == (&want.code.unwrap_or(*code), &want.line, &want.first, &want.name, &want.file);
        if !same || *position != lasti {
            return Err(format!("Python frame {index} from the leaf: got {frame:?}, expected {want:?}"));
        }
    }
    Ok(())
}

/// Every group of semantic frames is followed by a native frame that hosts it, and is marked so.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    parts(sample).map(drop)
}

/// A stack as activations of an interpreter and native frames, outermost first. Blanks in names are underscores.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Activation(Vec<String>),
    Native { symbol: &'a str, object: &'a str },
}

fn parts(sample: &Sample) -> Result<Vec<Part<'_>>, String> {
    let mut found = Vec::new();
    let mut names = Vec::new();
    for frame in &sample.frames {
        match frame {
            Frame::Python { name, .. } | Frame::Lua { name, .. } => names.push(name.replace(' ', "_")),
            Frame::Jit { interpreter: true, .. } if !names.is_empty() => {
                names.reverse();
                found.push(Part::Activation(std::mem::take(&mut names)));
            }
            Frame::Jit { .. } | Frame::Other { .. } => {}
            Frame::Waiting { .. } | Frame::Kernel { .. } | Frame::Omitted { .. } => {}
            Frame::Native { symbol, object, interpreter, .. } => {
                if !names.is_empty() {
                    if !interpreter {
                        return Err(format!("frames {names:?} are hosted by {symbol}, which is not marked"));
                    }
                    names.reverse();
                    found.push(Part::Activation(std::mem::take(&mut names)));
                }
                found.push(Part::Native { symbol, object: object.rsplit('/').next().unwrap_or(object) });
            }
        }
    }
    if !names.is_empty() {
        return Err(format!("frames {names:?} have no native frame that hosts them"));
    }
    found.reverse();
    Ok(found)
}

/// Compares the whole stack with one shape (see `snap.py`). `symbols`: the interpreter has a symbol table.
pub fn compare_shape(shape: &str, sample: &Sample, symbols: bool) -> Result<(), String> {
    let parts = parts(sample)?;
    let mut rest = parts.iter();
    for token in tokens(shape) {
        if let Some(names) = token.strip_prefix("E{") {
            let wanted: Vec<&str> = names.trim_end_matches('}').split_whitespace().collect();
            let got = rest.find_map(|p| if let Part::Activation(names) = p { Some(names) } else { None });
            if got.is_none_or(|got| *got != wanted) {
                return Err(format!("{token}: the next activation is {got:?}"));
            }
            continue;
        }
        if token.starts_with('~') && !symbols {
            continue;
        }
        let matches = |symbol: &str, object: &str| match (token.strip_prefix('@'), token.strip_prefix('~')) {
            (Some(file), _) => object.starts_with(file),
            (_, Some(part)) => symbol.contains(part),
            _ => symbol == token,
        };
        loop {
            match rest.next() {
                Some(Part::Native { symbol, object }) if matches(symbol, object) => break,
                Some(Part::Native { .. }) => {}
                other => return Err(format!("native frame {token} is missing before {other:?}")),
            }
        }
    }
    match rest.find(|p| matches!(p, Part::Activation(_))) {
        None => Ok(()),
        more => Err(format!("not expected: {more:?}")),
    }
}

/// Splits a shape at blanks, but not inside `E{...}`.
fn tokens(shape: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = shape.trim_start();
    while !rest.is_empty() {
        let end = if rest.starts_with("E{") {
            rest.find('}').map_or(rest.len(), |i| i + 1)
        } else {
            rest.find(' ').unwrap_or(rest.len())
        };
        found.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(name: &str) -> Frame {
        Frame::Python { name: name.into(), file: "p.py".into(), line: 3, code: 9, position: 4, first: 1 }
    }

    fn native(symbol: &str, object: &str, interpreter: bool) -> Frame {
        let (symbol, object) = (symbol.into(), object.into());
        Frame::Native {
            symbol,
            offset: 1,
            object,
            address: 7,
            exact: false,
            by_frame_pointer: false,
            by_code: false,
            interpreter,
        }
    }

    fn sample() -> Sample {
        let frames = vec![
            native("cap", "/x/libcap.so", false),
            python("f"),
            native("eval", "/libpython.so", true),
            native("sort", "/libpython.so", false),
            python("main"),
            python("<module>"),
            native("eval", "/libpython.so", true),
            native("_start", "/python", false),
        ];
        Sample { frames, ..Sample::default() }
    }

    #[test]
    fn a_right_shape_matches_and_wrong_ones_do_not() {
        let shape = |text| compare_shape(text, &sample(), true);
        assert_eq!(shape("_start E{<module> main} ~so E{f} @libcap"), Ok(()));
        for wrong in [
            "E{<module>} E{main f}",
            "E{<module> main f}",
            "E{<module> main}",
            "E{<module> main} qsort E{f}",
            "E{<module> main} E{f} E{g}",
            "E{<module> main} cap E{f}",
        ] {
            assert!(shape(wrong).is_err(), "{wrong} matched");
        }
        assert!(compare_shape("E{<module> main} ~qsort E{f}", &sample(), false).is_ok(), "no symbols: not asked");
        let mut unmarked = sample();
        unmarked.frames[2] = native("eval", "/libpython.so", false);
        assert!(compare_shape("E{<module> main} E{f}", &unmarked, true).is_err(), "the host is not marked");
    }

    #[test]
    fn python_frames_are_compared_one_by_one() {
        let want = |name: &str, line| ExpectedFrame {
            code: Some(9),
            lasti: Some(4),
            line,
            first: 1,
            name: name.into(),
            file: "p.py".into(),
        };
        let expected = |frames| Expected { pid: 1, tid: 1, frames, lasti_from: 1, shapes: vec![] };
        let three = || vec![want("f", 3), want("main", 3), want("<module>", 3)];
        assert_eq!(compare_python(&expected(three()), &sample(), true), Ok(()));
        let wrong_line = vec![want("f", 3), want("main", 5), want("<module>", 3)];
        let swapped = vec![want("main", 3), want("f", 3), want("<module>", 3)];
        let mut moved = three();
        moved[2].lasti = Some(6);
        let mut longer = three();
        longer.push(want("x", 3));
        assert_eq!(compare_python(&expected(longer), &sample(), false), Ok(()), "the leaf's side may be all there is");
        let mut longer = three();
        longer.push(want("x", 3));
        for wrong in [wrong_line, swapped, moved, longer] {
            assert!(compare_python(&expected(wrong), &sample(), true).is_err());
        }
    }
}
