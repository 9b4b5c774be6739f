//! The PHP interpreters that the tests use, and the runtime's own view of a PHP stack, as `targets/php/cap.php` writes
//! it down.

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
pub struct Php {
    /// Its version, as `PHP_VERSION` is, and whether it runs with opcache.
    pub version: String,
    path: PathBuf,
    /// Whether it runs with opcache.
    opcache: bool,
    /// Where its extensions lie, if it is not installed.
    extensions: Option<PathBuf>,
}

/// Options: no file of options, and the library by which the tests call C.
const OPTIONS: &[&str] = &["-n", "-d", "extension=ffi", "-d", "ffi.enable=1", "-d", "zend.assertions=-1"];
/// With opcache, which shares and optimises the code of all files, new ones too.
const OPCACHE: [&str; 6] =
    ["-d", "zend_extension=opcache", "-d", "opcache.enable_cli=1", "-d", "opcache.file_update_protection=0"];

/// The interpreter of this machine, with opcache as well if it is here, and those that `ci/interpreters` has fetched.
pub fn all() -> Vec<Php> {
    let mut found: Vec<Php> = asked("/usr/bin/php".into(), None).into_iter().collect();
    let with = asked("/usr/bin/php".into(), None).filter(Php::has_opcache);
    found.extend(with.map(|php| Php { version: format!("{}-opcache", php.version), opcache: true, ..php }));
    for Fetched { suite, path, .. } in interpreters::fetched("php") {
        let extensions = paths::list(&suite.join("usr/lib/php")).into_iter().find(|path| path.join("ffi.so").exists());
        found.extend(asked(path, extensions));
    }
    found
}

fn asked(path: PathBuf, extensions: Option<PathBuf>) -> Option<Php> {
    let asked = Command::new(&path).args(["-n", "-r", "echo PHP_VERSION;"]).output();
    let version = asked.ok().filter(|out| out.status.success())?;
    Some(Php { version: String::from_utf8_lossy(&version.stdout).into_owned(), path, opcache: false, extensions })
}

impl Php {
    fn has_opcache(&self) -> bool {
        let mut asked = Command::new(&self.path);
        asked.arg("-n").args(OPCACHE).args(["-r", "exit(function_exists('opcache_get_status') ? 0 : 1);"]);
        asked.output().is_ok_and(|out| out.status.success())
    }

    /// Sets the variables that the scripts need.
    pub fn configure(&self, command: &mut Command, oracle: &Path) {
        static CAP: OnceLock<PathBuf> = OnceLock::new();
        let cap = CAP.get_or_init(|| compile::shared(&paths::scratch("php-cap"), "libcap.so", &["python/cap.c"]));
        command.env("UU_TEST_ORACLE", oracle).env("UU_TEST_CAP", cap).env_remove("PHPRC");
        command.env_remove("PHP_INI_SCAN_DIR");
    }

    /// The command line that runs a script.
    pub fn run(&self, script: &str) -> Vec<OsString> {
        let folder = self
            .extensions
            .iter()
            .flat_map(|folder| ["-d".into(), format!("extension_dir={}", folder.display()).into()]);
        // It is an extension up to 7.4.
        let json = if self.version.starts_with("7.") { &["-d", "extension=json"][..] } else { &[] };
        let opcache = if self.opcache { &OPCACHE[..] } else { &[] };
        let options = OPTIONS.iter().chain(json).chain(opcache).map(|option| (*option).into());
        [self.path.clone().into()].into_iter().chain(folder).chain(options).chain([path(script).into()]).collect()
    }
}

/// A script under observation.
pub fn path(name: &str) -> PathBuf {
    paths::source(&format!("php/{name}.php"))
}

/// One line of an oracle file.
#[derive(Debug)]
pub struct Expected {
    /// Process id.
    pid: u32,
    /// Thread id.
    tid: u32,
    /// PHP frames, innermost first, from the caller of `cap` on.
    pub frames: Vec<ExpectedFrame>,
}

/// One PHP frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedFrame {
    /// Name, with the class.
    pub name: String,
    /// Path, as PHP has it; of a function in C `<internal>`.
    pub file: String,
    /// Line; of a function in C 0.
    pub line: u32,
}

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| expected(&serde_json::from_str(line).expect("the oracle is JSON"))).collect()
}

fn expected(line: &Value) -> Expected {
    let number = |v: &Value| v.as_u64().expect("a number") as u32;
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let frame = |frame: &Value| ExpectedFrame { name: text(&frame[0]), file: text(&frame[1]), line: number(&frame[2]) };
    Expected {
        pid: number(&line["pid"]),
        tid: number(&line["tid"]),
        frames: line["frames"].as_array().expect("frames").iter().map(frame).collect(),
    }
}

