//! `uu record -p -s`: the children of a running process are recorded, too.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use uunwind_recording::{EndCause, Recording, FROM_INSIDE, FROM_OUTSIDE};
use uunwind_tests::attached::{known, program, used_by_threads, Attached};
use uunwind_tests::looks::Looks;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, interpreters, paths, process, skips, uu};

/// Begins a recording of a process and its children.
type Begin = fn(&Path, u32, &[&str]) -> Attached;

#[test]
fn children_of_a_shell_are_recorded_too() {
    children_of_a_shell("attach-children", Attached::begin);
}

/// Each of them has a sampler, and none when the recording is over.
#[test]
fn children_of_a_shell_get_samplers_too() {
    let (recording, pids) = children_of_a_shell("inject-children", Attached::begin_inside);
    assert!(recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE)), "{:?}", recording.notes);
    assert!(recording.notes.iter().all(|note| !note.contains("stays in process")), "{:?}", recording.notes);
    assert_eq!(pids.len(), 3);
}

/// A child that is there already, and some that a shell starts during the recording, are processes of their own in
/// it.
#[track_caller]
fn children_of_a_shell(name: &str, begin: Begin) -> (Recording, Vec<u32>) {
    let scratch = paths::scratch(name);
    let flag = scratch.join("over");
    let burns = format!("sh -c 'echo $$; while [ ! -e {} ]; do :; done' &", flag.display());
    let script = format!("{burns} echo ready; read line; {burns} {burns} read line; wait; exit 7");
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    // The child and the shell write at the same time.
    let said = [running.line(), running.line()];
    let mut pids: Vec<u32> = said.iter().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 1, "{said:?}");
    let attached = begin(&scratch, running.pid(), &["-s"]);
    running.say("go");
    pids.extend((0..2).map(|_| running.line().parse::<u32>().expect("a process id")));
    wait_until_used(&pids, 0.5);
    attached.wait_for_processes(&pids);
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    assert!(pids.iter().all(|pid| !Looks::of(*pid).has_sampler()), "{summary}");
    let first = recording.processes.first().expect("a process").pid;
    assert_eq!(first, running.pid());
    for pid in &pids {
        assert!(samples.iter().any(|sample| sample.pid == *pid), "{pid} has no sample: {summary}");
        let process = recording.processes.iter().find(|process| process.pid == *pid).expect("it has samples");
        assert_eq!((process.parent, process.command.len()), (first, 3), "{process:?}");
    }
    let end = recording.end.as_ref().expect("an end");
    assert!(end.cpu_used >= 1_500_000_000, "the CPU time of all: {}", end.cpu_used);
    assert!(!summary.contains("-p leaves out"), "{summary}");
    std::fs::write(&flag, "").expect("scratch");
    assert_eq!(running.end(), Some(7), "the shell has noticed it");
    (recording, pids)
}

/// Waits until each of these processes has used this CPU time more, in seconds.
fn wait_until_used(pids: &[u32], seconds: f64) {
    let used = || pids.iter().map(|pid| used_by_threads(*pid).iter().sum::<f64>()).collect::<Vec<f64>>();
    let before = used();
    wait_for("CPU time of each process", || used().iter().zip(&before).all(|(now, before)| *now > before + seconds));
}

/// Python's own frames, in each child.
#[test]
fn children_of_multiprocessing_are_recorded_too() {
    children_of_multiprocessing("attach-pool", Attached::begin);
}

#[test]
fn children_of_multiprocessing_get_samplers_too() {
    children_of_multiprocessing("inject-pool", Attached::begin_inside);
}

#[track_caller]
fn children_of_multiprocessing(name: &str, begin: Begin) {
    let python = interpreters::modern().pop().expect("an interpreter");
    let scratch = paths::scratch(name);
    let mut running = Running::start(Command::new(&python.path).arg(paths::source("python/pool.py")));
    let there: u32 = running.line().parse().expect("a process id");
    assert_eq!(running.line(), "ready");
    let attached = begin(&scratch, running.pid(), &["-s"]);
    running.say("more");
    let later: u32 = running.line().parse().expect("a process id");
    wait_until_used(&[there, later], 0.5);
    attached.wait_for_processes(&[there, later]);
    attached.signal(libc::SIGINT);
    let (_, samples, summary) = attached.end();
    for pid in [there, later] {
        let burns =
            |sample: &&Sample| sample.frames.iter().any(|frame| frame.is_python() && frame.name().ends_with("burns"));
        // It may be seen while it starts; from then on it burns.
        let of: Vec<&Sample> =
            samples.iter().filter(|sample| sample.pid == pid).skip_while(|sample| !burns(sample)).collect();
        assert!(!of.is_empty(), "{pid}: {summary}");
        let other = of.iter().find(|sample| !burns(sample));
        assert!(other.is_none(), "{}", other.map(|sample| sample.text()).unwrap_or_default());
    }
    assert_eq!(running.end(), Some(0));
}

