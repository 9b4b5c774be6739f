//! `uu record -p PID --push`: a store gets every sample of a process that runs already.

use std::process::Command;
use uunwind_tests::attached::program;
use uunwind_tests::process;
use uunwind_tests::receiver::{local_with, ok, sums, Server};
use uunwind_tests::running::Running;
use uunwind_tests::uu::{self, Recording};

#[test]
fn a_running_process_is_pushed() {
    for (name, options) in [
        ("inside", &[][..]),
        ("outside", &["--remote"]),
        ("named", &["--service", "shop", "--label", "zone=b"]),
        ("wall", &["--mode", "wall", "-i"]),
    ] {
        let (scratch, program) = program(&format!("push-attached-{name}"), &[]);
        let running = Running::ready(&mut Command::new(&program));
        let server = Server::start(|_| ok());
        let file = scratch.join("recording.uu");
        let pid = running.pid().to_string();
        let mut uu = uu::command(&scratch, &["record", "-p", &pid, "-r", "499", "-d", "3.5", "--push", &server.url()]);
        uu.args(["--push-every", "1"]).args(options).arg("-o").arg(&file);
        let done = process::run(&mut uu, &scratch, uu::LIMIT).expect_code(0);
        let recording = Recording::made(file, done, scratch.clone());
        let requests = server.end();
        let stderr = &recording.outcome.stderr;
        assert!(requests.len() >= 2, "{name}: {stderr}");
        let service = if name == "named" { "shop{zone=b}" } else { "attached" };
        assert!(requests.iter().all(|request| request.parameter("name") == service), "{name}: {requests:?}");
        let got = sums(&requests);
        // Threads that do nothing but wait are in both.
        let idle = if name == "wall" { &["-i"][..] } else { &[] };
        assert_eq!(got.stacks, local_with(&recording, &scratch, idle).stacks, "{name}: {stderr}");
        let said = format!("pushed {} profiles ({} samples) to ", requests.len(), got.sum(0));
        assert!(stderr.contains(&said), "{name}: {said}: {stderr}");
        // Snapshots of its own are nowhere.
        assert!(!scratch.join("recording.1.uu").exists() && !stderr.contains("snapshot"), "{name}: {stderr}");
    }
}
