//! The facts: what the analyse half found out for the signal half about one libpython or python executable.
//!
//! Plain bytes in the recorder's facts memfd. Addresses are file addresses (the load bias is to be added). Offsets are
//! in bytes from the start of the structure that the field's prefix names. Each comment gives CPython's name of the
//! field; ASSUMPTIONS.md beside this crate lists the source files that define the structures, and what happens where
//! they differ.

use crate::awaiting::AsyncFacts;
use crate::lock::LockFacts;
use core::mem::size_of;
pub use uunwind_core::plugin::guest::Plain;

/// Version of this layout.
pub const FACTS_VERSION: u32 = 8;

/// 3.11: `_PyCFrame` on the C stack; an activation ends before the frame that its outer `_PyCFrame` shows.
pub const CHAIN_CFRAME: u32 = 1;
/// 3.12: `_PyCFrame` on the C stack, and a shim frame ends the activation.
pub const CHAIN_CFRAME_SHIM: u32 = 2;
/// 3.13 and later: a shim frame on the C stack ends the activation; there is no `_PyCFrame`.
pub const CHAIN_SHIM: u32 = 3;
/// 3.8 to 3.10: one activation a Python function, which holds its `PyFrameObject` in a callee-saved register.
pub const CHAIN_FRAME_OBJECT: u32 = 4;

/// The thread's state is the value of the pthread key in `_PyRuntime` (up to 3.14).
pub const STATE_KEY: u32 = 1;
/// It is a thread-local variable at a fixed distance from the thread pointer (3.15, executables).
pub const STATE_TLS: u32 = 2;
/// It is a variable in the object's own block of thread-local storage (3.15, libraries).
pub const STATE_TLS_BLOCK: u32 = 3;

/// How activations of an interpreter are bounded: the `CHAIN_*` numbers as a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// [`CHAIN_CFRAME`].
    CFrame,
    /// [`CHAIN_CFRAME_SHIM`].
    CFrameShim,
    /// [`CHAIN_SHIM`].
    Shim,
    /// [`CHAIN_FRAME_OBJECT`].
    FrameObject,
}

/// `table_kind` of code objects: the location table of CPython 3.11 and later
/// (<https://github.com/python/cpython/blob/v3.13.0/Objects/locations.md>). `lines/` decodes all kinds.
pub const TABLE_PYTHON_311: u32 = 1;
/// `table_kind` of code objects: `co_lnotab` of CPython 3.8 and 3.9.
pub const TABLE_PYTHON_38: u32 = 2;
/// `table_kind` of code objects: `co_linetable` of CPython 3.10.
pub const TABLE_PYTHON_310: u32 = 3;

/// `sizeof(PyObject)`, in bytes, in builds with the GIL
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/object.h>).
pub const OBJECT_HEADER: u32 = 16;
/// The same in free-threaded builds.
pub const OBJECT_HEADER_FREE_THREADED: u32 = 32;

/// Largest `_PyInterpreterFrame`, in bytes, that the signal half reads fields of.
pub const FRAME_BYTES: usize = 128;
/// Largest head of a `PyCodeObject`, in bytes up to `co_code_adaptive`, that the signal half reads fields of.
pub const CODE_BYTES: usize = 256;

