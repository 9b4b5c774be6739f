//! Makes the corpus: real inputs, cut small. Not needed to run anything; seeds stay as they were committed until
//! other ones are wanted. Needs gcc, objcopy, python3 (3.11 or later) and, for recordings, `ci/build`.
//!
//! ```text
//! cargo run -p uunwind-fuzz --bin seeds
//! cargo run -p uunwind-fuzz --bin seeds python_overlay python_lines     those of two targets only
//! ```

mod jit;
mod native;
mod python;
mod shared;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_fuzz::corpus;

/// Writes one seed, where its target is one of those that the command line names, or it names none.
fn seed(target: &str, name: &str, bytes: &[u8]) {
    let mut asked = std::env::args().skip(1).peekable();
    if asked.peek().is_some() && !asked.any(|named| named == target) {
        return;
    }
    let folder = corpus::folder(target);
    fs::create_dir_all(&folder).expect("a folder for seeds");
    fs::write(folder.join(name), bytes).expect("a seed");
    println!("{target}/{name}: {} bytes", bytes.len());
}

/// A folder for temporary files.
fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join("uu-fuzz-seeds");
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

/// Runs a command that must succeed; returns its output.
fn output(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Vec<u8> {
    let program = program.as_ref();
    let done = Command::new(program).args(arguments).current_dir(scratch()).output();
    let done = done.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{} {arguments:?}: {said}", program.display());
    done.stdout
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn main() {
    jit::perf_maps();
    jit::jitdumps();
    jit::objects();
    jit::lists();
    jit::maps();
    jit::registered();
    windows::lists();
    windows::windows();
    native::objects();
    native::unwind_tables();
    native::sframe();
    native::rule_tables();
    native::walks();
    native::scripts();
    python::processes();
    python::line_tables();
    python::compiled_names();
    python::thread_names();
    shared::ring();
    shared::perf();
    shared::facts();
    shared::tables();
    shared::messages();
    shared::plugin_messages();
    shared::recordings();
}
