//! Exceptions in flight: at each instruction, whole stacks with the right callers.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::Sample;
use uunwind_tests::skips::skipped;
use uunwind_tests::{compile, interpreters, paths, process, uu};

/// As the program's comment says; the last two unwind a thread to its beginning.
const THROWN: [&str; 7] = ["direct", "cleanup", "cleanups", "in-place", "again", "rethrown", "deep"];
const FORCED: [&str; 2] = ["exit", "cancel"];

fn program(scratch: &Path, name: &str, more: &[&str]) -> PathBuf {
    let library = paths::tree().join("lib");
    let own = [
        format!("-I{}", paths::tree().join("include").display()),
        library.join("libuunwind.so.0").display().to_string(),
        format!("-Wl,-rpath,{}", library.display()),
    ];
    let own = own.iter().map(|option| &**option);
    let options: Vec<&str> = more.iter().copied().chain(own).chain(["-rdynamic", "-lstdc++", "-pthread"]).collect();
    compile::gcc(scratch, name, &["native/exceptions.cpp"], &options)
}

/// All stacks are complete, and as the program has them; of a walk, too.
#[track_caller]
fn all_are_whole(command: &mut Command, scratch: &Path, what: &str) {
    let out = process::run(command.arg(what), scratch, 2 * uu::LIMIT).expect_code(0).stdout;
    println!("{what}: {out}");
    let last = out.lines().last().expect("a result");
    let numbers: Vec<u64> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [stacks, complete, different] = numbers[..] else { panic!("{out}") };
    assert!(stacks > 10_000 && complete == stacks && different == 0, "{what}: {out}");
}

#[test]
fn every_instruction_of_a_throw_has_its_stack() {
    let scratch = paths::scratch("exceptions");
    let program = program(&scratch, "exceptions", &[]);
    for what in THROWN.iter().chain(&FORCED) {
        all_are_whole(&mut Command::new(&program), &scratch, what);
    }
}

/// With frame pointers, as some distributions compile; without optimisation; and with a copy of libgcc of the
/// program's own.
#[test]
fn however_a_program_is_compiled() {
    let scratch = paths::scratch("exceptions-compiled");
    let kinds: [(&str, &[&str]); 3] = [
        ("framed", &["-O1", "-fno-omit-frame-pointer"]),
        ("plain", &["-O0"]),
        ("static", &["-static-libgcc", "-static-libstdc++"]),
    ];
    for (name, options) in kinds {
        let program = program(&scratch, name, options);
        for what in ["cleanups", "again"] {
            all_are_whole(&mut Command::new(&program), &scratch, what);
        }
    }
}

/// LLVM's libunwind instead of libgcc.
#[test]
fn llvms_unwinder_delivers_too() {
    let found = ["19", "18", "17", "16", "15", "14"]
        .iter()
        .map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/lib/libunwind.so.1")))
        .find(|path| path.exists());
    let Some(library) = found else {
        return skipped("exceptions::llvms_unwinder_delivers_too", "LLVM's libunwind (libunwind-14) is not here");
    };
    let scratch = paths::scratch("exceptions-llvm");
    for (name, options) in [("default", &[][..]), ("framed", &["-O1", "-fno-omit-frame-pointer"][..])] {
        let program = program(&scratch, name, options);
        for what in ["direct", "cleanups", "again", "rethrown"] {
            all_are_whole(Command::new(&program).env("LD_PRELOAD", &library), &scratch, what);
        }
    }
}

/// Under the timer, live and from copies: 99 of 100 samples at least are complete, and each complete one has the
/// function that catches, and `main`.
#[test]
fn samples_of_a_throwing_program_are_whole() {
    let scratch = paths::scratch("exceptions-sampled");
    let program = program(&scratch, "exceptions", &[]);
    let arguments = [program.as_os_str(), "loop".as_ref(), "2000".as_ref()];
    for options in [&["-r", "2999"][..], &["-r", "2999", "--unwind", "offline"]] {
        let samples = uu::record(&scratch, options, |_| {}, &arguments).expect_code(0).samples();
        are_whole(&samples, "main", 100);
        let catches = |sample: &Sample| sample.native_names().iter().any(|name| name.starts_with("catches("));
        let is_in_flight = |sample: &Sample| sample.native_names().iter().any(|name| name.starts_with("_Unwind_"));
        let lacks = samples.iter().find(|one| one.complete() && is_in_flight(one) && !catches(one));
        assert!(lacks.is_none(), "{}", lacks.map_or(String::new(), |sample| sample.text()));
    }
}

