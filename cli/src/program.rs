//! Checks before the program runs whether it can be recorded.

use crate::exit::{Failure, FAILED, NOT_EXECUTABLE, NOT_FOUND};
use rustix::process::{getgid, getuid};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_analyse::{needed_closure, resolve_program, Problem, Resolved, Traits};
use uunwind_elf::{AnalyseError, Image};

/// Size limit of the table of a C library's strings, in bytes.
const STRINGS_LIMIT: u64 = 16 << 20;
/// The oldest glibc that is supported, as the library spells its version.
const GLIBC_NEEDED: &[u8] = b"GLIBC_2.28\0";

/// A program that can be recorded.
pub struct Program {
    /// The ELF file that will run.
    pub executable: PathBuf,
    /// The objects that it loads at its start.
    pub closure: Vec<PathBuf>,
    /// AddressSanitizer's runtime, if it needs one.
    pub asan_runtime: Option<PathBuf>,
    /// It defines malloc itself.
    pub allocator: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Follows PATH, links and `#!` lines, and checks for everything that prevents recording. `otherwise`: what can be done
/// with programs into which nothing can be loaded.
pub fn check(program: &OsStr, otherwise: &str) -> Result<Program, Failure> {
    if program.is_empty() {
        let text =
            "the program's name is empty ('' on the command line, or a variable without a value). Give a program";
        return Err(Failure::with_code(NOT_FOUND, text));
    }
    let resolved = resolve_program(program, std::env::var_os("PATH").as_deref());
    let name = program.to_string_lossy().into_owned();
    if let Some(problem) = &resolved.problem {
        return Err(explain(&name, problem));
    }
    let Some(executable) = resolved.elf.clone() else {
        return Err(Failure::with_code(NOT_EXECUTABLE, format!("{name}: no program was found in it")));
    };
    let shown = shown(&name, &resolved, &executable);
    check_traits(&shown, &executable, &resolved.traits, otherwise)?;
    let library_path = std::env::var_os("LD_LIBRARY_PATH");
    let closure = needed_closure(&executable, library_path.as_deref());
    check_libc(&shown, &closure)?;
    let mut notes = Vec::new();
    if resolved.traits.go {
        notes.push(format!("{shown} was made by the Go compiler: goroutines show their native frames only"));
    }
    let (asan_runtime, allocator) = (resolved.traits.address_sanitizer, resolved.traits.allocator);
    Ok(Program { executable, closure, asan_runtime, allocator, notes })
}

/// As it is said of time.
pub const FROM_OUTSIDE: &str = "As it is, start it by itself, and record it from outside: uu record -p PID";
/// As it is said of what is sampled at calls of functions.
pub const NO_OTHER_WAY: &str =
    "There is no other way: with -p, too, allocations and waits are seen only in dynamically linked programs";

/// The program's name, with the file that it leads to if that is another.
fn shown(name: &str, resolved: &Resolved, executable: &Path) -> String {
    let file = executable.display().to_string();
    if resolved.scripts.is_empty() || file == name {
        name.to_owned()
    } else {
        format!("{name} (run by {file})")
    }
}

fn explain(name: &str, problem: &Problem) -> Failure {
    let not_executable = |text: String| Failure::with_code(NOT_EXECUTABLE, text);
    match problem {
        Problem::NotFound if name.contains(char::is_whitespace) => Failure::with_code(
            NOT_FOUND,
            format!(
                "{name:?}: no such program. If these are a program and its arguments, they are words of their own, \
                 without quotes: uu record -- {name}"
            ),
        ),
        Problem::NotFound if name.contains('/') => {
            let script = runner(Path::new(name)).map_or_else(String::new, |run| format!("; a script is run so: {run}"));
            Failure::with_code(NOT_FOUND, format!("{name}: no such file. Check the path of the program{script}"))
        }
        Problem::NotFound if Path::new(name).is_file() && runner(Path::new(name)).is_some() => Failure::with_code(
            NOT_FOUND,
            format!(
                "{name} is no program in PATH. To run the file here: {}",
                runner(Path::new(name)).unwrap_or_default()
            ),
        ),
        Problem::NotFound if runner(Path::new(name)).is_some() => Failure::with_code(
            NOT_FOUND,
            format!(
                "{name}: no such file here, nor a program in PATH. Give the script's path: {}",
                runner(&Path::new("FOLDER").join(name)).unwrap_or_default()
            ),
        ),
        Problem::NotFound => Failure::with_code(
            NOT_FOUND,
            format!("{name}: no such program in PATH. Give its path, such as ./{name}, or install it"),
        ),
        Problem::IsDirectory(path) => not_executable(format!("{} is a directory, not a program", path.display())),
        Problem::NotExecutable(path) if runner(path).is_some() => {
            let runner = runner(path).unwrap_or_default();
            not_executable(format!("{} is not executable. To run it: {runner}", path.display()))
        }
        Problem::NotExecutable(path) => {
            not_executable(format!("{} is not executable. If it is a program: chmod +x {0}", path.display()))
        }
        Problem::NoInterpreter { script, interpreter } => Failure::with_code(
            NOT_FOUND,
            format!(
                "{}: its first line names {}, which does not exist. Install it, or correct the line",
                script.display(),
                interpreter.to_string_lossy()
            ),
        ),
        Problem::TooManyScripts(path) => {
            not_executable(format!("{}: its first lines lead from script to script without an end", path.display()))
        }
        Problem::Unusable(AnalyseError::Unreadable { path, error }) => Failure::with_code(
            FAILED,
            format!("{} cannot be read: {error}. uu must read a program to record it", path.display()),
        ),
        Problem::Unusable(error) => not_executable(error.to_string()),
    }
}

/// How a file is run that is written in a language, by its extension.
fn runner(path: &Path) -> Option<String> {
    let languages = [
        ("py", "python3"),
        ("lua", "lua"),
        ("js", "node"),
        ("sh", "sh"),
        ("pl", "perl"),
        ("rb", "ruby"),
        ("php", "php"),
    ];
    let extension = path.extension()?.to_str()?;
    let (_, program) = languages.iter().find(|(ending, _)| *ending == extension)?;
    Some(format!("uu record -- {program} {}", path.display()))
}

fn check_traits(shown: &str, executable: &Path, traits: &Traits, otherwise: &str) -> Result<(), Failure> {
    let file = executable.file_name().unwrap_or_default().to_string_lossy();
    // The dynamic loader has no interpreter itself, but it does preload when it is run as a program.
    let is_loader = ["ld-linux", "ld.so", "ld-musl"].iter().any(|name| file.starts_with(name));
    if traits.interpreter.is_none() && !is_loader {
        let advice = if traits.go {
            "Go programs become dynamic with cgo (CGO_ENABLED=1) and -linkmode=external"
        } else {
            "Link it dynamically (without -static) for that"
        };
        return Err(Failure::new(format!(
            "{shown} is statically linked, so that nothing can be loaded into it. {advice}. {otherwise}"
        )));
    }
    if let Some(loader) = traits.interpreter.as_ref().filter(|loader| !loader.exists()) {
        return Err(Failure::with_code(
            NOT_FOUND,
            format!(
                "{shown} needs the dynamic loader {}, which does not exist: install the C library that it was built for",
                loader.display()
            ),
        ));
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    for (kind, owner, own) in [("set-uid", traits.set_uid, uid), ("set-gid", traits.set_gid, gid)] {
        if let Some(owner) = owner.filter(|owner| *owner != own) {
            return Err(Failure::new(format!(
                "{shown} is {kind} (it runs as id {owner}, you are {own}): the system loads nothing into such programs. \
                 Record a copy without that bit, or run uu as id {owner}"
            )));
        }
    }
    Ok(())
}

/// Checks that the program's C library is recent enough.
fn check_libc(shown: &str, closure: &[PathBuf]) -> Result<(), Failure> {
    let is_libc = |path: &&PathBuf| path.file_name().is_some_and(|f| f == "libc.so.6" || is_versioned_libc(f));
    let Some(libc) = closure.iter().find(is_libc) else { return Ok(()) };
    let Ok(image) = Image::open(libc) else { return Ok(()) };
    // It names the versions that the library has.
    let Some(strings) = image.dynamic().string_table(&image, STRINGS_LIMIT) else { return Ok(()) };
    if strings.windows(GLIBC_NEEDED.len()).any(|w| w == GLIBC_NEEDED) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{shown} uses {}, a glibc before 2.28. uu needs 2.28 or later: run it on a system from 2018 on",
        libc.display()
    )))
}

/// A name like `libc-2.31.so`, to which older systems linked `libc.so.6`.
fn is_versioned_libc(file: &OsStr) -> bool {
    file.to_str().is_some_and(|f| f.starts_with("libc-2.") && f.ends_with(".so"))
}
