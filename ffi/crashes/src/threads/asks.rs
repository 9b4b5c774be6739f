//! What is asked of which thread, and its answer.
//!
//! An ask's word has its phase and a generation, which grows each time it is free again: who comes late with an old
//! word changes nothing.
//!
//! ```text
//! free -> filling -> asked -> answering -> answered -> free       the requester waits
//!                      |          |
//!                      v          v
//!                    free      orphaned -> free                   it gave up: the thread that answers frees it
//! ```

use super::Manner;
use crate::system;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::DEEP_WORDS;
use uunwind_live::state::SLOTS;
use uunwind_stacks::arena;
use uunwind_stacks::walk::Whole;

/// Asks at a time in a process.
pub const ROOM: usize = 32;

const PHASE: u32 = 7;
const FREE: u32 = 0;
const FILLING: u32 = 1;
const ASKED: u32 = 2;
const ANSWERING: u32 = 3;
const ANSWERED: u32 = 4;
const ORPHANED: u32 = 5;
const GENERATION: u32 = 8;

struct Ask {
    /// Phase and generation. The requester waits for it.
    word: AtomicU32,
    /// The thread that is asked.
    tid: AtomicU32,
    /// The process whose memory this is (`Slots::pid`): in the child of a fork, asks of its parent's threads are free.
    /// The child of a vfork, whose memory is its parent's, leaves them alone.
    pid: AtomicU32,
    /// Bit 0: probed, bit 1: trusting.
    manner: AtomicU32,
    /// [`DEEP_WORDS`] words, mapped when they are first needed.
    frames: AtomicPtr<u64>,
    words: AtomicU32,
    /// Stop reason; bit 16: nothing was walked; bit 17: desync.
    stop: AtomicU32,
    result: AtomicU64,
}

const NOTHING: u32 = 1 << 16;
const DESYNC: u32 = 1 << 17;

static ASKS: [Ask; ROOM] = [const {
    Ask {
        word: AtomicU32::new(FREE),
        tid: AtomicU32::new(0),
        pid: AtomicU32::new(0),
        manner: AtomicU32::new(0),
        frames: AtomicPtr::new(core::ptr::null_mut()),
        words: AtomicU32::new(0),
        stop: AtomicU32::new(0),
        result: AtomicU64::new(0),
    }
}; ROOM];

impl Ask {
    /// Moves from one word to another phase of the same generation, or to the next generation's `FREE`.
    fn advance(&self, from: u32, phase: u32) -> bool {
        let same = from & !PHASE;
        let to = if phase == FREE { same.wrapping_add(GENERATION) } else { same | phase };
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether no one will use it any more although it is not free: it is of another process, which was forked, or its
    /// thread ended before it could free it.
    fn is_left(&self, word: u32, pid: u32) -> bool {
        word & PHASE != FREE
            && (self.pid.load(Ordering::Acquire) != pid && word & PHASE != FILLING
                || word & PHASE == ORPHANED && !crate::signals::exists(self.tid.load(Ordering::Acquire)))
    }
}

/// An ask that its requester has.
#[derive(Debug)]
pub struct Asked {
    index: usize,
    /// Its word, in the phase `ASKED`.
    word: u32,
}

/// Makes an ask. `None`: all are in use, or there is no memory.
pub fn begin(tid: u32, manner: Manner) -> Option<Asked> {
    let pid = SLOTS.pid();
    for (index, ask) in ASKS.iter().enumerate() {
        let mut word = ask.word.load(Ordering::Acquire);
        if ask.is_left(word, pid) && ask.advance(word, FREE) {
            word = ask.word.load(Ordering::Acquire);
        }
        if word & PHASE != FREE || !ask.advance(word, FILLING) {
            continue;
        }
        let filling = word | FILLING;
        ask.pid.store(pid, Ordering::Release);
        if !has_memory(ask) {
            ask.advance(filling, FREE);
            return None;
        }
        ask.tid.store(tid, Ordering::Release);
        ask.manner.store(u32::from(manner.probed) | u32::from(manner.trusting) << 1, Ordering::Release);
        ask.advance(filling, ASKED);
        return Some(Asked { index, word: word | ASKED });
    }
    None
}

fn has_memory(ask: &Ask) -> bool {
    if ask.frames.load(Ordering::Acquire).is_null() {
        // Only the filler maps.
        let Some(new) = arena::map(DEEP_WORDS * 8) else { return false };
        ask.frames.store(new.cast(), Ordering::Release);
    }
    true
}

impl Asked {
    fn ask(&self) -> Option<&'static Ask> {
        ASKS.get(self.index)
    }

