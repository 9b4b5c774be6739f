//! `uu dump CORE`: stacks from core files of the kernel and of gdb, beside those of the live process and what the
//! program says itself; core files and objects that are missing, wrong or damaged.

use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uunwind_core_files::{dump_core, CoreError, CoreFile, Search};
use uunwind_random::Random;
use uunwind_remote::Plugins;
use uunwind_tables_build::Cache;
use uunwind_tests::dumps::{expect_names, functions, threads};
use uunwind_tests::running::{all_sleep, Running};
use uunwind_tests::{compile, cores, held, interpreters, lua, luajit, paths, process, registered, skips, uu};

/// Who writes a core file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Kernel,
    Gdb,
}

/// Those of this machine. The kernel's core files go into the working directory only where its pattern says so.
fn writers() -> Vec<Writer> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let mut found = Vec::new();
    if pattern.trim() == "core" {
        found.push(Writer::Kernel);
    } else {
        skips::skipped("core files of the kernel", &format!("kernel.core_pattern is {}", pattern.trim()));
    }
    if cores::has_gcore() {
        found.push(Writer::Gdb);
    } else {
        skips::skipped("core files of gdb", "gcore is not installed");
    }
    found
}

/// Starts a program that may write a core file, in a folder of its own.
fn start(command: &mut Command, folder: &Path) -> Running {
    std::fs::create_dir_all(folder).expect("a folder");
    command.current_dir(folder);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const all);
            Ok(())
        });
    }
    Running::start(command)
}

/// Lets someone write the core file of a program, which may end by that. `None`: gdb has left out memory, which it
/// says.
fn core_of(running: &mut Running, writer: Writer, folder: &Path) -> Option<PathBuf> {
    match writer {
        Writer::Kernel => {
            assert!(running.end_by(libc::SIGABRT), "no core file, although ulimit -c and core_pattern allow it");
            let named = |name: &str| name == "core" || name.starts_with("core.");
            let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
            let core = files.into_iter().find(|file| file.file_name().is_some_and(|n| named(&n.to_string_lossy())));
            Some(core.expect("a core file in the working directory"))
        }
        Writer::Gdb => {
            let core = cores::gcore(running.pid(), folder);
            match core {
                Err(lost) if lost.contains(cores::LOST) => {
                    skips::skipped("a core file of gdb", &lost);
                    None
                }
                core => Some(core.expect("a core file")),
            }
        }
    }
}

fn as_json(command: &mut Command, scratch: &Path) -> Value {
    let out = process::run(command, scratch, uu::LIMIT).expect_code(0);
    serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()))
}

fn live(scratch: &Path, pid: u32) -> Value {
    as_json(uu::command(scratch, &["dump", "--json", "-p"]).arg(pid.to_string()), scratch)
}

fn dead(scratch: &Path, core: &Path, options: &[&str]) -> Value {
    as_json(uu::command(scratch, &["dump", "--json"]).arg(core).args(options), scratch)
}

/// The dump of a process whose threads all sleep, and that of the core file that is written of it then.
fn live_and_dead(scratch: &Path, running: &mut Running, writer: Writer, cores: &Path) -> Option<(Value, Value)> {
    let sleeping = || {
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
    };
    sleeping();
    let live = live(scratch, running.pid());
    sleeping();
    let core = core_of(running, writer, cores)?;
    Some((live, dead(scratch, &core, &[])))
}

/// Length of the instruction that makes a system call, in bytes.
const SYSCALL: u64 = 2;

/// Whether a thread that waited is about to repeat its call: the signal has woken it, and another thread took it. It is
/// at the call's instruction then, and no longer waits.
fn repeats(dead: &Value, live: &Value) -> bool {
    let innermost = |thread: &Value| thread["frames"][0]["address"].as_u64().expect("an address");
    dead["state"] == "running" && live["state"] == "waiting" && innermost(dead) + SYSCALL == innermost(live)
}

/// The frames of a thread in a core file, with the address of its call's end where it is about to repeat the call.
fn frames_in_the_call(dead: &Value, live: &Value) -> Value {
    let mut frames = dead["frames"].clone();
    if repeats(dead, live) {
        let (repeated, end) = (&dead["frames"][0]["address"], &live["frames"][0]["address"]);
        let innermost = frames.as_array_mut().expect("frames").iter_mut().filter(|frame| frame["address"] == *repeated);
        innermost.for_each(|frame| frame["address"] = end.clone());
    }
    frames
}

