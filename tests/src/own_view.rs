//! A runtime's own view of a stack, as the test programs of Perl, PHP and Ruby write it down: one line of JSON a
//! sample, with `pid`, `tid` and `frames`, from the caller of `cap` on.

use crate::samples::{beside, Frame, Sample};
use serde_json::Value;
use std::path::Path;

/// One line.
#[derive(Debug)]
pub struct Expected {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The language's frames, innermost first.
    pub frames: Vec<Place>,
}

/// One frame of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name, with class or package.
    pub name: String,
    /// Path, as the runtime has it; of a function in C, what the plugin has for it.
    pub file: String,
    /// Line; of a function in C 0.
    pub line: u32,
}

impl Place {
    /// A frame that was written as `[name, path, line]`.
    ///
    /// # Panics
    /// If it is another value.
    pub fn of(frame: &Value) -> Place {
        let text = |v: &Value| v.as_str().expect("a text").to_owned();
        Place { name: text(&frame[0]), file: text(&frame[1]), line: frame[2].as_u64().expect("a number") as u32 }
    }
}

/// Reads the lines; `place` is what reads a frame.
///
/// # Panics
/// If there are none, or they are of another form.
pub fn read(path: &Path, place: fn(&Value) -> Place) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| expected(&serde_json::from_str(line).expect("the oracle is JSON"), place)).collect()
}

/// One line.
///
/// # Panics
/// If it is of another form.
pub fn expected(line: &Value, place: fn(&Value) -> Place) -> Expected {
    let number = |v: &Value| v.as_u64().expect("a number") as u32;
    Expected {
        pid: number(&line["pid"]),
        tid: number(&line["tid"]),
        frames: line["frames"].as_array().expect("frames").iter().map(place).collect(),
    }
}

/// A sample's frames of a language, innermost first.
pub fn frames(sample: &Sample, language: &str) -> Vec<Place> {
    let of_language = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == language => {
            Some(Place { name: name.clone(), file: file.clone(), line: *line })
        }
        _ => None,
    });
    of_language.collect()
}

/// Compares frames, from the caller of `cap` on: count, order, names, files and lines.
pub fn compare(expected: &Expected, got: &[Place], is_cap: impl Fn(&Place) -> bool) -> Result<(), String> {
    let own = got.iter().position(is_cap).ok_or("no frame of cap")?;
    let (got, wanted) = (&got[own + 1..], &expected.frames[..]);
    if got == wanted {
        return Ok(());
    }
    let at = got.iter().zip(wanted).take_while(|(got, want)| got == want).count();
    Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), wanted.get(at)))
}

/// Every group of a language's frames is followed by a native frame that hosts it. `is_host` gets the group, the native
/// frames since the last one, innermost first, and that frame: its symbol, and whether it is marked as the
/// interpreter's.
pub fn hosted(
    sample: &Sample,
    language: &str,
    is_host: impl Fn(&[&str], &[&str], (&str, bool)) -> Result<(), String>,
) -> Result<(), String> {
    let (mut group, mut native): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for frame in &sample.frames {
        match frame {
            Frame::Other { plugin, name, .. } if plugin == language => group.push(name),
            Frame::Native { symbol, interpreter, .. } => {
                if !group.is_empty() {
                    is_host(&group, &native, (symbol, *interpreter))?;
                    group.clear();
                    native.clear();
                }
                native.push(symbol);
            }
            _ => {}
        }
    }
    match group[..] {
        [] => Ok(()),
        _ => Err(format!("{group:?} has no native frame that hosts it")),
    }
}

/// Pairs the lines with the explicit samples: those of each thread come in the same order.
pub fn pair<'a>(oracle: &'a [Expected], samples: &'a [Sample]) -> Result<Vec<(&'a Expected, &'a Sample)>, String> {
    let mut explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    let mut lines: Vec<&Expected> = oracle.iter().collect();
    explicit.sort_by_key(|sample| (sample.pid, sample.tid));
    lines.sort_by_key(|line| (line.pid, line.tid));
    let pairs: Vec<_> = lines.iter().copied().zip(explicit.iter().copied()).collect();
    let is_one = |(line, sample): &(&Expected, &Sample)| (sample.pid, sample.tid) == (line.pid, line.tid);
    if pairs.len() != oracle.len() || explicit.len() != oracle.len() || oracle.is_empty() || !pairs.iter().all(is_one) {
        let leaf = |line: &&Expected| line.frames.first().map_or(String::new(), |f| format!("{}:{}", f.name, f.line));
        let leaves = lines.iter().map(leaf).collect::<Vec<_>>();
        let (samples, lines) = (explicit.len(), oracle.len());
        let explicit: Vec<Sample> = explicit.into_iter().cloned().collect();
        return Err(format!("{samples} samples for {lines} lines\n{}", beside(&leaves, &explicit)));
    }
    Ok(pairs)
}

/// A native frame, for tests of checks.
pub fn native(symbol: &str, interpreter: bool) -> Frame {
    Frame::Native {
        symbol: symbol.into(),
        offset: 1,
        object: "runtime".into(),
        address: 7,
        exact: false,
        by_frame_pointer: false,
        by_code: false,
        interpreter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_are_compared_one_by_one() {
        let place = |name: &str, line| Place { name: name.into(), file: "p".into(), line };
        let got = [place("cap", 9), place("f", 3), place("g", 4)];
        let line = |frames: Value| expected(&json!({"pid": 1, "tid": 1, "frames": frames}), Place::of);
        let compare = |frames: Value, got: &[Place]| compare(&line(frames), got, |place| place.name == "cap");
        let (f, g) = (json!(["f", "p", 3]), json!(["g", "p", 4]));
        assert_eq!(compare(json!([f, g]), &got), Ok(()));
        for wrong in [json!([g, f]), json!([f]), json!([f, g, f]), json!([f, ["g", "p", 5]]), json!([f, ["g", "q", 4]])]
        {
            assert!(compare(wrong.clone(), &got).is_err(), "{wrong}");
        }
        assert!(compare(json!([]), &[]).is_err(), "no frame of cap");
    }

    #[test]
    fn lines_have_the_samples_of_their_threads() {
        let line = |tid: u32| expected(&json!({"pid": 1, "tid": tid, "frames": []}), Place::of);
        let sample = |tid, kind: &str| Sample { pid: 1, tid, kind: kind.into(), ..Sample::default() };
        let samples = [sample(2, "explicit"), sample(1, "explicit"), sample(1, "timer"), sample(2, "explicit")];
        let oracle = [line(1), line(2), line(2)];
        let pairs = pair(&oracle, &samples).expect("pairs");
        assert!(pairs.iter().all(|(line, sample)| line.tid == sample.tid && sample.kind == "explicit"));
        for wrong in [&[][..], &[line(1), line(2)], &[line(1), line(1), line(2)]] {
            assert!(pair(wrong, &samples).is_err(), "{wrong:?}");
        }
    }
}
