//! The Lua module `uunwind`, in every Lua of this machine: its stacks against `debug.getinfo`, crash reports,
//! recordings, labels, and refusals.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::lua::{library, SUPPORTED};
use uunwind_tests::{compile, paths, process, running, skips, uu};

/// A program that runs scripts, with the module of the sources on its path, and the library of the tree under test.
fn lua(program: &Path) -> Command {
    let mut command = Command::new(program);
    let path = format!("{}/packages/lua/?.lua", paths::root().display());
    command
        .env("LUA_PATH", &path)
        .env("LUA_INIT", "")
        .env("UUNWIND_LIBRARY", paths::tree().join("lib/libuunwind.so.0"));
    for minor in SUPPORTED {
        command.env_remove(format!("LUA_PATH_5_{minor}")).env_remove(format!("LUA_CPATH_5_{minor}"));
    }
    command
}

/// LuaJIT, and a PUC Lua of each version: what is installed, else one that the tests build.
fn programs() -> Vec<PathBuf> {
    let installed = |name: &str| Some(PathBuf::from(format!("/usr/bin/{name}"))).filter(|path| path.is_file());
    let luajit = installed("luajit");
    if luajit.is_none() {
        skips::skipped("the Lua module in LuaJIT", "it is not here");
    }
    let puc = SUPPORTED.map(|minor| {
        installed(&format!("lua5.{minor}")).unwrap_or_else(|| {
            let scratch = paths::scratch(&format!("lua-module-5.{minor}"));
            let [include, folder] = library(minor, &scratch);
            let options = [&*include, &*folder, "-Wl,-E", "-llua", "-lm", "-ldl"];
            compile::gcc(&scratch, &format!("lua5.{minor}"), &["lua/plain.c"], &options)
        })
    });
    luajit.into_iter().chain(puc).collect()
}

fn name(program: &Path) -> &str {
    program.file_name().and_then(|name| name.to_str()).expect("a name")
}

fn run(command: &mut Command, scratch: &Path) -> process::Outcome {
    command.env("XDG_CACHE_HOME", scratch.join("cache"));
    process::run(command, scratch, uu::LIMIT)
}

#[test]
fn stacks_and_crash_reports_in_every_version() {
    let script = paths::source("lua/module.lua");
    for program in programs() {
        let scratch = paths::scratch("lua-module");
        let done = run(lua(&program).arg(&script), &scratch);
        assert!(done.code() == 0 && done.stdout == "fine\n", "{}: {}", name(&program), done.text());

        let file = scratch.join("crash.txt");
        let done = run(lua(&program).arg(&script).arg(&file), &scratch).expect_code(139);
        let report = std::fs::read_to_string(file).expect("a report");
        let has = |text: &str| report.contains(text);
        assert!(has("SIGSEGV") && has("module.lua:"), "{}: {report}\n{}", name(&program), done.text());
    }
}

/// The functions of a recording that have samples of their own, of these.
fn sampled<'f>(file: &Path, functions: &[&'f str], scratch: &Path) -> Vec<&'f str> {
    let mut report = uu::command(scratch, &["report", "-f", "folded"]);
    let folded = run(report.arg(file), scratch).expect_code(0).stdout;
    functions.iter().copied().filter(|name| folded.contains(&format!("{name} ("))).collect()
}

#[test]
fn a_recording_is_of_the_part_between() {
    let code = "local uunwind = require('uunwind')
local function burn()
   local stop = os.clock() + 0.2
   while os.clock() < stop do
   end
   return true
end
local function of_before() return (burn()) end
local function of_inside() return (burn()) end
local function of_after() return (burn()) end
local function fails(text, ...)
   local done, why = pcall(uunwind.record, ...)
   assert(not done and tostring(why):find(text, 1, true), tostring(why))
end
fails('mode=alloc: give \"cpu\" or \"wall\"', 'x.uu', { mode = 'alloc' })
fails('this process cannot be recorded: cannot write /no/such/x.uu: there is no folder', '/no/such/x.uu')
of_before()
local recording = uunwind.record(arg[1], { rate = 499, keep = false })
of_inside()
local summary = recording:stop()
assert(summary:find('CPU profile of ', 1, true), summary)
assert(recording:stop() == summary)
of_after()
uunwind.record(arg[2], { rate = 499 })
of_after()
";
    let all = ["of_before", "of_inside", "of_after"];
    for program in programs() {
        let scratch = paths::scratch("lua-module-records");
        let script = scratch.join("records.lua");
        std::fs::write(&script, code).expect("scratch");
        let (part, rest) = (scratch.join("part.uu"), scratch.join("rest.uu"));
        let mut command = lua(&program);
        if name(&program) == "luajit" {
            command.arg("-joff");
        }
        run(command.arg(&script).arg(&part).arg(&rest), &scratch).expect_code(0);
        assert_eq!(sampled(&part, &all, &scratch), ["of_inside"], "{}", name(&program));
        // What still goes on when the program ends is written then, by a process of its own.
        running::wait_for("the recording that went on", || {
            let report = uu::command(&scratch, &["report", "-f", "folded"]).arg(&rest).output();
            report.is_ok_and(|done| String::from_utf8_lossy(&done.stdout).contains("of_after ("))
        });
        assert_eq!(sampled(&rest, &all, &scratch), ["of_after"], "{}", name(&program));
    }
}

#[test]
fn labels_are_those_of_the_call() {
    for program in programs() {
        labels_of(&program);
    }
}

fn labels_of(program: &Path) {
    let scratch = paths::scratch("lua-module-labels");
    let script = scratch.join("labels.lua");
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
    std::fs::write(&script, code).expect("scratch");
    let configure = |uu: &mut Command| process::environment_of(&lua(program), uu);
    let options: &[&OsStr] = if name(program) == "luajit" { &["-joff".as_ref()] } else { &[] };
    let command = [&[program.as_os_str()], options, &[script.as_os_str()]].concat();
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
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{}", name(program));
}

#[test]
fn where_it_cannot_work_it_says_why() {
    let scratch = paths::scratch("lua-module-refusals");
    let other = compile::gcc(&scratch, "libother.so", &["python/module/version.c"], &["-shared", "-fPIC", "-DABI=7"]);
    let code = "local u = require('uunwind') print(u.label({ a = 1 }, tostring, 5)) u.stack()";
    let script = scratch.join("refused.lua");
    std::fs::write(&script, code).expect("scratch");
    for program in programs() {
        let whys = match name(&program) {
            "luajit" => [
                "there is no libuunwind.so.0: /no/such.so: ",
                "libuunwind.so.0 is of another version: it has interface 7, and this module needs 1",
            ],
            _ => ["there is no libuunwind-for-lua.so: /no/uu/libuunwind-for-lua.so: "; 2],
        };
        for (library, why) in [Path::new("/no/such.so"), &other].into_iter().zip(whys) {
            let done = run(lua(&program).arg(&script).env("UUNWIND_LIBRARY", library), &scratch).expect_code(1);
            let why = why.replace("/no/", &format!("{}/", library.parent().expect("a folder").display()));
            assert!(done.stdout == "5\n" && done.stderr.contains(&why), "{}: {}", name(&program), done.text());
        }
    }
}
