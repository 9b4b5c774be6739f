//! `_Py_DebugOffsets`: from 3.13 on, `_PyRuntime` begins with a table of offsets that is initialised in the file
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>).
//!
//! The table consists of 64-bit words in groups; each group begins with the size of its structure. An
//! offset is accepted only if it lies inside that size, and only if the signal half can use it: an object
//! header, frame or code object of another shape is refused.

use crate::free_threaded;
use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::Facts;

/// Number of words in 3.13's table.
const WORDS: usize = 73;
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Indices of words in the table. A group begins with the size of its structure.
const VERSION: usize = 1;
const FREE_THREADED: usize = 2;
const RUNTIME: usize = 3;
const FINALIZING: usize = 4;
const INTERPRETERS_HEAD: usize = 5;
const INTERPRETER: usize = 6;
const NEXT_INTERPRETER: usize = 8;
const THREADS_HEAD: usize = 9;
const THREAD: usize = 19;
const NEXT_THREAD: usize = 21;
const CURRENT_FRAME: usize = 23;
const THREAD_ID: usize = 24;
const DATASTACK: usize = 26;
const FRAME: usize = 28;
const PREVIOUS: usize = 29;
const EXECUTABLE: usize = 30;
const INSTRUCTION: usize = 31;
const OWNER: usize = 33;
const CODE: usize = 34;
const FILENAME: usize = 35;
const QUALNAME: usize = 37;
const LINE_TABLE: usize = 38;
const FIRST_LINE: usize = 39;
const INSTRUCTIONS: usize = 43;
const OB_TYPE: usize = 45;
const BYTES_SIZE: usize = 65;
const BYTES_DATA: usize = 66;
const STR_STATE: usize = 68;
const STR_LENGTH: usize = 69;
const STR_ASCII: usize = 70;

/// Distance from `_co_firsttraceable`, which the table lacks, to `co_code_adaptive`.
const FIRST_TRACEABLE_BEFORE: u32 = 16;

/// Takes the offsets from the file's table. The error says why they cannot be used.
pub fn apply(elf: &dyn Elf, version: Version, facts: &mut Facts) -> Result<(), String> {
    let mut bytes = [0u8; WORDS * 8];
    if !elf.read(facts.runtime, &mut bytes) {
        return Err(format!("CPython {version} whose _PyRuntime is not in the file"));
    }
    let table =
        Table { words: bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap_or([0; 8]))).collect() };
    if table.word(0) != COOKIE {
        return Err(format!(
            "CPython {version} without its table of offsets (found {:#x} at _PyRuntime)",
            table.word(0)
        ));
    }
    if table.word(VERSION) != u64::from(version.hex) {
        return Err(format!("CPython {version} whose table of offsets says version {:#x}", table.word(VERSION)));
    }
    if table.word(FREE_THREADED) != 0 {
        return Err(free_threaded(version));
    }
    for (name, word, expected) in FIXED {
        if table.word(*word) != *expected {
            return Err(format!("CPython {version} with {name} at {}, not {expected}", table.word(*word)));
        }
    }
    let wrong = |field: &str| format!("CPython {version} whose table of offsets puts {field} outside its structure");
    let get = |field: &str, group, word| table.offset(group, word).ok_or_else(|| wrong(field));
    facts.runtime_finalizing = get("_PyRuntime.finalizing", RUNTIME, FINALIZING)?;
    facts.runtime_interpreters = get("_PyRuntime.interpreters.head", RUNTIME, INTERPRETERS_HEAD)?;
    facts.interpreter_next = get("PyInterpreterState.next", INTERPRETER, NEXT_INTERPRETER)?;
    facts.interpreter_threads = get("PyInterpreterState.threads.head", INTERPRETER, THREADS_HEAD)?;
    facts.tstate_next = get("PyThreadState.next", THREAD, NEXT_THREAD)?;
    facts.tstate_entry = get("PyThreadState.current_frame", THREAD, CURRENT_FRAME)?;
    facts.tstate_thread_id = get("PyThreadState.thread_id", THREAD, THREAD_ID)?;
    facts.tstate_datastack = get("PyThreadState.datastack_chunk", THREAD, DATASTACK)?;
    facts.frame_bytes = u32::try_from(table.word(FRAME)).map_err(|_| wrong("_PyInterpreterFrame"))?;
    facts.frame_previous = get("frame.previous", FRAME, PREVIOUS)?;
    facts.frame_code = get("frame.f_executable", FRAME, EXECUTABLE)?;
    facts.frame_instruction = get("frame.instr_ptr", FRAME, INSTRUCTION)?;
    facts.frame_owner = get("frame.owner", FRAME, OWNER)?;
    facts.code_filename = get("code.co_filename", CODE, FILENAME)?;
    facts.code_qualname = get("code.co_qualname", CODE, QUALNAME)?;
    facts.code_line_table = get("code.co_linetable", CODE, LINE_TABLE)?;
    facts.code_first_line = get("code.co_firstlineno", CODE, FIRST_LINE)?;
    // `co_code_adaptive` is the structure's last, flexible member, so it may lie at its end.
    facts.code_instructions = u32::try_from(table.word(INSTRUCTIONS)).map_err(|_| wrong("code.co_code_adaptive"))?;
    facts.code_first_traceable =
        facts.code_instructions.checked_sub(FIRST_TRACEABLE_BEFORE).ok_or_else(|| wrong("code.co_code_adaptive"))?;
    facts.text_ascii = u32::try_from(table.word(STR_ASCII)).map_err(|_| wrong("str.data"))?;
    Ok(())
}

/// Offsets that the signal half has as constants: name, word, expected value. (`ob_size` at 16 is not in the table.)
const FIXED: &[(&str, usize, u64)] = &[
    ("ob_type", OB_TYPE, 8),
    ("bytes.ob_size", BYTES_SIZE, 16),
    ("bytes.ob_sval", BYTES_DATA, 32),
    ("str.length", STR_LENGTH, 16),
    ("str.state", STR_STATE, 32),
    ("str.data", STR_ASCII, 40),
];

struct Table {
    words: Vec<u64>,
}

impl Table {
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// An offset, if it lies inside its structure.
    fn offset(&self, group: usize, word: usize) -> Option<u32> {
        let offset = self.word(word);
        (offset < self.word(group)).then(|| u32::try_from(offset).ok()).flatten()
    }
}
