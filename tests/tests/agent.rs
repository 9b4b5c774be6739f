//! `uu agent`: processes that rules name are found, profiled and pushed under their service's name, as they come and
//! go.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_skips::skipped;
use uunwind_tests::agents::{head, head_of, is_as_before, list, socket, Agent};
use uunwind_tests::grpc::{self, Call};
use uunwind_tests::receiver::{ok, sums, Request, Server};
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::{compile, interpreters, paths, process, uu};

fn service(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "served", &["native/served.c"], &[])
}

/// Starts the service with a variable in its environment, which no other test's process has.
fn served(program: &Path, scratch: &Path, value: &str) -> Running {
    Running::ready(Command::new(program).env("UU_TEST_SERVICE", variable(scratch, value)))
}

fn variable(scratch: &Path, value: &str) -> String {
    format!("{}-{value}", scratch.display())
}

/// A rule for processes with that variable.
fn rule(scratch: &Path, value: &str, more: &str) -> String {
    format!("[[rule]]\nenv = {{ UU_TEST_SERVICE = \"{}\" }}\n{more}\n", variable(scratch, value))
}

/// Rounds of a service, and its CPU time in ns.
fn work(running: &mut Running) -> (u64, u64) {
    running.say("?");
    let line = running.line();
    let mut numbers = line.split(' ').map(|word| word.parse().expect("numbers"));
    (numbers.next().expect("rounds"), numbers.next().expect("a time"))
}

fn of(requests: &[Request], name: &str) -> Vec<Request> {
    requests.iter().filter(|request| request.parameter("name") == name).cloned().collect()
}

#[test]
fn services_are_found_profiled_and_pushed_under_their_names() {
    let scratch = paths::scratch("agent-services");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let python = interpreters::supported().into_iter().next().expect("a python");
    let script = scratch.join("agent_app.py");
    fs::write(
        &script,
        "\
import time
def serve():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    time.sleep(0.02)
print('ready', flush=True)
while True:
    serve()
",
    )
    .expect("a file");
    let mut first = served(&program, &scratch, "a");
    let skip = served(&program, &scratch, "skip");
    let app = Running::ready(Command::new(&python.path).arg(&script));
    let config = head(&server)
        + &rule(&scratch, "skip", "skip = true")
        + &rule(&scratch, "a", "service = \"shop-{name}\"\nlabels = { zone = \"b\", pid = \"{pid}\" }")
        + &rule(&scratch, "later*", "service = \"later\"\nrate = 99")
        + &rule(&scratch, "wall", "service = \"waits\"\nmode = \"wall\"")
        + &format!("[[rule]]\ncommand = \"*{}*\"\nservice = \"app\"\n", script.display());
    let mut agent = Agent::start(&scratch, &config);
    agent.wait_for(&[first.pid(), app.pid()]);
    let (_, from) = work(&mut first);
    // What begins later is found, too, and one whose threads only wait now and then is sampled by the clock.
    let later = served(&program, &scratch, "later-1");
    let wall = served(&program, &scratch, "wall");
    agent.wait_for(&[later.pid(), wall.pid()]);
    let name = format!("shop-served{{zone=b,pid={}}}", first.pid());
    let names = [&*name, "app", "later", "waits"];
    wait_for("profiles of all", || {
        let requests = server.so_far();
        names.iter().all(|name| of(&requests, name).len() >= 2)
    });
    let status = agent.status();
    let entry = |pid: u32| list(&status, "processes").iter().find(|entry| entry["pid"] == pid).expect("it is profiled");
    assert_eq!((&entry(later.pid())["service"], &entry(later.pid())["rate"]), (&"later".into(), &99.into()));
    assert_eq!((&entry(wall.pid())["mode"], &entry(first.pid())["mode"]), (&"wall".into(), &"cpu".into()));
    assert!(list(&status, "processes").iter().all(|entry| entry["pid"] != skip.pid()), "{status}");
    assert_eq!(list(&status, "refused").len(), 0, "{status}");
    assert!(status["push"]["sent"].as_u64() >= Some(8), "{status}");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&socket(&scratch)), mode(&scratch.join("run"))), (0o600, 0o700));
    // For people.
    let mut shown = uu::command(&scratch, &["agent", "status", "--socket"]);
    let shown = process::run(shown.arg(socket(&scratch)), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert!(shown.contains("4 processes profiled, 0 not") && shown.contains("shop-served"), "{shown}");
    let (rounds, used) = work(&mut first);
    let said = agent.end();
    let (later_rounds, all) = work(&mut first);
    assert!(later_rounds >= rounds);
    for running in [&first, &later, &wall, &app, &skip] {
        is_as_before(running.pid());
    }
    let requests = server.end();
    let unknown = requests.iter().map(|request| request.parameter("name")).find(|name| !names.contains(&&**name));
    assert_eq!(unknown, None, "{said}");
    let sent: usize = requests.len();
    assert!(said.contains(&format!("pushed {sent} profiles (")), "{sent}: {said}");
    // The profiles agree with the program: its functions, and the CPU time that it has used meanwhile.
    let got = sums(&of(&requests, &name));
    let time = |profile: &uunwind_tests::pprof::Profile, has: &str| -> u64 {
        profile.stacks.iter().filter(|(stack, _)| stack.contains(has)).map(|(_, values)| values[1]).sum()
    };
    // A sample stands for whole periods. None is in two profiles.
    assert!(got.sum(1) as f64 <= all as f64 * 1.3, "{} ns of {all}: {got:?}", got.sum(1));
    assert!(got.sum(1) as f64 >= (used - from) as f64 * 0.8, "{} ns of {}: {got:?}", got.sum(1), used - from);
    // What became due at once, on a busy machine, has no stack.
    let with_stack = |profile: &uunwind_tests::pprof::Profile| profile.sum(1) - time(profile, "[late tick]");
    assert!(time(&got, "spins;serves;main") as f64 >= with_stack(&got) as f64 * 0.9, "{got:?}");
    let of_app = sums(&of(&requests, "app"));
    assert!(time(&of_app, "serve") as f64 >= with_stack(&of_app) as f64 * 0.9, "{of_app:?}");
}