/// Each thread's frames are those of the live process.
fn expect_same(dead: &Value, live: &Value, what: &str) {
    assert_eq!(threads(dead).len(), threads(live).len(), "{what}: {dead:#}\n{live:#}");
    for alive in threads(live) {
        let thread = threads(dead).iter().find(|thread| thread["tid"] == alive["tid"]).expect("the thread");
        assert_eq!(frames_in_the_call(thread, alive), alive["frames"], "{what}: {dead:#}\n{live:#}");
        assert_eq!(thread["complete"], true, "{what}: {thread:#}");
    }
}

#[test]
fn code_registered_at_run_time_is_walked_by_its_rules() {
    for writer in writers() {
        let scratch = paths::scratch("core-registered");
        for (program, ways) in registered::programs(&scratch) {
            let name = program.file_name().expect("a name");
            let cores = scratch.join("cores").join(name);
            let mut running = start(&mut Command::new(&program), &cores);
            ways.iter().for_each(|_| drop(running.line()));
            assert_eq!(running.line(), "ready");
            let Some((live, dead)) = live_and_dead(&scratch, &mut running, writer, &cores) else { continue };
            registered::expect(&live, ways, &[0; 4]);
            expect_same(&dead, &live, &format!("{writer:?} {name:?}"));
        }
    }
}

#[test]
fn the_thread_that_others_wait_for_is_named() {
    for writer in writers() {
        for options in [&["-pthread", "-g"][..], &["-pthread", "-static"]] {
            let scratch = paths::scratch("core-held");
            let program = compile::gcc(&scratch, "held", &["native/held.c"], options);
            let mut running = start(&mut Command::new(&program), &scratch.join("cores"));
            let said = held::said(&mut running);
            let Some(core) = core_of(&mut running, writer, &scratch.join("cores")) else { continue };
            let dead = dead(&scratch, &core, &[]);
            held::expect(&dead, &said, |tid| tid, &format!("{writer:?} {options:?}"));
        }
    }
}

#[test]
fn native_threads_are_those_of_the_live_process() {
    for writer in writers() {
        for options in [&["-pthread", "-g"][..], &["-pthread", "-static"]] {
            let scratch = paths::scratch("core-native");
            let program = compile::gcc(&scratch, "waits", &["native/waits.c"], options);
            let mut running = start(&mut Command::new(&program), &scratch.join("cores"));
            assert!(running.line().starts_with("ready"));
            while !all_sleep(running.pid()) {
                std::thread::yield_now();
            }
            let live = live(&scratch, running.pid());
            while !all_sleep(running.pid()) {
                std::thread::yield_now();
            }
            let Some(core) = core_of(&mut running, writer, &scratch.join("cores")) else { continue };
            let dead = dead(&scratch, &core, &[]);
            expect_same(&dead, &live, &format!("{writer:?} {options:?}"));
            assert_eq!(dead["notes"], serde_json::json!([]), "{dead:#}");
            let first = &threads(&dead)[0];
            if writer == Writer::Kernel {
                assert_eq!((&dead["signal"]["name"], &first["state"]), (&"SIGABRT".into(), &"signal".into()));
                assert_eq!(dead["signal"]["sender"], std::process::id(), "{dead:#}");
            } else {
                assert_eq!(dead["signal"], Value::Null, "{dead:#}");
            }
            // Any thread that does not block the signal may take it, and the kernel writes that one first.
            let main = threads(&dead).iter().find(|thread| thread["tid"] == running.pid()).expect("its first thread");
            assert_eq!(main["name"], "waits", "{dead:#}");
            // What is in the registers is what the innermost frame shows.
            let pc = first["registers"]["rip"].as_str().expect("a register");
            let pc = u64::from_str_radix(pc.trim_start_matches("0x"), 16).expect("a number");
            let address = first["frames"][0]["address"].as_u64().expect("an address in its file");
            assert_eq!(address % 4096, pc % 4096, "{first:#}");
            let is_waiting = |thread: &&Value| {
                let alive = threads(&live).iter().find(|alive| alive["tid"] == thread["tid"]).expect("the thread");
                thread["state"] == "waiting" || repeats(thread, alive)
            };
            let waiting = threads(&dead).iter().skip(1).filter(is_waiting).count();
            assert_eq!(waiting, threads(&dead).len() - 1, "{dead:#}");
        }
    }
}

