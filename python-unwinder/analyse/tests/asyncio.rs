//! What the plugin takes for granted about asyncio's tasks, against section `.AsyncioDebug` of real interpreters
//! (`_Py_AsyncioModuleDebugOffsets` in
//! <https://github.com/python/cpython/blob/v3.14.0/Modules/_asynciomodule.c>).

mod interpreters;

use interpreters::candidates;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_elf::Image;
use uunwind_python::awaiting::ASYNC_AWAITED_BY;
use uunwind_python_analyse::{analyse, Finding};

/// Prints the interpreter, and the file that holds asyncio's C module.
const PROGRAM: &str = "import sys, _asyncio; print(sys.executable, getattr(_asyncio, '__file__', sys.executable))";
/// Words of the section.
const AWAITED_BY: usize = 2;
const IS_TASK: usize = 3;
const IS_SET: usize = 4;
const COROUTINE: usize = 5;
const RUNNING_TASK: usize = 11;

#[test]
fn tasks_are_where_the_interpreters_say() {
    for version in ["3.14", "3.14d", "3.15", "3.15d"] {
        let run = |path: PathBuf| Command::new(path).args(["-I", "-c", PROGRAM]).output().ok();
        let output = candidates(version).into_iter().filter_map(run).find(|output| output.status.success());
        let Some(output) = output else {
            uunwind_skips::skipped(&format!("asyncio's tasks of python{version}"), "it is not installed");
            continue;
        };
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        let (executable, module) = printed.trim().split_once(' ').expect("two paths");
        let image = Image::open(Path::new(executable)).expect("an executable");
        let Finding::Facts(facts) = analyse(&image) else { panic!("{executable} is not served") };
        let module = Image::open(Path::new(module)).expect("a module");
        let section = module.section(b".AsyncioDebug").expect("the section");
        let bytes = module.read_file(section.offset, section.size).expect("its bytes");
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("a word"));
        let asyncio = facts.asyncio;
        assert_eq!(asyncio.kind, ASYNC_AWAITED_BY, "python{version}");
        for (at, taken) in [
            (AWAITED_BY, asyncio.awaited_by),
            (IS_TASK, asyncio.is_task),
            (IS_SET, asyncio.awaited_by_is_set),
            (COROUTINE, asyncio.coroutine),
            (RUNNING_TASK, asyncio.running_task),
        ] {
            assert_eq!(u64::from(taken), word(at), "python{version}, word {at}");
        }
    }
}
