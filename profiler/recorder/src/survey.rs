//! Determines from /proc which of the program's processes are not recorded, and why. There is no other source, since no
//! code of uu runs in them.

mod process;
mod reason;

use crate::machine::{cpu_with_children, own_thread_cpu};
use process::list;
pub use process::{has_mapping, see, share_memory, status, Id, Seen};
use reason::{Own, Reason};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps::{self, Mapping};
use uunwind_recording::NOT_RECORDED;

/// Time from the start to the first look. The times between looks then double up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(20);
/// Longest time between two looks, unless looks themselves take long.
const LONGEST: Duration = Duration::from_secs(1);
/// Before the next look, at least this multiple of the last look's CPU time passes, so that looks use at most 0.5 % of
/// a CPU.
const PAUSE: u32 = 200;
/// The same while the recorded processes do nothing: at most 0.02 % of a CPU.
const PAUSE_AT_REST: u32 = 5000;
/// The first looks, to which [`PAUSE`] does not apply: processes that end soon are seen by these or not at all.
const EARLY: u32 = 6;
/// Number of looks after which a process without a block counts as unrecorded if no definite reason was found: the
/// constructor of a new program claims its block within moments.
const PATIENCE: u8 = 3;
/// The last look asks processes outside the family for this time at most: a machine may have many thousands.
const OTHERS: Duration = Duration::from_millis(200);
/// At most this number of lines are written about processes that are not recorded.
const LINES: usize = 8;
/// At most this number of kinds (reason and name) of such processes are counted.
const KINDS: usize = 1000;

/// The name of the session's mapping in `/proc/PID/maps` of a recorded process (see `Session::create`).
pub const SESSION_MAPPING: &str = "/memfd:uu-session";

/// A process of the program's family, as it was last seen.
#[derive(Clone, Debug, Default)]
struct Member {
    /// Path of its executable, or its command name where that cannot be read.
    name: String,
    /// Why it is not recorded; `None` while it is recorded, or while the reason is not certain.
    reason: Option<Reason>,
    /// The image (see `Seen::image`) that was recorded.
    recorded: Option<u64>,
    /// Number of looks since it was last recorded.
    looks: u8,
    /// Its CPU time, in ns.
    own_cpu: u64,
    /// CPU time of children that it waited for, in ns.
    children_cpu: u64,
    /// Its parent's pid.
    parent: u32,
    /// Children of it are recorded, so that part of `children_cpu` is in the recording.
    has_recorded_children: bool,
    /// The image whose exec ended its recording.
    unrecorded: Option<u64>,
    /// How much of `own_cpu` and `children_cpu` it had used before that exec, in ns.
    before: u64,
    /// It has ended, but its parent has not waited for it yet.
    zombie: bool,
}

impl Member {
    /// CPU time of the process and of children that it waited for, in ns.
    fn cpu(&self) -> u64 {
        self.own_cpu.saturating_add(self.children_cpu)
    }

    /// What of that is surely not in the recording.
    fn unrecorded_cpu(&self) -> u64 {
        let cpu = if self.has_recorded_children { self.own_cpu } else { self.cpu() };
        cpu.saturating_sub(self.before)
    }
}

/// The processes of one program that were not recorded for one reason.
#[derive(Clone, Copy, Default)]
struct Unrecorded {
    count: u64,
    /// CPU time as last seen, in ns.
    cpu: u64,
}

/// The recorded program and its descendants.
pub struct Survey {
    /// The program. `None`: it was gone before the first look.
    program: Option<Id>,
    own: Own,
    /// The sampling period, in ns.
    period: u64,
    /// Processes that existed at the last look.
    members: HashMap<Id, Member>,
    /// Unrecorded processes that are gone.
    gone: BTreeMap<(Reason, String), Unrecorded>,
    begun: Instant,
    looks: u32,
    due: Instant,
    due_at_rest: Instant,
    is_off: bool,
}

impl Survey {
    /// Surveys the program with this pid, into which `preload` should be loaded. It must not have been waited for.
    /// `rate`: samples per second.
    pub fn new(program: u32, preload: PathBuf, without_children: bool, rate: u32) -> Survey {
        let begun = Instant::now();
        let (members, gone) = (HashMap::new(), BTreeMap::new());
        let (program, own) = (see(program).map(|seen| seen.id()), Own::new(preload, without_children));
        let period = 1_000_000_000 / u64::from(rate.max(1));
        Survey {
            program,
            own,
            period,
            members,
            gone,
            begun,
            looks: 0,
            due: begun + FIRST,
            due_at_rest: begun,
            is_off: false,
        }
    }

    /// The same, which never looks.
    pub fn off(self) -> Survey {
        Survey { is_off: true, ..self }
    }

