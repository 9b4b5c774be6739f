//! Rules for code that JITs report without unwind data: in GDB's list, for which LLVM writes none for functions that
//! throw nothing, or as windows of uu.h. A thread of the recorder's reads such a function from the process that has it,
//! makes rules from its machine code ([`made`]), and publishes them with a copy of that code (`published`), with which
//! walks compare what is there.
//!
//! A function may be reported before its code is complete: LLVM resolves relocations later. So it is read again after
//! a while, and later after longer ones, and analysed when it has not changed since. Until its rules are there, and if
//! its code changes after the last time, it has none.

mod made;
mod published;

use crate::analyst::without_signals;
use crate::jit::gdb::{Live, Memory};
use crate::session::SharedMemory;
pub use made::{made, Made, Piece};
use published::Published;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use uunwind_clock::channel::{channel, Receiver, Sender};
use uunwind_clock::Instant;
use uunwind_core::span::Span;
pub use uunwind_ring::code_rules::LARGEST_PIECE;

/// Time after which a function is read again for the first time; each time after that is twice as long, up to the last.
const SOON: Duration = Duration::from_millis(1);
const LAST: Duration = Duration::from_secs(2);
/// At most this number of functions is looked after.
const MOST: usize = 1 << 16;

/// A function of a process, by the process's index and its own number there.
pub type Id = (u32, Number);

/// The number of a function of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// Among those that its JITs have reported with their names.
    Reported(u32),
    /// Among those of the windows of one of its libraries: that library's index, and the number there.
    InWindow(u32, u32),
}

/// What the thread is told.
enum Message {
    Comes {
        id: Id,
        pid: u32,
        span: Span,
        constants: Arc<[Span]>,
    },
    Goes(Id),
    /// A process has ended, or runs another program.
    Ended(u32),
}

/// The recorder's side of the thread. It is started with the first function.
#[derive(Default)]
pub struct CodeRules {
    memory: Option<Arc<SharedMemory>>,
    messages: Option<Sender<Message>>,
    left_out: Arc<AtomicU64>,
}

impl CodeRules {
    /// `memory`: where the rules are published. Without it there are none.
    pub fn new(memory: Arc<SharedMemory>) -> CodeRules {
        CodeRules { memory: Some(memory), ..CodeRules::default() }
    }

    /// A function was reported for the process with this index and pid. `constants`: where tables of jumps may lie.
    pub fn come(&mut self, id: Id, pid: u32, span: Span, constants: &Arc<[Span]>) {
        if let Some(memory) = self.memory.take() {
            self.messages = without_signals(|| start(memory, self.left_out.clone()));
        }
        self.send(Message::Comes { id, pid, span, constants: constants.clone() });
    }

    /// A function was removed.
    pub fn go(&self, id: Id) {
        self.send(Message::Goes(id));
    }

    /// A process has ended, or runs another program.
    pub fn ended(&self, process: u32) {
        self.send(Message::Ended(process));
    }

    /// Counts functions that found no room elsewhere.
    pub fn leave_out(&self, count: u64) {
        self.left_out.fetch_add(count, Ordering::Relaxed);
    }

    /// Number of functions that were too large, or found no room, since the last call.
    pub fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    fn send(&self, message: Message) {
        // Without the thread there are no rules.
        let _ = self.messages.as_ref().map(|messages| messages.send(message));
    }
}

fn start(memory: Arc<SharedMemory>, left_out: Arc<AtomicU64>) -> Option<Sender<Message>> {
    let (sender, messages) = channel();
    let work = move || Rules::new(Published::new(memory), left_out).run(&messages);
    Builder::new().name("uu-code-rules".to_owned()).spawn(work).ok()?;
    Some(sender)
}

/// A function that is looked after.
struct Function {
    pid: u32,
    span: Span,
    constants: Arc<[Span]>,
    /// A hash of what it was last read as: its code, and its constants.
    read: Option<u64>,
    /// It was analysed as it was last read.
    analysed: bool,
    /// Its number among those that are published.
    published: Option<u64>,
    /// When it is read again, and how long it will not be after that.
    due: Instant,
    interval: Duration,
}

