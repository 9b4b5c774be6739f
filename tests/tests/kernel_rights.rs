//! Perf events for users without rights: of the user mode alone, or from a `uu kernel-events` that has the rights and
//! gives away none of them.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::running::wait_for;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, skips, uu};

/// The user who has no rights, and another one.
const USER: u32 = 65_534;
const OTHER: u32 = 65_533;

/// A scratch folder that the user can work in. `None`: there is none, which is reported.
fn scratch(name: &str) -> Option<PathBuf> {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skips::skipped("perf events for another user", "only root can become one");
        return None;
    }
    let scratch = paths::scratch(name);
    std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o777)).expect("own folder");
    let outcome = run(&mut as_user(USER, "test", &["-x".as_ref(), paths::uu().as_os_str()]), &scratch, uu::LIMIT);
    if outcome.status.code() != Some(0) {
        skips::skipped("perf events for another user", "another user cannot reach the built uu");
        return None;
    }
    Some(scratch)
}

/// A command of this user, with no rights.
fn as_user(user: u32, program: &str, words: &[&OsStr]) -> Command {
    let mut command = Command::new("setpriv");
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    command.args(ids).args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--"]);
    command.arg(program).args(words);
    command
}

/// Records as the user.
fn record(scratch: &Path, options: &[&str], program: &[&OsStr]) -> Recording {
    let file = scratch.join("recording.uu");
    let _ = std::fs::remove_file(&file);
    let uu = paths::uu();
    let words = ["record", "-o"].map(OsStr::new).into_iter().chain([file.as_os_str()]);
    let words = words.chain(options.iter().map(OsStr::new)).chain(["--".as_ref()]).chain(program.iter().copied());
    let mut command = as_user(USER, uu.to_str().expect("text"), &words.collect::<Vec<_>>());
    command.env("XDG_CACHE_HOME", scratch.join("cache")).env("XDG_CONFIG_HOME", scratch.join("config"));
    Recording::made(file, run(&mut command, scratch, uu::LIMIT).expect_code(0), scratch.to_path_buf())
}

fn weight(samples: &[Sample], is_wanted: impl Fn(&Sample) -> bool) -> f64 {
    samples.iter().filter(|sample| is_wanted(sample)).map(|sample| sample.weight).sum::<u64>() as f64
}

fn is_in(name: &'static str) -> impl Fn(&Sample) -> bool {
    move |sample| sample.native_names().contains(&name)
}

/// CPU time that the program says it has used.
fn used(outcome: &Outcome) -> f64 {
    outcome.stdout.trim().parse().expect("the CPU time")
}

/// Whether events of the user mode can be had; if not, that is reported.
fn has_user_mode(recording: &Recording) -> bool {
    let stderr = &recording.outcome.stderr;
    if let Some(why) = stderr.lines().find(|line| line.contains("no perf events (")) {
        skips::skipped("perf events of the user mode", why.trim());
        return false;
    }
    assert!(stderr.contains("perf events sample the user mode alone (bpf: "), "{stderr}");
    true
}

#[test]
fn without_rights_user_mode_is_sampled_at_the_rate_and_system_calls_by_the_tick() {
    let Some(scratch) = scratch("rights-none") else { return };
    let program = compile::gcc(&scratch, "work", &["native/kernel_work.c"], &["-pthread"]);
    let recording = record(&scratch, &["-r", "4999"], &[program.as_os_str(), "0.6".as_ref(), "2".as_ref()]);
    if !has_user_mode(&recording) {
        return;
    }
    let (samples, due) = (recording.samples(), used(&recording.outcome) * 4999.0);
    let single = |sample: &Sample| is_in("spins")(sample) && sample.weight == 1;
    let (spins, reads) = (samples.iter().filter(|s| single(s)).count() as f64, weight(&samples, is_in("reads")));
    let all = weight(&samples, |_| true);
    println!("{spins} samples in spins, {reads} periods in reads, {all} of {due:.0} in all");
    assert!(spins > 1.2 * 4999.0 * 0.9, "{spins} samples of one period");
    // A tick stands for what the thread has used since its last one, which where the reads begin and end may be another
    // work: that may be much where threads share a CPU, and meet a tick seldom.
    assert!(reads > due / 4.0, "{reads} periods in system calls, {} are due", due / 2.0);
    assert!((all - due).abs() < due * 0.1, "{all} of {due:.0} periods");
    assert!(samples.iter().all(|sample| !sample.frames.iter().any(|f| matches!(f, Frame::Kernel { .. }))));
    // A rate below the tick is served as well by timers, which see page faults, too.
    let recording = record(&scratch, &["--kernel"], &[program.as_os_str(), "0.1".as_ref()]);
    let stderr = &recording.outcome.stderr;
    assert!(stderr.contains("no perf events (bpf: ") && stderr.contains("kernel frames are left out"), "{stderr}");
}