/// The program goes on when its agent is killed at any moment, and another agent finds it as it was.
#[test]
fn a_killed_agent_harms_nobody() {
    let scratch = paths::scratch("agent-killed");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let mut running = served(&program, &scratch, "k");
    let config = head(&server) + &rule(&scratch, "k", "service = \"k\"");
    for moment in 0..4 {
        let mut agent = Agent::start(&scratch, &config);
        if moment > 0 {
            agent.wait_for(&[running.pid()]);
        }
        if moment == 3 {
            let before = of(&server.so_far(), "k").len();
            wait_for("a profile", || of(&server.so_far(), "k").len() > before);
        }
        agent.signal(libc::SIGKILL);
        agent.child.wait().expect("its end");
        let (rounds, _) = work(&mut running);
        wait_for("more work", || work(&mut running).0 > rounds);
    }
    let mut agent = Agent::start(&scratch, &config);
    // Another one cannot be at the same place.
    let mut second = uu::command(&scratch, &["agent", "-c"]);
    second.arg(scratch.join("agent.toml")).arg("--socket").arg(socket(&scratch));
    let refused = process::run(&mut second, &scratch, uu::LIMIT).expect_code(125);
    assert!(refused.stderr.contains("another agent answers at "), "{}", refused.stderr);
    agent.wait_for(&[running.pid()]);
    let before = of(&server.so_far(), "k").len();
    wait_for("a profile", || of(&server.so_far(), "k").len() > before);
    let folders = || paths::list(&scratch).into_iter().filter(|path| path.to_string_lossy().contains("/uu-agent-"));
    assert_eq!(folders().count(), 1, "those of killed agents are removed");
    agent.end();
    assert_eq!(folders().count(), 0);
    is_as_before(running.pid());
    let stacks = sums(&of(&server.end(), "k")).stacks;
    assert!(stacks.keys().any(|stack| stack.contains("spins;serves;main")), "{stacks:?}");
    assert_eq!(running.close(), Some(7));
}