struct Rules {
    published: Published,
    functions: HashMap<Id, Function>,
    /// Those that are read again.
    unsettled: HashSet<Id>,
    /// The next look begins no earlier: it waits for as long as the last one took, so that a program that makes and
    /// drops code all the time does not keep a CPU busy.
    not_before: Instant,
    left_out: Arc<AtomicU64>,
}

impl Rules {
    fn new(published: Published, left_out: Arc<AtomicU64>) -> Rules {
        let not_before = Instant::now();
        Rules { published, functions: HashMap::new(), unsettled: HashSet::new(), not_before, left_out }
    }

    /// Works until nobody can say anything more.
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let due = self.unsettled.iter().filter_map(|id| self.functions.get(id)).map(|f| f.due).min();
            let due = due.map(|due| due.max(self.not_before));
            let longest = due.map_or(LAST, |due| due.saturating_duration_since(Instant::now()));
            match messages.recv_timeout(longest) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            messages.try_iter().for_each(|message| self.take(message));
            if Instant::now() >= self.not_before {
                self.look();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Comes { id, pid, span, constants } => {
                let fits = !span.is_empty() && span.len() <= LARGEST_PIECE as u64;
                if !fits || self.functions.len() >= MOST {
                    self.left_out.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let due = Instant::now();
                let (read, analysed, published, interval) = (None, false, None, SOON);
                let new = Function { pid, span, constants, read, analysed, published, due, interval };
                self.functions.insert(id, new);
                self.unsettled.insert(id);
            }
            Message::Goes(id) => self.remove(id),
            Message::Ended(process) => {
                let gone: Vec<Id> = self.functions.keys().filter(|id| id.0 == process).copied().collect();
                gone.into_iter().for_each(|id| self.remove(id));
            }
        }
    }

    fn remove(&mut self, id: Id) {
        self.unsettled.remove(&id);
        let published = self.functions.remove(&id).and_then(|function| function.published);
        published.into_iter().for_each(|number| self.published.remove(number));
    }

    /// Reads the functions that are due, and publishes what changes by that.
    fn look(&mut self) {
        let begun = Instant::now();
        let is_due = |id: &&Id| self.functions.get(id).is_some_and(|function| function.due <= begun);
        let due: Vec<Id> = self.unsettled.iter().filter(is_due).copied().collect();
        for id in &due {
            self.read(*id);
        }
        self.published.publish();
        let ended = Instant::now();
        for id in due {
            let Some(function) = self.functions.get_mut(&id) else { continue };
            function.due = ended + function.interval;
            function.interval *= 2;
            if function.interval > LAST {
                self.unsettled.remove(&id);
            }
        }
        self.not_before = ended + ended.saturating_duration_since(begun);
    }

    /// Reads a function. Its rules go if it has changed, and are made if it has not.
    fn read(&mut self, id: Id) {
        let Some(function) = self.functions.get_mut(&id) else { return };
        let memory = Live(function.pid);
        let piece =
            |span: Span| Some(Piece { start: span.start, bytes: memory.read(span.start, span.len() as usize)? });
        let code = piece(function.span);
        let read = code.map(|code| (code, function.constants.iter().filter_map(|span| piece(*span)).collect()));
        let hash = read.as_ref().map(|read: &(Piece, Vec<Piece>)| {
            let mut hasher = DefaultHasher::new();
            read.hash(&mut hasher);
            hasher.finish()
        });
        if hash != function.read {
            (function.read, function.analysed, function.interval) = (hash, false, SOON);
            let published = function.published.take();
            published.into_iter().for_each(|number| self.published.remove(number));
            return;
        }
        let Some((code, constants)) = read.filter(|_| !std::mem::replace(&mut function.analysed, true)) else { return };
        let Some(made) = made(&code, &constants) else { return };
        match self.published.add(&code, &constants, &made) {
            Ok(number) => function.published = Some(number),
            Err(_) => _ = self.left_out.fetch_add(1, Ordering::Relaxed),
        }
    }
}
