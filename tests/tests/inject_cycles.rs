//! A sampler goes in and out of programs under load, again and again (`UU_CYCLES`, with `UU_CAMPAIGNS` a thousand
//! times, else a few): no request fails, no exit code changes, and nothing is left.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uunwind_tests::looks::Looks;
use uunwind_tests::running::Running;
use uunwind_tests::skips::skipped;
use uunwind_tests::web::{self, served, Load};
use uunwind_tests::{compile, interpreters, paths, process, uu};

fn cycles() -> u32 {
    web::cycles(1000)
}

/// Whether a program of this name can be started here.
fn is_here(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    let there = command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    there.is_ok_and(|status| status.success())
}

/// Records the process once, from inside. False: it has ended.
#[track_caller]
fn cycle(scratch: &Path, pid: u32, options: &[&str]) -> bool {
    let mut command = uu::command(scratch, &["record", "-d", "0.05", "-r", "997", "-p"]);
    command.arg(pid.to_string()).args(options).arg("-o").arg(scratch.join("cycle.uu"));
    let out = process::run(&mut command, scratch, uu::LIMIT);
    if !Path::new(&format!("/proc/{pid}/root")).exists() {
        return false;
    }
    let out = out.expect_code(0);
    assert!(!out.stderr.contains("from outside") && !out.stderr.contains("stays in process"), "{}", out.stderr);
    true
}

/// The process is recorded again and again; then nothing of a sampler is left, and its signals and files are what they
/// were. Its threads may come and go.
#[track_caller]
fn all_cycles(name: &str, scratch: &Path, pid: u32, options: &[&str]) {
    let before = Looks::of(pid);
    for number in 0..cycles() {
        assert!(cycle(scratch, pid, options), "{name} has ended in cycle {number}");
    }
    let after = Looks::of(pid);
    assert!(!after.has_sampler(), "{name}: {after:?}");
    assert_eq!(after.signals, before.signals, "{name}");
    println!("{name}: {} cycles", cycles());
}

/// Starts a web server that says "ready" and its port, and records it under load.
#[track_caller]
fn web_server(name: &str, command: &mut Command) {
    let scratch = paths::scratch("inject-cycles");
    let (running, port) = served(command);
    let load = Load::on(port);
    all_cycles(name, &scratch, running.pid(), &[]);
    println!("{name}: {} requests answered, none failed", load.end());
    assert_eq!(running.end(), Some(0), "{name}");
}

#[test]
fn a_web_server_in_python() {
    let found = interpreters::modern();
    let python = found.first().expect("an interpreter");
    web_server("python", Command::new(&python.path).arg(paths::source("python/serves.py")));
}

#[test]
fn a_web_server_in_javascript() {
    web_server("node", Command::new("node").arg(paths::source("node/serves.js")));
}

#[test]
fn a_web_server_in_java() {
    let modules = Command::new("java").arg("--list-modules").output().expect("java");
    if !String::from_utf8_lossy(&modules.stdout).contains("jdk.compiler") {
        return skipped("a sampler in and out of a JVM", "this Java has no compiler");
    }
    web_server(
        "java",
        Command::new("java").arg("-Dsun.net.httpserver.nodelay=true").arg(paths::source("java/Serves.java")),
    );
}

#[test]
fn a_busy_allocator() {
    let scratch = paths::scratch("inject-allocator");
    let program = compile::gcc(&scratch, "allocates", &["native/allocates.c"], &["-pthread", "-O1"]);
    let running = Running::ready(&mut Command::new(&program));
    all_cycles("malloc", &scratch, running.pid(), &[]);
    assert_eq!(running.end(), Some(0));
}

/// What a recording has left in a process: mappings and files with the sampler's names, timers, sockets. `None`: it has
/// ended.
fn left_in(pid: u32) -> Option<Vec<String>> {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).ok();
    let (maps, timers) = (read("maps")?, read("timers")?);
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let files = files.filter_map(|file| Some(std::fs::read_link(file.ok()?.path()).ok()?.display().to_string()));
    let all = maps.lines().map(str::to_owned).chain(files).chain(timers.lines().map(str::to_owned));
    let is_ours = |text: &String| text.contains("/memfd:uu-") || text.contains("socket:") || text.starts_with("ID:");
    Some(all.filter(is_ours).collect())
}