    /// Whether it is time for a look. `rests`: the recorded processes do nothing.
    pub fn is_due(&self, rests: bool) -> bool {
        !self.is_off && Instant::now() >= if rests { self.due.max(self.due_at_rest) } else { self.due }
    }

    /// Looks at all processes of the family. `recorded`: the processes that have a block, with the periods of their
    /// samples.
    pub fn look(&mut self, recorded: &HashMap<Id, u64>) {
        let cpu = own_thread_cpu();
        self.look_at(list(), recorded, &HashSet::new());
        self.looks = self.looks.saturating_add(1);
        let spent = Duration::from_nanos(own_thread_cpu().saturating_sub(cpu));
        let pause = if self.looks > EARLY { spent * PAUSE } else { Duration::ZERO };
        let now = Instant::now();
        self.due = now + (now - self.begun).clamp(FIRST, LONGEST).max(pause);
        self.due_at_rest = now + spent * PAUSE_AT_REST;
    }

    /// As [`Survey::look`], after the program's end. A process of the family whose parent ended before a look saw it is
    /// known by its mapping of the session, whose memory has this inode.
    pub fn look_at_last(&mut self, recorded: &HashMap<Id, u64>, session: u64) {
        let all = list();
        let since = self.program.map_or(0, |(_, start)| start);
        let is_new = |id: &Id| id.1 >= since && !recorded.contains_key(id) && !self.members.contains_key(id);
        let mut others: Vec<Id> = all.iter().map(Seen::id).filter(is_new).collect();
        others.sort_unstable_by_key(|(pid, start)| std::cmp::Reverse((*start, *pid)));
        let of_session = of_session(others, session);
        self.look_at(all, recorded, &of_session);
    }

    /// Looks at the family among these processes, which may have ended since they were listed. `others`: further
    /// members.
    fn look_at(&mut self, all: Vec<Seen>, recorded: &HashMap<Id, u64>, others: &HashSet<Id>) {
        let mut before = std::mem::take(&mut self.members);
        for seen in self.family(all, recorded, others, &before) {
            let last = before.remove(&seen.id());
            let mut member = last.clone().unwrap_or_default();
            self.update(&mut member, &seen, recorded.get(&seen.id()).copied());
            if seen.is_there() {
                self.members.insert(seen.id(), member);
            } else if let Some(last) = last {
                // This look may have read about a later process with the same pid.
                note(&mut self.gone, &last);
            }
        }
        for member in before.into_values() {
            note(&mut self.gone, &member);
        }
        let recorded = self.members.values().filter(|member| member.recorded.is_some());
        let parents: HashSet<u32> = recorded.map(|member| member.parent).collect();
        for ((pid, _), member) in &mut self.members {
            member.has_recorded_children |= parents.contains(pid);
        }
    }

