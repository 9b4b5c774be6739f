//! States that programs with Lua in them register: `uu_lua.h`, and the example of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::samples::Frame;
use uunwind_tests::{compile, lua, paths, process, skips, uu};

#[test]
fn the_header_compiles_as_c_and_as_cpp_without_a_warning() {
    let scratch = paths::scratch("lua-header");
    let include = format!("-I{}", paths::tree().join("include").display());
    // Also after uu.h without its optional functions, and twice.
    for (number, first) in ["", "#include \"uu.h\"\n", "#define UU_OPTIONAL\n#include \"uu.h\"\n"].iter().enumerate() {
        let source = scratch.join(format!("use{number}.x"));
        let text = format!(
            "{first}#include \"uu_lua.h\"\n#include \"uu_lua.h\"\n#include \"uu.h\"\n\
             int main(void) {{ return uu_lua_register(0) + uu_lua_unregister(0) + uu_optional_setup(); }}\n"
        );
        std::fs::write(&source, text).expect("scratch");
        for (compiler, language, standard) in [
            ("gcc", "c", "-std=c99"),
            ("gcc", "c", "-std=c17"),
            ("g++", "c++", "-std=c++98"),
            ("g++", "c++", "-std=c++20"),
        ] {
            let mut command = Command::new(compiler);
            command.args([standard, "-x", language, "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-long-long"]);
            let done = command.args(["-fsyntax-only", &include]).arg(&source).output().expect("the compiler runs");
            assert!(done.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
}

/// The example, with a Lua of this version in it, stripped of all symbols.
fn example(minor: u32, scratch: &Path) -> PathBuf {
    let [include, folder] = lua::library(minor, scratch);
    let header = format!("-I{}", paths::tree().join("include").display());
    let options = ["-s", "-Werror", "-pedantic", &*header, &*include, &*folder, "-llua", "-lm", "-ldl"];
    compile::gcc_files(scratch, "lua", &[paths::root().join("examples/lua/lua.c")], &options)
}

#[test]
fn a_program_that_registers_its_state_runs_with_and_without_a_recorder() {
    for minor in lua::SUPPORTED {
        let scratch = paths::scratch(&format!("lua-register-5.{minor}"));
        let program = example(minor, &scratch);
        let alone = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
        assert_eq!(alone, "registered -2\nunregistered -2\n", "5.{minor}: without a recorder");
        let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_os_str()]).expect_code(0);
        let said = recording.outcome.text();
        assert!(recording.outcome.stdout.contains("registered 0\nunregistered 0\n"), "5.{minor}: {said}");
        let samples = recording.samples();
        let stacks: Vec<Vec<String>> = samples
            .iter()
            .filter(|sample| sample.kind == "explicit")
            .map(|sample| sample.frames.iter().filter_map(lua_frame).collect())
            .collect();
        // The Lua functions of each sample, leaf first, with the line that executes.
        let main = |line: u32| format!("main chunk:{line}");
        let middle = ["leaf:1", "middle:3"].map(str::to_owned);
        let [first, second] = &stacks[..] else { panic!("5.{minor}: {stacks:?}: {said}") };
        assert_eq!(first[..], [&middle[..], &[main(5)]].concat(), "5.{minor}: {said}");
        assert!(second.starts_with(&middle) && second.last() == Some(&main(9)), "5.{minor}: {second:?}: {said}");
        assert_eq!(second.len(), 4, "5.{minor}: and the coroutine's function: {second:?}");
    }
}

fn lua_frame(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Lua { name, line, .. } => Some(format!("{name}:{line}")),
        _ => None,
    }
}

/// Registers a state of LuaJIT, and memory that is none, by the call that the header makes.
const LUAJIT: &str = "local ffi = require 'ffi'
ffi.cdef 'int uu_plugin_call(const char *, uint32_t, void *, size_t);'
local uu = ffi.load 'libuunwind.so.0'
local thread = coroutine.create(function() end)
local state = ffi.cast('char *', tonumber(tostring(thread):match '0x%x+'))
local function call(what, pointer) return uu.uu_plugin_call('lua', what, pointer, 0) end
print(call(1, state), call(2, state), call(2, state), call(1, state + 8), call(1, ffi.new 'char[4096]'), call(1, nil))
";

#[test]
fn states_of_luajit_are_accepted_and_other_memory_is_refused() {
    let luajit = Path::new("/usr/bin/luajit");
    if !luajit.is_file() {
        return skips::skipped("States of LuaJIT that are registered", "this machine has no luajit");
    }
    let scratch = paths::scratch("lua-register-luajit");
    let program = [luajit.as_os_str(), OsStr::new("-e"), OsStr::new(LUAJIT)];
    let recording = uu::record(&scratch, &["-r", "1"], |_| {}, &program);
    let said = &recording.outcome.stdout;
    assert!(said.contains("0\t0\t-2\t-22\t-22\t-22"), "{}", recording.outcome.text());
}