/// Linkers that this machine has, as options of gcc: in which pages of the file segments share, they differ.
fn linkers() -> Vec<Vec<&'static str>> {
    let mut found = vec![vec!["-Wl,-z,noseparate-code"]];
    for (command, option) in [("ld.lld", "-fuse-ld=lld"), ("ld.gold", "-fuse-ld=gold"), ("mold", "-fuse-ld=mold")] {
        if Command::new(command).arg("--version").output().is_ok() {
            found.push(vec![option, "-Wl,--build-id=none"]);
        } else {
            skips::skipped(&format!("core files of programs that {command} links"), "it is not installed");
        }
    }
    if found.iter().any(|options| options[0].contains("lld")) {
        found.push(vec!["-fuse-ld=lld", "-Wl,--build-id"]);
        found.push(vec!["-fuse-ld=lld", "-Wl,--build-id=none", "-Wl,-z,separate-code"]);
        found.push(vec!["-fuse-ld=lld", "-Wl,--build-id=none", "-no-pie"]);
    }
    found
}

/// Small programs, and libraries of theirs: their segments may share the first page of the file, which is mapped for
/// each; and a library's copies may lie side by side.
#[test]
fn objects_whose_segments_share_a_page_are_whole() {
    for writer in writers() {
        for linker in linkers() {
            let what = format!("{writer:?} {linker:?}");
            let scratch = paths::scratch("core-linkers");
            let library = scratch.join("libcopied.so");
            let mut gcc = Command::new("gcc");
            gcc.args(["-O2", "-g", "-shared", "-fPIC", "-nostdlib", "-o"]).arg(&library);
            gcc.args(linker.iter().filter(|option| **option != "-no-pie")).arg(paths::source("native/calls_back.c"));
            process::run(&mut gcc, &scratch, uu::LIMIT).expect_code(0);
            let options = [&["-pthread", "-g", "-O2"], &linker[..]].concat();
            let program = compile::gcc(&scratch, "copies", &["native/copies.c"], &options);
            let mut running = start(Command::new(&program).arg(&library), &scratch.join("cores"));
            assert_eq!(running.line(), "ready");
            let Some((live, dead)) = live_and_dead(&scratch, &mut running, writer, &scratch.join("cores")) else {
                continue;
            };
            expect_same(&dead, &live, &what);
            let copies = threads(&live).iter().filter(|thread| functions(thread).contains(&"calls_back"));
            assert_eq!(copies.count(), 3, "{what}: {live:#}");
        }
    }
}

/// A core file of a process whose main thread had ended.
#[test]
fn a_main_thread_that_has_ended_hides_no_other() {
    for writer in writers() {
        let scratch = paths::scratch("core-main-ended");
        let program = compile::gcc(&scratch, "main_ended", &["native/main_ended.c"], &["-pthread", "-g"]);
        if writer == Writer::Gdb {
            skips::skipped("a core file of gdb of a process whose main thread has ended", "gdb takes it for a zombie");
            continue;
        }
        let mut running = start(&mut Command::new(&program), &scratch.join("cores"));
        assert_eq!(running.line(), "ready");
        let Some(core) = core_of(&mut running, writer, &scratch.join("cores")) else { continue };
        let dead = dead(&scratch, &core, &[]);
        for chain in [["spins", "in_loop"], ["waits", "in_wait"]] {
            let there = |thread: &&Value| functions(thread).windows(2).any(|pair| pair == chain);
            let thread = threads(&dead).iter().find(there).unwrap_or_else(|| panic!("{writer:?} {chain:?}: {dead:#}"));
            assert_eq!(thread["complete"], true, "{writer:?}: {thread:#}");
        }
    }
}

/// The interpreted frames with their lines, innermost first.
fn interpreted(thread: &Value) -> Vec<(String, u64)> {
    let frames = thread["frames"].as_array().expect("frames").iter().filter(|frame| frame["kind"] == "interpreted");
    let name = |frame: &Value, key| frame[key].as_str().unwrap_or_default().to_owned();
    let function = |name: String| name.rsplit('.').next().unwrap_or_default().to_owned();
    frames.map(|frame| (function(name(frame, "function")), frame["line"].as_u64().unwrap_or(0))).collect()
}

