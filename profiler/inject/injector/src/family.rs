//! The processes of a recording by samplers: the one that was asked for, and with `-s` its children and theirs.

use super::follow::{Common, Followed, Look};
use super::leave::LONGEST;
use super::process::Process;
use super::registrations::registered;
use super::threads::Threads;
use super::{Declined, Injected, Memories};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::child;
use uunwind_recorder::machine::{self, Stat};
use uunwind_recorder::survey::share_memory;
use uunwind_recording::EndCause;
use uunwind_remote::doing;
use uunwind_remote::refusal::is_gone;
use uunwind_remote::threads::{children, tids};
use uunwind_remote_sampler::followed::{Known, Unseen};
use uunwind_remote_sampler::prepared::Image;
use uunwind_ring::layout::FORKED;

/// At most this number of processes is sampled at a time.
pub const PROCESSES: usize = 256;
/// Children of children are looked for at most this number of times at the beginning.
const DEPTH: usize = 16;
/// Time between looks for objects whose entries are to be redirected.
const SECOND: Duration = Duration::from_secs(1);
/// Samplers are put into at most this number of processes at a time.
const COMING: usize = 4;

/// A process that is looked at.
struct Member {
    pid: u32,
    inside: Followed,
    threads: Threads,
    /// Its threads are not known yet.
    is_new: bool,
    /// It was not there at the last look: most children that begin end soon, and none goes into those.
    is_young: bool,
    /// No sampler can be put in: only its children are looked for.
    is_refused: bool,
    /// When its objects are looked at again.
    redirect: Due,
    /// CPU time before its recording began, and by now, or when it had its last sampler; in ns.
    from: u64,
    now: u64,
}

impl Member {
    fn new(pid: u32, inside: Followed, is_whole: bool, files: usize) -> Member {
        let now = machine::exact_cpu_of(pid).unwrap_or(0);
        let from = if is_whole { 0 } else { now };
        let threads = Threads::keeping(files);
        Member {
            pid,
            inside,
            threads,
            is_new: true,
            is_young: true,
            is_refused: false,
            redirect: Due::default(),
            from,
            now,
        }
    }

    fn has_ended(&self) -> bool {
        // What fails in another way, for want of files for one, says nothing about the process.
        self.inside.process().is_some_and(Process::has_ended) || tids(self.pid).is_err_and(|error| is_gone(&error))
    }

    fn used(&self) -> u64 {
        if self.is_refused && self.inside.programs == 0 {
            0
        } else {
            self.now.saturating_sub(self.from)
        }
    }
}

/// What is done every second.
#[derive(Default)]
struct Due(Option<Instant>);

impl Due {
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now.saturating_duration_since(last) >= SECOND);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// What processes have cost, and used.
#[derive(Default)]
pub struct Costs {
    /// How long threads stood.
    pub stood: Duration,
    /// How often one was borrowed.
    pub borrowed: u32,
    /// Number of programs that processes have called by exec, and that were sampled.
    pub programs: u32,
    /// CPU time, in ns.
    pub used: u64,
    /// All their threads.
    pub threads: Threads,
    /// They had timers.
    pub is_timed: bool,
}

impl Costs {
    fn add(&mut self, member: Member) {
        let (stood, borrowed) = member.inside.costs();
        self.stood += stood;
        self.borrowed += borrowed;
        self.programs += member.inside.programs.saturating_sub(1);
        self.used += member.used();
        self.threads.add(&member.threads);
    }
}

/// All processes of a recording.
pub struct Family {
    common: Common,
    with_children: bool,
    members: Vec<Member>,
    ended: Costs,
    known: Known,
    unseen: Unseen,
    /// Children for which there was no room.
    beyond: u64,
    /// When the recording began (CLOCK_MONOTONIC, ns).
    begun: u64,
    /// Number of clocks of threads that may be kept open for each process.
    files: usize,
    /// What people should know.
    pub notes: Vec<String>,
}