/// By OTLP, each service is a resource of its own.
#[test]
fn a_collector_gets_each_service_as_a_resource() {
    let scratch = paths::scratch("agent-otlp");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let both = [served(&program, &scratch, "o1"), served(&program, &scratch, "o2")];
    let config = head(&server).replace("http://", "otlp+http://")
        + &rule(&scratch, "o1", "service = \"first service\"\nlabels = { \"a.b\" = \"c\" }")
        + &rule(&scratch, "o2", "service = \"other one\"");
    let mut agent = Agent::start(&scratch, &config);
    agent.wait_for(&both.each_ref().map(Running::pid));
    let has = |request: &Request, name: &str| {
        let plain = uunwind_tests::pprof::gunzip(&request.body);
        plain.windows(name.len()).any(|bytes| bytes == name.as_bytes())
    };
    wait_for("profiles of both", || {
        let requests = server.so_far();
        ["first service", "other one"].iter().all(|name| requests.iter().any(|request| has(request, name)))
    });
    agent.end();
    let requests = server.end();
    assert!(requests.iter().all(|request| request.line.starts_with("POST /v1development/profiles ")), "{requests:?}");
    assert!(requests.iter().all(|request| has(request, "first service") != has(request, "other one")));
}

/// By Parca's gRPC, each service is a job of its own.
#[test]
fn parca_gets_each_service_as_a_job() {
    let scratch = paths::scratch("agent-parca");
    let plan = serde_json::json!([{"message": ""}]);
    let server = grpc::Server::start("services that an agent pushes to Parca", &scratch, &plan, None);
    let (Some(server), program) = (server, service(&scratch)) else { return };
    let both = [served(&program, &scratch, "j1"), served(&program, &scratch, "j2")];
    let config = head_of(&format!("parca+grpc://127.0.0.1:{}", server.port))
        + &rule(&scratch, "j1", "service = \"first\"\nlabels = { zone = \"b\" }")
        + &rule(&scratch, "j2", "service = \"other\"");
    let mut agent = Agent::start(&scratch, &config);
    agent.wait_for(&both.each_ref().map(Running::pid));
    // A label, as a message has it.
    let has = |call: &Call, name: &str, value: &str| {
        let text = |tag: u8, text: &str| [&[tag, text.len() as u8], text.as_bytes()].concat();
        let label = [text(0x0a, name), text(0x12, value)].concat();
        call.message.windows(label.len()).any(|bytes| bytes == label)
    };
    wait_for("profiles of both", || {
        let calls = server.calls();
        ["first", "other"].iter().all(|service| calls.iter().any(|call| has(call, "job", service)))
    });
    agent.end();
    for call in server.end() {
        let is_first = has(&call, "job", "first");
        assert!(is_first != has(&call, "job", "other") && is_first == has(&call, "zone", "b"), "{call:?}");
    }
}

/// A process that ends gives its place, its name and its id to others.
#[test]
fn others_come_in_the_place_of_those_that_end() {
    let scratch = paths::scratch("agent-places");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let config = head(&server) + &rule(&scratch, "p", "service = \"p\"\nlabels = { pid = \"{pid}\" }");
    let mut agent = Agent::start(&scratch, &config);
    wait_for("the rule to be spoken of", || agent.said().contains("names no process so far"));
    let mut first = served(&program, &scratch, "p");
    agent.wait_for(&[first.pid()]);
    let pid = first.pid();
    first.kill();
    // One with the same id, if this user may choose it.
    let other = with_pid(pid, || served(&program, &scratch, "p"));
    let is_same = other.as_ref().is_some_and(|other| other.pid() == pid);
    if !is_same {
        skipped("a process that takes the id of one that has ended", "/proc/sys/kernel/ns_last_pid cannot be written");
    }
    let second = other.unwrap_or_else(|| served(&program, &scratch, "p"));
    wait_for("a new recording", || {
        let status = agent.status();
        let entry = list(&status, "processes").iter().find(|entry| entry["pid"] == second.pid());
        let lines = agent.said().matches(&format!("profiles process {} as p", second.pid())).count();
        entry.is_some_and(|entry| entry["how"] != "begins") && lines == if is_same { 2 } else { 1 }
    });
    let name = format!("p{{pid={}}}", second.pid());
    let before = of(&server.so_far(), &name).len();
    wait_for("a profile of the second", || of(&server.so_far(), &name).len() > before);
    assert_eq!(list(&agent.status(), "processes").len(), 1);
    let said = agent.end();
    assert_eq!(said.matches("names no process so far").count(), 1, "{said}");
    is_as_before(second.pid());
}

