//! `_Py_DebugOffsets`: from 3.13 on, `_PyRuntime` begins with a table of offsets that is initialised in the file
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>, later `pycore_debug_offsets.h`).
//! The files in `versions` say which word is which.
//!
//! The table consists of 64-bit words in groups; each group begins with the size of its structure. An
//! offset is accepted only if it lies inside that size, and only if the signal half can use it: an object
//! header, frame or code object of another shape is refused.

use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::{Facts, OBJECT_HEADER, OBJECT_HEADER_FREE_THREADED};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Indices of words in a version's table. A group begins with the size of its structure.
pub struct Words {
    /// Number of words in the table.
    pub count: usize,
    /// First word of the group `thread_state`, and words in it.
    pub thread: usize,
    pub next_thread: usize,
    pub current_frame: usize,
    pub base_frame: Option<usize>,
    pub thread_id: usize,
    pub datastack: usize,
    /// First word of the group `interpreter_frame`.
    pub frame: usize,
    /// First word of the group `code_object`, and the word `co_code_adaptive` in it.
    pub code: usize,
    pub instructions: usize,
    /// The words `tlbc_index` and `co_tlbc`, from 3.14 on; 0 in builds with the GIL.
    pub copies: Option<(usize, usize)>,
    /// First words of the groups `gen_object` and `set_object`, from 3.14 on.
    pub generators_and_sets: Option<(usize, usize)>,
    /// First words of the groups `pyobject`, `bytes_object` and `unicode_object`.
    pub object: usize,
    pub bytes: usize,
    pub text: usize,
}

/// Words that are the same in all versions.
const VERSION: usize = 1;
const FREE_THREADED: usize = 2;
const RUNTIME: usize = 3;
const FINALIZING: usize = 4;
const INTERPRETERS_HEAD: usize = 5;
const INTERPRETER: usize = 6;
const NEXT_INTERPRETER: usize = 8;
const THREADS_HEAD: usize = 9;
/// Words of a group, counted from its first, that are the same in all versions.
const PREVIOUS: usize = 1;
const EXECUTABLE: usize = 2;
const INSTRUCTION: usize = 3;
const OWNER: usize = 5;
const FILENAME: usize = 1;
const QUALNAME: usize = 3;
const LINE_TABLE: usize = 4;
const FIRST_LINE: usize = 5;

/// Distance from `_co_firsttraceable`, which the table lacks, to `co_code_adaptive`: `co_extra` and itself. `co_tlbc`
/// lies between them, too, where there is one.
const FIRST_TRACEABLE_BEFORE: u32 = 16;
const WITH_COPIES: u32 = 24;

/// `sizeof(PyASCIIObject)` without the header, and what `PyCompactUnicodeObject` has besides.
const ASCII_AFTER_HEADER: u32 = 24;
const COMPACT_AFTER_ASCII: u32 = 16;

/// Takes the offsets from the file's table. The error says why they cannot be used.
pub fn apply(elf: &dyn Elf, version: Version, words: &Words, facts: &mut Facts) -> Result<(), String> {
    let mut bytes = vec![0u8; words.count * 8];
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
    facts.object_header = match table.word(FREE_THREADED) {
        0 => OBJECT_HEADER,
        1 => OBJECT_HEADER_FREE_THREADED,
        other => return Err(format!("CPython {version} whose table of offsets says free_threaded is {other}")),
    };
    for (name, word, expected) in fixed(words, u64::from(facts.object_header)) {
        if table.word(word) != expected {
            return Err(format!("CPython {version} with {name} at {}, not {expected}", table.word(word)));
        }
    }
    let wrong = |field: &str| format!("CPython {version} whose table of offsets puts {field} outside its structure");
    let get = |field: &str, group, word| table.offset(group, word).ok_or_else(|| wrong(field));
    facts.runtime_finalizing = get("_PyRuntime.finalizing", RUNTIME, FINALIZING)?;
    facts.runtime_interpreters = get("_PyRuntime.interpreters.head", RUNTIME, INTERPRETERS_HEAD)?;
    facts.interpreter_next = get("PyInterpreterState.next", INTERPRETER, NEXT_INTERPRETER)?;
    facts.interpreter_threads = get("PyInterpreterState.threads.head", INTERPRETER, THREADS_HEAD)?;
    facts.tstate_next = get("PyThreadState.next", words.thread, words.next_thread)?;
    facts.tstate_entry = get("PyThreadState.current_frame", words.thread, words.current_frame)?;
    facts.tstate_thread_id = get("PyThreadState.thread_id", words.thread, words.thread_id)?;
    facts.tstate_datastack = get("PyThreadState.datastack_chunk", words.thread, words.datastack)?;
    if let Some(word) = words.base_frame {
        facts.tstate_base_frame = get("PyThreadState.base_frame", words.thread, word)?;
    }
    facts.frame_bytes = u32::try_from(table.word(words.frame)).map_err(|_| wrong("_PyInterpreterFrame"))?;
    facts.frame_previous = get("frame.previous", words.frame, words.frame + PREVIOUS)?;
    facts.frame_code = get("frame.f_executable", words.frame, words.frame + EXECUTABLE)?;
    facts.frame_instruction = get("frame.instr_ptr", words.frame, words.frame + INSTRUCTION)?;
    facts.frame_owner = get("frame.owner", words.frame, words.frame + OWNER)?;
    facts.code_filename = get("code.co_filename", words.code, words.code + FILENAME)?;
    facts.code_qualname = get("code.co_qualname", words.code, words.code + QUALNAME)?;
    facts.code_line_table = get("code.co_linetable", words.code, words.code + LINE_TABLE)?;
    facts.code_first_line = get("code.co_firstlineno", words.code, words.code + FIRST_LINE)?;
    // `co_code_adaptive` is the structure's last, flexible member, so it may lie at its end.
    facts.code_instructions =
        u32::try_from(table.word(words.instructions)).map_err(|_| wrong("code.co_code_adaptive"))?;
    if let Some((frame, code)) = words.copies.filter(|_| facts.object_header == OBJECT_HEADER_FREE_THREADED) {
        facts.frame_copy = get("frame.tlbc_index", words.frame, frame)?;
        facts.code_copies = get("code.co_tlbc", words.code, code)?;
    }
    let before = if facts.code_copies == 0 { FIRST_TRACEABLE_BEFORE } else { WITH_COPIES };
    facts.code_first_traceable =
        facts.code_instructions.checked_sub(before).ok_or_else(|| wrong("code.co_code_adaptive"))?;
    facts.text_ascii = facts.object_header + ASCII_AFTER_HEADER;
    facts.text_compact = facts.text_ascii + COMPACT_AFTER_ASCII;
    Ok(())
}

/// Offsets that the signal half takes for granted, given the size of an object's header: name, word, expected value.
/// (`ob_size`, right after the header, is not in the table.)
fn fixed(words: &Words, header: u64) -> [(&'static str, usize, u64); 6] {
    [
        ("ob_type", words.object + 1, header - 8),
        ("bytes.ob_size", words.bytes + 1, header),
        ("bytes.ob_sval", words.bytes + 2, header + 16),
        ("str.length", words.text + 2, header),
        ("str.state", words.text + 1, header + 16),
        ("str.data", words.text + 3, header + u64::from(ASCII_AFTER_HEADER)),
    ]
}

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