    /// The answer, if it is there: a stack, or why nothing was walked.
    pub fn answer(&self) -> Option<Result<Whole<'_>, StopReason>> {
        let ask = self.ask()?;
        if ask.word.load(Ordering::Acquire) != self.word & !PHASE | ANSWERED {
            return None;
        }
        let stop = ask.stop.load(Ordering::Relaxed);
        let reason = StopReason::from_number(stop as u16).unwrap_or(StopReason::Fault);
        if stop & NOTHING != 0 {
            return Some(Err(reason));
        }
        let words = (ask.words.load(Ordering::Relaxed) as usize).min(DEEP_WORDS);
        let frames = ask.frames.load(Ordering::Acquire);
        if frames.is_null() {
            return Some(Err(StopReason::Fault));
        }
        Some(Ok(Whole {
            // SAFETY: the memory of an ask that was answered; no one writes to it until it is free.
            frames: unsafe { core::slice::from_raw_parts(frames, words) },
            cfas: None,
            stop: reason,
            desync: stop & DESYNC != 0,
            result: ask.result.load(Ordering::Relaxed) as u32,
        }))
    }

    /// Waits for the answer, at most this number of nanoseconds.
    pub fn wait(&self, ns: u64) {
        let Some(ask) = self.ask() else { return };
        let now = ask.word.load(Ordering::Acquire);
        if now & PHASE != ANSWERED {
            system::wait(&ask.word, now, ns);
        }
    }

    /// Frees an ask that was answered.
    pub fn finish(&self) {
        if let Some(ask) = self.ask() {
            ask.advance(self.word & !PHASE | ANSWERED, FREE);
        }
    }

    /// Gives up: the answer is not wanted any more.
    pub fn give_up(&self) {
        let Some(ask) = self.ask() else { return };
        let same = self.word & !PHASE;
        // A thread that answers moves on once only, so one of these is true.
        if !ask.advance(same | ASKED, FREE) && !ask.advance(same | ANSWERING, ORPHANED) {
            ask.advance(same | ANSWERED, FREE);
        }
    }
}

/// In the child of a fork, which has the calling thread only: nothing is asked there, also where another thread was in
/// the middle of `begin`.
pub fn after_fork() {
    for ask in &ASKS {
        let word = ask.word.load(Ordering::Acquire);
        if word & PHASE != FREE {
            ask.advance(word, FREE);
        }
    }
}

/// Takes a stack.
pub type Take<'t> = dyn FnMut(Whole<'_>) + 't;

/// Whether the calling thread is asked for a stack, and has not begun to answer.
pub fn are_open(tid: u32) -> bool {
    let pid = SLOTS.pid();
    ASKS.iter().any(|ask| {
        ask.word.load(Ordering::Acquire) & PHASE == ASKED
            && ask.tid.load(Ordering::Acquire) == tid
            && ask.pid.load(Ordering::Acquire) == pid
    })
}

