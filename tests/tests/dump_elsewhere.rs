//! `uu dump` and `uu record -p` of programs that run elsewhere: in other namespaces, below another root, as another
//! user, with another C library. Stacks and names are those of the same program at home.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::running::Running;
use uunwind_tests::{compile, held, paths, process, skips, uu};

const NOBODY: u32 = 65534;

fn program(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options: Vec<&str> = ["-pthread"].iter().chain(options).copied().collect();
    let program = compile::gcc(&scratch, "dumped", &["native/dumped.c"], &options);
    (scratch, program)
}

fn is_root() -> bool {
    // SAFETY: a call without preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Whether a command such as unshare may do this here.
fn works(words: &[&str]) -> bool {
    Command::new(words[0]).args(&words[1..]).arg("true").output().is_ok_and(|out| out.status.success())
}

/// The first process in a line of only children, as unshare has them, whose program is this one.
fn inner(pid: u32, name: &str) -> u32 {
    let mut at = pid;
    while std::fs::read_to_string(format!("/proc/{at}/comm")).expect("a process").trim_end() != name {
        let children = std::fs::read_to_string(format!("/proc/{at}/task/{at}/children")).expect("a process");
        at = children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a child");
    }
    at
}

const CHAINS: [[&str; 2]; 4] = [
    ["waits_for_events", "in_events"],
    ["waits_for_bytes", "in_bytes"],
    ["waits_for_the_end", "main"],
    ["spins", "in_loop"],
];

/// For each thread, the program's functions in its stack, leaf first, and whether it is complete.
#[track_caller]
fn stacks(scratch: &Path, pid: u32) -> Vec<(Vec<String>, bool)> {
    let mut command = uu::command(scratch, &["dump", "--json", "-p"]);
    let out = process::run(command.arg(pid.to_string()), scratch, uu::LIMIT).expect_code(0);
    let dump: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()));
    let stack = |thread: &Value| {
        let frames = thread["frames"].as_array().expect("frames").iter();
        let names = frames.filter_map(|frame| frame["function"].as_str());
        let known = names.filter(|name| CHAINS.concat().contains(name)).map(str::to_owned);
        (known.collect(), thread["complete"] == true)
    };
    dump["threads"].as_array().expect("threads").iter().map(stack).collect()
}

/// All threads stand in the program's functions, by their names.
#[track_caller]
fn expect_stacks(scratch: &Path, pid: u32, what: &str) {
    let found = stacks(scratch, pid);
    for chain in CHAINS {
        assert!(found.iter().any(|(names, complete)| names == &chain && *complete), "{what}: {chain:?} in {found:?}");
    }
}

#[test]
fn programs_in_other_namespaces_and_below_other_roots() {
    let (scratch, dumped) = program("elsewhere-namespaces", &[]);
    let (_, fixed) = program("elsewhere-chroot", &["-static"]);
    let hidden = "mount -t tmpfs none /mnt && cp \"$0\" /mnt/dumped && exec /mnt/dumped";
    let root = scratch.join("root");
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::copy(&fixed, root.join("dumped")).expect("a copy");
    let (dumped, root) = (dumped.to_str().expect("text"), root.to_str().expect("text"));
    let cases: [(&str, &[&str], &[&str]); 5] = [
        ("a pid and a mount namespace", &["unshare", "--pid", "--fork", "--mount-proc"], &[dumped]),
        ("a file that nobody else sees", &["unshare", "--mount"], &["sh", "-c", hidden, dumped]),
        ("a user namespace", &["unshare", "--user", "--map-root-user"], &[dumped]),
        ("a network and an IPC namespace", &["unshare", "--net", "--ipc"], &[dumped]),
        ("another root", &["chroot", root], &["/dumped"]),
    ];
    for (what, way, words) in cases {
        let is_possible = if way[0] == "chroot" { is_root() } else { works(way) };
        if !is_possible {
            skips::skipped(&format!("a dump of a program in {what}"), &format!("{} may not do it here", way[0]));
            continue;
        }
        let running = Running::ready(Command::new(way[0]).args(&way[1..]).args(words));
        expect_stacks(&scratch, inner(running.pid(), "dumped"), what);
        assert_eq!(running.end(), Some(0), "{what}: a wait was interrupted");
    }
}

