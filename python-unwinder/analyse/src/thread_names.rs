//! What Python calls the threads of a process: `threading._active` has its `Thread` objects, and each of these has a
//! name and the id that the kernel has for the thread
//! (<https://github.com/python/cpython/blob/v3.13.0/Lib/threading.py>). Before 3.14 the kernel does not know the name,
//! and later only its first 15 bytes.

use crate::objects::{Modules, Objects, Reader};
use crate::version::Version;
use crate::versions;
use uunwind_language::Memory;
use uunwind_python::facts::{Facts, OBJECT_HEADER};

/// Most interpreters of a process, and threads of an interpreter, that are looked at.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;
/// `PyModuleObject.md_dict`.
const MODULE_DICT: u64 = 16;
/// Words of `_Py_DebugOffsets`: the size of the interpreter's state, within which the offset must lie.
const INTERPRETER_SIZE: u64 = 6;

/// Ids of threads and their names. `known`: pairs of an interpreter and its dictionary of threads, which the last look
/// found.
pub fn of_process(facts: &Facts, bias: u64, memory: &dyn Memory, known: &mut Vec<u64>) -> Vec<(u32, String)> {
    let number = Version::new(facts.python).minor();
    // Free-threaded builds have other layouts of objects.
    let Some(minor) = versions::of(number).filter(|_| facts.object_header == OBJECT_HEADER) else { return Vec::new() };
    let reader = Reader::new(memory, facts, minor.objects, number.1);
    let runtime = facts.runtime.wrapping_add(bias);
    let (mut names, mut found) = (Vec::new(), Vec::new());
    let mut next = reader.word(runtime.wrapping_add(u64::from(facts.runtime_interpreters)));
    for _ in 0..INTERPRETERS {
        let Some(interpreter) = next.filter(|at| *at != 0) else { break };
        let (known, _) = known.as_chunks::<2>();
        let last = known.iter().find(|pair| pair[0] == interpreter).map(|pair| pair[1]);
        let threads = last.filter(|dict| reader.is(*dict, "dict"));
        let threads = threads.or_else(|| threads_of(&reader, minor.objects, runtime, interpreter));
        if let Some(threads) = threads {
            let before = names.len();
            names.extend(reader.values(threads, THREADS).into_iter().filter_map(|thread| named(&reader, thread)));
            // Where nothing was found, the next look begins anew.
            if names.len() > before {
                found.extend([interpreter, threads]);
            }
        }
        next = reader.word(interpreter.wrapping_add(u64::from(facts.interpreter_next)));
    }
    if next.is_some_and(|at| at != 0) {
        memory.left_out();
    }
    *known = found;
    names.retain(|(_, name)| says_something(name));
    names
}

/// The dictionary `threading._active` of an interpreter.
fn threads_of(reader: &Reader<'_>, objects: Objects, runtime: u64, interpreter: u64) -> Option<u64> {
    let offset = match objects.modules {
        Modules::At(offset) => offset,
        Modules::Word(index) => {
            let word = |index: u64| reader.word(runtime.wrapping_add(8 * index));
            let size = word(INTERPRETER_SIZE)?;
            word(index).filter(|offset| *offset < size)?
        }
    };
    let modules = reader.word(interpreter.wrapping_add(offset))?;
    let module = reader.get(modules, "threading").filter(|module| reader.is(*module, "module"))?;
    let threads = reader.get(reader.word(module.wrapping_add(MODULE_DICT))?, "_active")?;
    reader.is(threads, "dict").then_some(threads)
}

/// A thread's id and name, if two readings agree.
fn named(reader: &Reader<'_>, thread: u64) -> Option<(u32, String)> {
    let read = || {
        let [name, id] = reader.attributes(thread, ["_name", "_native_id"])?;
        Some((reader.number(id)?, reader.text(name)?))
    };
    let first = read()?;
    (read()? == first).then_some(first)
}

/// Python calls each main thread `MainThread`, and `Dummy-1` and so on those that other code has made: the kernel's
/// names of these say more.
fn says_something(name: &str) -> bool {
    let number = name.strip_prefix("Dummy-").unwrap_or("x");
    !name.is_empty() && name != "MainThread" && !number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use uunwind_random::Random;

    /// Memory all of which can be read, and in which every word is the same; or words are any of a few.
    struct Full {
        words: Vec<u64>,
        reads: Cell<u64>,
        left_out: Cell<u64>,
    }

    impl Memory for Full {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            self.reads.set(self.reads.get() + 1);
            let word = |at: u64| self.words[(at / 8) as usize % self.words.len()].to_le_bytes();
            into.iter_mut().zip(address..).for_each(|(byte, at)| *byte = word(at)[(at % 8) as usize]);
            true
        }

        fn left_out(&self) {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    /// Interpreters that follow themselves without an end are cut, and that is said.
    #[test]
    fn what_is_left_out_is_said() {
        let minor = versions::ALL.first().expect("a version");
        let facts = Facts { python: Version::of_minor(3, minor.number.1).hex, ..minor.layout };
        for (word, is_cut) in [(0x1000, true), (0, false)] {
            let memory = Full { words: vec![word], reads: Cell::new(0), left_out: Cell::new(0) };
            assert_eq!(of_process(&facts, 0x1000, &memory, &mut Vec::new()), []);
            assert_eq!(memory.left_out.get() > 0, is_cut, "{word:#x}");
        }
    }

    #[test]
    fn a_look_at_any_memory_ends() {
        let mut random = Random::new(7);
        for minor in versions::ALL {
            let facts = Facts { python: Version::of_minor(3, minor.number.1).hex, ..minor.layout };
            for round in 0..20 {
                let mut words: Vec<u64> = (0..1 + round * 7).map(|_| random.below(4096) * 8).collect();
                // Types that are what they should be: "dict" is the text at each type's name.
                words.push(u64::from_le_bytes(*b"dict\0\0\0\0"));
                let memory = Full { words, reads: Cell::new(0), left_out: Cell::new(0) };
                let names = of_process(&facts, 0x1000, &memory, &mut Vec::new());
                assert!(names.len() <= THREADS * INTERPRETERS && memory.reads.get() <= (16 << 20) / 128);
            }
        }
    }

    #[test]
    fn names_that_python_gives_by_itself_say_nothing() {
        for name in ["", "MainThread", "Dummy-1", "Dummy-12"] {
            assert!(!says_something(name), "{name}");
        }
        for name in ["Thread-1", "Thread-1 (work)", "Dummy-x", "Dummy", "main"] {
            assert!(says_something(name), "{name}");
        }
    }
}