/// Answers all that the calling thread is asked. `walk` walks it and passes the stack on.
pub fn answer_all(walk: &mut dyn FnMut(Manner, &mut Take<'_>) -> Result<(), StopReason>) {
    let (tid, pid) = (syscall::gettid(), SLOTS.pid());
    for ask in &ASKS {
        let word = ask.word.load(Ordering::Acquire);
        let is_own =
            word & PHASE == ASKED && ask.tid.load(Ordering::Acquire) == tid && ask.pid.load(Ordering::Acquire) == pid;
        if !is_own || !ask.advance(word, ANSWERING) {
            continue;
        }
        let manner = ask.manner.load(Ordering::Acquire);
        let manner = Manner { probed: manner & 1 != 0, trusting: manner & 2 != 0, impatient: false };
        if let Err(reason) = walk(manner, &mut |whole| copy(ask, whole)) {
            ask.stop.store(u32::from(reason.number()) | NOTHING, Ordering::Relaxed);
        }
        let same = word & !PHASE;
        if ask.advance(same | ANSWERING, ANSWERED) {
            system::wake(&ask.word);
        } else {
            ask.advance(same | ORPHANED, FREE);
        }
    }
}

fn copy(ask: &Ask, whole: Whole<'_>) {
    let frames = ask.frames.load(Ordering::Acquire);
    let words = if frames.is_null() { 0 } else { whole.frames.len().min(DEEP_WORDS) };
    for (index, word) in whole.frames.iter().enumerate().take(words) {
        // SAFETY: DEEP_WORDS words, which only the thread that answers writes.
        unsafe { frames.add(index).write(*word) };
    }
    ask.words.store(words as u32, Ordering::Relaxed);
    ask.result.store(u64::from(whole.result), Ordering::Relaxed);
    ask.stop.store(u32::from(whole.stop.number()) | if whole.desync { DESYNC } else { 0 }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(frames: &[u64]) -> Whole<'_> {
        Whole { frames, stop: StopReason::Complete, desync: true, result: 5, cfas: None }
    }

    /// The asks are the process's: one test at a time.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn an_answer_reaches_the_one_who_asked() {
        let _one = ONE.lock();
        let own = syscall::gettid();
        let asked = begin(own, Manner { probed: true, ..Manner::default() }).expect("room");
        let other = begin(own + 1, Manner::default()).expect("room");
        assert!(asked.answer().is_none());
        answer_all(&mut |manner, then| {
            assert_eq!(manner, Manner { probed: true, ..Manner::default() });
            then(whole(&[1, 2, 3]));
            Ok(())
        });
        let answer = asked.answer().expect("answered").expect("a stack");
        assert_eq!(
            (answer.frames, answer.stop, answer.desync, answer.result),
            (&[1, 2, 3][..], StopReason::Complete, true, 5)
        );
        asked.finish();
        assert!(asked.answer().is_none() && other.answer().is_none());
        other.give_up();
    }

    #[test]
    fn who_gives_up_leaves_the_ask_to_the_thread_that_answers() {
        let _one = ONE.lock();
        let own = syscall::gettid();
        let asked = begin(own, Manner::default()).expect("room");
        let index = asked.index;
        answer_all(&mut |_, then| {
            asked.give_up();
            // The memory is still this thread's: whoever asks now gets another place.
            let next = begin(own + 1, Manner::default()).expect("room");
            assert_ne!(next.index, index);
            next.give_up();
            then(whole(&[7]));
            Ok(())
        });
        assert!(asked.answer().is_none());
        let again = begin(own, Manner::default()).expect("room");
        assert_eq!(again.index, index, "it is free again");
        again.give_up();
        // The signal comes late.
        answer_all(&mut |_, _| panic!("nothing is asked"));
    }

    #[test]
    fn the_number_of_asks_is_bounded_and_errors_are_answers() {
        let _one = ONE.lock();
        let own = syscall::gettid();
        let all: Vec<_> = (0..ROOM).map(|_| begin(own, Manner::default()).expect("room")).collect();
        assert!(begin(own, Manner::default()).is_none());
        answer_all(&mut |_, _| Err(StopReason::TooManyThreads));
        for asked in all {
            assert!(matches!(asked.answer(), Some(Err(StopReason::TooManyThreads))));
            asked.finish();
        }
    }

    #[test]
    fn after_a_fork_nothing_is_asked() {
        let _one = ONE.lock();
        let phases = [FILLING, ASKED, ANSWERING, ANSWERED, ORPHANED];
        for (ask, phase) in ASKS.iter().zip(phases) {
            ask.word.fetch_or(phase, Ordering::AcqRel);
        }
        after_fork();
        assert!(ASKS.iter().all(|ask| ask.word.load(Ordering::Acquire) & PHASE == FREE));
        assert!(ASKS[..phases.len()].iter().all(|ask| ask.word.load(Ordering::Acquire) != FREE), "a new generation");
    }

    #[test]
    fn asks_of_a_process_that_forked_are_free() {
        let _one = ONE.lock();
        let asked = begin(1, Manner::default()).expect("room");
        let ask = &ASKS[asked.index];
        ask.pid.store(1, Ordering::Release);
        let index = asked.index;
        let again = begin(1, Manner::default()).expect("room");
        assert_eq!(again.index, index);
        asked.give_up();
        assert_eq!(ask.word.load(Ordering::Acquire), again.word, "an old word changes nothing");
        again.give_up();
    }
}