/// Of samples inside of the unwinder, nearly all are complete, and each complete one has a frame of this name.
#[track_caller]
fn are_whole(samples: &[Sample], name: &str, least: usize) {
    let throws = |sample: &&Sample| sample.native_names().iter().any(|name| name.starts_with("_Unwind_"));
    let thrown: Vec<&Sample> = samples.iter().filter(throws).collect();
    let whole: Vec<&&Sample> = thrown.iter().filter(|sample| sample.complete()).collect();
    println!("{name}: {} of {} are complete", whole.len(), thrown.len());
    assert!(thrown.len() > least, "only {} samples", thrown.len());
    let lacks = whole.iter().find(|sample| !sample.frames.iter().any(|frame| frame.name() == name));
    assert!(lacks.is_none(), "{}", lacks.map_or(String::new(), |sample| sample.text()));
    assert!(whole.len() * 100 >= thrown.len() * 99, "{}", thrown[0].text());
}

#[test]
fn exceptions_in_a_library_of_pythons_are_whole() {
    let Some(python) = interpreters::modern().into_iter().next() else {
        return skipped(
            "exceptions::exceptions_in_a_library_of_pythons_are_whole",
            "there is no CPython of 3.11 or later",
        );
    };
    let scratch = paths::scratch("exceptions-python");
    let options = ["-shared", "-fPIC", "-fvisibility=hidden", "-lstdc++"];
    let library = compile::gcc(&scratch, "libthrows.so", &["native/throws.cpp"], &options);
    let script = "import ctypes, sys\nlibrary = ctypes.CDLL(sys.argv[1])\n\
                  def calls_work():\n    for _ in range(900): library.work(ctypes.c_long(1000))\ncalls_work()\n";
    let arguments = [python.path.as_os_str(), "-c".as_ref(), script.as_ref(), library.as_os_str()];
    let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &arguments).expect_code(0).samples();
    are_whole(&samples, "calls_work", 40);
}

/// Of Lua 5.4, whose errors are longjmps; and of LuaJIT, which unwinds its own errors, and catches exceptions.
#[test]
fn exceptions_in_modules_of_lua_are_whole() {
    let kinds = [("lua5.4", "/usr/include/lua5.4", false), ("luajit", "/usr/include/luajit-2.1", true)];
    for (interpreter, headers, throws) in kinds {
        let path = Path::new("/usr/bin").join(interpreter);
        if !path.exists() || !Path::new(headers).join("lua.h").exists() {
            skipped("exceptions::exceptions_in_modules_of_lua_are_whole", &format!("{interpreter} is not here"));
            continue;
        }
        let scratch = paths::scratch(&format!("exceptions-{interpreter}"));
        let include = format!("-I{headers}");
        let options = ["-shared", "-fPIC", "-fvisibility=hidden", "-DWITH_LUA", &include, "-lstdc++"];
        compile::gcc(&scratch, "throws.so", &["native/throws.cpp"], &options);
        let script = format!(
            "package.cpath = '{}/?.so'\nlocal module = require 'throws'\n\
             local function calls_work()\n for i = 1, 900 do\n  module.work(500)\n\
             for j = 1, 500 do assert(not pcall(module.raises, {throws} and j % 2 == 0)) end\n end\nend\ncalls_work()\n",
            scratch.display()
        );
        let file = scratch.join("script.lua");
        std::fs::write(&file, script).expect("scratch");
        let samples = uu::record(&scratch, &["-r", "999"], |_| {}, &[path.as_os_str(), file.as_os_str()]);
        are_whole(&samples.expect_code(0).samples(), "calls_work", 40);
    }
}

/// Another process's, which waits in a handler that has interrupted the end of a throw.
#[test]
fn a_dump_goes_through_a_throw() {
    let scratch = paths::scratch("exceptions-dumped");
    let program = program(&scratch, "exceptions", &[]);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    assert_eq!(running.line(), "waiting");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p", &running.pid().to_string()]);
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
    running.kill();
    let dump: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()));
    let [thread] = threads(&dump) else { panic!("{dump:#}") };
    let functions: Vec<&str> =
        functions(thread).into_iter().map(|name| name.split('(').next().unwrap_or(name)).collect();
    let chain = ["on_trap", "_Unwind_RaiseException", "__cxa_throw", "throws", "with_registers", "catches", "main"];
    let known: Vec<&str> = functions.into_iter().filter(|name| chain.contains(name)).collect();
    assert_eq!((known, &thread["complete"]), (chain.to_vec(), &Value::Bool(true)), "{dump:#}");
}
