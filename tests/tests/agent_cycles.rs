//! `uu agent` begins to profile servers under load, and leaves them, again and again (`UU_CYCLES`, with `UU_CAMPAIGNS`
//! 500 times, else a few): no request fails, and each process is as before.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uunwind_skips::skipped;
use uunwind_tests::agents::{head, is_as_before, list, Agent};
use uunwind_tests::looks::Looks;
use uunwind_tests::receiver::{ok, Server};
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::web::{self, served, Load, ANSWER};
use uunwind_tests::{interpreters, paths};

fn cycles() -> u32 {
    web::cycles(500)
}

/// A program that ends with this.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn start(command: &mut Command) -> Daemon {
        Daemon(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a program"))
    }

    /// Waits until it does what it is for.
    #[track_caller]
    fn is_up(&mut self, what: &str, is_up: impl Fn() -> bool) {
        wait_for(what, || {
            assert!(self.0.try_wait().expect("its state").is_none(), "{what} has ended");
            is_up()
        });
    }

    /// Itself and its children, once there is at least this number of them.
    fn pids(&self, children: usize) -> Vec<u32> {
        let mut pids = vec![self.0.id()];
        wait_for("children", || {
            pids.truncate(1);
            pids.extend(uunwind_remote::children(pids[0]));
            pids.len() > children
        });
        pids
    }
}

/// Where a program is, if it is here; else it is skipped.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("an agent with {name}"), &format!("{name} is not installed"));
    }
    found
}

/// A port that is free now.
fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn listens(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// The agent begins with all of these processes, and leaves them, again and again. `rule`: what they are known by, and
/// no process of another test is; a server may write over its environment.
#[track_caller]
fn all_cycles(name: &str, rule: &str, pids: &[u32]) {
    let scratch = paths::scratch(&format!("agent-cycles-{name}"));
    let server = Server::start(|_| ok());
    let none = head(&server) + "[[rule]]\nenv = { UU_TEST_NOBODY = \"1\" }\nservice = \"none\"\n";
    let all = format!("{}[[rule]]\n{rule}\nservice = \"cycles\"\n", head(&server));
    let mut agent = Agent::start(&scratch, &none);
    for _ in 0..cycles() {
        agent.reread(&all);
        agent.wait_for(pids);
        for entry in list(&agent.status(), "processes") {
            let how = entry["how"].as_str().unwrap_or_default();
            assert!(!how.contains("from outside"), "{name}: {entry}");
        }
        agent.reread(&none);
        wait_for("nothing to be profiled", || list(&agent.status(), "processes").is_empty());
    }
    agent.end();
    server.end();
    for pid in pids {
        let after = Looks::of(*pid);
        assert!(!after.has_sampler(), "{name}: {after:?}");
        is_as_before(*pid);
    }
    println!("{name}: {} cycles of {} processes", cycles(), pids.len());
}

/// Under load from the web.
#[track_caller]
fn under_load(name: &str, rule: &str, port: u16, pids: &[u32]) {
    let load = Load::on(port);
    all_cycles(name, rule, pids);
    println!("{name}: {} requests answered, none failed", load.end());
}

#[track_caller]
fn web_server(name: &str, command: &mut Command) {
    let (running, port): (Running, u16) = served(command);
    // Its last argument is its source file, of the tests with cycles alone.
    let file = command.get_args().last().expect("a file").to_str().expect("UTF-8");
    under_load(name, &format!("command = \"*{file}\""), port, &[running.pid()]);
    assert_eq!(running.end(), Some(0), "{name}");
}

#[test]
fn node() {
    web_server("node", Command::new("node").arg(paths::source("node/serves.js")));
}

#[test]
fn java() {
    let modules = Command::new("java").arg("--list-modules").output().expect("java");
    if !String::from_utf8_lossy(&modules.stdout).contains("jdk.compiler") {
        return skipped("an agent with a JVM", "this Java has no compiler");
    }
    web_server(
        "java",
        Command::new("java").arg("-Dsun.net.httpserver.nodelay=true").arg(paths::source("java/Serves.java")),
    );
}

#[test]
fn python() {
    let found = interpreters::modern();
    let python = found.first().expect("an interpreter");
    web_server("python", Command::new(&python.path).arg(paths::source("python/serves.py")));
}

#[test]
fn gunicorn() {
    let Some(gunicorn) = find("gunicorn") else { return };
    let port = port();
    let mut command = Command::new(gunicorn);
    command.args(["--workers", "2", "--threads", "4", "--log-level", "warning", "--keep-alive", "3600"]);
    command.arg("--bind").arg(format!("127.0.0.1:{port}")).arg("--chdir");
    command.arg(paths::source("python/answers.py").parent().expect("a folder"));
    let mut server = Daemon::start(command.arg("answers"));
    server.is_up("gunicorn", || listens(port));
    under_load("gunicorn", "command = \"*gunicorn*answers\"", port, &server.pids(2));
}

#[test]
fn nginx() {
    let Some(nginx) = find("nginx") else { return };
    let (scratch, port) = (paths::scratch("agent-nginx"), port());
    fs::write(scratch.join("index.html"), ANSWER).expect("a page");
    // Workers of another user may not reach the page.
    let user = if is_root() { "user root root;\n" } else { "" };
    let text = format!(
        "{user}worker_processes 2;\npid {0}/pid;\nerror_log {0}/log;\nevents {{}}\nhttp {{\n  access_log off;\n  \
         keepalive_requests 1000000000;\n  server {{ listen 127.0.0.1:{port}; root {0}; }}\n}}\n",
        scratch.display()
    );
    fs::write(scratch.join("conf"), text).expect("a file");
    let mut command = Command::new(nginx);
    command.args(["-g", "daemon off;", "-p"]).arg(&scratch).arg("-c").arg(scratch.join("conf"));
    let mut server = Daemon::start(&mut command);
    server.is_up("nginx", || listens(port));
    under_load("nginx", "name = \"nginx\"", port, &server.pids(2));
}

fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}

