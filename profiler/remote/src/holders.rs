//! Which thread has what another one waits for: glibc's mutexes, reader-writer locks and locks of stdio, the end of a
//! thread, a runtime's global lock, and locks that a language's half finds.
//!
//! A thread that waits is in futex(2), whose first argument is the word that it waits on. What that word belongs to is
//! never guessed: the innermost frames say which function of the C library waits, that function's lock has the word at
//! one place, and the id of the owner that lies beside it must be that of a thread of this process which stood still at
//! the same moment. Where one of these is missing, nothing is said.
//!
//! What is read is glibc's: the same since 2.4 on x86-64, as programs have these structures compiled in
//! ([struct_mutex.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_mutex.h;hb=refs/tags/glibc-2.39),
//! [struct_rwlock.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_rwlock.h;hb=refs/tags/glibc-2.39)).

use crate::doing::{doing, Doing};
use crate::dump::ThreadState;
use crate::language_names::{half_of, Now};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::registers::{arguments, call_number, sp, thread_pointer, Registers};
use crate::walks::tsd_offset;
use std::collections::HashMap;
use syscalls::Sysno;
use uunwind_core::frame::{frames, Frame};
use uunwind_language::{Half, Holder, Waiting};
use uunwind_recording::objects::{file_address, lookup_address, ObjectMap};
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

/// Words of 32 bits that are kept, from [`BEFORE`] before the word that a thread waits on.
const WORDS: usize = 16;
const BEFORE: usize = 4;
/// Operations of futex(2) that wait, without their flags
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h>).
const COMMAND: u32 = 0x7f;
const WAIT: u32 = 0;
const LOCK_PI: u32 = 6;
const WAIT_BITSET: u32 = 9;
const LOCK_PI2: u32 = 13;
/// `FUTEX_TID_MASK`: the owner, in a word that the kernel itself reads.
const TID: u32 = 0x3fff_ffff;

/// `__kind` of a mutex: bits that may be set, and those of mutexes whose first word has the owner's id
/// ([pthreadP.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/pthreadP.h;hb=refs/tags/glibc-2.39)).
const KINDS: u32 = 0x3ff;
const ROBUST: u32 = 16;
const PRIO_INHERIT: u32 = 32;

/// Size of glibc's struct pthread, at least, in which a thread's id lies: it begins at the thread pointer.
const PTHREAD: u64 = 0x800;
/// Number of native frames up to the function that locks, at most.
const INNERMOST: usize = 6;

