//! Which ELF file a command will really run, and what is in it that matters to someone who wants to preload an object.

use crate::script::{shebang, Shebang, LINE_LIMIT};
use crate::{asan, needed};
use object::elf;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use uunwind_elf::files;
use uunwind_elf::AnalyseError;
use uunwind_elf::Image;

/// The kernel follows fewer scripts that are interpreters of scripts.
const SCRIPTS_LIMIT: usize = 8;
/// What `execvp` looks through when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Which file a command runs.
#[derive(Debug)]
pub struct Resolved {
    /// The command, as given.
    pub command: OsString,
    /// The file that the command names, by `PATH` or as a path.
    pub file: Option<PathBuf>,
    /// The scripts followed by their first lines, in order; `file` is the first of them if it is a script.
    pub scripts: Vec<PathBuf>,
    /// The ELF file that will run, symbolic links resolved.
    pub elf: Option<PathBuf>,
    /// What is in the ELF file.
    pub traits: Traits,
    /// Why there is no ELF file that could run, or could be recorded.
    pub problem: Option<Problem>,
}

/// Facts of an ELF program.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Traits {
    /// The dynamic loader that it asks for; `None`: statically linked, nothing can be preloaded.
    pub interpreter: Option<PathBuf>,
    /// That loader is musl's.
    pub musl: bool,
    /// The file is set-uid, with this owner: the loader ignores preloading unless the caller is that user.
    pub set_uid: Option<u32>,
    /// The file is set-gid, with this group.
    pub set_gid: Option<u32>,
    /// AddressSanitizer's runtime, if the program needs it: it must come first among the preloaded objects.
    pub address_sanitizer: Option<PathBuf>,
    /// Made by the Go compiler.
    pub go: bool,
    /// It defines malloc itself, which may not be ready for calls before `main`.
    pub allocator: bool,
}

/// Why a command gives no program that could be recorded.
#[derive(Debug)]
pub enum Problem {
    /// No such file (in `PATH`, when the command has no slash).
    NotFound,
    /// The file is a directory.
    IsDirectory(PathBuf),
    /// The file is there, but may not be executed.
    NotExecutable(PathBuf),
    /// A script's first line names a program that is not there.
    NoInterpreter {
        /// Path of the file that begins with `#!`.
        script: PathBuf,
        /// What its first line names.
        interpreter: OsString,
    },
    /// Scripts whose interpreters are scripts, too deep or in a circle.
    TooManyScripts(PathBuf),
    /// The file could not be read, is damaged, or is for another machine.
    Unusable(AnalyseError),
}

/// Finds out which ELF file `program` will run, as `execvp` would: `path` is the value of `PATH`.
pub fn resolve_program(program: &OsStr, path: Option<&OsStr>) -> Resolved {
    let mut resolved = Resolved {
        command: program.into(),
        file: None,
        scripts: Vec::new(),
        elf: None,
        traits: Traits::default(),
        problem: None,
    };
    if let Err(problem) = follow(&mut resolved, path) {
        resolved.problem = Some(problem);
    }
    resolved
}

fn follow(resolved: &mut Resolved, path: Option<&OsStr>) -> Result<(), Problem> {
    let mut file = look_up(&resolved.command, path)?;
    resolved.file = Some(file.clone());
    while let Some(interpreter) = interpreter_of(&file)? {
        if resolved.scripts.len() >= SCRIPTS_LIMIT {
            return Err(Problem::TooManyScripts(file));
        }
        let (name, next) = match interpreter {
            Shebang::File(next) => (next.clone().into_os_string(), look_up_file(&next)),
            Shebang::Name(name) => (name.clone(), look_up(&name, path)),
        };
        resolved.scripts.push(file.clone());
        file = next.map_err(|problem| match problem {
            Problem::NotFound => Problem::NoInterpreter { script: file, interpreter: name },
            other => other,
        })?;
    }
    let file = file.canonicalize().unwrap_or(file);
    resolved.elf = Some(file.clone());
    resolved.traits = traits(&file).map_err(Problem::Unusable)?;
    Ok(())
}

fn look_up(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Problem> {
    if command.as_bytes().contains(&b'/') {
        return look_up_file(Path::new(command));
    }
    if command.is_empty() {
        return Err(Problem::NotFound);
    }
    let mut problem = Problem::NotFound;
    for directory in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        match look_up_file(&directory.join(command)) {
            Ok(file) => return Ok(file),
            // As in a shell: a file that may not run is reported only if no other is found.
            Err(Problem::NotExecutable(file)) => problem = Problem::NotExecutable(file),
            Err(_) => {}
        }
    }
    Err(problem)
}

fn look_up_file(file: &Path) -> Result<PathBuf, Problem> {
    let metadata = fs::metadata(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Problem::NotExecutable(file.into()),
        _ => Problem::NotFound,
    })?;
    if metadata.is_dir() {
        return Err(Problem::IsDirectory(file.into()));
    }
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(Problem::NotExecutable(file.into()));
    }
    Ok(file.into())
}

/// What runs a script. `None`: it is ELF. A file that is neither is run by the shell, as `execvp` does.
fn interpreter_of(file: &Path) -> Result<Option<Shebang>, Problem> {
    let unreadable = |error| Problem::Unusable(AnalyseError::Unreadable { path: file.into(), error });
    let mut start = Vec::new();
    files::open(file).and_then(|f| f.take(LINE_LIMIT as u64).read_to_end(&mut start)).map_err(unreadable)?;
    if start.starts_with(&elf::ELFMAG) {
        return Ok(None);
    }
    Ok(Some(shebang(&start).unwrap_or(Shebang::File("/bin/sh".into()))))
}

/// What an ELF file says of how it can be recorded.
pub fn traits(file: &Path) -> Result<Traits, AnalyseError> {
    let image = Image::open(file)?;
    let metadata = fs::metadata(file).ok();
    let with_bit = |bit| metadata.as_ref().filter(|m: &&Metadata| m.permissions().mode() & bit != 0);
    let interpreter = image.interpreter();
    let loader = interpreter.as_deref().and_then(Path::file_name).map(OsStrExt::as_bytes).unwrap_or_default();
    let search = std::env::var_os("LD_LIBRARY_PATH");
    Ok(Traits {
        musl: loader.starts_with(b"ld-musl"),
        interpreter,
        set_uid: with_bit(0o4000).map(MetadataExt::uid),
        set_gid: with_bit(0o2000).map(MetadataExt::gid),
        address_sanitizer: asan::runtime(&needed::needed_closure(file, search.as_deref())),
        go: image.is_go(),
        allocator: ["malloc", "free", "calloc", "realloc"].iter().any(|name| image.symbol(name).is_some()),
    })
}