/// Children that live for a millisecond, hundreds of them a second, do not keep uu from sampling the others.
#[test]
fn short_children_do_not_hold_up_the_others() {
    let (ended, found, summary) = short_children("attach-short", Attached::begin);
    assert!(ended > 0 && found > 20, "{ended} have ended, {found} were found: {summary}");
}

/// Nor do they where samplers are put into children, also at the beginning.
#[test]
fn short_children_do_not_hold_up_samplers() {
    let (ended, _, summary) = short_children("inject-short", Attached::begin_inside);
    assert!(ended > 0 && summary.contains("from inside"), "{ended} have ended: {summary}");
}

/// How many were found that had ended, and how many in all.
#[track_caller]
fn short_children(name: &str, begin: Begin) -> (usize, usize, String) {
    let scratch = paths::scratch(name);
    let script = "sh -c 'echo $$; while :; do :; done' & one=$!; \
                  (while :; do /bin/true; done) & two=$!; \
                  echo ready; read line; kill $one $two; wait; exit 7";
    let mut running = Running::start(Command::new("sh").args(["-c", script]));
    let said = [running.line(), running.line()];
    let burner: u32 = said.iter().find_map(|line| line.parse().ok()).expect("a process id");
    let attached = begin(&scratch, running.pid(), &["-s"]);
    let before = used_by_threads(burner)[0];
    wait_until_used(&[burner], 2.0);
    let used = used_by_threads(burner)[0] - before;
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(7));
    let periods: u64 = samples.iter().filter(|sample| sample.pid == burner).map(|sample| sample.weight).sum();
    let sampled = periods as f64 / f64::from(recording.settings.rate);
    // The rest passes while a child is looked at and uu waits for a CPU.
    assert!(sampled > used * 0.5, "{sampled} s of {used} s were sampled: {summary}");
    let ended = summary.lines().find(|line| line.contains(" children ended before they could be looked at"));
    let words = ended.into_iter().flat_map(str::split_whitespace);
    let ended: usize = words.filter_map(|word| word.parse().ok()).next().unwrap_or(0);
    (ended, ended + recording.processes.len(), summary)
}

/// Children in which no sampler can be: where there is one at the beginning, all is recorded from outside; one that
/// comes later is counted, and the others are recorded on.
#[test]
fn children_without_a_sampler_are_named() {
    let (scratch, program) = program("inject-no-child", &["-static"]);
    let (path, flag) = (program.display(), scratch.join("over"));
    let burns = format!("while [ ! -e {} ]; do :; done; wait; exit 7", flag.display());
    let script = format!("exec 3<&0; {path} <&3 & echo $!; {burns}");
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    let said = [running.line(), running.line()];
    let child: u32 = said.iter().find_map(|line| line.parse().ok()).expect("a process id");
    let attached = Attached::begin_inside(&scratch, running.pid(), &["-s"]);
    wait_until_used(&[child], 0.3);
    attached.signal(libc::SIGTERM);
    let (recording, samples, summary) = attached.end();
    let why = recording.notes.iter().find_map(|note| note.strip_prefix(FROM_OUTSIDE)).expect("from outside");
    assert!(why.contains("there can be none in its child attached") && why.contains("no loader of glibc"), "{why}");
    assert!(samples.iter().any(|sample| sample.pid == child), "{summary}");
    std::fs::write(&flag, "").expect("scratch");
    assert_eq!(running.end(), Some(7));

    std::fs::remove_file(&flag).expect("it is there");
    let script = format!("exec 3<&0; echo ready; read line; {path} <&3 & {burns}");
    let mut running = Running::ready(Command::new("sh").args(["-c", &script]));
    let attached = Attached::begin_inside(&scratch, running.pid(), &["-s"]);
    running.say("go");
    assert_eq!(running.line(), "ready");
    // uu gives up after two seconds: until then, the program may just be being loaded.
    wait_until_used(&[running.pid()], 3.0);
    std::fs::write(&flag, "").expect("scratch");
    assert_eq!(running.end(), Some(7));
    let (recording, _, summary) = attached.end();
    assert!(recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE)), "{summary}");
    let refused = "1 children could not be recorded; the first: attached (pid ";
    assert!(summary.contains(refused) && summary.contains("--remote records such children, too"), "{summary}");
    assert_eq!(recording.end.expect("an end").cause, EndCause::ProgramEnded, "{summary}");
}

/// Children of vfork(2) run in the memory of their parent, sampler and all, until they call exec.
#[test]
fn children_in_their_parents_memory_are_left_alone() {
    let scratch = paths::scratch("inject-vfork");
    let program = compile::gcc(&scratch, "vfork_children", &["native/vfork_children.c"], &["-pthread"]);
    let mut running = Running::ready(&mut Command::new(&program));
    let mut attached = Attached::begin_inside(&scratch, running.pid(), &["-s"]);
    attached.wait_for_samples_of(0);
    // Some twenty children.
    wait_until_used(&[running.pid()], 2.0);
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    assert!(recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE)), "{summary}");
    for wrong in ["stays in process", "could not be recorded", "could not be given timers"] {
        assert!(!summary.contains(wrong), "{summary}");
    }
    assert!(!Looks::of(running.pid()).has_sampler());
    let spins = |sample: &&Sample| known(sample, &["spins", "in_loop"]) == ["spins", "in_loop"];
    assert!(samples.iter().filter(spins).count() > 50, "{summary}");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Records a shell, of which uu is a child.
