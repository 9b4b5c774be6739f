//! Who has the `threading.RLock` on which a thread waits: it is the one lock of Python's that says so.
//!
//! A thread that waits stands in futex(2), on a word that the lock has led it to. The lock itself is found among the
//! words of its stack, by proofs that nothing else meets: it is an object whose type is called `_thread.RLock`, and it
//! leads to the very word that the thread waits on.
//!
//! * Up to 3.13 it has a pointer to a semaphore, whose first word that is, and then the owner
//!   ([rlockobject](https://github.com/python/cpython/blob/v3.13.0/Modules/_threadmodule.c)).
//! * From 3.14 on, the semaphore is the waiting thread's own, in a `struct wait_entry` with the address of the mutex in
//!   the object, after which the owner follows
//!   ([parking_lot.c](https://github.com/python/cpython/blob/v3.14.0/Python/parking_lot.c),
//!   [_PyRecursiveMutex](https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_lock.h)).
//!
//! The owner is `pthread_self()` (`PyThread_get_thread_ident_ex`), which is the thread pointer.

use uunwind_language::{Holder, Memory, Waiting};

/// Bytes of the stack that are looked at: the function that takes the lock is a few frames away.
const STACK: usize = 2048;
/// Sizes of an object's head: with the GIL, and free-threaded. The type is its last word.
const HEADS: [u64; 2] = [16, 32];
const NAME: &[u8; 14] = b"_thread.RLock\0";
/// Most times that a lock is taken by one thread, to be believed.
const MOST: u64 = 1 << 32;

/// The lock that a thread waits for, and who has it.
pub fn holder(waiting: &Waiting, memory: &dyn Memory) -> Option<Holder> {
    let parked = word(memory, waiting.word.checked_sub(8)?).and_then(|mutex| of_mutex(mutex, memory));
    parked.or_else(|| {
        // Near the end of a stack, less of it is there.
        let stack = (0..STACK as u64).step_by(8).map(|offset| waiting.stack.wrapping_add(offset));
        let words = stack.map_while(|at| word(memory, at));
        words
            .filter(|at| at.is_multiple_of(8) && *at != 0)
            .find_map(|object| of_semaphore(object, waiting.word, memory))
    })
}

/// The lock with this `PyMutex`, which is locked and waited for.
fn of_mutex(mutex: u64, memory: &dyn Memory) -> Option<Holder> {
    const LOCKED_AND_PARKED: u8 = 3;
    let mut byte = [0];
    if !mutex.is_multiple_of(8) || !memory.read(mutex, &mut byte) || byte[0] & LOCKED_AND_PARKED != LOCKED_AND_PARKED {
        return None;
    }
    let head = HEADS.into_iter().find(|head| is_lock(mutex.wrapping_sub(*head), *head, memory))?;
    let [thread, level] = [8, 16].map(|offset| word(memory, mutex.wrapping_add(offset)));
    let (thread, _) = (thread?, level.filter(|level| *level < MOST)?);
    (thread != 0).then_some(Holder { lock: mutex.wrapping_sub(head), thread })
}

/// The lock at `object`, if it has this semaphore and somebody has it.
fn of_semaphore(object: u64, semaphore: u64, memory: &dyn Memory) -> Option<Holder> {
    let head = HEADS.into_iter().find(|head| word(memory, object.wrapping_add(*head)) == Some(semaphore))?;
    let [thread, count] = [8, 16].map(|offset| word(memory, object.wrapping_add(head).wrapping_add(offset)));
    let (thread, count) = (thread?, count?);
    let is_held = thread != 0 && (1..MOST).contains(&count);
    (is_held && is_lock(object, head, memory)).then_some(Holder { lock: object, thread })
}

/// Whether an object with a head of this size is a lock, by its type's name, which is the first word after the head of
/// the type and its size ([PyTypeObject](https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h)).
fn is_lock(object: u64, head: u64, memory: &dyn Memory) -> bool {
    let of_type = |kind: u64| word(memory, kind.wrapping_add(head).wrapping_add(8));
    let name = word(memory, object.wrapping_add(head - 8)).and_then(of_type);
    let mut bytes = [0; NAME.len()];
    name.is_some_and(|name| memory.read(name, &mut bytes)) && bytes == *NAME
}

fn word(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let byte = |at: u64| Some(self.0.get(&(at & !7))?.to_le_bytes()[at as usize % 8]);
            into.iter_mut().zip(0..).all(|(to, offset)| byte(address + offset).map(|byte| *to = byte).is_some())
        }
    }

    const WAITING: Waiting = Waiting { word: 0x5000, stack: 0x7000 };
    const LOCK: u64 = 0x2000;

    /// A lock that a thread waits for, with an object's head of this size; `parked`: as since 3.14.
    fn memory(head: u64, parked: bool, changed: &[(u64, u64)]) -> Words {
        let name = u64::from_le_bytes(*b"_thread.");
        let rest = u64::from_le_bytes(*b"RLock\0\0\0");
        let own = |offset: u64| LOCK + head + offset;
        let mut words = HashMap::from([
            (LOCK + head - 8, 0x3000),
            (0x3000 + head + 8, 0x4000),
            (0x4000, name),
            (0x4008, rest),
            (own(8), 0x7f00),
            (own(16), 1),
            (0x7000, 1),
            (0x7008, 0x1234),
            (0x7010, if parked { 0 } else { LOCK }),
        ]);
        words.extend(match parked {
            true => [(own(0), 3), (0x4ff8, own(0))],
            false => [(own(0), 0x5000), (0x4ff8, 0)],
        });
        words.extend(changed.iter().copied());
        Words(words)
    }

    #[test]
    fn a_lock_says_who_has_it_or_nothing() {
        let held = Some(Holder { lock: LOCK, thread: 0x7f00 });
        for head in HEADS {
            for parked in [false, true] {
                let find = |changed: &[(u64, u64)]| holder(&WAITING, &memory(head, parked, changed));
                assert_eq!(find(&[]), held, "{head} {parked}");
                for (what, wrong) in [
                    ("another type", [(0x4008, u64::from_le_bytes(*b"lock\0\0\0\0"))]),
                    ("nobody has it", [(LOCK + head + 8, 0)]),
                    ("another semaphore, or not locked", [(LOCK + head, 0x5008)]),
                    ("taken too often", [(LOCK + head + 16, u64::MAX)]),
                ] {
                    assert_eq!(find(&wrong), None, "{what} {head} {parked}");
                }
            }
        }
        assert_eq!(holder(&WAITING, &Words(HashMap::new())), None);
        assert_eq!(holder(&Waiting { word: 4, stack: u64::MAX - 7 }, &Words(HashMap::new())), None);
    }
}
