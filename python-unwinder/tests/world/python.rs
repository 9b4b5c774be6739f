//! CPython's structures, written into synthetic memory in each version's layout.

use super::Memory;
use std::mem::size_of;
use uunwind_python::awaiting::{AsyncFacts, ASYNC_AWAITED_BY};
use uunwind_python::facts::{
    Facts, CHAIN_CFRAME, CHAIN_CFRAME_SHIM, CHAIN_SHIM, FACTS_VERSION, OBJECT_HEADER, OBJECT_HEADER_FREE_THREADED,
    STATE_KEY, STATE_TLS, TABLE_PYTHON_311,
};
use uunwind_python::lock::{LockFacts, LOCK_OPTIONAL, LOCK_RUNTIME, LOCK_THREAD, TAKING};

pub const BIAS: u64 = 0x7f00_0000_0000;
pub const RUNTIME: u64 = 0x50_0000;
pub const EVAL: u64 = 0x10_0000;
pub const EVAL_END: u64 = 0x10_c000;
pub const CODE_TYPE: u64 = 0x40_0000;
pub const COROUTINE_TYPE: u64 = 0x41_0000;
pub const THREAD_POINTER: u64 = 0x7f10_0000_0000;
pub const TSD_OFFSET: u64 = 0x310;
/// Top of the thread's stack, and of its data stack's chunk.
pub const STACK: u64 = 0x7f20_0010_0000;
pub const CHUNK: u64 = 0x7f30_0000_0000;
pub const CHUNK_LIMIT: u64 = CHUNK + 0x4000;
pub const TSTATE: u64 = 0x6000_0000_1000;
const HEAP: u64 = 0x6000_0000_2000;
const HEAP_LIMIT: u64 = 0x6000_0010_0000;

/// Distance from an activation's boundary to its CFA, the same in all tests.
pub const DISTANCE: u64 = 176;
/// Distance from 3.12's shim to the CFA.
pub const SHIM_DISTANCE: u64 = 96;

pub const THREAD: u8 = 0;
pub const GENERATOR: u8 = 1;
pub const CSTACK: u8 = 3;

pub struct Version {
    pub facts: Facts,
}