/// A sample's PHP frames, innermost first.
pub fn frames(sample: &Sample) -> Vec<ExpectedFrame> {
    let php = sample.frames.iter().filter_map(|frame| match frame {
        Frame::Other { plugin, name, file, line } if plugin == "php" => {
            Some(ExpectedFrame { name: name.clone(), file: file.clone(), line: *line })
        }
        _ => None,
    });
    php.collect()
}

/// Compares PHP's frames, from the caller of `cap` on: count, order, names, files and lines.
pub fn compare(expected: &Expected, sample: &Sample) -> Result<(), String> {
    let got = frames(sample);
    // The innermost is the function in C that FFI makes, which has the same name.
    let is_own = |frame: &ExpectedFrame| frame.name == "cap" && frame.file != "<internal>";
    let own = got.iter().position(is_own).ok_or("no frame of cap")?;
    let got = &got[own + 1..];
    if got != expected.frames {
        let at = got.iter().zip(&expected.frames).take_while(|(got, want)| got == want).count();
        return Err(format!("frame {at} from cap: got {:?}, expected {:?}", got.get(at), expected.frames.get(at)));
    }
    Ok(())
}

/// Every group of PHP frames is followed by a native frame that hosts it, and is marked so.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    let mut group: Vec<&str> = Vec::new();
    for frame in &sample.frames {
        match frame {
            Frame::Other { plugin, name, .. } if plugin == "php" => group.push(name),
            Frame::Native { symbol, interpreter, .. } => {
                if !group.is_empty() && (!interpreter || symbol != "execute_ex") {
                    return Err(format!("{group:?} is hosted by {symbol}"));
                }
                group.clear();
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
    let explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    let pairs: Vec<_> = oracle.iter().zip(explicit.iter().copied()).collect();
    let is_one = |(line, sample): &(&Expected, &Sample)| (sample.pid, sample.tid) == (line.pid, line.tid);
    if pairs.len() != oracle.len() || explicit.len() != oracle.len() || oracle.is_empty() || !pairs.iter().all(is_one) {
        let leaf = |line: &Expected| line.frames.first().map_or(String::new(), |f| format!("{}:{}", f.name, f.line));
        let leaves = oracle.iter().map(leaf).collect::<Vec<_>>();
        let (samples, lines) = (explicit.len(), oracle.len());
        return Err(format!(
            "{samples} samples for {lines} lines\n{}",
            beside(&leaves, samples_of(&explicit).as_slice())
        ));
    }
    Ok(pairs)
}

fn samples_of(samples: &[&Sample]) -> Vec<Sample> {
    samples.iter().map(|sample| (*sample).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn php(name: &str, file: &str, line: u32) -> Frame {
        Frame::Other { plugin: "php".into(), name: name.into(), file: file.into(), line }
    }

    #[test]
    fn frames_are_compared_one_by_one() {
        let oracle = |frames: Value| expected(&json!({"pid": 1, "tid": 1, "frames": frames}));
        let (f, map) = (json!(["A::f", "p.php", 3]), json!(["array_map", "<internal>", 0]));
        let frames = vec![
            php("cap", "<internal>", 0),
            php("cap", "cap.php", 9),
            php("A::f", "p.php", 3),
            php("array_map", "<internal>", 0),
        ];
        let sample = Sample { frames, ..Sample::default() };
        assert_eq!(compare(&oracle(json!([f, map])), &sample), Ok(()));
        for wrong in [json!([map, f]), json!([f]), json!([f, map, f]), json!([f, ["array_map", "p.php", 4]])] {
            assert!(compare(&oracle(wrong.clone()), &sample).is_err(), "{wrong}");
        }
        assert!(compare(&oracle(json!([])), &Sample::default()).is_err());
    }

    #[test]
    fn frames_stand_before_their_native_frames() {
        let native = |symbol: &str, interpreter| Frame::Native {
            symbol: symbol.into(),
            offset: 1,
            object: "php8.2".into(),
            address: 7,
            exact: false,
            by_frame_pointer: false,
            by_code: false,
            interpreter,
        };
        let check = |frames: Vec<Frame>| check_hosts(&Sample { frames, ..Sample::default() });
        let f = || php("f", "p.php", 3);
        assert_eq!(check(vec![f(), f(), native("execute_ex", true), f(), native("execute_ex", true)]), Ok(()));
        for wrong in [
            vec![f(), native("zend_call_function", false), native("execute_ex", true)],
            vec![f(), native("execute_ex", false)],
            vec![native("execute_ex", true), f()],
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