impl Family {
    /// Puts a sampler into a process, and with `with_children` into the children that it has, and theirs. Error: why
    /// there can be none in one of them; then there is none in any.
    pub fn begin(pid: u32, with_children: bool, common: Common) -> Result<(Family, Memories), Declined> {
        let parent = Stat::of(pid).and_then(|stat| stat.number(4)).unwrap_or(0) as u32;
        let (first, memories) = Followed::begin(pid, (parent, 0), &common)?;
        let files = common.files / if with_children { PROCESSES } else { 1 };
        let mut family = Family {
            common,
            with_children,
            members: vec![Member::new(pid, first, false, files)],
            ended: Costs::default(),
            known: Known::new(PROCESSES),
            unseen: Unseen::default(),
            beyond: 0,
            begun: machine::monotonic(),
            files,
            notes: Vec::new(),
        };
        let shared = family.common.share(&memories.session, &memories.facts);
        let shared = shared.map_err(|error| Declined::new(error.to_string()));
        if let Err(declined) = shared.and_then(|()| family.join_children()) {
            memories.facts.stop();
            let (_, notes) = family.leave();
            return Err(declined.with(notes));
        }
        Ok((family, memories))
    }

    /// Puts samplers into the children that are there. Those that come meanwhile are not waited for.
    fn join_children(&mut self) -> Result<(), Declined> {
        for _ in 0..DEPTH {
            let known = self.members.len();
            self.find();
            if self.members.len() == known {
                break;
            }
        }
        if self.beyond > 0 {
            return Err(Declined::new(format!("it has more than {PROCESSES} children")));
        }
        for member in self.members.iter_mut().filter(|member| member.inside.programs == 0) {
            while !member.has_ended() {
                match member.inside.look(&self.common) {
                    Ok(Look::Sampled) => break,
                    Ok(_) => uunwind_clock::sleep(Duration::from_millis(1)),
                    Err(_) if member.has_ended() => break,
                    Err(Declined { why, .. }) => {
                        let name = doing::name(member.pid, member.pid);
                        let why = format!("there can be none in its child {name} (pid {}): {why}", member.pid);
                        return Err(Declined::new(why));
                    }
                }
                if child::interrupted().is_some() {
                    return Err(Declined::new("uu was asked to end"));
                }
            }
        }
        self.drop_ended();
        Ok(())
    }

    /// Finds children that are new.
    fn find(&mut self) {
        if !self.with_children {
            return;
        }
        let began = |pid| Stat::of(pid).and_then(|stat| stat.number(22));
        let mut found = Vec::new();
        for member in &self.members {
            for child in children(member.pid) {
                // A child of vfork(2) runs in its parent's memory, which has the parent's sampler, until it calls exec.
                if share_memory(child, member.pid) || !self.known.is_new(child, began) {
                    continue;
                }
                if self.members.len() + found.len() >= PROCESSES {
                    self.beyond += 1;
                    continue;
                }
                let image = Image::of(child);
                let origin = if image == member.inside.image { FORKED } else { 0 };
                found.push((child, began(child), image, (member.pid, origin)));
            }
        }
        for (pid, when, image, origin) in found {
            let inside = Followed::child((pid, Process::of(pid).ok()), image, origin);
            let is_whole = machine::start_of(pid) >= self.begun;
            let member = Member::new(pid, inside, is_whole, self.files);
            // The id may be another process's by now: from here on it is not given away unnoticed.
            if began(pid) == when {
                self.members.push(member);
            }
        }
    }