/// Samplers go into the children, too, which come and go all the time. The pool itself finds results that are wrong or
/// missing.
#[test]
fn a_pool_of_processes_in_python() {
    let found = interpreters::modern();
    let python = found.first().expect("an interpreter");
    let scratch = paths::scratch("inject-pool-cycles");
    let mut running = Running::ready(Command::new(&python.path).arg(paths::source("python/pool_works.py")));
    all_cycles("pool", &scratch, running.pid(), &["-s"]);
    for child in uunwind_remote::children(running.pid()) {
        assert_eq!(left_in(child).unwrap_or_default(), Vec::<String>::new(), "in child {child}");
    }
    running.say("end");
    let done: u64 = running.line().parse().expect("a number of results");
    println!("pool: {done} results, none wrong or missing");
    assert_eq!(running.end(), Some(0));
}

/// Whether a redis answers there.
fn answers(socket: &Path) -> bool {
    let Ok(mut server) = UnixStream::connect(socket) else { return false };
    let mut answer = [0; 5];
    server.write_all(b"PING\r\n").is_ok() && server.read_exact(&mut answer).is_ok() && answer == *b"+PONG"
}

/// redis-benchmark ends when a request fails.
#[test]
fn redis_under_load() {
    if !is_here("redis-server", "--version") || !is_here("redis-benchmark", "--version") {
        return skipped("a sampler in and out of redis", "redis is not installed");
    }
    let scratch = paths::scratch("inject-redis");
    let socket = scratch.join("redis");
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("redis");
    // It answers when it has all of its threads.
    while !answers(&socket) {
        assert!(server.try_wait().expect("a child").is_none(), "redis has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let said = scratch.join("benchmark.txt");
    let file = std::fs::File::create(&said).expect("scratch");
    let mut load = Command::new("redis-benchmark");
    load.arg("-s").arg(&socket).args(["-l", "-q", "-n", "20000", "-c", "8", "-t", "set,get,incr,lpush,lrange_100"]);
    let mut load =
        load.stdin(Stdio::null()).stdout(file.try_clone().expect("scratch")).stderr(file).spawn().expect("load");
    let done = catch_unwind(|| all_cycles("redis", &scratch, server.id(), &[]));
    let went_on = load.try_wait().expect("a child").is_none();
    load.kill().expect("it runs, or has ended");
    load.wait().expect("its end");
    // SAFETY: plain system call; the child is not waited for yet.
    unsafe { libc::kill(server.id() as libc::pid_t, libc::SIGTERM) };
    let ended = server.wait().expect("its end");
    done.unwrap_or_else(|panic| resume_unwind(panic));
    let text = std::fs::read_to_string(&said).expect("what it said");
    assert!(went_on && !text.to_lowercase().contains("error"), "{text}");
    assert!(ended.success(), "{ended}");
}

/// make waits for its children most of the time, often in vfork. One run after another is recorded, from its
/// beginning to its end.
#[test]
fn runs_of_make() {
    let scratch = paths::scratch("inject-make");
    let makefile = scratch.join("Makefile");
    let names: String = (0..400).map(|number| format!(" out/{number}")).collect();
    let rules = format!("all:{names}\nout/%:\n\t@echo $* > $@; test $* = `cat $@`\n");
    std::fs::write(&makefile, rules).expect("scratch");
    let (mut done, mut runs) = (0, 0);
    while done < cycles() {
        let out: PathBuf = scratch.join("out");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).expect("scratch");
        let mut make = Command::new("make");
        make.arg("-C").arg(&scratch).arg("-j2").stdin(Stdio::null()).stdout(Stdio::null());
        let mut make = make.spawn().expect("make");
        let cycles = catch_unwind(|| (0..1000).take_while(|_| cycle(&scratch, make.id(), &[])).count());
        let ended = make.wait().expect("its end");
        done += cycles.unwrap_or_else(|panic| resume_unwind(panic)) as u32;
        runs += 1;
        assert!(ended.success(), "{ended}");
        assert_eq!(std::fs::read_dir(&out).expect("scratch").count(), 400);
    }
    println!("make: {done} cycles in {runs} runs");
}