/// Starts processes until one has this id. `None`: nobody may choose it.
fn with_pid(pid: u32, start: impl Fn() -> Running) -> Option<Running> {
    for _ in 0..1000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let running = start();
        if running.pid() == pid {
            return Some(running);
        }
    }
    None
}

#[test]
fn budgets_are_kept() {
    let scratch = paths::scratch("agent-budgets");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let both = [served(&program, &scratch, "b"), served(&program, &scratch, "b")];
    let rules = rule(&scratch, "b", "service = \"b\"");
    let plain = head(&server);
    for (config, why, profiled) in [
        (format!("{plain}processes = 1\n"), "1 processes are profiled already (agent.processes)", 1),
        (plain.replace("\"3G\"", "\"64K\""), "of its 0 MB (agent.memory)", 0),
        (plain.replace("cpu = 100", "cpu = 0.0001"), "of the CPUs, of its 0.0001 % (agent.cpu)", 0),
    ] {
        let mut agent = Agent::start(&scratch, &(config + &rules));
        wait_for("a refusal", || {
            let status = agent.status();
            let refused = list(&status, "refused");
            let is_why = |entry: &Value| entry["why"].as_str().is_some_and(|text| text.contains(why));
            let is_begun = list(&status, "processes").iter().all(|entry| entry["how"] != "begins");
            refused.len() == 2 - profiled && refused.iter().all(is_why) && is_begun
        });
        let status = agent.status();
        assert_eq!(list(&status, "processes").len(), profiled, "{status}");
        assert!(status["refusals"].as_u64() >= Some(2 - profiled as u64), "{status}");
        agent.end();
    }
    // The place of one that ends is another one's.
    let mut agent = Agent::start(&scratch, &format!("{plain}processes = 1\n{rules}"));
    wait_for("one of both", || {
        let status = agent.status();
        list(&status, "processes").len() == 1 && list(&status, "refused").len() == 1
    });
    let status = agent.status();
    let sampled = list(&status, "processes")[0]["pid"].clone();
    let (mut ends, stays): (Vec<Running>, Vec<Running>) = both.into_iter().partition(|one| sampled == one.pid());
    ends.iter_mut().for_each(Running::kill);
    agent.wait_for(&[stays[0].pid()]);
    assert_eq!(list(&agent.status(), "refused").len(), 0);
    agent.end();
}

#[test]
fn a_file_that_is_read_again_changes_what_is_profiled() {
    let scratch = paths::scratch("agent-again");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let (leaves, stays) = (served(&program, &scratch, "leaves"), served(&program, &scratch, "stays"));
    let stays_rule = rule(&scratch, "stays", "service = \"stays\"");
    let both = head(&server) + &stays_rule + &rule(&scratch, "leaves", "service = \"leaves\"");
    let mut agent = Agent::start(&scratch, &both);
    agent.wait_for(&[leaves.pid(), stays.pid()]);
    agent.reread("[push");
    wait_for("an error", || agent.said().contains("line 1: this is not TOML"));
    assert_eq!(list(&agent.status(), "processes").len(), 2);
    agent.reread(&(head(&server) + &stays_rule));
    wait_for("one of both to be left", || list(&agent.status(), "processes").len() == 1);
    is_as_before(leaves.pid());
    agent.wait_for(&[stays.pid()]);
    let said = agent.end();
    assert!(said.contains("was read again: 1 rules") && said.contains("the rules stay as they were"), "{said}");
}

#[test]
fn what_is_wrong_in_the_file_is_said_before_anything_is_done() {
    let scratch = paths::scratch("agent-wrong");
    let file = scratch.join("agent.toml");
    for (text, says) in [
        (
            "[push]\nurl = \"http://h\"\n[[rule]]\nname = \"x\"\nservice = \"x\"\nrate = 0\n",
            "line 6: rule.rate 0: it takes",
        ),
        ("[push]\nurl = \"http://h\"\n[[rule]]\nservice = \"x\"\n", "line 3: this rule has no condition"),
        ("[[rule]]\nname = \"x\"\nservice = \"x\"\n", "push.url is missing"),
    ] {
        fs::write(&file, text).expect("a file");
        for words in [&["agent"][..], &["agent", "check"]] {
            let mut command = uu::command(&scratch, words);
            let out = process::run(command.arg("-c").arg(&file), &scratch, uu::LIMIT).expect_code(125);
            let place = format!("uu: error: {}: ", file.display());
            assert!(out.stderr.starts_with(&place) && out.stderr.contains(says), "{text}: {}", out.stderr);
        }
    }
    let missing = process::run(&mut uu::command(&scratch, &["agent", "-c", "/no/such"]), &scratch, uu::LIMIT);
    assert!(missing.expect_code(125).stderr.contains("/no/such cannot be read: "));
    let none = process::run(&mut uu::command(&scratch, &["agent"]), &scratch, uu::LIMIT).expect_code(125);
    assert!(none.stderr.contains("no file with rules given: -c FILE"), "{}", none.stderr);
    let mut status = uu::command(&scratch, &["agent", "status", "--socket"]);
    let nobody = process::run(status.arg(scratch.join("none")), &scratch, uu::LIMIT).expect_code(125);
    assert!(nobody.stderr.contains("no agent answers at "), "{}", nobody.stderr);
}