#[test]
fn python_threads_are_as_it_said_itself() {
    let writers = writers();
    // Each writer with one of the versions at least, and each version with one of the writers.
    for (index, python) in interpreters::modern().into_iter().enumerate() {
        let Some(writer) = writers.get(index % writers.len().max(1)) else { return };
        let scratch = paths::scratch("core-python");
        let cores = scratch.join("cores");
        let mut running = start(Command::new(&python.path).arg(paths::source("python/dumped.py")), &cores);
        let said: Vec<Value> = (0..5).map(|_| serde_json::from_str(&running.line()).expect("a stack")).collect();
        let Some((live, dead)) = live_and_dead(&scratch, &mut running, *writer, &cores) else { continue };
        let what = format!("{writer:?} {}", python.label);
        expect_same(&dead, &live, &what);
        expect_names(&said, &dead, &what);
        let mut shown: Vec<_> = threads(&dead).iter().map(interpreted).collect();
        for said in said {
            let frames = said[1].as_array().expect("frames").iter();
            let expected: Vec<(String, u64)> = frames
                .map(|frame| (frame[0].as_str().expect("a name").to_owned(), frame[1].as_u64().expect("a line")))
                .collect();
            let found = shown.iter().position(|shown| shown.ends_with(&expected));
            shown.swap_remove(found.unwrap_or_else(|| panic!("{what}: {expected:?} is not in {dead:#}")));
        }
    }
}

#[test]
fn lua_and_luajit_stacks_are_as_they_said_themselves() {
    let mut programs: Vec<PathBuf> = lua::all()
        .iter()
        .filter(|lua| lua.kind == lua::Kind::Interpreter)
        .map(|lua| lua.ready().program.clone())
        .collect();
    let jits = luajit::all();
    programs
        .extend(jits.iter().filter(|jit| jit.kind == luajit::Kind::Interpreter).map(|jit| jit.ready().program.clone()));
    if programs.is_empty() {
        skips::skipped("core files of Lua and LuaJIT", "no interpreter is installed");
    }
    let writers = writers();
    for (index, program) in programs.iter().enumerate() {
        let Some(writer) = writers.get(index % writers.len().max(1)) else { return };
        let scratch = paths::scratch("core-lua");
        let cores = scratch.join("cores");
        let mut running = start(Command::new(program).arg(lua::script("dumped")).env("LUA_INIT", ""), &cores);
        let said: Vec<String> = std::iter::repeat_with(|| running.line()).take_while(|line| !line.is_empty()).collect();
        assert!(said.len() > 5, "{said:?}");
        let Some((live, dead)) = live_and_dead(&scratch, &mut running, *writer, &cores) else { continue };
        let what = format!("{writer:?} {}", program.display());
        expect_same(&dead, &live, &what);
        let frames = threads(&dead)[0]["frames"].as_array().expect("frames").iter();
        let shown: Vec<String> = frames
            .filter(|frame| frame["kind"] == "interpreted")
            .map(|frame| {
                let file = frame["file"].as_str().unwrap_or_default();
                format!("{}:{}", file.rsplit('/').next().unwrap_or_default(), frame["line"].as_u64().unwrap_or(0))
            })
            .filter(|place| place.starts_with("dumped.lua:"))
            .collect();
        assert_eq!(shown, said, "{what}: {dead:#}");
    }
}

