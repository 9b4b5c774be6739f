//! The PHP interpreters that the tests use, and the runtime's own view of a PHP stack, as `targets/php/cap.php` writes
//! it down.

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
pub struct Php {
    /// Its version, as `PHP_VERSION` is, and whether it runs with opcache.
    pub version: String,
    path: PathBuf,
    /// Whether it runs with opcache.
    opcache: bool,
    /// Where its extensions lie, if it is not installed.
    extensions: Option<PathBuf>,
}

/// Options: no file of options, the library by which the tests call C, and as much memory as files take that are
/// included again and again.
const OPTIONS: &[&str] =
    &["-n", "-d", "extension=ffi", "-d", "ffi.enable=1", "-d", "zend.assertions=-1", "-d", "memory_limit=-1"];
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

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    own_view::read(path, Place::of)
}

/// A sample's PHP frames, innermost first.
pub fn frames(sample: &Sample) -> Vec<Place> {
    own_view::frames(sample, "php")
}

/// Compares PHP's frames, from the caller of `cap` on. The innermost is the function in C that FFI makes, which has the
/// same name.
pub fn compare(expected: &Expected, sample: &Sample) -> Result<(), String> {
    let is_cap = |frame: &Place| frame.name == "cap" && frame.file != "<internal>";
    own_view::compare(expected, &frames(sample), is_cap)
}

/// Every group of PHP frames is followed by a native frame that hosts it, and is marked so.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    own_view::hosted(sample, "php", |group, _, (symbol, interpreter)| {
        let is_host = interpreter && symbol == "execute_ex";
        is_host.then_some(()).ok_or_else(|| format!("{group:?} is hosted by {symbol}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_tests::own_view::native;
    use uunwind_tests::samples::Frame;

    #[test]
    fn frames_stand_before_their_native_frames() {
        let check = |frames: Vec<Frame>| check_hosts(&Sample { frames, ..Sample::default() });
        let f = || Frame::Other { plugin: "php".into(), name: "f".into(), file: "p.php".into(), line: 3 };
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