fn of_its_own_parent(options: &str) -> (Recording, String) {
    let scratch = paths::scratch(&format!("own-parent{options}"));
    let file = scratch.join("recording.uu");
    let uu = uu::command(&scratch, &["version"]);
    let script = format!(
        "\"$0\" record -p $$ -s {options} -d 1 -o \"$1\" & while kill -0 $! 2>/dev/null; do :; done; wait $!; exit $?"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(uu.get_program()).arg(&file);
    process::environment_of(&uu, &mut shell);
    let out = process::run(&mut shell, &scratch, uu::LIMIT).expect_code(0);
    (Recording::read(&file).expect("a recording"), out.stderr)
}

/// What records a program may be a child of it.
#[test]
fn uu_does_not_record_itself() {
    let (recording, summary) = of_its_own_parent("");
    assert!(recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE)), "{summary}");
    assert_eq!(recording.processes.len(), 1, "{summary}");
}

#[test]
fn uu_does_not_record_itself_from_outside() {
    let (recording, summary) = of_its_own_parent("--remote");
    assert_eq!(recording.processes.len(), 1, "{summary}");
}

/// A child whose program may not be read is counted as that; so is a process that becomes one.
#[test]
fn programs_that_may_not_be_read_are_refused_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = paths::scratch("attach-closed");
    // Without the right to read it, its process is closed to its own user, too.
    let closed = scratch.join("closed");
    std::fs::copy("/bin/sleep", &closed).expect("a copy");
    let permit = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its owner");
    };
    permit(&closed, 0o111);
    permit(&scratch, 0o777);
    // SAFETY: a call without preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let as_user = |command: &mut Command| {
        if is_root {
            command.uid(65534);
        }
    };
    let flag = scratch.join("go");
    let (program, over) = (closed.display(), flag.display());
    let script = format!("{program} 3600 & echo $!; while [ ! -e {over} ]; do :; done; exec {program} 3600");
    let mut shell = Command::new("sh");
    as_user(shell.args(["-c", &script]));
    let mut running = Running::start(&mut shell);
    let child: libc::pid_t = running.line().parse().expect("a process id");
    wait_for("the child's exec", || {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "closed\n")
    });
    let attached = Attached::begin_as(&scratch, running.pid(), &["-s"], as_user);
    wait_until_used(&[running.pid()], 0.5);
    std::fs::write(&flag, "").expect("scratch");
    let (recording, _, summary) = attached.end();
    // SAFETY: a plain system call; the shell, which has become the other one, has not waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    running.kill();
    assert!(summary.contains("1 children could not be recorded; the first: process"), "{summary}");
    assert!(summary.contains(&format!("the recording of process {} ended early: process", running.pid())), "{summary}");
    assert!(!summary.contains("children ended"), "{summary}");
    assert_eq!(recording.end.expect("an end").cause, EndCause::Asked);
}

/// A child that runs a 32-bit program is left alone, and counted.
#[test]
fn children_that_run_a_32_bit_program_are_counted() {
    let scratch = paths::scratch("attach-narrow");
    let narrow = scratch.join("narrow");
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-static", "-o"]).arg(&narrow).arg(paths::source("native/narrow.c"));
    if !gcc.output().is_ok_and(|out| out.status.success()) {
        return skips::skipped("a refusal of a 32-bit child", "this gcc makes none");
    }
    // It becomes one in the recording; another one is one from the beginning.
    let (program, flag) = (narrow.display(), scratch.join("go"));
    let script = format!(
        "{program} & echo $!; one=$!; sh -c 'echo $$; while [ ! -e {} ]; do :; done; exec {program}' & two=$!; \
         read line; kill $one $two; wait; exit 7",
        flag.display()
    );
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    let pids: Vec<u32> = (0..2).map(|_| running.line().parse().expect("a process id")).collect();
    let is_narrow = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == narrow);
    wait_for("one program", || pids.iter().any(|pid| is_narrow(*pid)));
    let later = *pids.iter().find(|pid| !is_narrow(**pid)).expect("the other one waits for the file");
    let attached = Attached::begin(&scratch, running.pid(), &["-s"]);
    wait_until_used(&[later], 0.5);
    std::fs::write(&flag, "").expect("scratch");
    wait_for("the other program", || is_narrow(later));
    wait_until_used(&pids, 0.5);
    attached.signal(libc::SIGINT);
    let (_, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(7));
    assert!(summary.contains("1 children could not be recorded; the first: process"), "{summary}");
    assert!(summary.contains(&format!("the recording of process {later} ended early: process")), "{summary}");
    assert!(samples.iter().any(|sample| sample.pid == later), "before it became one: {summary}");
}
