//! uu's end of a process that calls a plugin's signal half: sends a call, serves what the process asks for, and ends it
//! when it goes beyond a limit.

use super::description::SentDescription;
use super::message::{self, Answer, Function, Head, Hello, Request, SentFacts};
use super::CALLS;
use crate::server::{self, Launcher};
use crate::wire;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{send, SendFlags};
use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_core::memory::paged::PAGE;
use uunwind_core::plugin::{CRule, Caller, Owner, View};
use uunwind_core::regs::COUNT;

/// Limit of the CPU time that one call takes in the process. The walked process may stand still meanwhile.
const CALL_CPU: Duration = Duration::from_millis(20);
/// The same for all calls of one walk.
const WALK_CPU: Duration = Duration::from_millis(200);
/// Longest time for one call of a process that sleeps. One that computes reaches [`CALL_CPU`] before.
const CALL_TIME: Duration = Duration::from_millis(500);
/// The same for one that waits for a CPU on a busy machine, which is not its fault.
const READY_TIME: Duration = Duration::from_secs(5);
/// When all calls of a walk have taken that long, no more are made in it.
const WALK_TIME: Duration = Duration::from_secs(2);
/// Longest time for opening the plugin; nothing stands still meanwhile.
const OPENING: Duration = Duration::from_secs(5);
/// At most this number of requests is served in one call: of 16 MiB of memory.
const REQUESTS: u32 = 4096;
/// Limit of the bytes of facts that are sent to one process.
const FACTS: usize = 64 << 20;
/// Limits are looked at after each wait of this length, and after this number of requests.
const SLICE: Duration = Duration::from_millis(5);
const LOOK: u32 = 64;

/// A process, and the stream to it.
pub struct Link {
    stream: UnixStream,
    child: Option<Child>,
    arrived: Vec<u8>,
    /// The facts that it has, by their numbers, from 1.
    facts: Vec<Vec<u8>>,
    facts_bytes: usize,
    /// Number of calls so far.
    pub calls: u32,
    walk: Walk,
}

/// What is counted and kept for one walk.
struct Walk {
    number: u64,
    begun: Instant,
    cpu: Duration,
    /// The name ids that the process was given.
    names: HashSet<u32>,
}

/// What one call has used.
struct Spent {
    since: Instant,
    cpu: Duration,
}

impl Link {
    /// Starts the process. Call it on a thread that lives on: the process ends with it.
    pub fn start(launcher: &Launcher, path: &Path) -> std::io::Result<Link> {
        let (program, arguments) = launcher.split_first().ok_or(ErrorKind::NotFound)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        // In a process group of its own, so that Ctrl-C goes to uu only. What the plugin prints goes to standard error.
        command.args(arguments).arg(path).arg(CALLS).process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let child = command.spawn()?;
        Link::over(ours, Some(child))
    }

    /// As if the calls of this walk had taken too long.
    #[cfg(test)]
    pub fn be_late(&mut self, walk: u64) {
        self.walk.number = walk;
        self.walk.begun = Instant::now() - WALK_TIME * 2;
    }