const V311: Facts = Facts {
    size: size_of::<Facts>() as u32,
    version: FACTS_VERSION,
    python: 0x030b_07f0,
    chain: CHAIN_CFRAME,
    runtime: RUNTIME,
    eval: EVAL,
    code_type: CODE_TYPE,
    frame_type: 0,
    coroutine_type: 0,
    generator_type: 0,
    async_generator_type: 0,
    sending_type: 0,
    state_offset: 0,
    state_module: 0,
    state: STATE_KEY,
    table_kind: TABLE_PYTHON_311,
    runtime_finalizing: 24,
    runtime_current: 576,
    runtime_tss: 592,
    runtime_interpreters: 40,
    interpreter_next: 0,
    interpreter_threads: 16,
    tstate_next: 8,
    tstate_thread_id: 152,
    tstate_entry: 56,
    tstate_base_frame: 0,
    tstate_datastack: 296,
    tstate_root_cframe: 336,
    cframe_current: 8,
    cframe_previous: 16,
    frame_bytes: 80,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_unit: 0,
    frame_generator: 0,
    frame_state: 0,
    frame_executing: 0,
    frame_owner: 69,
    frame_tags: 0,
    frame_is_entry: 68,
    frame_generator_state: 5,
    code_filename: 112,
    code_qualname: 128,
    code_first_line: 72,
    code_line_table: 136,
    code_bytes: 0,
    code_first_traceable: 168,
    code_instructions: 184,
    text_ascii: 48,
    text_compact: 72,
    object_header: OBJECT_HEADER,
    frame_copy: 0,
    code_copies: 0,
    lock: LockFacts {
        kind: LOCK_RUNTIME,
        gil: 360,
        interpreter: 16,
        holds: 0,
        holds_mask: 0,
        waits: 0,
        wait_start: 32,
        wait_switch: 120,
        wait_end: 168,
        padding: 0,
        taking: [[0; 2]; TAKING],
    },
    asyncio: AsyncFacts::NOT_DESCRIBED,
};
pub static PYTHON_3_11: Version = Version { facts: V311 };
pub static PYTHON_3_12: Version = Version {
    facts: Facts {
        chain: CHAIN_CFRAME_SHIM,
        lock: LockFacts { kind: LOCK_THREAD, gil: 384, holds: 24, holds_mask: 1 << 4, ..V311.lock },
        python: 0x030c_01f0,
        runtime_current: 0,
        runtime_tss: 1544,
        interpreter_threads: 72,
        tstate_thread_id: 136,
        tstate_datastack: 232,
        tstate_root_cframe: 272,
        cframe_current: 0,
        cframe_previous: 8,
        frame_code: 0,
        frame_previous: 8,
        frame_owner: 70,
        frame_is_entry: 0,
        code_first_line: 68,
        code_first_traceable: 176,
        code_instructions: 192,
        text_ascii: 40,
        text_compact: 56,
        ..V311
    },
};
pub static PYTHON_3_13: Version = Version {
    facts: Facts {
        chain: CHAIN_SHIM,
        lock: LockFacts { gil: 16, holds: 32, holds_mask: 1 << 5, ..PYTHON_3_12.facts.lock },
        python: 0x030d_00f0,
        runtime_finalizing: 608,
        runtime_tss: 2160,
        runtime_interpreters: 632,
        interpreter_next: 7264,
        interpreter_threads: 7344,
        tstate_thread_id: 152,
        tstate_entry: 72,
        code_first_traceable: 184,
        code_instructions: 200,
        ..PYTHON_3_12.facts
    },
};
pub static PYTHON_3_14: Version = Version {
    facts: Facts {
        python: 0x030e_0af0,
        lock: LockFacts { holds: 36, holds_mask: u32::MAX, ..PYTHON_3_13.facts.lock },
        runtime_finalizing: 784,
        runtime_tss: 2336,
        runtime_interpreters: 808,
        interpreter_next: 7272,
        frame_bytes: 88,
        frame_owner: 74,
        frame_tags: 3,
        code_first_traceable: 192,
        code_instructions: 208,
        coroutine_type: COROUTINE_TYPE,
        generator_type: COROUTINE_TYPE + 0x1000,
        async_generator_type: COROUTINE_TYPE + 0x2000,
        sending_type: COROUTINE_TYPE + 0x3000,
        asyncio: AsyncFacts {
            kind: ASYNC_AWAITED_BY,
            running_task: 872,
            awaited_by: 96,
            is_task: 108,
            awaited_by_is_set: 109,
            coroutine: 128,
            state: 67,
            frame: 72,
            suspended: 254,
            delegating: 255,
            delegating_last: 255,
            stack: 64,
            awaited: 8,
            set_used: 24,
            set_mask: 32,
            set_table: 40,
        },
        ..PYTHON_3_13.facts
    },
};
pub static PYTHON_3_15: Version = Version {
    facts: Facts {
        python: 0x030f_02f0,
        lock: LockFacts { waits: 40, ..PYTHON_3_14.facts.lock },
        state: STATE_TLS,
        state_offset: (-0x28i64) as u64,
        runtime_finalizing: 912,
        runtime_tss: 0,
        runtime_interpreters: 936,
        interpreter_next: 7264,
        interpreter_threads: 7336,
        tstate_thread_id: 176,
        tstate_base_frame: 80,
        tstate_datastack: 256,
        asyncio: AsyncFacts {
            running_task: 1032,
            suspended: 1,
            delegating: 2,
            delegating_last: 3,
            awaited: 16,
            ..PYTHON_3_14.facts.asyncio
        },
        ..PYTHON_3_14.facts
    },
};
/// As `offsetof` against the headers of 3.13.5, 3.14.10 and 3.15.2 with `Py_GIL_DISABLED` has it.
pub static PYTHON_3_13T: Version = Version {
    facts: Facts {
        code_filename: 128,
        code_qualname: 144,
        code_first_line: 84,
        code_line_table: 152,
        code_first_traceable: 200,
        code_instructions: 216,
        text_ascii: 56,
        text_compact: 72,
        object_header: OBJECT_HEADER_FREE_THREADED,
        lock: optional(PYTHON_3_13.facts.lock),
        ..PYTHON_3_13.facts
    },
};
pub static PYTHON_3_14T: Version = Version { facts: with_copies(PYTHON_3_14.facts) };
pub static PYTHON_3_15T: Version = Version { facts: with_copies(PYTHON_3_15.facts) };