/// A thread in futex(2), as it stood.
#[derive(Clone, Debug)]
pub struct InFutex {
    /// Process address of the word that it waits on.
    address: u64,
    command: u32,
    /// The value that it has found there.
    expected: u32,
    /// What lies around the word; `None`: it could not be read.
    words: [Option<u32>; WORDS],
    /// The thread is one of glibc's.
    is_glibc: bool,
    /// A language's lock on which it waits.
    language: Option<Holder>,
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

impl InFutex {
    fn of(registers: &Registers, memory: &Memory) -> Option<InFutex> {
        let Doing::Waiting(_) = doing(registers) else { return None };
        let [address, operation, expected] = arguments(registers);
        match Sysno::new(usize::try_from(call_number(registers)).ok()?)? {
            Sysno::futex => {}
            // With it, the kernel goes on with a call that was stopped and has a limit of time. It leaves the registers
            // as they were, but other calls do that, too: they have pointers there.
            Sysno::restart_syscall if operation < 0x200 => {}
            _ => return None,
        }
        let word = |index: usize| {
            let at = address.wrapping_sub(4 * BEFORE as u64).wrapping_add(4 * index as u64);
            let mut bytes = [0; 4];
            memory.read(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
        };
        Some(InFutex {
            address,
            command: operation as u32 & COMMAND,
            expected: expected as u32,
            words: std::array::from_fn(word),
            is_glibc: tsd_offset(thread_pointer(registers), memory) != 0,
            language: None,
        })
    }

    /// The word at this distance in bytes from the one that is waited on.
    fn word(&self, distance: i64) -> Option<u32> {
        let index = usize::try_from(distance / 4 + BEFORE as i64).ok()?;
        *self.words.get(index)?
    }

    /// A thread's end: glibc keeps its id in its struct pthread, and the kernel clears it there when it ends.
    fn end(&self, stood: &impl Fn(u32) -> Option<u32>, pointers: &HashMap<u32, u64>) -> Option<WaitsFor> {
        let id = self.word(0)?;
        let tid = stood(id)?;
        let within = self.address.wrapping_sub(*pointers.get(&tid)?) < PTHREAD;
        let waits = matches!(self.command, WAIT | WAIT_BITSET) && self.expected == id;
        (self.is_glibc && within && waits).then_some(WaitsFor { what: What::End, address: 0, held: Held::Thread(tid) })
    }

    /// A mutex: `__lock`, `__count`, `__owner`, `__nusers`, `__kind`. The word is `__lock`.
    fn mutex(&self, stood: &impl Fn(u32) -> Option<u32>) -> Option<WaitsFor> {
        let [lock, owner, users, kind] = [self.word(0)?, self.word(8)?, self.word(12)?, self.word(16)?];
        let waits = matches!(self.command, WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2);
        let in_lock = kind & (ROBUST | PRIO_INHERIT) == 0 || lock & TID == owner;
        if !self.is_glibc || !waits || lock == 0 || users == 0 || kind & !KINDS != 0 || !in_lock {
            return None;
        }
        let held = Held::Thread(stood(owner)?);
        Some(WaitsFor { what: What::Mutex, address: self.address, held })
    }

    /// A lock of stdio: `lock`, `cnt`, `owner`, which is the thread pointer
    /// ([stdio-lock.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/stdio-lock.h;hb=refs/tags/glibc-2.39)).
    fn stdio(&self, by_pointer: &impl Fn(u64) -> Option<u32>) -> Option<WaitsFor> {
        let [lock, count, low, high] = [self.word(0)?, self.word(4)?, self.word(8)?, self.word(12)?];
        if !self.is_glibc || !matches!(self.command, WAIT | WAIT_BITSET) || lock == 0 || count == 0 {
            return None;
        }
        let held = Held::Thread(by_pointer(u64::from(high) << 32 | u64::from(low))?);
        Some(WaitsFor { what: What::Stdio, address: self.address, held })
    }

    /// A lock that a language's half has found.
    fn recursive(&self, by_pointer: &impl Fn(u64) -> Option<u32>) -> Option<WaitsFor> {
        let Holder { lock, thread } = self.language?;
        Some(WaitsFor { what: What::Recursive, address: lock, held: Held::Thread(by_pointer(thread)?) })
    }

    /// A reader-writer lock: `__readers`, `__writers`, `__wrphase_futex`, `__writers_futex`, two unused words, and
    /// `__cur_writer`. The word is `__wrphase_futex`, `__writers_futex`, or `__readers`, which differ by the
    /// lock's alignment and by what the thread has found there: flags of two bits, or a number of readers above three.
    fn rwlock(&self, stood: &impl Fn(u32) -> Option<u32>) -> Option<WaitsFor> {
        /// `PTHREAD_RWLOCK_WRPHASE`, and where the number of readers begins (`PTHREAD_RWLOCK_READER_SHIFT`).
        const WRITE_PHASE: u32 = 1;
        const READERS: u32 = 3;
        if !self.is_glibc || !matches!(self.command, WAIT | WAIT_BITSET) {
            return None;
        }
        let offset = match (self.address % 8, self.expected) {
            (4, 0..=3) => 12,
            (0, 0..=3) => 8,
            (0, _) => 0,
            _ => return None,
        };
        let (readers, writer) = (self.word(-offset)?, self.word(24 - offset)?);
        let held = match stood(writer) {
            Some(tid) => Held::Thread(tid),
            None if writer == 0 && readers & WRITE_PHASE == 0 && readers >> READERS != 0 => {
                Held::Readers(readers >> READERS)
            }
            None => return None,
        };
        Some(WaitsFor { what: What::RwLock, address: self.address.wrapping_sub(offset as u64), held })
    }
}

/// The functions of a recording's frames.
struct Functions<'r> {
    map: ObjectMap,
    /// By object and file address.
    names: HashMap<(u32, u64), &'r str>,
}

impl<'r> Functions<'r> {
    fn of(recording: &'r Recording) -> Functions<'r> {
        let entries = recording.symbols.iter().flat_map(|symbols| &symbols.entries);
        let names = entries.map(|symbol| ((symbol.object, symbol.address), symbol.name.as_str())).collect();
        Functions { map: ObjectMap::new(recording), names }
    }

    /// What the thread is locking, by its innermost frames: the function that locks, and before it only functions of
    /// the same object that have no name, or the name of one by which glibc waits.
    fn locking(&mut self, recording: &Recording, sample: &Sample) -> Option<What> {
        let (mut node, mut home) = (sample.stack, None);
        for index in 0..INNERMOST {
            let entry = recording.nodes.get((node as usize).checked_sub(1)?)?;
            node = entry.parent;
            let Frame::Native { address, exact, .. } = frames(&[entry.word, entry.position]).next()? else {
                return None;
            };
            // A signal's handler may wait for something else.
            if exact && index > 0 {
                return None;
            }
            let lookup = lookup_address(address, exact);
            let object = self.map.find(recording, 0, lookup, sample.time)?;
            if *home.get_or_insert(object) != object {
                return None;
            }
            let at = file_address(recording.objects.get(object as usize)?, lookup);
            let name = self.names.get(&(self.map.canonical(object), at)).copied().unwrap_or_default();
            match function(name) {
                Function::Locks(what) => return Some(what),
                Function::Waits => {}
                Function::Other => return None,
            }
        }
        None
    }
}

/// A function of glibc, by what it says about a wait inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// It waits for nothing but the lock that it was called with.
    Locks(What),
    /// It has no name, or is one by which others wait.
    Waits,
    Other,
}

/// `name`: as its file has it; libc.so.6 has some functions under several names.
fn function(name: &str) -> Function {
    let plain = name.split(['@', '.']).next().unwrap_or(name).trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").unwrap_or(plain).trim_start_matches('_');
    match plain {
        "pthread_mutex_lock"
        | "pthread_mutex_timedlock"
        | "pthread_mutex_clocklock"
        | "pthread_mutex_cond_lock"
        | "pthread_mutex_lock_full"
        | "pthread_mutex_cond_lock_full"
        | "pthread_mutex_clocklock_common" => Function::Locks(What::Mutex),
        "pthread_rwlock_rdlock"
        | "pthread_rwlock_timedrdlock"
        | "pthread_rwlock_clockrdlock"
        | "pthread_rwlock_wrlock"
        | "pthread_rwlock_timedwrlock"
        | "pthread_rwlock_clockwrlock" => Function::Locks(What::RwLock),
        "fputs" | "puts" | "fwrite" | "fputc" | "putc" | "putchar" | "fgets" | "fgetc" | "getc" | "fread"
        | "fflush" | "fclose" | "flockfile" | "vfprintf" | "vfprintf_internal" | "printf" | "fprintf" | "getdelim"
        | "ungetc" | "fseek" | "ftell" | "perror" => Function::Locks(What::Stdio),
        _ if plain.starts_with("IO_") => Function::Locks(What::Stdio),
        "" => Function::Waits,
        _ if ["lll_", "futex_", "pthread_rwlock_rdlock_full", "pthread_rwlock_wrlock_full"]
            .iter()
            .any(|start| plain.starts_with(start)) =>
        {
            Function::Waits
        }
        _ => Function::Other,
    }
}

/// Threads that wait for each other in a circle, each after the one that waits for it; a thread that waits for itself
/// is one alone.
pub fn circles(waits: impl Iterator<Item = (u32, Option<WaitsFor>)>) -> Vec<Vec<u32>> {
    let next: HashMap<u32, u32> = waits
        .filter_map(|(tid, waits)| match waits?.held {
            Held::Thread(holder) => Some((tid, holder)),
            Held::Readers(_) => None,
        })
        .collect();
    let mut found: Vec<Vec<u32>> = Vec::new();
    // The way on which a thread was met first, by that way's first thread.
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let mut starts: Vec<u32> = next.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut at = start;
        while let Some(holder) = next.get(&at).filter(|_| !seen.contains_key(&at)) {
            seen.insert(at, start);
            at = *holder;
        }
        // It ends where a thread of this very way stands: that one is in a circle.
        if seen.get(&at) == Some(&start) && next.contains_key(&at) {
            let circle = std::iter::successors(Some(at), |tid| next.get(tid).copied().filter(|tid| *tid != at));
            found.push(circle.collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futex(address: u64, operation: u32, expected: u32, around: &[(i64, u32)]) -> InFutex {
        let mut words = [Some(0); WORDS];
        for (distance, value) in around {
            words[(distance / 4 + BEFORE as i64) as usize] = Some(*value);
        }
        InFutex { address, command: operation & COMMAND, expected, words, is_glibc: true, language: None }
    }

    /// Thread 70 of the process has id 7 in its own namespace.
    fn stood(own: u32) -> Option<u32> {
        (own == 7).then_some(70)
    }

    #[test]
    fn a_mutex_says_who_has_it_or_nothing() {
        let whole = [(0, 2), (8, 7), (12, 1), (16, 0)];
        let mutex = |changed: &[(i64, u32)]| futex(0x1000, 128, 2, &[&whole[..], changed].concat()).mutex(&stood);
        let held = Some(WaitsFor { what: What::Mutex, address: 0x1000, held: Held::Thread(70) });
        assert_eq!(mutex(&[]), held);
        assert_eq!(mutex(&[(16, 1)]), held, "a recursive one");
        // A robust one and one with priority inheritance have the owner in the first word, too.
        assert_eq!(mutex(&[(16, ROBUST), (0, 0x8000_0007)]), held);
        assert_eq!(mutex(&[(16, PRIO_INHERIT), (0, 0x8000_0008)]), None);
        for (what, wrong) in [
            ("it was just released", [(8, 0)]),
            ("no thread of this process", [(8, 8)]),
            ("it is free", [(0, 0)]),
            ("nobody uses it", [(12, 0)]),
            ("no kind of mutex", [(16, 0x1_0000)]),
        ] {
            assert_eq!(mutex(&wrong), None, "{what}");
        }
        let mut other = futex(0x1000, 128, 2, &whole);
        other.is_glibc = false;
        assert_eq!(other.mutex(&stood), None, "another C library's");
        assert_eq!(futex(0x1000, 129, 2, &whole).mutex(&stood), None, "it wakes");
        other = futex(0x1000, 128, 2, &whole);
        other.words[BEFORE + 2] = None;
        assert_eq!(other.mutex(&stood), None, "not readable");
    }

    #[test]
    fn a_reader_writer_lock_says_who_writes_or_how_many_read() {
        let writes = Some(WaitsFor { what: What::RwLock, address: 0x1000, held: Held::Thread(70) });
        let reads = Some(WaitsFor { what: What::RwLock, address: 0x1000, held: Held::Readers(2) });
        // By the word that is waited on: its distance from the lock, and what was found there.
        for (offset, expected) in [(8i64, 3), (12, 3), (0, 0x14)] {
            let lock = |around: &[(i64, u32)]| {
                let around: Vec<(i64, u32)> = around.iter().map(|(at, value)| (at - offset, *value)).collect();
                futex(0x1000 + offset as u64, 128 | WAIT_BITSET, expected, &around).rwlock(&stood)
            };
            assert_eq!(lock(&[(0, 0x0b), (24, 7)]), writes, "{offset}");
            assert_eq!(lock(&[(0, 0x14), (24, 0)]), reads, "{offset}");
            assert_eq!(lock(&[(0, 0x14), (24, 9)]), None, "no thread of this process");
            assert_eq!(lock(&[(0, 0x0b), (24, 0)]), None, "a writer that is not there yet");
            assert_eq!(lock(&[]), None, "nobody has it");
        }
    }

    #[test]
    fn a_lock_of_stdio_and_a_languages_have_a_thread_pointer() {
        let by_pointer = |pointer: u64| (pointer == 0x7_0000_7000).then_some(70);
        let whole = [(0, 2), (4, 1), (8, 0x7000), (12, 7)];
        let stdio = |changed: &[(i64, u32)]| futex(0x1000, 128, 2, &[&whole[..], changed].concat()).stdio(&by_pointer);
        let held = Held::Thread(70);
        assert_eq!(stdio(&[]), Some(WaitsFor { what: What::Stdio, address: 0x1000, held }));
        for wrong in [(0, 0), (4, 0), (8, 0x7008), (12, 0)] {
            assert_eq!(stdio(&[wrong]), None);
        }
        let mut other = futex(0x1000, 128, 2, &whole);
        assert_eq!(other.recursive(&by_pointer), None);
        other.language = Some(Holder { lock: 0x3000, thread: 0x7_0000_7000 });
        let recursive = Some(WaitsFor { what: What::Recursive, address: 0x3000, held });
        assert_eq!(other.recursive(&by_pointer), recursive);
        other.language = Some(Holder { lock: 0x3000, thread: 0x7_0000_7001 });
        assert_eq!(other.recursive(&by_pointer), None);
        other.is_glibc = false;
        assert_eq!(other.stdio(&by_pointer), None);
    }

    #[test]
    fn a_join_is_known_by_the_place_of_the_id() {
        let pointers = HashMap::from([(70, 0x7000)]);
        let end = |address, expected, id| futex(address, WAIT_BITSET, expected, &[(0, id)]).end(&stood, &pointers);
        let waits = Some(WaitsFor { what: What::End, address: 0, held: Held::Thread(70) });
        assert_eq!(end(0x72d0, 7, 7), waits);
        assert_eq!(end(0x6ff0, 7, 7), None, "elsewhere");
        assert_eq!(end(0x72d0, 7, 0), None, "it has ended");
        assert_eq!(end(0x72d0, 3, 7), None, "something else was waited for");
    }

    #[test]
    fn functions_are_known_by_all_their_names() {
        for name in [
            "pthread_mutex_lock",
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "pthread_mutex_lock@@GLIBC_2.2.5",
        ] {
            assert_eq!(function(name), Function::Locks(What::Mutex), "{name}");
        }
        assert_eq!(function("__pthread_rwlock_wrlock"), Function::Locks(What::RwLock));
        for name in ["_IO_puts", "puts", "__GI__IO_fwrite", "flockfile", "__vfprintf_internal"] {
            assert_eq!(function(name), Function::Locks(What::Stdio), "{name}");
        }
        for name in ["", "__lll_lock_wait", "__GI___lll_lock_wait", "__futex_abstimed_wait_common64", "futex_wait"] {
            assert_eq!(function(name), Function::Waits, "{name}");
        }
        for name in ["pthread_cond_wait", "sem_wait", "handler", "my_pthread_mutex_lock"] {
            assert_eq!(function(name), Function::Other, "{name}");
        }
    }

    #[test]
    fn circles_are_found_once_and_ways_into_them_are_none() {
        let waits = |pairs: &[(u32, u32)]| {
            let waits = |holder| WaitsFor { what: What::Mutex, address: 0, held: Held::Thread(holder) };
            let mut found = circles(pairs.iter().map(|(tid, holder)| (*tid, Some(waits(*holder)))));
            found.iter_mut().for_each(|circle| circle.sort_unstable());
            found
        };
        assert_eq!(waits(&[(1, 2), (2, 3)]), Vec::<Vec<u32>>::new());
        assert_eq!(waits(&[(1, 2), (2, 3), (3, 2), (4, 1), (5, 5), (6, 5)]), [vec![2, 3], vec![5]]);
        let readers = WaitsFor { what: What::RwLock, address: 0, held: Held::Readers(1) };
        assert_eq!(circles([(1, Some(readers)), (2, None)].into_iter()), Vec::<Vec<u32>>::new());
    }
}
