//! Core files of programs that stand where they have just walked their own stacks: `uu dump CORE` finds the same ones,
//! as `uu dump -p` does. Two places in each of a few programs; `UU_DUMPS` has the other tests of own walks do it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::standing::{Equal, Standing};
use uunwind_tests::{compile, cores, interpreters, lua, luajit, own_walks, paths, skips};

/// Number of places in a program.
const PLACES: u32 = 2;

#[track_caller]
fn agree(name: &str, scratch: &Path, configure: impl FnOnce(&mut Command), program: &[&OsStr]) {
    if !cores::has_gcore() {
        return skips::skipped(&format!("core files of own walks of {name}"), "gcore is not installed");
    }
    let places = PLACES as usize;
    let equal = own_walks::standing(scratch, configure, program, &Standing::at(PLACES, 1));
    let equal = equal.unwrap_or_else(|different| panic!("{name}: {different}"));
    let Equal { live, cores, left_out } = equal;
    assert!(live == places && cores + left_out == places, "{name}: {live} stacks, {cores} and {left_out} core files");
}

#[test]
fn native_programs() {
    let scratch = paths::scratch("core-walk-native");
    let sources = ["native/places.c", "native/point.c"];
    let program = compile::gcc(&scratch, "places", &sources, &["-pthread", "-ldl", "-lunwind"]);
    let plugin = compile::shared(&scratch, "plugin.so", &["native/plugin.c"]);
    agree("places", &scratch, |_| {}, &[program.as_ref(), plugin.as_ref()]);
}

#[test]
fn python_programs() {
    let supported = interpreters::supported();
    for (program, python) in ["generators", "c_callback"].into_iter().zip(supported.iter().rev()) {
        let scratch = paths::scratch(&format!("core-walk-{program}-{}", python.label));
        let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
        let source = paths::source(&format!("python/{program}.py"));
        let environment = |command: &mut Command| {
            command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", scratch.join("oracle"));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
        };
        agree(&python.label, &scratch, environment, &[python.path.as_os_str(), source.as_os_str()]);
    }
}

#[test]
fn lua_programs() {
    let scratch = paths::scratch("core-walk-lua");
    let Some(lua) = lua::all().into_iter().rfind(|lua| lua.kind == lua::Kind::Interpreter) else {
        return skips::skipped("core files of own walks of Lua", "Lua is not installed");
    };
    let (ready, source) = (lua.ready(), lua::script("coroutines"));
    let program = [ready.program.as_os_str(), source.as_os_str()];
    agree(&lua.label(), &scratch, |command| ready.configure(command, &scratch.join("oracle")), &program);
}

#[test]
fn luajit_programs() {
    let scratch = paths::scratch("core-walk-luajit");
    let Some(luajit) = luajit::all().into_iter().find(|luajit| luajit.kind == luajit::Kind::Interpreter) else {
        return skips::skipped("core files of own walks of LuaJIT", "LuaJIT is not installed");
    };
    let (ready, source) = (luajit.ready(), lua::script("luajit_trace"));
    let configure = |command: &mut Command| {
        ready.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_JIT", "on").env("UU_TEST_CAP", luajit.library());
    };
    agree(&luajit.label(), &scratch, configure, &[ready.program.as_os_str(), source.as_os_str()]);
}
