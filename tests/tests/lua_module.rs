//! The Lua module `uunwind`, in LuaJIT: its stacks against `debug.getinfo`, crash reports, and refusals.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::{compile, paths, process, skips, uu};

/// `name` with the module of the sources on its path, and the library of the tree under test.
fn lua(name: &str) -> Option<Command> {
    let mut command = Command::new(name);
    if command.arg("-v").output().is_err() {
        skips::skipped(&format!("the Lua module in {name}"), "it is not here");
        return None;
    }
    let mut command = Command::new(name);
    command.env("LUA_PATH", format!("{}/packages/lua/?.lua", paths::root().display()));
    command.env("UUNWIND_LIBRARY", paths::tree().join("lib/libuunwind.so.0"));
    Some(command)
}

fn script() -> PathBuf {
    paths::source("lua/module.lua")
}

fn run(command: &mut Command, scratch: &Path) -> process::Outcome {
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    process::run(command, scratch, uu::LIMIT)
}

#[test]
fn luajit_has_stacks_and_crash_reports() {
    let Some(mut luajit) = lua("luajit") else { return };
    let scratch = paths::scratch("lua-module");
    let done = run(luajit.arg(script()), &scratch);
    assert!(done.code() == 0 && done.stdout == "fine\n", "{}", done.text());

    let Some(mut luajit) = lua("luajit") else { return };
    let done = run(luajit.arg(script()).arg(scratch.join("crash.txt")), &scratch).expect_code(139);
    let report = std::fs::read_to_string(scratch.join("crash.txt")).expect("a report");
    assert!(report.contains("SIGSEGV") && report.contains("module.lua:"), "{report}\n{}", done.text());
}

#[test]
fn labels_are_those_of_the_call() {
    let Some(luajit) = lua("luajit") else { return };
    let scratch = paths::scratch("lua-module-labels");
    let program = scratch.join("labels.lua");
    let code = "local uunwind = require('uunwind')
local function burn()
   local stop = os.clock() + 0.2
   while os.clock() < stop do
   end
   return true
end
local function of_none() return (burn()) end
local function of_outer() return (burn()) end
local function of_inner() return (burn()) end
of_none()
uunwind.label({ request = '/a', user = 7 }, function()
   uunwind.label({ user = 8 }, function() return (of_inner()) end)
   pcall(uunwind.label, { request = false }, error, 'oh')
   of_outer()
end)
of_none()
";
    std::fs::write(&program, code).expect("scratch");
    let configure = |uu: &mut Command| process::environment_of(&luajit, uu);
    let command = ["luajit".as_ref(), "-joff".as_ref(), program.as_os_str()];
    let recording = uu::record(&scratch, &["-r", "499"], configure, &command).expect_code(0);
    let json: serde_json::Value = serde_json::from_str(&recording.report("json")).expect("JSON");
    let mut found = std::collections::BTreeSet::new();
    for stack in json["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames").iter();
        let mut names = frames.filter_map(|frame| json["frames"][frame.as_u64()? as usize]["function"].as_str());
        if let Some(name) = names.find(|name| name.starts_with("of_")) {
            found.insert(format!("{name} {}", stack["labels"]));
        }
    }
    let expected = [
        "of_inner {\"request\":\"/a\",\"user\":\"8\"}",
        "of_none null",
        "of_outer {\"request\":\"/a\",\"user\":\"7\"}",
    ];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn where_it_cannot_work_it_says_why() {
    let scratch = paths::scratch("lua-module-refusals");
    let other = compile::gcc(&scratch, "libother.so", &["python/module/version.c"], &["-shared", "-fPIC", "-DABI=7"]);
    for (library, why) in [
        (Path::new("/no/such.so"), "there is no libuunwind.so.0: /no/such.so: "),
        (&other, "libuunwind.so.0 is of another version: it has interface 7, and this module needs 1"),
    ] {
        let Some(mut luajit) = lua("luajit") else { return };
        let code = "local u = require('uunwind') print(u.label({ a = 1 }, tostring, 5)) u.stack()";
        let done = run(luajit.args(["-e", code]).env("UUNWIND_LIBRARY", library), &scratch).expect_code(1);
        assert!(done.stdout == "5\n" && done.stderr.contains(why), "{}", done.text());
    }
    let Some(mut puc) = lua("lua5.1") else { return };
    let done = run(puc.args(["-e", "require('uunwind')"]), &scratch).expect_code(1);
    assert!(done.stderr.contains("uunwind needs LuaJIT"), "{}", done.text());
}