#[test]
fn uu_itself_is_never_profiled() {
    let scratch = paths::scratch("agent-itself");
    let (program, server) = (service(&scratch), Server::start(|_| ok()));
    let running = served(&program, &scratch, "i");
    let own = format!("[[rule]]\ncommand = \"*uu agent -c {}*\"\nservice = \"own\"\n", scratch.display());
    let config = head(&server) + &own + &rule(&scratch, "i", "service = \"i\"");
    let mut agent = Agent::start(&scratch, &config);
    agent.wait_for(&[running.pid()]);
    let status = agent.status();
    assert_eq!(list(&status, "processes").len(), 1, "{status}");
    assert!(agent.said().contains("the rule at line 9 (own) names uu itself alone, which is never profiled"));
    // What would be done, without doing it.
    let mut check = uu::command(&scratch, &["agent", "check", "-c"]);
    let out = process::run(check.arg(scratch.join("agent.toml")), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert!(out.contains("rule at line 9, own: 0 processes\n"), "{out}");
    let row = format!("{}  i ", running.pid());
    assert!(out.contains(", i: 1 processes:\n") && out.contains(row.trim_end()), "{out}");
    assert!(out.contains("processes are uu itself, and are never profiled"), "{out}");
    agent.end();
}

/// A process that the kernel protects from the agent is named once, counted, and does not keep others from being
/// profiled.
#[test]
fn a_process_that_may_not_be_traced_is_refused_once() {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } != 0 {
        skipped("a process that the agent may not trace", "only root can start one of another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let scratch = std::env::temp_dir().join(format!("uu-agent-refused-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a folder");
    let program = service(&scratch);
    std::os::unix::fs::chown(&scratch, Some(NOBODY), Some(NOBODY)).expect("root may");
    let as_nobody = |command: &mut Command| {
        command.uid(NOBODY).gid(NOBODY);
    };
    let readable = Command::new(paths::uu()).arg("--version").uid(NOBODY).gid(NOBODY).output();
    if !readable.is_ok_and(|out| out.status.success()) {
        skipped("a process that the agent may not trace", "another user cannot run uu where it was built");
        let _ = fs::remove_dir_all(&scratch);
        return;
    }
    let server = Server::start(|_| ok());
    let forbidden = served(&program, &scratch, "f");
    let mut own = Command::new(&program);
    as_nobody(&mut own);
    let own = Running::ready(&mut own);
    let config = head(&server) + &format!("[[rule]]\ncommand = \"{}\"\nservice = \"f\"\n", program.display());
    let mut agent = Agent::start_as(&scratch, &config, as_nobody);
    agent.wait_for(&[own.pid()]);
    let warning = format!("process {} (f) is not profiled: process {0} may not be traced", forbidden.pid());
    wait_for("the refusal", || agent.said().contains(&warning));
    let status = agent.status();
    let refused = list(&status, "refused");
    assert!(refused.len() == 1 && refused[0]["again_in_seconds"].is_null(), "{status}");
    // Two more looks for processes change nothing.
    let scans = |agent: &mut Agent| agent.status()["seconds"].as_u64().expect("a number");
    let from = scans(&mut agent);
    wait_for("two more looks", || scans(&mut agent) >= from + 3);
    let said = agent.end();
    assert_eq!(said.matches(&warning).count(), 1, "{said}");
    let _ = fs::remove_dir_all(&scratch);
}