/// Time in page faults is in no sample with a stack, and charged to no line: neither to the one in which ticks find
/// system calls.
#[test]
fn without_rights_time_in_page_faults_stands_apart() {
    let Some(scratch) = scratch("rights-faults") else { return };
    let program = compile::gcc(&scratch, "faults", &["native/page_faults.c"], &[]);
    let recording = record(&scratch, &["-r", "4999"], &[program.as_os_str(), "1".as_ref()]);
    if !has_user_mode(&recording) {
        return;
    }
    let (samples, due) = (recording.samples(), used(&recording.outcome) * 4999.0);
    let (all, apart) = (weight(&samples, |_| true), weight(&samples, |sample| sample.flags.contains("apart")));
    println!("{all} of {due:.0} periods, {apart} of them apart, {} in touches", weight(&samples, is_in("touches")));
    assert!((all - due).abs() < due * 0.1, "{all} of {due:.0} periods");
    assert!(apart > due * 0.3, "{apart} of {due:.0} periods apart");
}

/// A `uu kernel-events`, which ends with the test.
struct Helper {
    child: Child,
    socket: PathBuf,
}

impl Helper {
    fn start(scratch: &Path) -> Option<Helper> {
        let socket = scratch.join("events");
        let mut command = Command::new(paths::uu());
        command.args(["kernel-events", "--user"]).arg(USER.to_string()).arg("--socket").arg(&socket);
        let log = scratch.join("helper.log");
        let child = command.stderr(std::fs::File::create(&log).expect("scratch")).stdin(Stdio::null()).spawn();
        let mut helper = Helper { child: child.expect("uu"), socket };
        let owner = |path: &Path| std::fs::metadata(path).map(|file| (file.uid(), file.mode() & 0o777));
        let mut has_ended = false;
        wait_for("the helper's socket", || {
            has_ended = helper.child.try_wait().expect("our child").is_some();
            has_ended || owner(&helper.socket).is_ok_and(|found| found == (USER, 0o600))
        });
        if has_ended {
            let why = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(why.contains("cannot listen"), "{why}");
            skips::skipped("perf events from a helper", why.trim());
            return None;
        }
        Some(helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_helper_gives_a_user_stacks_in_the_kernel() {
    let Some(scratch) = scratch("rights-helper") else { return };
    let Some(helper) = Helper::start(&scratch) else { return };
    let program = compile::gcc(&scratch, "work", &["native/kernel_work.c"], &["-pthread"]);
    let socket = helper.socket.to_str().expect("text").to_owned();
    let options = ["--kernel", "-r", "999", "--events-from", &socket];
    let words = [program.as_os_str(), "0.6".as_ref(), "2".as_ref()];
    let recording = record(&scratch, &options, &words);
    let stderr = &recording.outcome.stderr;
    if let Some(why) = stderr.lines().find(|line| line.contains("no perf events (")) {
        return skips::skipped("perf events from a helper", why.trim());
    }
    let (samples, due) = (recording.samples(), used(&recording.outcome) * 999.0);
    let all = weight(&samples, |_| true);
    assert!((all - due).abs() < due * 0.03 + 40.0, "{all} of {due:.0} periods");
    let reads =
        |sample: &Sample| sample.frames.iter().any(|frame| frame.name() == "ksys_read") && is_in("reads")(sample);
    let reads = weight(&samples, reads);
    assert!(reads > all * 0.4, "{reads} of {all} periods in read(2): {stderr}");
    // Root's socket alone is trusted, and a helper that has gone is named.
    drop(helper);
    let recording = record(&scratch, &options, &[program.as_os_str(), "0.05".as_ref()]);
    assert!(recording.outcome.stderr.contains("start `uu kernel-events` as root"), "{}", recording.outcome.stderr);
}

/// Whoever asks for another's thread, for a thread whose program has other rights, or in another way, gets nothing.
#[test]
fn a_helper_refuses_all_but_the_users_own_threads() {
    let Some(scratch) = scratch("rights-refused") else { return };
    let Some(helper) = Helper::start(&scratch) else { return };
    let idle = |command: &mut Command| {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a program that waits");
        let is_ready = || std::fs::read_to_string(format!("/proc/{}/comm", child.id())).is_ok_and(|n| n == "cat\n");
        wait_for("the program", is_ready);
        child
    };
    let cat = scratch.join("cat");
    std::fs::copy("/bin/cat", &cat).expect("a copy");
    std::fs::set_permissions(&cat, std::fs::Permissions::from_mode(0o4755)).expect("own file");
    let set_user_id = idle(&mut as_user(USER, cat.to_str().expect("text"), &[]));
    // A program that became the user's, and may know what it could read before.
    let dropped = scratch.join("dropped");
    let source = scratch.join("dropped.c");
    std::fs::write(
        &source,
        format!(
            "#include <sys/prctl.h>\n#include <unistd.h>\nint main(void) {{ char c; prctl(PR_SET_NAME, \"cat\");\n\
             return setresgid({USER}, {USER}, {USER}) || setresuid({USER}, {USER}, {USER}) || read(0, &c, 1); }}\n"
        ),
    )
    .expect("scratch");
    let made = run(Command::new("gcc").arg("-o").arg(&dropped).arg(&source), &scratch, uu::LIMIT);
    made.expect_code(0);
    let dropped = idle(&mut Command::new(&dropped));
    let ids = |child: &Child| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it waits");
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("its user");
        ids.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("its user", || ids(&dropped) == ["65534"; 4]);
    // Not on a file system that is mounted without set-user-ID programs.
    let is_roots = ids(&set_user_id)[1] == "0";
    let own = idle(&mut as_user(USER, "cat", &[]));
    let others = idle(&mut as_user(OTHER, "cat", &[]));
    let roots = idle(&mut Command::new("cat"));
    let children = [own, others, roots, set_user_id, dropped];
    let ids = children.each_ref().map(|child| child.id().to_string());
    let asks = paths::source("python/asks.py");
    let ask = |user: u32, wanted: &[&str]| {
        let first = [asks.as_os_str(), helper.socket.as_os_str()];
        let words: Vec<&OsStr> = first.into_iter().chain(wanted.iter().map(OsStr::new)).collect();
        let mut command = match user {
            0 => Command::new("/usr/bin/python3"),
            _ => as_user(user, "/usr/bin/python3", &[]),
        };
        let outcome = run(command.args(words), &scratch, uu::LIMIT).expect_code(0);
        outcome.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let [own, others, roots, set_user_id, dropped] = ids.each_ref().map(String::as_str);
    assert_eq!(ask(USER, &["own", own, "names"]), ["granted"; 3]);
    assert_eq!(ask(USER, &[others, roots, dropped, "1"]), ["EPERM"; 4]);
    assert_eq!(ask(USER, &[set_user_id]), [if is_roots { "EPERM" } else { "granted" }]);
    assert_eq!(ask(USER, &["0", "4294967295", "period"]), ["EINVAL"; 3]);
    assert_eq!(ask(USER, &["2147483647"]), ["ESRCH"]);
    assert_eq!(ask(USER, &["packet", "long"]), ["closed"; 2]);
    assert_eq!(ask(OTHER, &["own"]), ["EACCES"], "only its user may connect");
    assert_eq!(ask(0, &["own"]), ["closed"], "root has no need to");
    // It still serves.
    assert_eq!(ask(USER, &["own"]), ["granted"]);
    for mut child in children {
        drop(child.stdin.take());
        let _ = child.wait();
    }
}