/// Locks have the ids that threads have in their own pid namespace.
#[test]
fn holders_are_found_in_another_pid_namespace() {
    let way = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !works(&way) {
        return skips::skipped("holders of locks in another pid namespace", "unshare may not do it here");
    }
    let scratch = paths::scratch("elsewhere-held");
    let program = compile::gcc(&scratch, "held", &["native/held.c"], &["-pthread"]);
    let mut running = Running::start(Command::new(way[0]).args(&way[1..]).arg(&program));
    let said = held::said(&mut running);
    let pid = inner(running.pid(), "held");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
    let out = process::run(command.arg(pid.to_string()), &scratch, uu::LIMIT).expect_code(0);
    let dump: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()));
    let own_id = |tid: &u64| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).expect("a thread");
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).expect("its ids").to_owned();
        ids.split_whitespace().last().and_then(|id| id.parse::<u64>().ok())
    };
    let threads: Vec<u64> = uunwind_tests::dumps::threads(&dump).iter().filter_map(|t| t["tid"].as_u64()).collect();
    let outer = |own: u64| threads.iter().copied().find(|tid| own_id(tid) == Some(own)).expect("a thread");
    assert!(said.len() > 20 && outer(1) != 1, "another namespace");
    held::expect(&dump, &said, outer, "another pid namespace");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn programs_of_other_users_are_shown_to_root_and_set_uid_ones_to_nobody_else() {
    if !is_root() {
        return skips::skipped("dumps of other users' programs", "needs root");
    }
    let (scratch, dumped) = program("elsewhere-users", &[]);
    // A place where that user may look.
    let open = std::env::temp_dir().join(format!("uu-elsewhere-{}", std::process::id()));
    std::fs::create_dir_all(&open).expect("a folder");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("its mode");
    let place = |name: &str, mode: u32| {
        let path = open.join(name);
        std::fs::copy(&dumped, &path).expect("a copy");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        path
    };
    let running = Running::ready(Command::new(place("other", 0o755)).uid(NOBODY).gid(NOBODY));
    expect_stacks(&scratch, running.pid(), "another user");
    assert_eq!(running.end(), Some(0), "a wait was interrupted");

    let running = Running::ready(Command::new(place("set-uid", 0o4755)).uid(NOBODY).gid(NOBODY));
    expect_stacks(&scratch, running.pid(), "a set-uid program");
    let mut command = uu::command(&scratch, &["dump", "-p"]);
    command.arg(running.pid().to_string()).uid(NOBODY).gid(NOBODY);
    let said = process::run(&mut command, &scratch, uu::LIMIT).expect_code(125).stderr;
    assert!(said.contains("may not be traced") && said.contains("root"), "{said}");
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
    std::fs::remove_dir_all(&open).expect("removed");
}

/// musl is another C library and another loader; a program of it cannot be started recorded. Debian's is built without
/// unwind information: a thread in its functions has a short stack, with that reason, and never a wrong one.
#[test]
fn programs_of_musl() {
    if !Command::new("musl-gcc").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skips::skipped("programs of musl", "musl-gcc is not installed (musl-tools)");
    }
    let scratch = paths::scratch("elsewhere-musl");
    for (name, options) in [("dumped", &[][..]), ("fixed", &["-static"])] {
        let program = scratch.join(name);
        let mut gcc = Command::new("musl-gcc");
        gcc.args(["-g", "-O2", "-pthread"]).args(options).arg("-o").arg(&program);
        gcc.arg(paths::source("native/dumped.c"));
        process::run(&mut gcc, &scratch, uu::LIMIT).expect_code(0);
        let running = Running::ready(&mut Command::new(&program));
        let found = stacks(&scratch, running.pid());
        assert!(found.iter().any(|(names, _)| names == &CHAINS[3]), "{name}: {found:?}");
        for (names, complete) in &found {
            assert!(names.is_empty() && !complete || CHAINS.iter().any(|chain| names == chain), "{name}: {found:?}");
        }
        let folded = scratch.join(name).with_extension("folded");
        let mut command = uu::command(&scratch, &["record", "-d", "1", "-p"]);
        command.arg(running.pid().to_string()).arg("-o").arg(&folded);
        process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        let stacks_of_all = std::fs::read_to_string(&folded).expect("folded stacks");
        assert!(stacks_of_all.contains(";in_loop;spins "), "{stacks_of_all}");
        assert_eq!(running.end(), Some(0), "a wait was interrupted");
    }
}
