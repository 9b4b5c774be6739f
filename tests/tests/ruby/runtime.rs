//! The Ruby interpreters that the tests use, and the runtime's own view of a Ruby stack, as `targets/ruby/cap.rb`
//! writes it down.

use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::interpreters::{self, Fetched};
use uunwind_tests::samples::{beside, Frame, Sample};
use uunwind_tests::{compile, paths};

/// An interpreter.
#[derive(Debug)]
pub struct Ruby {
    /// Its version, as `RUBY_VERSION` is.
    pub version: String,
    path: PathBuf,
    /// Where its own library lies, if it is not installed: `RUBYLIB`.
    library: Option<OsString>,
}

/// The interpreter of this machine, and those that `ci/interpreters` has fetched.
pub fn all() -> Vec<Ruby> {
    let mut found: Vec<Ruby> = asked("/usr/bin/ruby".into(), None).into_iter().collect();
    for Fetched { suite, path, version } in interpreters::fetched("ruby") {
        let folders = ["usr/lib/ruby", "usr/lib/x86_64-linux-gnu/ruby"];
        let folders = folders.map(|folder| suite.join(format!("{folder}/{version}.0")));
        let library = std::env::join_paths(folders).expect("no colon");
        found.extend(asked(path, Some(library)));
    }
    found
}

fn asked(path: PathBuf, library: Option<OsString>) -> Option<Ruby> {
    let asked = Command::new(&path).args(["--disable=gems", "-e", "print RUBY_VERSION"]).output();
    let version = asked.ok().filter(|out| out.status.success())?;
    Some(Ruby { version: String::from_utf8_lossy(&version.stdout).into_owned(), path, library })
}

impl Ruby {
    /// Sets the variables that the scripts need.
    pub fn configure(&self, command: &mut Command, oracle: &Path) {
        static CAP: OnceLock<PathBuf> = OnceLock::new();
        let cap = CAP.get_or_init(|| compile::shared(&paths::scratch("ruby-cap"), "libcap.so", &["python/cap.c"]));
        command.env("UU_TEST_ORACLE", oracle).env("UU_TEST_CAP", cap).env_remove("RUBYOPT");
        if let Some(library) = &self.library {
            command.env("RUBYLIB", library);
        }
    }

    /// The command line that runs a script.
    pub fn run(&self, script: &str) -> [OsString; 3] {
        [self.path.clone().into(), "--disable=gems".into(), path(script).into()]
    }
}

/// A script under observation.
pub fn path(name: &str) -> PathBuf {
    paths::source(&format!("ruby/{name}.rb"))
}

/// One line of an oracle file.
#[derive(Debug)]
pub struct Expected {
    /// Process id.
    pid: u32,
    /// Thread id.
    tid: u32,
    /// Ruby frames, innermost first, from the caller of `cap` on.
    pub frames: Vec<ExpectedFrame>,
}

/// One Ruby frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedFrame {
    /// Label, with the class.
    pub name: String,
    /// Path, as Ruby has it; of a C function `<cfunc>`.
    pub file: String,
    /// Line; of a C function 0.
    pub line: u32,
}

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| expected(&serde_json::from_str(line).expect("the oracle is JSON"))).collect()
}

fn expected(line: &Value) -> Expected {
    let number = |v: &Value| v.as_u64().expect("a number") as u32;
    Expected {
        pid: number(&line["pid"]),
        tid: number(&line["tid"]),
        frames: line["frames"].as_array().expect("frames").iter().map(expected_frame).collect(),
    }
}

fn expected_frame(frame: &Value) -> ExpectedFrame {
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let is_c = frame[3].as_bool().expect("a truth");
    let name = text(&frame[0]);
    if is_c {
        return ExpectedFrame { name, file: "<cfunc>".to_owned(), line: 0 };
    }
    ExpectedFrame { name, file: text(&frame[1]), line: frame[2].as_u64().expect("a number") as u32 }
}

/// A sample's Ruby frames, innermost first.
pub fn frames(sample: &Sample) -> Vec<ExpectedFrame> {
    let ruby = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == "ruby" => {
            Some(ExpectedFrame { name: name.clone(), file: file.clone(), line: *line })
        }
        _ => None,
    });
    ruby.collect()
}

/// Compares Ruby's frames, from the caller of `cap` on: count, order, names, files and lines.
pub fn compare(expected: &Expected, sample: &Sample) -> Result<(), String> {
    let got = frames(sample);
    let own = got.iter().position(|frame| frame.name == "Object#cap").ok_or("no frame of cap")?;
    let got = &got[own + 1..];
    if got != expected.frames {
        let at = got.iter().zip(&expected.frames).take_while(|(got, want)| got == want).count();
        return Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), expected.frames.get(at)));
    }
    Ok(())
}

