//! The Ruby interpreters that the tests use, and the runtime's own view of a Ruby stack, as `targets/ruby/cap.rb`
//! writes it down.

use serde_json::{json, Value};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::interpreters::{self, Fetched};
use uunwind_tests::own_view::{self, Place};
pub use uunwind_tests::own_view::{pair, Expected};
use uunwind_tests::samples::Sample;
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

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    own_view::read(path, place)
}

/// A frame that was written as `[label with the class, path, line, whether it is a C function]`.
fn place(frame: &Value) -> Place {
    // What the path of a C function is depends on its caller; it may have none.
    match frame[3].as_bool().expect("a truth") {
        true => Place::of(&json!([frame[0], "<cfunc>", 0])),
        false => Place::of(frame),
    }
}

/// A sample's Ruby frames, innermost first.
pub fn frames(sample: &Sample) -> Vec<Place> {
    own_view::frames(sample, "ruby")
}

/// Compares Ruby's frames, from the caller of `cap` on.
pub fn compare(expected: &Expected, sample: &Sample) -> Result<(), String> {
    own_view::compare(expected, &frames(sample), |frame| frame.name == "Object#cap")
}

/// Ruby's C functions and the functions that they are, which libruby exports.
const EXPORTED: &[(&str, &str)] = &[("Array#each", "rb_ary_each"), ("Class#new", "rb_class_new_instance_pass_kw")];

/// Every group of Ruby frames is followed by a native frame that hosts it, and is marked so; and the native frame of an
/// exported C function lies between its Ruby frame and what it has called.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    own_view::hosted(sample, "ruby", |group, native, (symbol, interpreter)| {
        if !interpreter {
            return Err(format!("{group:?} is hosted by {symbol}, which is not marked"));
        }
        let innermost = group.first().unwrap_or(&"");
        let function = EXPORTED.iter().find(|(name, _)| name == innermost).map(|(_, symbol)| symbol);
        match function.is_some_and(|function| !native.contains(function)) {
            true => Err(format!("{innermost} without its native frame: {native:?}")),
            false => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_tests::own_view::native;
    use uunwind_tests::samples::Frame;

    fn ruby(name: &str, file: &str, line: u32) -> Frame {
        Frame::Other { plugin: "ruby".into(), name: name.into(), file: file.into(), line }
    }

    #[test]
    fn functions_in_c_have_no_place() {
        let frames = json!([["A#f", "p.rb", 3, false], ["Array#each", "p.rb", 4, true]]);
        let expected = own_view::expected(&json!({"pid": 1, "tid": 1, "frames": frames}), place);
        let frames = vec![
            ruby("Fiddle::Function#call", "<cfunc>", 0),
            ruby("Object#cap", "cap.rb", 9),
            ruby("A#f", "p.rb", 3),
            ruby("Array#each", "<cfunc>", 0),
        ];
        assert_eq!(compare(&expected, &Sample { frames, ..Sample::default() }), Ok(()));
    }

    #[test]
    fn frames_stand_beside_their_native_frames() {
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