/// `_gil_runtime_state.enabled` precedes the rest.
const fn optional(lock: LockFacts) -> LockFacts {
    LockFacts { kind: LOCK_OPTIONAL, wait_start: 40, wait_switch: 128, wait_end: 176, ..lock }
}

const fn with_copies(facts: Facts) -> Facts {
    let free = PYTHON_3_13T.facts;
    Facts {
        code_filename: free.code_filename,
        code_qualname: free.code_qualname,
        code_first_line: free.code_first_line,
        code_line_table: free.code_line_table,
        code_first_traceable: 208,
        code_copies: 224,
        code_instructions: 232,
        frame_copy: 72,
        frame_owner: 78,
        text_ascii: free.text_ascii,
        text_compact: free.text_compact,
        object_header: free.object_header,
        lock: optional(facts.lock),
        asyncio: AsyncFacts::NOT_DESCRIBED,
        ..facts
    }
}

/// All versions.
pub static ALL: [&Version; 8] =
    [&PYTHON_3_11, &PYTHON_3_12, &PYTHON_3_13, &PYTHON_3_14, &PYTHON_3_15, &PYTHON_3_13T, &PYTHON_3_14T, &PYTHON_3_15T];

impl Version {
    /// Its name, such as `3.13t`, by its own facts: no version is without one.
    #[allow(dead_code, reason = "seeds of fuzz targets have it")]
    pub fn name(&self) -> String {
        let (major, minor) = (self.facts.python >> 24, self.facts.python >> 16 & 0xff);
        let free = if self.facts.object_header == OBJECT_HEADER_FREE_THREADED { "t" } else { "" };
        format!("{major}.{minor}{free}")
    }
}

/// A process with one thread that runs Python. Activations and frames are pushed from the outermost to the innermost.
pub struct Process {
    pub memory: Memory,
    pub version: &'static Version,
    heap: u64,
    /// Next free address of the data stack.
    pub top: u64,
    /// Innermost frame, innermost boundary (a shim or a `_PyCFrame`), and whether the next frame is an entry.
    pub current: u64,
    pub boundary: u64,
    entry: bool,
}

impl Process {
    pub fn new(version: &'static Version) -> Process {
        let mut memory = Memory::default();
        memory.map(BIAS + RUNTIME, 0x1000);
        memory.map(THREAD_POINTER - 0x1000, 0x2000);
        memory.map(STACK - 0x10_0000, 0x10_0000);
        memory.map(CHUNK, CHUNK_LIMIT - CHUNK);
        memory.map(TSTATE, 0x1000);
        memory.map(HEAP, HEAP_LIMIT - HEAP);
        let root = TSTATE + u64::from(version.facts.tstate_root_cframe);
        let boundary = if version.facts.tstate_root_cframe == 0 { 0 } else { root };
        let mut process = Process { memory, version, heap: HEAP, top: CHUNK + 24, current: 0, boundary, entry: false };
        if version.facts.tstate_base_frame != 0 {
            process.current = TSTATE + 0x300;
            process.frame_at(process.current, 0, 1, 0, CSTACK, false);
            process.memory.put64(TSTATE + u64::from(version.facts.tstate_base_frame), process.current);
        }
        if version.facts.state == STATE_TLS {
            process.memory.put64(THREAD_POINTER.wrapping_add(version.facts.state_offset), TSTATE);
            process.memory.put64(BIAS + RUNTIME + u64::from(version.facts.runtime_interpreters), HEAP);
        }
        process.memory.put64(TSTATE + u64::from(version.facts.tstate_thread_id), THREAD_POINTER);
        process.set_key(3);
        if version.facts.runtime_current != 0 {
            process.memory.put64(BIAS + RUNTIME + u64::from(version.facts.runtime_current), TSTATE);
        }
        process.publish();
        process
    }