/// Ruby's C functions and the functions that they are, which libruby exports.
const EXPORTED: &[(&str, &str)] = &[("Array#each", "rb_ary_each"), ("Class#new", "rb_class_new_instance_pass_kw")];

/// Every group of Ruby frames is followed by a native frame that hosts it, and is marked so; and the native frame of an
/// exported C function lies between its Ruby frame and what it has called.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    let (mut group, mut native): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for frame in &sample.frames {
        match frame {
            Frame::Other { plugin, name, .. } if plugin == "ruby" => group.push(name),
            Frame::Native { symbol, interpreter, .. } => {
                if let Some(innermost) = group.first() {
                    if !interpreter {
                        return Err(format!("{group:?} is hosted by {symbol}, which is not marked"));
                    }
                    let function = EXPORTED.iter().find(|(name, _)| name == innermost).map(|(_, symbol)| symbol);
                    if function.is_some_and(|function| !native.contains(function)) {
                        return Err(format!("{innermost} without its native frame: {native:?}"));
                    }
                    group.clear();
                    native.clear();
                }
                native.push(symbol);
            }
            _ => {}
        }
    }
    if group.is_empty() {
        Ok(())
    } else {
        Err(format!("{group:?} has no native frame that hosts it"))
    }
}

/// Pairs the oracle's lines with the explicit samples: those of each thread come in the same order.
pub fn pair<'a>(oracle: &'a [Expected], samples: &'a [Sample]) -> Result<Vec<(&'a Expected, &'a Sample)>, String> {
    let mut explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    let mut pairs = Vec::new();
    for line in oracle {
        let Some(at) = explicit.iter().position(|sample| (sample.pid, sample.tid) == (line.pid, line.tid)) else {
            break;
        };
        pairs.push((line, explicit.remove(at)));
    }
    if pairs.len() != oracle.len() || !explicit.is_empty() || oracle.is_empty() {
        let leaf = |line: &Expected| line.frames.first().map_or(String::new(), |f| format!("{}:{}", f.name, f.line));
        let leaves = oracle.iter().map(leaf).collect::<Vec<_>>();
        return Err(format!("{} of {} samples have a pair\n{}", pairs.len(), oracle.len(), beside(&leaves, samples)));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ruby(name: &str, file: &str, line: u32) -> Frame {
        Frame::Other { plugin: "ruby".into(), name: name.into(), file: file.into(), line }
    }

    #[test]
    fn frames_are_compared_one_by_one() {
        let oracle = |frames: Value| expected(&json!({"pid": 1, "tid": 1, "frames": frames}));
        let (f, each) = (json!(["A#f", "p.rb", 3, false]), json!(["Array#each", "p.rb", 4, true]));
        let frames = vec![
            ruby("Fiddle::Function#call", "<cfunc>", 0),
            ruby("Object#cap", "cap.rb", 9),
            ruby("A#f", "p.rb", 3),
            ruby("Array#each", "<cfunc>", 0),
        ];
        let sample = Sample { frames, ..Sample::default() };
        assert_eq!(compare(&oracle(json!([f, each])), &sample), Ok(()));
        for wrong in [json!([each, f]), json!([f]), json!([f, each, f]), json!([f, ["A#f", "p.rb", 4, false]])] {
            assert!(compare(&oracle(wrong.clone()), &sample).is_err(), "{wrong}");
        }
        assert!(compare(&oracle(json!([])), &Sample::default()).is_err());
    }

    #[test]
    fn frames_stand_beside_their_native_frames() {
        let native = |symbol: &str, interpreter| Frame::Native {
            symbol: symbol.into(),
            offset: 1,
            object: "libruby.so".into(),
            address: 7,
            exact: false,
            by_frame_pointer: false,
            by_code: false,
            interpreter,
        };
        let exec = || native("rb_vm_exec", true);
        let check = |frames: Vec<Frame>| check_hosts(&Sample { frames, ..Sample::default() });
        let (block, each) = (|| ruby("block in A#f", "p.rb", 3), || ruby("Array#each", "<cfunc>", 0));
        let each_itself = || native("rb_ary_each", false);
        assert_eq!(check(vec![block(), exec(), each_itself(), each(), exec()]), Ok(()));
        for wrong in [
            vec![block(), exec(), each(), exec(), each_itself()],
            vec![block(), exec(), each_itself(), each()],
            vec![block(), native("rb_vm_exec", false)],
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