    /// Over this stream, whose other end is served elsewhere.
    pub fn over(stream: UnixStream, child: Option<Child>) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        let walk = Walk { number: 0, begun: Instant::now(), cpu: Duration::ZERO, names: HashSet::new() };
        Ok(Link { stream, child, arrived: Vec::new(), facts: Vec::new(), facts_bytes: 0, calls: 0, walk })
    }

    /// Waits for what the process says of the plugin.
    pub fn hello(&mut self) -> Result<Hello, String> {
        let since = Instant::now();
        let body = self.receive(|_| {
            let is_late = since.elapsed() > OPENING;
            if is_late {
                return Err(format!("it took more than {} s", OPENING.as_secs()));
            }
            Ok(())
        })?;
        Hello::decode(&body).ok_or_else(nonsense)
    }

    /// Makes one call. `walk`: the number of the walk, which is not 0. `rule`: what a rule is written to.
    ///
    /// # Errors
    /// The process has ended, went beyond a limit, or sent nonsense; it is not to be used any more.
    ///
    /// # Safety
    /// The view must be one that the walk has filled in for a call, `rule` null or valid.
    pub unsafe fn call(
        &mut self,
        walk: u64,
        function: Function,
        view: &mut View,
        rule: *mut CRule,
    ) -> Result<u32, String> {
        self.calls = self.calls.wrapping_add(1);
        let cpu = self.cpu();
        if self.walk.number != walk {
            self.walk = Walk { number: walk, begun: Instant::now(), cpu, names: HashSet::new() };
        }
        let spent = Spent { since: Instant::now(), cpu };
        // SAFETY: null, or the frame that the walk has filled in.
        let caller = unsafe { view.caller.as_ref() };
        let caller = *caller.unwrap_or(&Caller { pc: 0, registers: [0; COUNT], known: 0, exact: 0 });
        // SAFETY: as the walk has filled them in.
        let (number, is_new) = self.number(unsafe { bytes(view.facts, view.facts_len) })?;
        let head = Head {
            call: self.calls,
            walk,
            function,
            facts: self.sent(number, is_new),
            has_scratch: !view.scratch.is_null(),
        };
        let stack = match view.stack.is_null() {
            true => &[][..],
            // SAFETY: as the walk has filled them in.
            false => unsafe { std::slice::from_raw_parts(view.stack, view.stack_len) },
        };
        self.send(&message::encode_call(&head, view, stack, &caller), &spent)?;
        for served in 1..=REQUESTS {
            let body = self.receive(|link| link.check(&spent))?;
            if served % LOOK == 0 {
                self.check(&spent)?;
            }
            let request = Request::decode(&body, self.calls).ok_or_else(nonsense)?;
            let reply = match request {
                Request::Answer(answer) => {
                    // SAFETY: passed on.
                    return Ok(unsafe { self.answered(&answer, function, view, rule) });
                }
                // SAFETY: the view's own host and walk, during the call.
                request => unsafe { self.serve(request, view) }?,
            };
            self.send(&reply, &spent)?;
        }
        Err(format!("it asked for more than {REQUESTS} things in one call"))
    }

    /// Takes over what a call has led to.
    ///
    /// # Safety
    /// As for [`Link::call`].
    unsafe fn answered(&mut self, answer: &Answer, function: Function, view: &mut View, rule: *mut CRule) -> u32 {
        if !answer.frames.is_empty() {
            // SAFETY: the view's own host and walk, during the call.
            unsafe { self.emit(&answer.frames, view) };
        }
        match function {
            Function::Step if !view.caller.is_null() => {
                // SAFETY: the frame that the walk has filled in.
                unsafe { view.caller.write(answer.caller) };
            }
            Function::Rule if !rule.is_null() => {
                // SAFETY: by this function's contract.
                unsafe { rule.write(answer.rule) };
            }
            _ => {}
        }
        answer.answer
    }

    /// # Safety
    /// The view must be valid, its host and walk, too.
    unsafe fn serve(&mut self, request: Request, view: &mut View) -> Result<Vec<u8>, String> {
        let walk = view.walk;
        // SAFETY: by this function's contract.
        let host = unsafe { &*view.host };
        Ok(match request {
            Request::Page(address) => {
                let mut page = [0; PAGE];
                // SAFETY: as for `host`; there is room for a page.
                let is_read = unsafe { (host.read)(walk, address & !(PAGE as u64 - 1), page.as_mut_ptr(), PAGE) };
                message::encode_page(is_read.then_some(&page))
            }
            Request::FindName(code, fingerprint) => {
                // SAFETY: as for `host`.
                let id = unsafe { (host.find_name)(walk, code, fingerprint) };
                self.named(id)
            }
            Request::Describe(description) => {
                let description: &SentDescription = &description;
                // SAFETY: as for `host`; the description is valid as long as what it was made of.
                let id = unsafe { (host.describe)(walk, &description.description()) };
                self.named(id)
            }
            Request::Emit(frames) => {
                // SAFETY: passed on.
                let has_room = unsafe { self.emit(&frames, view) };
                message::encode_number(has_room.into())
            }
            // SAFETY: as for `host`.
            Request::Omit(left) => message::encode_number(unsafe { (host.omit)(walk, left) }),
            Request::Lookup(address) => {
                let mut owner = Owner::NONE;
                // SAFETY: as for `host`; the owner is a live local.
                unsafe { (host.lookup)(walk, address, &raw mut owner) };
                // SAFETY: as the walk has filled them in.
                let (number, is_new) = self.number(unsafe { bytes(owner.facts, owner.facts_len) })?;
                message::encode_owner(&owner, self.sent(number, is_new))
            }
            Request::NativeStep(mut frame) => {
                // SAFETY: as for `host`; the frame is a live local.
                let outcome = unsafe { (host.native_step)(walk, &raw mut *frame) };
                message::encode_stepped(outcome, &frame)
            }
            Request::Answer(_) => return Err(nonsense()),
        })
    }

    fn named(&mut self, id: u32) -> Vec<u8> {
        self.walk.names.insert(id);
        message::encode_number(id)
    }

    /// Emits frames. Names that the process was not given in this walk may be another process's: such frames are
    /// unnamed.
    ///
    /// # Safety
    /// As for [`Link::serve`].
    unsafe fn emit(&self, frames: &[[u64; 2]], view: &View) -> bool {
        let named = |[name, position]: &[u64; 2]| match self.walk.names.contains(&(*name as u32)) {
            true => [*name, *position],
            false => [*name & !u64::from(u32::MAX), *position],
        };
        let frames: Vec<[u64; 2]> = frames.iter().map(named).collect();
        // SAFETY: by this function's contract.
        unsafe { ((*view.host).emit_all)(view.walk, frames.as_ptr(), frames.len()) }
    }

    /// The number of facts, and whether the process does not have them yet.
    fn number(&mut self, facts: Option<&[u8]>) -> Result<(u32, bool), String> {
        let Some(facts) = facts else { return Ok((0, false)) };
        if let Some(index) = self.facts.iter().position(|known| known == facts) {
            return Ok((index as u32 + 1, false));
        }
        self.facts_bytes += facts.len() + 64;
        if self.facts_bytes > FACTS {
            return Err("it has facts of too many objects".to_owned());
        }
        self.facts.push(facts.to_vec());
        Ok((self.facts.len() as u32, true))
    }

    fn sent(&self, number: u32, is_new: bool) -> SentFacts<'_> {
        let bytes = self.facts.last().filter(|_| is_new).map_or(&[][..], Vec::as_slice);
        SentFacts { number, bytes }
    }

    /// CPU time that the process has used so far.
    fn cpu(&self) -> Duration {
        let Some(child) = &self.child else { return Duration::ZERO };
        // It is not waited for yet, so the id is its own.
        uunwind_clock::cpu_of(child.id()).unwrap_or_default()
    }

    /// Whether the calls of this walk have taken too long together.
    pub fn is_late(&self, walk: u64) -> bool {
        self.walk.number == walk && self.walk.begun.elapsed() > WALK_TIME
    }

    /// Whether the call that goes on is within its limits.
    fn check(&self, spent: &Spent) -> Result<(), String> {
        let (cpu, took) = (self.cpu(), spent.since.elapsed());
        if cpu.saturating_sub(spent.cpu) > CALL_CPU {
            return Err(format!("it took more than {} ms of CPU time for one call", CALL_CPU.as_millis()));
        }
        if cpu.saturating_sub(self.walk.cpu) > WALK_CPU {
            return Err(format!("it took more than {} ms of CPU time for one stack", WALK_CPU.as_millis()));
        }
        if took > CALL_TIME && self.sleeps() {
            return Err(format!("it did not answer within {} ms", CALL_TIME.as_millis()));
        }
        if took > READY_TIME {
            return Err(format!("it got no CPU for {} s", READY_TIME.as_secs()));
        }
        Ok(())
    }

    /// Whether the process waits for something else than a CPU or a disk.
    fn sleeps(&self) -> bool {
        let Some(child) = &self.child else { return true };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| !rest.starts_with(" R") && !rest.starts_with(" D"))
    }

    fn send(&mut self, body: &[u8], spent: &Spent) -> Result<(), String> {
        let mut whole = Vec::with_capacity(body.len() + 4);
        wire::send(&mut whole, body).map_err(|error| error.to_string())?;
        let mut rest = &whole[..];
        while !rest.is_empty() {
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    self.wait(PollFlags::OUT);
                    self.check(spent)?;
                }
                Err(_) => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Waits for a message; `check` says whether to go on waiting.
    fn receive(&mut self, check: impl Fn(&Link) -> Result<(), String>) -> Result<Vec<u8>, String> {
        let (mut part, mut checked) = ([0; 16 * 1024], Ok(()));
        loop {
            if let Some(message) = wire::take(&mut self.arrived).map_err(|wire::TooLong| nonsense())? {
                return Ok(message);
            }
            match self.stream.read(&mut part) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => self.arrived.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    // What it has sent since the check counts.
                    std::mem::replace(&mut checked, Ok(()))?;
                    self.wait(PollFlags::IN);
                    checked = check(self);
                }
                Err(_) => return Err(self.ended()),
            }
        }
    }

    fn wait(&self, what: PollFlags) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: SLICE.as_nanos() as i64 };
        // A signal ends the wait as well; the caller looks again.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.stream.as_fd(), what)], Some(&timeout));
    }

    /// Describes how the process has ended.
    fn ended(&mut self) -> String {
        let Some(child) = &mut self.child else { return "it has ended".to_owned() };
        match server::end_of(child) {
            Some(status) if status.signal() == Some(libc::SIGSYS) => {
                "it made a system call, which signal code may not".to_owned()
            }
            Some(status) => server::describe(status),
            None => "it closed its connection".to_owned(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn nonsense() -> String {
    "it sent nonsense".to_owned()
}

/// # Safety
/// Null, or valid for this length as long as the result is used.
unsafe fn bytes<'b>(start: *const u8, len: usize) -> Option<&'b [u8]> {
    // SAFETY: by this function's contract.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, len) })
}