    /// Stores the thread state as the value of a pthread key, as glibc does.
    pub fn set_key(&mut self, key: u64) {
        let tss = BIAS + RUNTIME + u64::from(self.version.facts.runtime_tss);
        self.memory.put32(tss, 1);
        self.memory.put32(tss + 4, key as u32);
        let first = THREAD_POINTER + TSD_OFFSET;
        let block = if key < 32 { first } else { self.allocate(32 * 16) };
        self.memory.put64(first + 32 * 16 + key / 32 * 8, block);
        self.memory.put64(block + key % 32 * 16 + 8, TSTATE);
    }

    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let at = self.heap;
        self.heap = (at + bytes + 15) & !15;
        assert!(self.heap <= HEAP_LIMIT);
        at
    }

    fn str(&mut self, text: &str) -> u64 {
        let widest = text.chars().map(u32::from).max().unwrap_or(0);
        let (width, ascii) = match widest {
            0..0x80 => (1, true),
            0x80..0x100 => (1, false),
            0x100..0x1_0000 => (2, false),
            _ => (4, false),
        };
        let facts = &self.version.facts;
        let data = u64::from(if ascii { facts.text_ascii } else { facts.text_compact });
        let at = self.allocate(data + 4 * text.len() as u64 + 4);
        let fields = at + u64::from(facts.object_header);
        self.memory.put64(fields, text.chars().count() as u64);
        self.memory.put32(fields + 16, (width << 2) | 1 << 5 | u32::from(ascii) << 6);
        for (index, c) in (0u64..).zip(text.chars()) {
            self.memory.put(at + data + index * u64::from(width), &u32::from(c).to_le_bytes()[..width as usize]);
        }
        at
    }

    /// A code object of `units` code units, traceable from the second on.
    pub fn code(&mut self, name: &str, file: &str, line: u32, units: u64) -> u64 {
        let (name, file) = (self.str(name), self.str(file));
        let table = self.allocate(64);
        let facts = self.version.facts;
        let header = u64::from(facts.object_header);
        self.memory.put64(table + header, 5);
        self.memory.put(table + header + 16, b"table");
        let at = self.allocate(u64::from(facts.code_instructions) + 2 * units);
        self.memory.put64(at + header - 8, BIAS + CODE_TYPE);
        self.memory.put64(at + header, units);
        if facts.code_copies != 0 {
            let (copies, copy) = (self.allocate(24), self.allocate(2 * units));
            self.memory.put64(copies, 2);
            self.memory.put64(copies + 8, at + u64::from(facts.code_instructions));
            self.memory.put64(copies + 16, copy);
            self.memory.put64(at + u64::from(facts.code_copies), copies);
        }
        self.memory.put64(at + u64::from(facts.code_qualname), name);
        self.memory.put64(at + u64::from(facts.code_filename), file);
        self.memory.put64(at + u64::from(facts.code_line_table), table);
        self.memory.put32(at + u64::from(facts.code_first_line), line);
        self.memory.put32(at + u64::from(facts.code_first_traceable), 1);
        at
    }

    /// Writes a frame at `address`.
    pub fn frame_at(&mut self, address: u64, previous: u64, code: u64, position: i64, owner: u8, entry: bool) {
        let facts = self.version.facts;
        let mut first = code + u64::from(facts.code_instructions);
        // Every other code object runs in the second thread's copy.
        if facts.code_copies != 0 && code >> 4 & 1 != 0 {
            first = self.memory.word(self.memory.word(code + u64::from(facts.code_copies)) + 16);
            self.memory.put32(address + u64::from(facts.frame_copy), 1);
        }
        let instruction = first.wrapping_add_signed(position);
        // An odd code object is tagged, as a reference that is not counted.
        let tag = u64::from(facts.frame_tags != 0 && code != 0) & (code >> 4);
        self.memory.put64(address + u64::from(facts.frame_code), code | tag);
        self.memory.put64(address + u64::from(facts.frame_previous), previous);
        self.memory.put64(address + u64::from(facts.frame_instruction), instruction);
        self.memory.put(address + u64::from(facts.frame_owner), &[owner]);
        if facts.frame_is_entry != 0 {
            self.memory.put(address + u64::from(facts.frame_is_entry), &[u8::from(entry)]);
        }
    }

    /// Calls a Python function: a frame on the data stack, or in a generator.
    pub fn call(&mut self, code: u64, position: i64, owner: u8) -> u64 {
        let address = if owner == THREAD {
            self.top += 0x70;
            self.top - 0x70
        } else {
            self.allocate(0x100) + 0x48
        };
        let entry = std::mem::take(&mut self.entry);
        self.frame_at(address, self.current, code, position, owner, entry);
        self.current = address;
        self.publish();
        address
    }

    /// A coroutine (or generator, by its type) that awaits an object, or is suspended otherwise (0).
    pub fn suspended(&mut self, kind: u64, code: u64, position: i64, awaits: u64) -> u64 {
        let asyncio = self.version.facts.asyncio;
        let at = self.allocate(0x100);
        self.memory.put64(at + 8, BIAS + kind);
        let frame = at + u64::from(asyncio.frame);
        self.frame_at(frame, 0, code, position, GENERATOR, false);
        let state = if awaits == 0 { asyncio.suspended } else { asyncio.delegating };
        self.memory.put(at + u64::from(asyncio.state), &[state as u8]);
        self.memory.put64(frame + u64::from(asyncio.stack), frame + 0x60);
        self.awaits(at, awaits);
        at
    }

    /// A coroutine that is suspended awaits this object.
    pub fn awaits(&mut self, coroutine: u64, awaited: u64) {
        let asyncio = self.version.facts.asyncio;
        let top = coroutine + u64::from(asyncio.frame) + 0x60;
        self.memory.put64(top - u64::from(asyncio.awaited), awaited | 1);
    }

    /// A task that runs this coroutine; 0: a future.
    pub fn task(&mut self, coroutine: u64) -> u64 {
        let asyncio = self.version.facts.asyncio;
        let at = self.allocate(168);
        self.memory.put64(at + u64::from(asyncio.coroutine), coroutine);
        self.memory.put(at + u64::from(asyncio.is_task), &[u8::from(coroutine != 0)]);
        at
    }

    /// What awaits a task or future: another one, or a set.
    pub fn awaited_by(&mut self, future: u64, by: u64, is_set: bool) {
        let asyncio = self.version.facts.asyncio;
        self.memory.put64(future + u64::from(asyncio.awaited_by), by);
        self.memory.put(future + u64::from(asyncio.awaited_by_is_set), &[u8::from(is_set)]);
    }

    /// A set with these entries: an object and its hash.
    pub fn set(&mut self, used: u64, entries: &[[u64; 2]]) -> u64 {
        let asyncio = self.version.facts.asyncio;
        let (at, table) = (self.allocate(200), self.allocate(16 * entries.len() as u64));
        for (place, word) in (table..).step_by(8).zip(entries.iter().flatten()) {
            self.memory.put64(place, *word);
        }
        self.memory.put64(at + u64::from(asyncio.set_used), used);
        self.memory.put64(at + u64::from(asyncio.set_mask), entries.len() as u64 - 1);
        self.memory.put64(at + u64::from(asyncio.set_table), table);
        at
    }

    /// The thread's loop runs this task.
    pub fn run_task(&mut self, task: u64) {
        let at = TSTATE + u64::from(self.version.facts.asyncio.running_task);
        self.memory.put64(at, task);
    }

    /// A native activation of the loop with this CFA begins.
    pub fn activate(&mut self, cfa: u64) {
        let facts = self.version.facts;
        let at = cfa - DISTANCE;
        match facts.chain {
            CHAIN_SHIM => {
                self.frame_at(at, self.current, 0, 0, CSTACK, false);
                self.current = at;
            }
            chain => {
                self.memory.put64(at + u64::from(facts.cframe_previous), self.boundary);
                if chain == CHAIN_CFRAME_SHIM {
                    self.frame_at(cfa - SHIM_DISTANCE, self.current, 0, 0, CSTACK, false);
                    self.current = cfa - SHIM_DISTANCE;
                }
            }
        }
        self.boundary = at;
        self.entry = true;
        self.publish();
    }

    /// Writes what the thread state and the innermost `_PyCFrame` show.
    pub fn publish(&mut self) {
        let facts = self.version.facts;
        let entry = if facts.chain == CHAIN_SHIM { self.current } else { self.boundary };
        self.memory.put64(TSTATE + u64::from(facts.tstate_entry), entry);
        if facts.chain != CHAIN_SHIM {
            self.memory.put64(self.boundary + u64::from(facts.cframe_current), self.current);
        }
        self.memory.put64(TSTATE + u64::from(facts.tstate_datastack), CHUNK);
        self.memory.put64(TSTATE + u64::from(facts.tstate_datastack) + 8, self.top);
        self.memory.put64(TSTATE + u64::from(facts.tstate_datastack) + 16, CHUNK_LIMIT);
    }
}