/// Whoever looks at a core file may have other files at its paths.
#[test]
fn a_program_that_lies_elsewhere_is_found_by_its_build_id() {
    for writer in writers() {
        let scratch = paths::scratch("core-moved");
        let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread", "-Wl,--build-id"]);
        let mut running = start(&mut Command::new(&program), &scratch.join("cores"));
        assert!(running.line().starts_with("ready"));
        while !all_sleep(running.pid()) {
            std::thread::yield_now();
        }
        let Some(core) = core_of(&mut running, writer, &scratch.join("cores")) else { continue };
        let whole = dead(&scratch, &core, &[]);
        let id = build_id(&program);
        let kept = scratch.join("kept");
        std::fs::rename(&program, &kept).expect("moved");

        let without = dead(&scratch, &core, &[]);
        let notes = without["notes"].to_string();
        assert!(notes.contains("waits: ") && notes.contains(&id) && notes.contains("--debug-dir"), "{notes}");
        assert!(!functions(&threads(&without)[0]).contains(&"main"), "{without:#}");

        // Another program lies there now, and is not taken for it.
        std::fs::copy("/bin/true", &program).expect("another one");
        let other = dead(&scratch, &core, &[]);
        assert!(other["notes"].to_string().contains("is another file: its build-id is"), "{other:#}");
        assert!(!functions(&threads(&other)[0]).contains(&"main"), "{other:#}");

        let kept_text = kept.to_str().expect("a path");
        expect_same(&dead(&scratch, &core, &[kept_text]), &whole, "EXECUTABLE");
        for (named, why) in [("/bin/true", "has not mapped this file"), ("/nonexistent/program", "No such file")] {
            let notes = dead(&scratch, &core, &[named])["notes"].to_string();
            assert!(notes.contains(&format!("\"{named}: ")) && notes.contains(why), "{notes}");
        }
        let debug = scratch.join("debug");
        let by_id = debug.join(".build-id").join(&id[..2]);
        std::fs::create_dir_all(&by_id).expect("a folder");
        std::fs::rename(&kept, by_id.join(&id[2..])).expect("moved");
        let options = ["--debug-dir", debug.to_str().expect("a path")];
        expect_same(&dead(&scratch, &core, &options), &whole, "--debug-dir");

        // As debuginfod's clients keep it.
        let cache = scratch.join("cache").join(&id);
        std::fs::create_dir_all(&cache).expect("a folder");
        std::fs::rename(by_id.join(&id[2..]), cache.join("executable")).expect("moved");
        let mut command = uu::command(&scratch, &["dump", "--json"]);
        command.arg(&core).env("DEBUGINFOD_CACHE_PATH", scratch.join("cache"));
        expect_same(&as_json(&mut command, &scratch), &whole, "debuginfod's cache");

        // As its server gives it.
        let tools = scratch.join("tools");
        std::fs::create_dir_all(&tools).expect("a folder");
        let served = cache.join("executable");
        let script = format!("#!/bin/sh\n[ \"$1 $2\" = \"executable {id}\" ] && echo {}\n", served.display());
        uunwind_tests::executable::write(&tools.join("debuginfod-find"), script.as_bytes());
        let mut command = uu::command(&scratch, &["dump", "--json"]);
        let path = std::env::join_paths([tools.as_path(), Path::new("/usr/bin"), Path::new("/bin")]).expect("a path");
        command.arg(&core).env("PATH", path).env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        expect_same(&as_json(&mut command, &scratch), &whole, "debuginfod-find");
    }
}

/// By readelf, in hexadecimal digits.
fn build_id(program: &Path) -> String {
    let out = Command::new("readelf").arg("-n").arg(program).output().expect("readelf");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let id = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build-id");
    id.to_owned()
}

#[test]
fn what_is_no_core_file_is_refused() {
    let scratch = paths::scratch("core-refused");
    let refused = |args: &[&str]| {
        process::run(uu::command(&scratch, &["dump"]).args(args), &scratch, uu::LIMIT).expect_code(125).stderr
    };
    let missing = scratch.join("none");
    assert!(refused(&[missing.to_str().expect("a path")]).contains("No such file"));
    assert!(refused(&["/bin/true"]).contains("/bin/true: not a core file: it is a program or a library"));
    assert!(refused(&["/etc/passwd"]).contains("it is no ELF file"));
    assert!(refused(&["/dev/zero"]).contains("a character device"));
    assert!(refused(&["-p", "1", "/bin/true"]).contains("cannot be used with"), "{}", refused(&["-p", "1", "x"]));
    assert!(refused(&[]).contains("-p"));
}