uunwind_core::plain! {
    /// Facts of one object: a libpython, or an executable that contains it.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// The interpreter's `PY_VERSION_HEX`.
        pub python: u32,
        /// How activations are marked: one of the `CHAIN_*` numbers.
        pub chain: u32,

        /// File address of `_PyRuntime`.
        pub runtime: u64,
        /// File address of `_PyEval_EvalFrameDefault`.
        pub eval: u64,
        /// File address of `PyCode_Type`.
        pub code_type: u64,
        /// File address of `PyFrame_Type` (3.8 to 3.10); 0: not used.
        pub frame_type: u64,
        /// File address of `PyCoro_Type`, as the next three for [`AsyncFacts`]; 0: not used.
        pub coroutine_type: u64,
        /// File address of `PyGen_Type`.
        pub generator_type: u64,
        /// File address of `PyAsyncGen_Type`.
        pub async_generator_type: u64,
        /// File address of `_PyAsyncGenASend_Type`.
        pub sending_type: u64,
        /// [`STATE_TLS`]: distance of the variable from the thread pointer. [`STATE_TLS_BLOCK`]: its offset in the
        /// block. In bytes, modulo 2^64.
        pub state_offset: u64,
        /// [`STATE_TLS_BLOCK`]: file address of the word that holds the object's TLS module id.
        pub state_module: u64,

        /// Where the thread's state is found: one of the `STATE_*` numbers.
        pub state: u32,
        /// What describes the lines of code objects: one of the `TABLE_*` numbers.
        pub table_kind: u32,

        /// `_PyRuntimeState._finalizing`.
        pub runtime_finalizing: u32,
        /// `_PyRuntimeState.gilstate.tstate_current` (3.11); 0: not used.
        pub runtime_current: u32,
        /// `_PyRuntimeState.autoTSSkey` (a `Py_tss_t`): 32 bits `_is_initialized`, then 32 bits `_key`.
        pub runtime_tss: u32,
        /// `_PyRuntimeState.interpreters.head`.
        pub runtime_interpreters: u32,
        /// `PyInterpreterState.next`.
        pub interpreter_next: u32,
        /// `PyInterpreterState.threads.head`.
        pub interpreter_threads: u32,
        /// `PyThreadState.next`.
        pub tstate_next: u32,
        /// `PyThreadState.thread_id`.
        pub tstate_thread_id: u32,
        /// `PyThreadState.cframe` (3.11, 3.12), `.current_frame` (from 3.13 on) or `.frame` (up to 3.10).
        pub tstate_entry: u32,
        /// `PyThreadState.base_frame` (3.15), the address of the frame that ends the chain; 0: not used.
        pub tstate_base_frame: u32,
        /// `PyThreadState.datastack_chunk`, followed by `datastack_top` and `datastack_limit`.
        pub tstate_datastack: u32,
        /// `PyThreadState.root_cframe` (3.11, 3.12).
        pub tstate_root_cframe: u32,
        /// `_PyCFrame.current_frame`.
        pub cframe_current: u32,
        /// `_PyCFrame.previous`.
        pub cframe_previous: u32,

        /// Size of a frame in bytes: the fields below lie within it; at most [`FRAME_BYTES`].
        pub frame_bytes: u32,
        /// `_PyInterpreterFrame.f_code` or `.f_executable`, or `PyFrameObject.f_code` (up to 3.10).
        pub frame_code: u32,
        /// `_PyInterpreterFrame.previous` or `PyFrameObject.f_back`, the caller's frame.
        pub frame_previous: u32,
        /// `_PyInterpreterFrame.prev_instr` or `.instr_ptr`, or `PyFrameObject.f_lasti` (up to 3.10).
        pub frame_instruction: u32,
        /// Unit of `PyFrameObject.f_lasti` in bytes (up to 3.10).
        pub frame_unit: u32,
        /// `PyFrameObject.f_gen` (up to 3.10).
        pub frame_generator: u32,
        /// `PyFrameObject.f_executing` or `.f_state` (a byte, up to 3.10).
        pub frame_state: u32,
        /// The value that it has in a frame that executes.
        pub frame_executing: u32,
        /// `_PyInterpreterFrame.owner` (a byte).
        pub frame_owner: u32,
        /// Bits of `.f_executable` that are no part of the address (from 3.14 on: 3).
        pub frame_tags: u32,
        /// `_PyInterpreterFrame.is_entry` (a byte, 3.11); 0: not used.
        pub frame_is_entry: u32,
        /// Distance in bytes from a generator's `gi_frame_state` (a byte) up to the frame that follows it, at most 8;
        /// 0: not used.
        pub frame_generator_state: u32,

        /// `PyCodeObject.co_filename`.
        pub code_filename: u32,
        /// `PyCodeObject.co_qualname`, or `.co_name` (up to 3.10).
        pub code_qualname: u32,
        /// `PyCodeObject.co_firstlineno` (32 bits).
        pub code_first_line: u32,
        /// `PyCodeObject.co_linetable`, or `.co_lnotab` (up to 3.9).
        pub code_line_table: u32,
        /// `PyCodeObject.co_code`, a `bytes` object with the instructions (up to 3.10); 0: not used.
        pub code_bytes: u32,
        /// `PyCodeObject._co_firsttraceable` (32 bits).
        pub code_first_traceable: u32,
        /// `PyCodeObject.co_code_adaptive`: the first code unit. All fields above lie before it.
        pub code_instructions: u32,

        /// `sizeof(PyASCIIObject)`: where the characters of an ASCII `str` begin.
        pub text_ascii: u32,
        /// `sizeof(PyCompactUnicodeObject)`: where the characters of any other compact `str` begin.
        pub text_compact: u32,
        /// `sizeof(PyObject)`: 16, in free-threaded builds 32. `ob_type` is its last word.
        pub object_header: u32,
        /// `_PyInterpreterFrame.tlbc_index` (32 bits, free-threaded builds from 3.14 on): which copy of the
        /// instructions the frame runs. It begins the word that holds the owner; 0: not used.
        pub frame_copy: u32,
        /// `PyCodeObject.co_tlbc`, the address of the array of copies; 0: not used.
        pub code_copies: u32,

        /// Where the GIL is, and how its holder is recognised.
        pub lock: LockFacts,
        /// Where asyncio's tasks are, and what awaits them.
        pub asyncio: AsyncFacts,
    }
}

