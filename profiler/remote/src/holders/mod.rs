//! Which thread has what another one waits for: glibc's mutexes, reader-writer locks and locks of stdio, the end of a
//! thread, a runtime's global lock, and locks that a language's half finds.
//!
//! A thread that waits is in futex(2), whose first argument is the word that it waits on. What that word belongs to is
//! never guessed: the innermost frames say which function of the C library waits, that function's lock has the word at
//! one place, and the id of the owner that lies beside it must be that of a thread of this process which stood still at
//! the same moment. Where one of these is missing, nothing is said.

mod circles;
mod functions;
mod futex;

use crate::dump::ThreadState;
use crate::language_names::{half_of, Now};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::registers::{sp, thread_pointer, Registers};
pub use circles::circles;
use functions::Functions;
pub use futex::InFutex;
use std::collections::HashMap;
use uunwind_language::{Half, Waiting};
use uunwind_recording::{Lock, Recording, Sample};

/// What a thread waits for, and who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitsFor {
    /// What it is.
    pub what: What,
    /// Its process address; 0: it has none that is known.
    pub address: u64,
    /// Who has it.
    pub held: Held,
}

/// What threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A `pthread_mutex_t`.
    Mutex,
    /// A `pthread_rwlock_t`.
    RwLock,
    /// The end of another thread: pthread_join(3).
    End,
    /// The global lock of a language's runtime.
    Gil,
    /// The lock of a `FILE`, or of the list of all of them.
    Stdio,
    /// A recursive lock of a language's, such as Python's `threading.RLock`.
    Recursive,
}

/// Who has what a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The thread with this id. It may be the one that waits.
    Thread(u32),
    /// This number of threads that read under a [`What::RwLock`], which keeps no list of them.
    Readers(u32),
}

/// What was read while all threads stood.
#[derive(Default)]
pub struct Look {
    /// Of each thread, in the order in which they were given.
    pub futexes: Vec<Option<InFutex>>,
    /// All runtimes of the process together have one global lock.
    one_lock: bool,
}

impl Look {
    /// Looks at threads that stand still, each by its registers.
    pub fn at<'r>(
        threads: impl Iterator<Item = Option<&'r Registers>>,
        (objects, plugins): (&Objects, &Plugins),
        memory: &Memory,
    ) -> Look {
        let halves: Vec<(&dyn Half, Vec<u8>)> =
            objects.objects.iter().filter_map(|object| half_of(object, plugins)).collect();
        let one = |registers: &Registers| {
            let mut futex = InFutex::of(registers, memory)?;
            let waiting = Waiting { word: futex.address, stack: sp(registers) };
            futex.language = halves.iter().find_map(|(half, facts)| half.lock_holder(facts, &waiting, &Now(memory)));
            Some(futex)
        };
        let futexes = threads.map(|registers| registers.and_then(one)).collect();
        Look { futexes, one_lock: has_one_lock(objects, plugins, memory) }
    }

    /// Whether a thread's id in its own pid namespace is needed to find out what the threads wait for.
    pub fn needs_ids(&self) -> bool {
        self.futexes.iter().any(Option::is_some)
    }

    /// What each of these threads waits for. `recording`: their stacks, with names. `own`: a thread's id in its own pid
    /// namespace -> its id here.
    pub fn find(
        &self,
        recording: &Recording,
        threads: &[ThreadState],
        own: &HashMap<u32, u32>,
    ) -> Vec<Option<WaitsFor>> {
        let mut functions = Functions::of(recording);
        let samples: HashMap<u32, &Sample> = recording
            .samples
            .iter()
            .filter_map(|sample| Some((recording.threads.get(sample.thread as usize)?.tid, sample)))
            .collect();
        let pointer = |thread: &ThreadState| Some((thread.tid, thread_pointer(thread.registers.as_ref()?)));
        let pointers: HashMap<u32, u64> = threads.iter().filter_map(pointer).collect();
        let stood = |own_id: u32| own.get(&own_id).copied().filter(|tid| pointers.contains_key(tid));
        let held = |sample: &&&Sample| sample.lock() == Lock::Held;
        let mut holders = samples.iter().filter(|(_, sample)| held(sample)).map(|(tid, _)| *tid);
        let holder = match (holders.next(), holders.next()) {
            (Some(one), None) if self.one_lock => Some(one),
            _ => None,
        };
        let one = |(index, thread): (usize, &ThreadState)| {
            let sample = samples.get(&thread.tid)?;
            if sample.lock() == Lock::Waiting {
                let held = Held::Thread(holder?);
                return Some(WaitsFor { what: What::Gil, address: 0, held });
            }
            let futex = self.futexes.get(index)?.as_ref()?;
            // By the thread pointer, of which threads that are walked have different ones.
            let by_pointer = |wanted: u64| {
                let mut found = pointers.iter().filter(|(_, pointer)| **pointer == wanted);
                found.next().filter(|_| found.next().is_none()).map(|(tid, _)| *tid)
            };
            let in_library = || match functions.locking(recording, sample)? {
                What::Mutex => futex.mutex(&stood),
                What::RwLock => futex.rwlock(&stood),
                What::Stdio => futex.stdio(&by_pointer),
                What::End | What::Gil | What::Recursive => None,
            };
            futex.end(&stood, &pointers).or_else(in_library).or_else(|| futex.recursive(&by_pointer))
        };
        threads.iter().enumerate().map(one).collect()
    }
}

/// Whether all runtimes of the process together have one global lock.
fn has_one_lock(objects: &Objects, plugins: &Plugins, memory: &Memory) -> bool {
    let runtimes = objects.objects.iter().filter_map(|object| Some((half_of(object, plugins)?, object.bias)));
    let locks = runtimes.map(|((half, facts), bias)| half.global_locks(&facts, bias, &Now(memory)));
    locks.sum::<Option<usize>>() == Some(1)
}