/// A folder that anyone may use, as long as this lives.
struct Shared(PathBuf);

impl Shared {
    fn new(name: &str) -> Shared {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("rights");
        Shared(folder)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command as a user that postgres takes, and in a folder of its own.
fn as_nobody(program: &Path, folder: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(program).current_dir(folder);
    command
}

/// pgbench ends when a transaction fails.
#[test]
fn postgres() {
    // What is in PATH may be a link.
    let Some(postgres) = find("postgres").and_then(|file| file.canonicalize().ok()) else { return };
    let tool = |name: &str| postgres.with_file_name(name);
    if !tool("initdb").is_file() || !tool("pgbench").is_file() {
        return skipped("an agent with postgres", "initdb and pgbench are not beside it");
    }
    // The name of a socket has at most 107 bytes.
    let shared = Shared::new("uu-pg");
    let (folder, data) = (&*shared.0, shared.0.join("data"));
    let done = |command: &mut Command| {
        let out = command.output().expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    done(as_nobody(&tool("initdb"), folder).args(["-U", "uu", "-A", "trust", "-D"]).arg(&data));
    let mut command = as_nobody(&postgres, folder);
    let mut server = Daemon::start(
        command.args(["-c", "listen_addresses=", "-c", "autovacuum=off", "-k"]).arg(folder).arg("-D").arg(&data),
    );
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(tool("pgbench"));
        command.args(["-U", "uu", "-h"]).arg(folder).args(arguments).arg("postgres");
        command
    };
    server.is_up("postgres", || bench(&["-i", "-q"]).output().is_ok_and(|out| out.status.success()));
    let children = uunwind_remote::children;
    let are = |server: &Daemon, title: &str| -> Vec<u32> {
        let is_one =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text.contains(title));
        children(server.0.id()).into_iter().filter(is_one).collect()
    };
    const SESSION: &str = "postgres: uu ";
    wait_for("that session to end", || are(&server, SESSION).is_empty());
    let said = folder.join("said");
    let file = fs::File::create(&said).expect("a file");
    let mut load = bench(&["-n", "-c", "3", "-T", "100000"]);
    let mut load = Daemon::start(load.stderr(file));
    wait_for("sessions", || are(&server, SESSION).len() == 3);
    let pids = [vec![server.0.id()], are(&server, "checkpointer"), are(&server, SESSION)].concat();
    all_cycles("postgres", "name = \"postgres\"", &pids);
    let text = fs::read_to_string(&said).expect("what it said");
    assert!(load.0.try_wait().expect("a child").is_none() && !text.contains("error"), "{text}");
}

#[test]
fn redis() {
    let (Some(redis), Some(benchmark)) = (find("redis-server"), find("redis-benchmark")) else { return };
    let scratch = paths::scratch("agent-redis");
    let port = port();
    let mut command = Command::new(redis);
    command.args(["--save", "", "--appendonly", "no", "--port"]).arg(port.to_string());
    let mut server = Daemon::start(&mut command);
    server.is_up("redis", || listens(port));
    let said = scratch.join("said");
    let file = fs::File::create(&said).expect("a file");
    let mut load = Command::new(benchmark);
    load.args(["-l", "-q", "-n", "20000", "-c", "8", "-t", "set,get,incr,lpush,lrange_100", "-p"])
        .arg(port.to_string());
    let mut load = Daemon::start(load.stderr(file));
    all_cycles("redis", "name = \"redis-server\"", &server.pids(0));
    let text = fs::read_to_string(&said).expect("what it said");
    assert!(load.0.try_wait().expect("a child").is_none() && !text.to_lowercase().contains("error"), "{text}");
}