impl Facts {
    /// The facts that these bytes are, in place: a copy would take a tenth of the stack that a sample may use. `None`
    /// if they are cut short, not aligned for it, of another version, or hold offsets outside what the signal half
    /// reads. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<&Facts> {
        Facts::view(bytes).filter(|facts| facts.plausible())
    }

    /// How activations are bounded. `None`: `chain` is none of the `CHAIN_*` numbers; [`Facts::read`] gives no such
    /// facts.
    pub fn boundary(&self) -> Option<Boundary> {
        match self.chain {
            CHAIN_CFRAME => Some(Boundary::CFrame),
            CHAIN_CFRAME_SHIM => Some(Boundary::CFrameShim),
            CHAIN_SHIM => Some(Boundary::Shim),
            CHAIN_FRAME_OBJECT => Some(Boundary::FrameObject),
            _ => None,
        }
    }

    /// `PyObject.ob_type`.
    pub fn object_type(&self) -> u32 {
        self.object_header.wrapping_sub(8)
    }

    fn plausible(&self) -> bool {
        let word = |offset: u32, limit: u32| offset.checked_add(8).is_some_and(|end| end <= limit);
        let byte = |offset: u32, limit: u32| offset < limit;
        let (frame, code) = (self.frame_bytes, self.code_instructions);
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && self.boundary().is_some()
            && matches!(self.state, STATE_KEY | STATE_TLS | STATE_TLS_BLOCK)
            && frame as usize <= FRAME_BYTES
            && matches!(self.object_header, OBJECT_HEADER | OBJECT_HEADER_FREE_THREADED)
            && (self.frame_copy == 0 || self.frame_copy == self.frame_owner & !7)
            && word(self.code_copies, code)
            && self.frame_generator_state <= 8
            && self.frame_unit <= 2
            && word(self.frame_generator, frame)
            && byte(self.frame_state, frame)
            && word(self.code_bytes, code)
            && code as usize <= CODE_BYTES
            && [self.frame_code, self.frame_previous, self.frame_instruction].iter().all(|o| word(*o, frame))
            && [self.frame_owner, self.frame_is_entry].iter().all(|o| byte(*o, frame))
            && [self.code_filename, self.code_qualname, self.code_line_table].iter().all(|o| word(*o, code))
            && [self.code_first_line, self.code_first_traceable].iter().all(|o| word(*o, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Facts {
        let mut facts = Facts::from_bytes(&[0; size_of::<Facts>()]).expect("as many bytes");
        facts.size = size_of::<Facts>() as u32;
        facts.version = FACTS_VERSION;
        facts.chain = CHAIN_SHIM;
        facts.state = STATE_KEY;
        facts.frame_bytes = 80;
        facts.object_header = OBJECT_HEADER;
        facts.code_instructions = 200;
        facts
    }

    #[test]
    fn bytes_round_trip_and_bad_ones_are_refused() {
        let facts = sample();
        assert_eq!(Facts::read(facts.as_bytes()), Some(&facts));
        assert_eq!(Facts::read(facts.as_bytes().get(1..).unwrap_or(&[])), None, "cut");
        for spoil in [
            |f: &mut Facts| f.version += 1,
            |f: &mut Facts| f.size -= 4,
            |f: &mut Facts| f.chain = 9,
            |f: &mut Facts| f.frame_bytes = 129,
            |f: &mut Facts| f.state = 0,
            |f: &mut Facts| f.frame_owner = 80,
            |f: &mut Facts| f.frame_generator_state = 9,
            |f: &mut Facts| f.frame_previous = 73,
            |f: &mut Facts| f.code_line_table = u32::MAX - 3,
            |f: &mut Facts| f.code_instructions = 257,
            |f: &mut Facts| f.object_header = 24,
            |f: &mut Facts| f.frame_copy = 72,
            |f: &mut Facts| f.code_copies = 193,
        ] {
            let mut bad = facts;
            spoil(&mut bad);
            assert_eq!(Facts::read(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