    /// The program, the recorded processes, these others, the previous members of the family, and all their
    /// descendants.
    fn family(
        &self,
        all: Vec<Seen>,
        recorded: &HashMap<Id, u64>,
        others: &HashSet<Id>,
        before: &HashMap<Id, Member>,
    ) -> Vec<Seen> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut open = Vec::new();
        let mut all: HashMap<u32, Seen> = all.into_iter().map(|seen| (seen.pid, seen)).collect();
        for seen in all.values() {
            children.entry(seen.parent).or_default().push(seen.pid);
            let id = seen.id();
            let is_known = recorded.contains_key(&id) || before.contains_key(&id) || others.contains(&id);
            if self.program == Some(id) || is_known {
                open.push(seen.pid);
            }
        }
        let mut family = Vec::new();
        while let Some(pid) = open.pop() {
            // Each is taken out once, so this ends.
            let Some(seen) = all.remove(&pid) else { continue };
            // A parent that has ended since then has no children: those that were listed after its end belong to
            // another process with the same pid.
            if let Some(children) = children.remove(&pid).filter(|_| seen.is_there()) {
                open.extend(children);
            }
            family.push(seen);
        }
        family
    }

    /// `periods`: those of its samples, if it has a block.
    fn update(&self, member: &mut Member, seen: &Seen, periods: Option<u64>) {
        let (has_block, own_before) = (periods.is_some(), member.own_cpu);
        let (own, children) = cpu_with_children(seen.pid);
        (member.own_cpu, member.children_cpu) = (own.max(member.own_cpu), children.max(member.children_cpu));
        (member.zombie, member.parent) = (seen.zombie, seen.parent);
        if seen.zombie {
            return;
        }
        if has_block && member.recorded == Some(seen.image) {
            return;
        }
        member.name = process::executable(seen.pid).unwrap_or_else(|| seen.name.clone());
        // The block may be that of the program that the process was before its last exec.
        if has_block && (seen.image == 0 || has_mapping(seen.pid, SESSION_MAPPING) != Some(false)) {
            (member.recorded, member.reason, member.looks) = (Some(seen.image), None, 0);
            return;
        }
        if let Some(periods) = periods.filter(|_| member.unrecorded != Some(seen.image)) {
            // At the exec, it had used what it has samples of, and what it had used at the last look.
            let own = periods.saturating_mul(self.period).max(own_before).min(member.own_cpu);
            (member.unrecorded, member.before) = (Some(seen.image), own.saturating_add(member.children_cpu));
        }
        member.looks = member.looks.saturating_add(1);
        if member.reason.is_none() {
            let found = self.own.reason(seen, self.program == Some(seen.id()));
            member.reason = found.filter(|reason| reason.is_certain() || member.looks >= PATIENCE);
        }
    }

    /// CPU time, in ns, of the processes that existed at the last look, and of the children that these have waited for.
    pub fn cpu(&self) -> u64 {
        self.members.values().fold(0, |sum, member| sum.saturating_add(member.cpu()))
    }

    /// Pid and name of the processes that existed at the last look.
    pub fn running(&self) -> Vec<(u32, &str)> {
        let running = self.members.iter().filter(|(_, member)| !member.zombie);
        let mut running: Vec<_> = running.map(|((pid, _), member)| (*pid, member.name.as_str())).collect();
        running.sort_unstable();
        running
    }

    /// One line for the user on each kind of process that is not recorded, ordered by CPU time. Processes that are not
    /// recorded on request (--no-children) are included only with `all`.
    pub fn lines(&self, all: bool) -> Vec<String> {
        let mut kinds = self.gone.clone();
        for member in self.members.values() {
            note(&mut kinds, member);
        }
        // What bwrap makes by clone(2), to wait for its program, uses less than a sample.
        let is_less = |(reason, cpu): (&Reason, u64)| *reason == Reason::Cloned && cpu < self.period;
        let is_shown = |((reason, _), unrecorded): &((Reason, String), Unrecorded)| {
            (all || reason.is_a_loss()) && !is_less((reason, unrecorded.cpu))
        };
        let mut kinds: Vec<_> = kinds.into_iter().filter(is_shown).collect();
        kinds.sort_by_key(|(_, unrecorded)| std::cmp::Reverse(unrecorded.cpu));
        let more = kinds.len().saturating_sub(LINES);
        let mut lines: Vec<String> =
            kinds.iter().take(LINES).map(|((reason, name), u)| line(reason, name, *u)).collect();
        if more > 0 {
            lines.push(format!("{NOT_RECORDED}processes of {more} more kinds"));
        }
        lines
    }
}