    /// Looks at all processes: which have ended, which are new or have called exec, and which have new threads.
    /// `analyse` is called with each one in which a sampler is new, before its first sample. Returns why the recording
    /// is over, if it is.
    pub fn look(&mut self, mut analyse: impl FnMut(u32)) -> Option<EndCause> {
        self.drop_ended();
        self.find();
        let mut coming = self.members.iter().filter(|member| member.inside.is_coming()).count();
        for member in self.members.iter_mut().filter(|member| !member.is_refused) {
            member.now = machine::exact_cpu_of(member.pid).map_or(member.now, |now| now.max(member.now));
            if std::mem::take(&mut member.is_young) && member.inside.programs == 0 {
                continue;
            }
            let was_coming = member.inside.is_coming();
            if coming >= COMING && !was_coming && member.inside.injected().is_none() {
                continue;
            }
            match member.inside.look(&self.common) {
                Ok(Look::Same) => {}
                Ok(Look::Without) => member.threads.forget(),
                Ok(Look::Sampled) => {
                    analyse(member.pid);
                    member.is_new = true;
                }
                // It may just have ended.
                Err(_) if member.has_ended() => {}
                Err(Declined { why, .. }) => {
                    member.is_refused = true;
                    if member.inside.programs == 0 {
                        let name = doing::name(member.pid, member.pid);
                        let remedy = "--remote records such children, too";
                        self.unseen.refused(&format!("{name} (pid {}), since {why}. {remedy}", member.pid));
                    } else {
                        self.unseen.left(
                            member.pid,
                            &format!(
                                "the process has called exec, and no sampler was put into the new program, since {why}. \
                                 Record it again with --remote, which follows it from outside"
                            ),
                        );
                    }
                }
            }
            coming += usize::from(member.inside.is_coming());
            coming = coming.saturating_sub(usize::from(was_coming));
            if let Some(injected) = member.inside.injected() {
                // What does not succeed now may at the next look.
                if let (Some(redirected), true) = (injected.redirected(), member.redirect.is_due()) {
                    let _ = redirected.look();
                }
                let looked = member.threads.look(member.pid, injected, member.is_new);
                if let (Err(trouble), true) = (looked, member.is_new && tids(member.pid).is_ok()) {
                    self.notes.push(format!("threads could not be given timers: {}", Declined::from(trouble).why));
                }
                member.is_new = false;
            }
        }
        if self.members.iter().any(|member| !member.is_refused) {
            return None;
        }
        let is_left = self.members.iter().any(|member| member.inside.programs > 0);
        Some(if is_left { EndCause::Asked } else { EndCause::ProgramEnded })
    }

    /// All that have a sampler.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().filter(|member| member.inside.programs > 0).map(|member| member.pid)
    }

    /// Descriptors that become readable when a process ends.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.members
            .iter()
            .filter(|member| !member.is_refused)
            .filter_map(|member| Some(member.inside.process()?.poll_fd()))
    }

    fn drop_ended(&mut self) {
        let ended: Vec<Member> = self.members.extract_if(.., |member| member.has_ended()).collect();
        for member in ended {
            if member.inside.programs == 0 && !member.is_refused {
                self.unseen.ended();
            }
            self.ended.add(member);
        }
    }

    /// Code that a process has registered since its sampler came.
    pub fn registered(&self) -> Option<&'static str> {
        self.members.iter().filter(|member| member.inside.programs > 0).find_map(|member| registered(member.pid))
    }

    /// Takes all samplers out, after the facts say that the recording is over. Returns what they have cost, and what
    /// people should know.
    pub fn leave(mut self) -> (Costs, Vec<String>) {
        self.drop_ended();
        let (mut costs, mut notes) = (self.ended, self.notes);
        costs.is_timed = self.common.is_timed();
        let deadline = Instant::now() + LONGEST;
        for mut member in self.members {
            notes.extend(member.inside.injected().and_then(Injected::redirected).into_iter().flat_map(|r| r.notes()));
            if !member.is_refused {
                member.now = machine::exact_cpu_of(member.pid).map_or(member.now, |now| now.max(member.now));
            }
            member.threads.end();
            let inside = member.inside.take();
            costs.add(member);
            notes.extend(inside.leave(deadline));
        }
        notes.extend(self.unseen.notes());
        if self.beyond > 0 {
            notes.push(format!(
                "{} children were not recorded: {PROCESSES} processes were recorded, or looked at, already",
                self.beyond
            ));
        }
        (costs, notes)
    }
}
