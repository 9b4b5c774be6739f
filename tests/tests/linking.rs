//! How programs are linked with the library: the static library, pkg-config, CMake.

use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, skips, uu};

const OUTPUT: &str = "frames 1, stop 1, begins main\n";

fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|done| done.status.success())
}

#[test]
fn a_static_library_is_a_registry_of_its_own() {
    let scratch = paths::scratch("static");
    let lib = paths::tree().join("lib");
    let include = format!("-I{}", paths::tree().join("include").display());
    let archive = lib.join("libuunwind.a").display().to_string();
    let options = [&*include, &*archive, "-ldl", "-rdynamic", "-Wl,--gc-sections"];
    let program = compile::gcc(&scratch, "static", &["native/static.c"], &options);
    let needed = Command::new("readelf").args(["-d", "-W"]).arg(&program).output().expect("binutils").stdout;
    assert!(!String::from_utf8_lossy(&needed).contains("libuunwind"));
    let run = |argument: Option<&Path>| {
        let mut command = Command::new(&program);
        command.args(argument).env("XDG_CACHE_HOME", scratch.join("cache"));
        process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout
    };
    let rest = "register 0\nagain -17, unregister 0\n";
    assert_eq!(run(None), format!("{OUTPUT}setup absent\n{rest}"));
    // The set-up object is looked for in the program's folder.
    std::os::unix::fs::symlink(lib.join("uu"), scratch.join("uu")).expect("scratch");
    assert_eq!(run(None), format!("{OUTPUT}setup done\n{rest}"));
    // A shared library in the same process does not see its windows.
    let two = "register 0\nthe other one 0\nagain -17, unregister 0\n";
    assert_eq!(run(Some(&lib.join("libuunwind.so.0"))), format!("{OUTPUT}setup done\n{two}"));
}

/// It is ready before constructors of the program run.
#[test]
fn a_static_library_walks_in_constructors() {
    let scratch = paths::scratch("static-constructors");
    let source = scratch.join("early.c");
    let text = "#include <stdio.h>
#include <uu.h>
static void walks(void) {
    uint64_t frames[64];
    uint16_t stop;
    size_t count = uu_capture(frames, 64, 0, &stop);
    printf(\"%d %d\\n\", stop, count > 2);
}
__attribute__((constructor(101))) static void first(void) { walks(); }
__attribute__((constructor)) static void early(void) { walks(); }
int main(void) { walks(); }
";
    std::fs::write(&source, text).expect("scratch");
    let include = format!("-I{}", paths::tree().join("include").display());
    let library = paths::tree().join("lib/libuunwind.a").display().to_string();
    let program = compile::gcc_files(&scratch, "early", &[source], &[&include, &library, "-ldl"]);
    let out = process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert_eq!(out, "1 1\n".repeat(3));
}

/// Without the dynamic loader nobody says where objects are; uu.h says what becomes of stacks then.
#[test]
fn without_a_dynamic_loader_stacks_end_at_once() {
    let scratch = paths::scratch("no-loader");
    let source = scratch.join("alone.c");
    let text = "#include <uu.h>
int main(void) {
    uint64_t frames[64];
    uint16_t stop, none;
    size_t count = uu_capture(frames, 64, 0, &stop);
    if (uu_capture(0, 64, 0, 0) || uu_capture(frames, 0, 0, &none) || none != UU_STOP_BUFFER_FULL)
        return 2;
    return count == 0 || count > 3 || stop == UU_STOP_COMPLETE || stop == UU_STOP_START_SYMBOL;
}
";
    std::fs::write(&source, text).expect("scratch");
    let include = format!("-I{}", paths::tree().join("include").display());
    let library = paths::tree().join("lib/libuunwind.a");
    let options = ["-static", &include, &library.display().to_string()];
    let program = compile::gcc_files(&scratch, "alone", &[source], &options);
    process::run(&mut Command::new(program), &scratch, uu::LIMIT).expect_code(0);
}

#[test]
fn pkg_config_itself_gives_the_options() {
    if !installed("pkg-config") {
        return skips::skipped("a program built by pkg-config", "pkg-config is not here");
    }
    let scratch = paths::scratch("by-pkg-config");
    let lib = paths::tree().join("lib");
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "uunwind >= 0.1"]).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = String::from_utf8(ask.output().expect("pkg-config").stdout).expect("text");
    let options: Vec<&str> = flags.split_whitespace().chain(["-ldl", "-rdynamic"]).collect();
    let program = compile::gcc(&scratch, "static", &["native/static.c"], &options);
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", &lib).env("XDG_CACHE_HOME", scratch.join("cache"));
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
    assert!(out.starts_with(&format!("{OUTPUT}setup done\n")), "{out}");
}

const PROJECT: &str = "cmake_minimum_required(VERSION 3.10)
project(uses_uunwind C)
find_package(uunwind 0.1 CONFIG REQUIRED)
add_executable(shared static.c)
target_link_libraries(shared PRIVATE uunwind::uunwind ${CMAKE_DL_LIBS})
set_target_properties(shared PROPERTIES ENABLE_EXPORTS ON)
add_executable(static static.c)
target_link_libraries(static PRIVATE uunwind::static)
set_target_properties(static PROPERTIES ENABLE_EXPORTS ON)
";

#[test]
fn cmake_finds_the_library() {
    if !installed("cmake") {
        return skips::skipped("programs built by CMake", "cmake is not here");
    }
    let scratch = paths::scratch("by-cmake");
    std::fs::write(scratch.join("CMakeLists.txt"), PROJECT).expect("scratch");
    std::fs::copy(paths::source("native/static.c"), scratch.join("static.c")).expect("scratch");
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", paths::tree().display());
    for arguments in [&["-S", ".", "-B", "build", &prefix][..], &["--build", "build"]] {
        let done = Command::new("cmake").args(arguments).current_dir(&scratch).output().expect("cmake");
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    }
    for (program, set_up) in [("shared", "setup done"), ("static", "setup absent")] {
        let mut command = Command::new(scratch.join("build").join(program));
        command.env("XDG_CACHE_HOME", scratch.join("cache"));
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0).stdout;
        assert!(out.starts_with(&format!("{OUTPUT}{set_up}\n")), "{program}: {out}");
    }
    // Another minor version is refused.
    let newer = PROJECT.replace("uunwind 0.1", "uunwind 0.2");
    std::fs::write(scratch.join("CMakeLists.txt"), newer).expect("scratch");
    let done = Command::new("cmake").args(["-S", ".", "-B", "newer", &prefix]).current_dir(&scratch).output();
    let done = done.expect("cmake");
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("0.1"), "{done:?}");
}