/// Which of these processes have the session mapped, whose memory has this inode, and are no others of uu's. A thread
/// of its own asks them, since it may have to wait for one that the kernel holds up.
fn of_session(others: Vec<Id>, session: u64) -> HashSet<Id> {
    let own = process::executable(std::process::id());
    let is_session = move |mapping: Mapping| mapping.inode == session && mapping.has_in_name(SESSION_MAPPING);
    let (found, of_session) = uunwind_clock::channel::channel();
    let ask = move || {
        for id in others {
            let has_session = maps::of(id.0).is_ok_and(|mut mappings| mappings.any(is_session));
            if has_session && process::executable(id.0) != own && found.send(id).is_err() {
                return;
            }
        }
    };
    if std::thread::Builder::new().spawn(ask).is_err() {
        return HashSet::new();
    }
    let until = Instant::now() + OTHERS;
    let next = || of_session.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

/// Counts a process that is not recorded.
fn note(kinds: &mut BTreeMap<(Reason, String), Unrecorded>, member: &Member) {
    let Some(reason) = &member.reason else { return };
    let key = (reason.clone(), member.name.clone());
    if kinds.len() < KINDS || kinds.contains_key(&key) {
        let unrecorded = kinds.entry(key).or_default();
        unrecorded.count += 1;
        unrecorded.cpu = unrecorded.cpu.saturating_add(member.unrecorded_cpu());
    }
}

fn line(reason: &Reason, name: &str, unrecorded: Unrecorded) -> String {
    let count = if unrecorded.count == 1 { String::new() } else { format!("{} processes, ", unrecorded.count) };
    let seconds = unrecorded.cpu as f64 / 1e9;
    format!("{NOT_RECORDED}{name} ({count}at least {seconds:.2} s of CPU): {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A shell with a child, both of which wait until their input ends.
    struct Pair {
        shell: Child,
        child: u32,
    }

    impl Pair {
        fn start() -> Pair {
            use std::io::BufRead;
            let mut command = Command::new("/bin/sh");
            // What runs in the background has another input unless it is given this one.
            command.args(["-c", "exec 3<&0; cat <&3 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut shell = command.spawn().expect("a shell");
            let mut line = String::new();
            let mut out = std::io::BufReader::new(shell.stdout.take().expect("piped"));
            out.read_line(&mut line).expect("a line");
            Pair { shell, child: line.trim().parse().expect("a pid") }
        }

        fn seen(&self) -> [Seen; 2] {
            [self.shell.id(), self.child].map(|pid| see(pid).expect("it waits"))
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            drop(self.shell.stdin.take());
            let _ = self.shell.wait();
        }
    }

    fn survey(program: u32) -> Survey {
        Survey::new(program, PathBuf::from("/lib/x/preload.so"), false, 99)
    }

    fn pids(survey: &Survey) -> Vec<u32> {
        let mut pids: Vec<u32> = survey.members.keys().map(|id| id.0).collect();
        pids.sort_unstable();
        pids
    }

    /// The entry that the list would have if an earlier process had had the same pid at that time.
    fn earlier(seen: &Seen) -> Seen {
        Seen { start: seen.start.checked_sub(1).expect("after boot"), ..seen.clone() }
    }

    #[test]
    fn a_program_and_its_children_are_its_family() {
        let pair = Pair::start();
        let mut survey = survey(pair.shell.id());
        survey.look_at(pair.seen().to_vec(), &HashMap::new(), &HashSet::new());
        assert_eq!(pids(&survey), [pair.shell.id(), pair.child]);
    }

    #[test]
    fn what_has_the_pid_of_one_that_was_listed_is_another_process() {
        let pair = Pair::start();
        let [shell, child] = pair.seen();
        // The program, and its entry in the list, are those of an earlier process, whose pid the shell has by now.
        let mut before = survey(shell.pid);
        before.program = Some(earlier(&shell).id());
        before.look_at(vec![earlier(&shell), child.clone()], &HashMap::new(), &HashSet::new());
        assert_eq!(pids(&before), [0; 0], "neither the shell nor its child");
        assert!(before.cpu() == 0 && before.lines(true).is_empty(), "{:?}", before.lines(true));
        // It ended before the list.
        before.look_at(vec![shell.clone(), child.clone()], &HashMap::new(), &HashSet::new());
        assert_eq!(pids(&before), [0; 0]);
        // A child's pid is reused: the child's last values are kept, and none of the next process.
        let mut after = survey(shell.pid);
        let last = Member { name: "last".to_owned(), reason: Some(Reason::Static), own_cpu: 7, ..Member::default() };
        after.members.insert(earlier(&child).id(), last);
        after.look_at(vec![shell.clone(), earlier(&child)], &HashMap::new(), &HashSet::new());
        assert_eq!(pids(&after), [shell.pid]);
        let gone: Vec<_> = after.gone.iter().map(|((_, name), unrecorded)| (name.as_str(), unrecorded.cpu)).collect();
        assert_eq!(gone, [("last", 7)]);
    }

    /// What a process has waited for may be in the recording.
    #[test]
    fn the_cpu_time_of_recorded_children_is_not_missing() {
        let pair = Pair::start();
        let [shell, child] = pair.seen();
        let mut survey = survey(shell.pid);
        let reason = Some(Reason::Cloned);
        survey.members.insert(shell.id(), Member { own_cpu: 7, children_cpu: 1 << 40, reason, ..Member::default() });
        let cpu = |survey: &Survey| survey.members[&shell.id()].unrecorded_cpu();
        survey.look_at(vec![shell.clone(), child.clone()], &HashMap::new(), &HashSet::new());
        assert!(cpu(&survey) >= 1 << 40);
        survey.members.insert(child.id(), Member { recorded: Some(child.image), ..Member::default() });
        survey.look_at(vec![shell.clone(), child.clone()], &HashMap::from([(child.id(), 0)]), &HashSet::new());
        assert!((7..1 << 40).contains(&cpu(&survey)));
        assert_eq!(survey.lines(true).len(), usize::from(cpu(&survey) >= survey.period));
    }

    #[test]
    fn a_block_is_that_of_one_process() {
        let pair = Pair::start();
        let [shell, child] = pair.seen();
        let mut survey = survey(shell.pid);
        survey.program = None;
        survey.look_at(
            vec![shell.clone(), child.clone()],
            &HashMap::from([(earlier(&shell).id(), 0)]),
            &HashSet::new(),
        );
        assert_eq!(pids(&survey), [0; 0], "the block of one that had this pid before");
        survey.look_at(vec![shell.clone(), child.clone()], &HashMap::from([(shell.id(), 0)]), &HashSet::new());
        assert_eq!(pids(&survey), [shell.pid, child.pid]);
    }
}
