//! The code of `take_gil` in real interpreters: against the file's symbols, where it has some, else against the one
//! call that no other function of CPython makes, of `pthread_cond_timedwait`
//! (`PyCOND_TIMEDWAIT` in <https://github.com/python/cpython/blob/v3.13.0/Python/thread_pthread.h>).

mod interpreters;

use interpreters::candidates;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_elf::Image;
use uunwind_python_analyse::{analyse, Finding};

/// Prints the file that holds the interpreter.
const PROGRAM: &str = "\
import os, sys
maps = [line.split() for line in open('/proc/self/maps')]
print(*[m[5] for m in maps if len(m) > 5 and 'libpython3.' in m[5]] or [os.path.realpath(sys.executable)])";

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("binutils");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Addresses of the functions that are called so.
fn by_name(path: &Path) -> Vec<u64> {
    let symbols = printed(Command::new("nm").arg(path));
    let lines = symbols.lines().filter_map(|line| line.split_once(" t take_gil"));
    // What was split off is no function of its own; a copy for constant arguments is.
    let whole = lines.filter(|(_, rest)| !rest.contains(".cold") && !rest.contains(".part"));
    whole.map(|(address, _)| u64::from_str_radix(address, 16).expect("an address")).collect()
}

#[test]
fn the_code_that_waits_for_the_gil_is_found() {
    let mut found = 0;
    for version in ["3.8", "3.9", "3.9d", "3.10", "3.11", "3.11d", "3.12", "3.13", "3.13t", "3.14", "3.14d", "3.14t"] {
        let run = |path: PathBuf| Command::new(path).args(["-I", "-c", PROGRAM]).output().ok();
        let output = candidates(version).into_iter().filter_map(run).find(|output| output.status.success());
        let Some(output) = output else {
            uunwind_skips::skipped(&format!("take_gil of python{version}"), "it is not installed");
            continue;
        };
        let printed_paths = String::from_utf8(output.stdout).expect("UTF-8");
        let path = Path::new(printed_paths.split_whitespace().next().expect("a path"));
        let Finding::Facts(facts) = analyse(&Image::open(path).expect("an ELF file")) else {
            panic!("{} is not served", path.display())
        };
        let ranges: Vec<[u64; 2]> = facts.lock.taking.into_iter().filter(|range| *range != [0; 2]).collect();
        assert!(!ranges.is_empty(), "{} has no take_gil", path.display());
        let named = by_name(path);
        for address in &named {
            assert!(ranges.iter().any(|[start, _]| start == address), "{}: {address:#x}, {ranges:x?}", path.display());
        }
        let calls = ranges.iter().any(|[start, end]| {
            let mut disassemble = Command::new("objdump");
            disassemble.arg("-d").arg(format!("--start-address={start}")).arg(format!("--stop-address={end}"));
            printed(disassemble.arg(path)).contains("pthread_cond_timedwait@plt")
        });
        // Without optimization, a function of its own makes the call.
        assert!(calls || !named.is_empty(), "{}: {ranges:x?}", path.display());
        found += 1;
    }
    assert!(found > 0, "no interpreter at all");
}
