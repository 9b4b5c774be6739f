//! Java programs: how they are compiled for a JVM, and one that detects null by SIGSEGV, compiled in advance.

use crate::jvms::{self, Jvm};
use crate::{paths, skips};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program prints.
pub const NULL_CHECKS_SAY: &str = "200000\n";

/// The command that runs it; without a JVM `None`, reported as skipped.
pub fn null_checks(folder: &Path) -> Option<Vec<OsString>> {
    if std::process::Command::new("java").arg("-version").output().is_err() {
        skips::skipped("a JVM, which handles SIGSEGV itself", "there is no java on this machine");
        return None;
    }
    let text = std::fs::read_to_string(paths::source("java/null_checks.hex")).expect("a text");
    let digits: Vec<u8> = text.lines().filter(|l| !l.starts_with('#')).flat_map(str::bytes).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("base 16");
    std::fs::write(folder.join("NullChecks.class"), digits.chunks(2).map(byte).collect::<Vec<u8>>()).expect("scratch");
    // The simple compiler keeps every check.
    let options = ["java", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp"].map(OsString::from);
    Some([&options[..], &[folder.into(), "NullChecks".into()]].concat())
}

/// The compiler of a JDK, if it has one.
fn compiler(jvm: &Jvm) -> Option<PathBuf> {
    Some(jvm.home.join("bin/javac")).filter(|path| path.is_file())
}

/// The command that compiles for a JVM: its own compiler, else that of another JDK which makes classes for it. `None`:
/// this machine has none.
pub fn javac(jvm: &Jvm) -> Option<Command> {
    if let Some(own) = compiler(jvm) {
        return Some(Command::new(own));
    }
    let all = jvms::all();
    let mut others = all.iter().filter_map(|other| Some((compiler(other)?, other.version)));
    let newest = others.clone().next_back();
    let (path, version) = others.find(|(_, version)| *version >= jvm.version).or(newest)?;
    let mut command = Command::new(path);
    command.args(["--release", &version.min(jvm.version).to_string()]);
    Some(command)
}
