//! Forks of Lua have structures of their own, which the plugin does not read: they are recognised, the summary names
//! them, and their stacks are native and complete.

use libtest_mimic::Arguments;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::samples::Frame;
use uunwind_tests::{compile, evidence, lua, paths, skips, uu};

/// First argument with which this program calls itself to compile Luau.
const BUILD: &str = "--build-luau";

fn main() {
    let given: Vec<_> = std::env::args_os().collect();
    if let [_, first, folder] = &given[..] {
        if first == BUILD {
            luau0_src::Build::new().out_dir(folder).build();
            return;
        }
    }
    let arguments = Arguments::from_args();
    let mut trials = vec![
        evidence::trial("ravi_is_recognised_by_its_strings_in_a_program_with_a_readable_lua", || check("Ravi", &ravi)),
        evidence::trial("the_same_program_without_ravis_strings_has_lua_frames", not_ravi),
        evidence::trial("uu_that_looks_for_these_strings_is_none_of_them", uu_itself),
        evidence::trial("luau_is_recognised_by_its_strings", || check("Luau", &made_up_luau)),
    ];
    if skips::campaign("Luau itself, compiled from source, is recognised") {
        trials.push(evidence::trial("luau_itself", || check("Luau", &luau)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A PUC Lua 5.4 in a program with Ravi's strings, without which its Lua frames would be shown.
fn ravi(scratch: &Path) -> PathBuf {
    with_lua(scratch, "-DRAVI")
}

fn with_lua(scratch: &Path, marker: &str) -> PathBuf {
    let [include, folder] = lua::library(4, scratch);
    compile::gcc(scratch, "program", &["lua/fork.c"], &["-DLUA", marker, &include, &folder, "-llua", "-lm", "-ldl"])
}

/// The same program without the strings is served.
fn not_ravi() -> Result<(), String> {
    let scratch = paths::scratch("no-fork");
    let program = with_lua(&scratch, "-DPLAIN");
    let samples = uu::record(&scratch, &["-r", "200"], |_| {}, &[program.as_os_str()]).expect_code(0).samples();
    let lua = samples.iter().filter(|s| s.frames.iter().any(|frame| matches!(frame, Frame::Lua { .. }))).count();
    (lua * 2 > samples.len()).then_some(()).ok_or_else(|| format!("Lua frames in {lua} of {} samples", samples.len()))
}

/// uu contains what it searches for.
fn uu_itself() -> Result<(), String> {
    let scratch = paths::scratch("fork-uu");
    let uu = paths::uu();
    let program = [uu.as_os_str(), "doctor".as_ref(), uu.as_os_str()];
    let said = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0).outcome.stderr;
    let is_sampled = said.contains("Hottest functions");
    (is_sampled && !said.contains("no Lua frames")).then_some(()).ok_or(said)
}

fn made_up_luau(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "luau", &["lua/fork.c"], &[])
}

/// Luau's virtual machine and compiler, as embedders have them. Compiled once for all runs of the tests.
fn luau(scratch: &Path) -> PathBuf {
    let built = paths::target().join("uu-tests/luau0-src-0.20.7");
    if !built.is_dir() {
        let machine = "x86_64-unknown-linux-gnu";
        let making = scratch.join("luau-src");
        let mut build = Command::new(std::env::current_exe().expect("this program"));
        // The package expects to be called by a build script.
        build.arg(BUILD).arg(&making).envs([("TARGET", machine), ("HOST", machine), ("OPT_LEVEL", "1")]);
        let done = build.output().expect("this program can be started");
        assert!(done.status.success(), "Luau: {}", String::from_utf8_lossy(&done.stderr));
        let _ = std::fs::create_dir_all(built.parent().expect("a folder"));
        // Another run may have been quicker.
        let _ = std::fs::rename(making.join("luau-build"), &built);
    }
    let sources = luau_sources();
    let include = |part: &str| format!("-I{}", sources.join(part).join("include").display());
    let (vm, compiler, folder) = (include("VM"), include("Compiler"), format!("-L{}", built.display()));
    let defines = ["-DLUA_API=extern \"C\"", "-DLUACODE_API=extern \"C\""];
    let libraries = ["-lluaucompiler", "-lluaubytecode", "-lluauast", "-lluauinliner", "-lluauvm", "-lluaucommon"];
    let group = ["-Wl,--start-group"].into_iter().chain(libraries).chain(["-Wl,--end-group", "-lstdc++", "-lm"]);
    let options: Vec<&str> = [&*vm, &*compiler, &*folder].into_iter().chain(defines).chain(group).collect();
    compile::gcc(scratch, "luau", &["lua/luau.cpp"], &options)
}

/// Where cargo keeps the package's sources.
fn luau_sources() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]).current_dir(paths::root());
    let metadata = command.output().expect("cargo runs").stdout;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("cargo's metadata are JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let found = packages.iter().find(|package| package["name"] == "luau0-src").expect("luau0-src is a package of ours");
    Path::new(found["manifest_path"].as_str().expect("a path")).with_file_name("luau")
}

fn check(name: &str, build: &dyn Fn(&Path) -> PathBuf) -> Result<(), String> {
    let scratch = paths::scratch(&format!("fork-{}", name.to_lowercase()));
    let program = build(&scratch);
    let recording = uu::record(&scratch, &["-r", "200"], |_| {}, &[program.as_os_str()]).expect_code(0);
    let (said, path) = (&recording.outcome.stderr, program.display().to_string());
    let expected = format!("no Lua frames: this is {name}; served are ");
    if !said.lines().any(|line| line.contains(&path) && line.contains(&expected)) {
        return Err(format!("the summary does not say of the program \"{expected}\":\n{said}"));
    }
    let samples = recording.samples();
    if samples.len() < 20 {
        return Err(format!("{} samples of a second of work", samples.len()));
    }
    for sample in &samples {
        let native = |frame: &Frame| matches!(frame, Frame::Native { interpreter: false, .. });
        if !sample.frames.iter().all(native) || sample.flags.contains("desync") || !sample.complete() {
            return Err(format!("not native, or not whole:\n{}", sample.text()));
        }
    }
    Ok(())
}
