//! A plugin that runs in a process of its own, as uu sees it: a table whose functions send calls there.

use super::link::Link;
use super::message::{Function, Hello};
use crate::server::Launcher;
use crate::Plugin as Described;
use std::ffi::c_void;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use uunwind_core::plugin::installed::FAILURE_LIMIT;
use uunwind_core::plugin::{CRule, Plugin, View, CHECKED_READS, LINE_IN_HANDLERS};

/// What a function answers when the call has failed: no function's answer, so that the walk takes back what the call
/// has emitted.
const FAILED: u32 = u32::MAX;

/// A plugin's process that was started, and has not said anything yet.
pub struct Starting {
    name: String,
    link: std::io::Result<Link>,
}

impl Starting {
    /// Starts it. Call it on a thread that lives on: the process ends with it.
    pub fn new(launcher: &Launcher, plugin: &Described) -> Starting {
        Starting { name: plugin.name.clone(), link: Link::start(launcher, &plugin.path) }
    }

    /// Waits until the plugin is open.
    ///
    /// # Errors
    /// Why it cannot be called.
    pub fn finish(self) -> Result<Foreign, String> {
        let mut link =
            self.link.map_err(|error| format!("cannot be called: its process cannot be started: {error}"))?;
        let hello = link.hello().map_err(|why| format!("cannot be called: {why}"))?;
        Ok(Foreign::new(&self.name, &hello, link))
    }
}

/// A plugin that runs in a process of its own.
pub struct Foreign {
    name: String,
    table: Plugin,
    /// The number of the walk that goes on.
    walk: AtomicU64,
    /// Its process is not used any more.
    is_off: AtomicBool,
    /// Calls whose answers the walk refused.
    failures: AtomicU32,
    /// Calls that were left out, because those before them in the walk had taken too long.
    skipped: AtomicU32,
    /// The last call was.
    is_skipped: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// `None`: it was ended.
    link: Option<Link>,
    /// Why it was ended, and after which number of calls.
    why: Option<(String, u32)>,
}

impl Foreign {
    fn new(name: &str, hello: &Hello, link: Link) -> Foreign {
        let mut table = Plugin::new([0; 16]);
        // Whatever it does, it raises no fault here.
        (table.flags, table.scratch_bytes) = (hello.flags & !LINE_IN_HANDLERS | CHECKED_READS, hello.scratch_bytes);
        table.overlay = hello.has(Function::Overlay).then_some(overlay);
        table.step = hello.has(Function::Step).then_some(step);
        table.rule = hello.has(Function::Rule).then_some(rule);
        table.lock = hello.has(Function::Lock).then_some(lock);
        Foreign {
            name: name.to_owned(),
            table,
            walk: AtomicU64::new(1),
            is_off: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            is_skipped: AtomicBool::new(false),
            state: Mutex::new(State { link: Some(link), why: None }),
        }
    }

    /// One with these functions, which somebody else serves at the other end of the stream.
    ///
    /// # Errors
    /// The stream cannot be used.
    pub fn over(stream: UnixStream, hello: &Hello) -> std::io::Result<Foreign> {
        Ok(Foreign::new("", hello, Link::over(stream, None)?))
    }

    /// Its table, unless it is off.
    pub fn table(&self) -> Option<&Plugin> {
        let is_off = self.is_off.load(Ordering::Relaxed) || self.failures.load(Ordering::Relaxed) >= FAILURE_LIMIT;
        (!is_off).then_some(&self.table)
    }

    /// What the views of its calls must have as `user`, as long as this lives.
    pub fn user(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// From now on, memory and names are those of another walk.
    pub fn begin_walk(&self) {
        self.walk.fetch_add(1, Ordering::Relaxed);
    }

    /// The walk has refused the answer of a call.
    pub fn failed(&self) {
        // The end of the process is reported by itself.
        if !self.is_skipped.swap(false, Ordering::Relaxed) && !self.is_off.load(Ordering::Relaxed) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What went wrong so far, for people.
    pub fn notes(&self) -> Vec<String> {
        let state = self.locked();
        let (name, missing) = (&self.name, "frames of it are missing from there on");
        let calls = state.link.as_ref().map_or(0, |link| link.calls);
        let failed = match (&state.why, self.failures.load(Ordering::Relaxed)) {
            (Some((why, 1)), _) => Some(format!("in its first call and is off: {why}; {missing}")),
            (Some((why, call)), _) => Some(format!("in call {call} and is off: {why}; {missing}")),
            (None, 0) => None,
            (None, times) => Some(format!(
                "{} in {calls} calls{}: what it answered makes no sense; {}",
                if times == 1 { "once".to_owned() } else { format!("{times} times") },
                if times >= FAILURE_LIMIT { " and is off" } else { "" },
                if times >= FAILURE_LIMIT { missing } else { "frames of it are missing there" },
            )),
        };
        let skipped = match self.skipped.load(Ordering::Relaxed) {
            0 => None,
            skipped => Some(format!(
                "plugin \"{name}\": {skipped} calls were left out, because those before them in the same stack took too \
                 long on this busy machine: frames of it are missing there"
            )),
        };
        failed.map(|failed| format!("plugin \"{name}\" failed {failed}")).into_iter().chain(skipped).collect()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// As [`Link::call`].
    unsafe fn call(&self, function: Function, view: &mut View, rule: *mut CRule) -> u32 {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // It asked for a native step in an object of its own: its rule is left out, and the next source asked.
            Err(TryLockError::WouldBlock) => return 0,
        };
        let Some(link) = &mut state.link else { return FAILED };
        let walk = self.walk.load(Ordering::Relaxed);
        if link.is_late(walk) {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            self.is_skipped.store(true, Ordering::Relaxed);
            return FAILED;
        }
        // SAFETY: passed on.
        match unsafe { link.call(walk, function, view, rule) } {
            Ok(answer) => answer,
            Err(why) => {
                state.why = Some((why, link.calls));
                state.link = None;
                self.is_off.store(true, Ordering::Relaxed);
                FAILED
            }
        }
    }
}

/// # Safety
/// `view` must be a valid view whose `user` is that of a plugin; `rule` null or valid.
unsafe fn call(function: Function, view: *mut View, rule: *mut CRule) -> u32 {
    // SAFETY: by this function's contract.
    let view = unsafe { &mut *view };
    // SAFETY: null, or `Foreign::user`.
    let Some(foreign) = (unsafe { view.user.cast::<Foreign>().as_ref() }) else { return FAILED };
    // SAFETY: the walk has filled in the view.
    unsafe { foreign.call(function, view, rule) }
}

unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: the walk passes a view of this plugin's.
    unsafe { call(Function::Overlay, view, std::ptr::null_mut()) }
}

unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: as above.
    unsafe { call(Function::Step, view, std::ptr::null_mut()) }
}

