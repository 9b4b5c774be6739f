//! A thread in futex(2): the lock of glibc's or of a language's that its word belongs to, and the owner that it names.
//!
//! What is read is glibc's: the same since 2.4 on x86-64, as programs have these structures compiled in
//! ([struct_mutex.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_mutex.h;hb=refs/tags/glibc-2.39),
//! [struct_rwlock.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_rwlock.h;hb=refs/tags/glibc-2.39)).

use super::{Held, WaitsFor, What};
use crate::doing::{doing, Doing};
use crate::memory::Memory;
use crate::registers::{arguments, call_number, thread_pointer, Registers};
use crate::walks::tsd_offset;
use std::collections::HashMap;
use syscalls::Sysno;
use uunwind_language::Holder;

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
/// A thread in futex(2), as it stood.
#[derive(Clone, Debug)]
pub struct InFutex {
    /// Process address of the word that it waits on.
    pub(super) address: u64,
    command: u32,
    /// The value that it has found there.
    expected: u32,
    /// What lies around the word; `None`: it could not be read.
    words: [Option<u32>; WORDS],
    /// The thread is one of glibc's.
    is_glibc: bool,
    /// A language's lock on which it waits.
    pub(super) language: Option<Holder>,
}

impl InFutex {
    pub(super) fn of(registers: &Registers, memory: &Memory) -> Option<InFutex> {
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
    pub(super) fn end(&self, stood: &impl Fn(u32) -> Option<u32>, pointers: &HashMap<u32, u64>) -> Option<WaitsFor> {
        let id = self.word(0)?;
        let tid = stood(id)?;
        let within = self.address.wrapping_sub(*pointers.get(&tid)?) < PTHREAD;
        let waits = matches!(self.command, WAIT | WAIT_BITSET) && self.expected == id;
        (self.is_glibc && within && waits).then_some(WaitsFor { what: What::End, address: 0, held: Held::Thread(tid) })
    }

    /// A mutex: `__lock`, `__count`, `__owner`, `__nusers`, `__kind`. The word is `__lock`.
    pub(super) fn mutex(&self, stood: &impl Fn(u32) -> Option<u32>) -> Option<WaitsFor> {
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
    pub(super) fn stdio(&self, by_pointer: &impl Fn(u64) -> Option<u32>) -> Option<WaitsFor> {
        let [lock, count, low, high] = [self.word(0)?, self.word(4)?, self.word(8)?, self.word(12)?];
        if !self.is_glibc || !matches!(self.command, WAIT | WAIT_BITSET) || lock == 0 || count == 0 {
            return None;
        }
        let held = Held::Thread(by_pointer(u64::from(high) << 32 | u64::from(low))?);
        Some(WaitsFor { what: What::Stdio, address: self.address, held })
    }

    /// A lock that a language's half has found.
    pub(super) fn recursive(&self, by_pointer: &impl Fn(u64) -> Option<u32>) -> Option<WaitsFor> {
        let Holder { lock, thread } = self.language?;
        Some(WaitsFor { what: What::Recursive, address: lock, held: Held::Thread(by_pointer(thread)?) })
    }

    /// A reader-writer lock: `__readers`, `__writers`, `__wrphase_futex`, `__writers_futex`, two unused words, and
    /// `__cur_writer`. The word is `__wrphase_futex`, `__writers_futex`, or `__readers`, which differ by the
    /// lock's alignment and by what the thread has found there: flags of two bits, or a number of readers above three.
    pub(super) fn rwlock(&self, stood: &impl Fn(u32) -> Option<u32>) -> Option<WaitsFor> {
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
}