/// A core file of a Python program, damaged again and again at random places: in its headers and notes, on the stacks,
/// in the interpreter's memory. Each time there is an answer or an error that names the file, within seconds.
/// `UU_CORES`: how often; 60 when it is not set.
#[test]
fn damaged_core_files_never_hang_nor_panic() {
    let rounds: u32 = std::env::var("UU_CORES").map_or(60, |text| text.parse().expect("a number"));
    let (Some(python), Some(writer)) = (interpreters::installed().pop(), writers().pop()) else {
        return skips::skipped("damaged core files", "no interpreter, or nobody writes core files");
    };
    let scratch = paths::scratch("core-damaged");
    let cores = scratch.join("cores");
    let mut running = start(Command::new(&python.path).arg(paths::source("python/dumped.py")), &cores);
    (0..5).for_each(|_| drop(running.line()));
    while !all_sleep(running.pid()) {
        std::thread::yield_now();
    }
    let Some(path) = core_of(&mut running, writer, &cores) else { return };
    let uu = paths::uu();
    let folder = uu.parent().and_then(Path::parent).expect("the tree").join("lib/uu/plugins");
    let launcher = vec![uu.into_os_string(), "plugin-server".into()];
    let found = uunwind_loader::find(&folder, None, launcher);
    let mut plugins = Plugins::open(found, uunwind_built_in::HALVES);
    let cache = Cache::at(scratch.join("tables"));
    let search = Search { own_paths: true, ..Search::default() };
    let mut walk = || -> Result<(usize, usize), CoreError> {
        let core = Arc::new(CoreFile::open(&path)?);
        let dump = dump_core(&core, &search, &mut plugins, &cache, None)?;
        let words = |name: &uunwind_recording::Name| !name.name.is_empty();
        Ok((dump.threads.len(), dump.recording.names.iter().filter(|name| words(name)).count()))
    };
    let (threads, names) = walk().expect("a whole core file");
    assert!(threads == 5 && names > 5, "{threads} threads, {names} names");

    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("the core file");
    // Most damage costs a stack or a name at most. Two that must be refused: it is no ELF file any more, or its program
    // headers lie after its end.
    for (at, wrong) in [(0, [0; 2]), (38, [0xff; 2])] {
        let mut right = [0; 2];
        file.read_exact_at(&mut right, at).expect("the core file");
        file.write_all_at(&wrong, at).expect("the core file");
        let text = walk().expect_err("a damaged header").to_string();
        assert!(text.starts_with(path.to_str().expect("text")), "{text}");
        file.write_all_at(&right, at).expect("the core file");
    }
    let places = places(&path);
    let mut chance = Random::new(1);
    let (mut answers, mut errors) = (0, 0);
    for round in 0..rounds {
        let mut kept = Vec::new();
        for _ in 0..=chance.below(4) {
            let (start, len) = places[chance.index(places.len())];
            let at = start + chance.below(len);
            let mut old = [0; 8];
            let got = file.read_at(&mut old, at).expect("the core file");
            kept.push((at, old[..got].to_vec()));
            let bits = chance.number();
            let new = match chance.below(4) {
                0 => bits.to_le_bytes(),
                1 => (u64::from_le_bytes(old) ^ 1 << (bits % 64)).to_le_bytes(),
                2 => [0; 8],
                _ => u64::from_le_bytes(old).wrapping_add(bits % 4096).to_le_bytes(),
            };
            file.write_all_at(&new[..got], at).expect("the core file");
        }
        let begun = Instant::now();
        match walk() {
            Ok(_) => answers += 1,
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with(path.to_str().expect("text")) && !text.contains("panick"), "{round}: {text}");
                errors += 1;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "round {round} took {:?}", begun.elapsed());
        kept.iter().rev().for_each(|(at, old)| file.write_all_at(old, *at).expect("the core file"));
    }
    assert_eq!(walk().expect("whole again"), (threads, names));
    assert!(answers > 0, "{answers} answers, {errors} errors");
}

/// Parts of a core file to damage, as offsets and lengths: its headers, its notes, and each 64 KiB of its memory that
/// is not zero. The first two are as likely as all the rest.
fn places(path: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(path).expect("the core file");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let count = usize::from(u16::from_le_bytes(bytes[56..58].try_into().expect("2 bytes")));
    let headers = word(32) as usize;
    let notes = (0..count).map(|index| headers + index * 56).find(|at| bytes[*at..at + 4] == [4, 0, 0, 0]);
    let notes = notes.expect("notes");
    let memory = (0..bytes.len() as u64).step_by(64 << 10).map(|at| (at, (64 << 10).min(bytes.len() as u64 - at)));
    let not_zero = |(at, len): &(u64, u64)| bytes[*at as usize..(at + len) as usize].iter().any(|byte| *byte != 0);
    let mut all: Vec<(u64, u64)> = memory.filter(not_zero).collect();
    let heads = [(0, (headers + count * 56) as u64), (word(notes + 8), word(notes + 32))];
    let times = all.len() / 2 + 1;
    all.extend(heads.iter().cycle().take(times * 2));
    all
}