unsafe extern "C" fn rule(view: *mut View, rule: *mut CRule) -> u32 {
    // SAFETY: as above; the rule is to be filled.
    unsafe { call(Function::Rule, view, rule) }
}

unsafe extern "C" fn lock(view: *mut View) -> u32 {
    // SAFETY: as above.
    unsafe { call(Function::Lock, view, std::ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::message::{Answer, Request};
    use crate::wire;
    use uunwind_core::plugin::{Caller, READING_HOST};
    use uunwind_core::regs::COUNT;

    fn overlay_of(foreign: &Foreign) -> u32 {
        let mut view = View { user: foreign.user(), host: &READING_HOST, ..View::new() };
        let call = foreign.table().and_then(|table| table.overlay).expect("it is on");
        // SAFETY: a complete view; what is asked for here needs no walk.
        unsafe { call(&raw mut view) }
    }

    fn over(stream: UnixStream) -> Foreign {
        Foreign::over(stream, &Hello { flags: 0, scratch_bytes: 0, functions: 1 }).expect("a stream")
    }

    fn answer(call: u32, answer: u32) -> Vec<u8> {
        let caller = Caller { pc: 0, registers: [0; COUNT], known: 0, exact: 0 };
        Request::Answer(Box::new(Answer { answer, caller, rule: CRule::simple(7, 8), frames: Vec::new() })).encode(call)
    }

    /// Calls that are left out on a busy machine are no failures of the plugin.
    #[test]
    fn what_takes_too_long_together_is_left_out() {
        let (ours, mut theirs) = UnixStream::pair().expect("streams");
        let foreign = over(ours);
        let walk = foreign.walk.load(Ordering::Relaxed);
        foreign.locked().link.as_mut().expect("a stream").be_late(walk);
        for _ in 0..2 * FAILURE_LIMIT {
            assert_eq!(overlay_of(&foreign), FAILED);
            foreign.failed();
        }
        foreign.begin_walk();
        wire::send(&mut theirs, &answer(1, 1)).expect("room");
        assert_eq!(overlay_of(&foreign), 1, "another walk's calls are made");
        let notes = foreign.notes();
        assert!(notes.len() == 1 && notes[0].contains("6 calls were left out"), "{notes:?}");
    }

    /// What is late, belongs to another call, or is nonsense ends the process, and is said once.
    #[test]
    fn one_that_sends_nonsense_is_off() {
        for sent in [answer(7, 1), b"garbage".to_vec(), Vec::new()] {
            let (ours, mut theirs) = UnixStream::pair().expect("streams");
            let foreign = over(ours);
            wire::send(&mut theirs, &sent).expect("room");
            assert_eq!(overlay_of(&foreign), FAILED);
            foreign.failed();
            assert!(foreign.table().is_none());
            assert_eq!(
                foreign.notes(),
                ["plugin \"\" failed in its first call and is off: it sent nonsense; frames of it are missing from there on"]
            );
        }
        let (ours, _theirs) = UnixStream::pair().expect("streams");
        let foreign = over(ours);
        assert_eq!(overlay_of(&foreign), FAILED);
        assert!(foreign.notes()[0].contains("it did not answer within 500 ms"), "{:?}", foreign.notes());
    }

    /// An answer without a meaning counts, up to three.
    #[test]
    fn answers_that_are_refused_count() {
        let (ours, mut theirs) = UnixStream::pair().expect("streams");
        let foreign = over(ours);
        for call in 1..=FAILURE_LIMIT {
            wire::send(&mut theirs, &answer(call, 0xdead)).expect("room");
            assert_eq!(overlay_of(&foreign), 0xdead);
            foreign.failed();
        }
        assert!(foreign.table().is_none() && foreign.notes()[0].contains("failed 3 times in 3 calls and is off"));
    }
}
