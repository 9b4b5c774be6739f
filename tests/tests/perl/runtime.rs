//! The Perl interpreter that the tests use, and the runtime's own view of a Perl stack, as `targets/perl/cap.pl` writes
//! it down.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::own_view::{self, Place};
pub use uunwind_tests::own_view::{pair, Expected};
use uunwind_tests::samples::Sample;
use uunwind_tests::{paths, process, uu};

/// A Perl.
#[derive(Debug)]
pub struct Perl {
    /// Its version, as `$^V` is, and which program it is.
    pub version: String,
    path: PathBuf,
    /// One of those that each change is tried with.
    pub is_tried: bool,
    /// Where its modules lie, if it is not installed: `PERL5LIB`.
    library: Option<OsString>,
}

/// The programs of this machine and of the suites that `ci/interpreters` has fetched: the usual one, and the one that
/// embeds the library.
pub fn all() -> Vec<Perl> {
    let installed = ["/usr/bin/perl", "/usr/bin/perl5.36-x86_64-linux-gnu"].map(|path| asked(path.into(), None));
    let fetched = paths::list(&paths::target().join("interpreters")).into_iter().flat_map(|suite| {
        let modules =
            ["usr/lib/x86_64-linux-gnu/perl", "usr/share/perl"].map(|folder| paths::list(&suite.join(folder)));
        // `5.40` is a link to `5.40.1`.
        let modules = modules.into_iter().flatten().filter(|folder| folder.is_dir() && !folder.is_symlink());
        let library = std::env::join_paths(modules.chain([suite.join("usr/lib/x86_64-linux-gnu/perl-base")]));
        let library = library.expect("no colon");
        let is_perl = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "perl" || name.starts_with("perl5.") && name.ends_with("-x86_64-linux-gnu")
        };
        let programs = paths::list(&suite.join("usr/bin")).into_iter().filter(is_perl);
        programs.map(move |path| asked(path, Some(library.clone())))
    });
    installed.into_iter().chain(fetched).flatten().collect()
}

fn asked(path: PathBuf, library: Option<OsString>) -> Option<Perl> {
    let mut ask = Command::new(&path);
    ask.args(["-MConfig", "-e", "print qq{$^V $Config{useithreads}}"]);
    let out = modules(&mut ask, library.as_ref()).output().ok().filter(|out| out.status.success())?;
    let version = String::from_utf8(out.stdout).ok()?.strip_suffix(" define")?.to_owned();
    let program = path.file_name()?.to_string_lossy().into_owned();
    let is_tried = library.is_none() || program == "perl";
    Some(Perl { version: format!("{version} {program}"), path, is_tried, library })
}

fn modules<'c>(command: &'c mut Command, library: Option<&OsString>) -> &'c mut Command {
    command.env_remove("PERL5OPT").env_remove("PERL5LIB");
    match library {
        Some(library) => command.env("PERL5LIB", library),
        None => command,
    }
}

/// Builds the program that embeds the library. `None`: its headers are not here.
pub fn embedding(scratch: &Path) -> Option<PathBuf> {
    let perl = all().into_iter().find(|perl| perl.library.is_none())?;
    let mut asked = Command::new(perl.path);
    asked.args(["-MConfig", "-e", "print qq{$Config{archlibexp}/CORE\n$Config{ccflags}}"]);
    let said = String::from_utf8(asked.output().ok()?.stdout).ok()?;
    let (headers, flags) = said.split_once('\n')?;
    if !Path::new(headers).join("perl.h").exists() {
        return None;
    }
    let program = scratch.join("embed");
    let mut compiler = Command::new("cc");
    compiler.args(["-w", "-O1", "-I", headers]).args(flags.split_whitespace()).arg("-o").arg(&program);
    compiler.arg(paths::source("perl/embed.c")).arg("-l:libperl.so.5.36");
    process::run(&mut compiler, scratch, uu::LIMIT).expect_code(0);
    Some(program)
}

impl Perl {
    /// Sets the variables that the scripts need.
    pub fn configure(&self, command: &mut Command, oracle: &Path) {
        modules(command, self.library.as_ref()).env("UU_TEST_ORACLE", oracle);
    }

    /// The command line that runs a script.
    pub fn run(&self, script: &str) -> Vec<OsString> {
        vec![self.path.clone().into(), path(script).into()]
    }
}

/// A script under observation.
pub fn path(name: &str) -> PathBuf {
    paths::source(&format!("perl/{name}.pl"))
}

/// The file of functions in C.
pub const IN_C: &str = "<xs>";

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    own_view::read(path, Place::of)
}

/// A sample's Perl frames, innermost first.
pub fn frames(sample: &Sample) -> Vec<Place> {
    own_view::frames(sample, "perl")
}

/// Compares Perl's frames, from the caller of `cap` on. `caller` has neither functions in C, nor a difference between
/// `require` and `do`; a format it calls an eval.
pub fn compare(expected: &Expected, sample: &Sample) -> Result<(), String> {
    let mut got = frames(sample);
    got.retain(|frame| frame.file != IN_C);
    for frame in &mut got {
        frame.name = match &*frame.name {
            "(do)" => "(require)".into(),
            "(format)" => "(eval)".into(),
            _ => std::mem::take(&mut frame.name),
        };
    }
    own_view::compare(expected, &got, |frame| frame.name == "main::cap")
}

/// Every group of Perl frames is followed by a native frame that hosts it, and is marked so. Functions of ops have no
/// symbols since Perl 5.38.
pub fn check_hosts(sample: &Sample) -> Result<(), String> {
    const HOSTS: [&str; 4] = ["Perl_runops_standard", "Perl_pp_entersub", "Perl_pp_goto", "Perl_call_sv"];
    own_view::hosted(sample, "perl", |group, _, (symbol, interpreter)| {
        let is_host = interpreter && (HOSTS.contains(&symbol) || symbol.starts_with('?'));
        is_host.then_some(()).ok_or_else(|| format!("{group:?} is hosted by {symbol}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uunwind_tests::own_view::native;
    use uunwind_tests::samples::Frame;

    fn perl(name: &str, file: &str, line: u32) -> Frame {
        Frame::Other { plugin: "perl".into(), name: name.into(), file: file.into(), line }
    }

    #[test]
    fn functions_in_c_are_not_those_of_caller() {
        let frames = json!([["A::f", "p.pl", 3], ["(main)", "p.pl", 9]]);
        let expected = own_view::expected(&json!({"pid": 1, "tid": 1, "frames": frames}), Place::of);
        let frames = vec![
            perl("main::cap", "cap.pl", 9),
            perl("A::f", "p.pl", 3),
            perl("List::Util::first", IN_C, 0),
            perl("(main)", "p.pl", 9),
        ];
        assert_eq!(compare(&expected, &Sample { frames, ..Sample::default() }), Ok(()));
    }

    #[test]
    fn frames_stand_before_their_native_frames() {
        let check = |frames: Vec<Frame>| check_hosts(&Sample { frames, ..Sample::default() });
        let f = || perl("f", "p.pl", 3);
        let run_loop = || native("Perl_runops_standard", true);
        assert_eq!(check(vec![f(), f(), run_loop(), f(), native("Perl_pp_entersub", true), run_loop()]), Ok(()));
        for wrong in [
            vec![f(), native("Perl_pp_sort", false), run_loop()],
            vec![f(), native("Perl_runops_standard", false)],
            vec![run_loop(), f()],
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
