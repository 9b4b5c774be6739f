//! The facts: what the analyse half tells the signal half about one libpython or python executable.
//!
//! Plain bytes in the recorder's facts memfd. Addresses are file addresses (add the load bias); offsets are in bytes
//! from the start of the structure that the field's prefix names. CPython's names of the fields stand in the comments.

use core::mem::size_of;

/// Version of this layout.
pub const FACTS_VERSION: u32 = 1;

/// 3.11: `_PyCFrame` on the C stack; an activation ends before the frame that its outer `_PyCFrame` shows.
pub const CHAIN_CFRAME: u32 = 1;
/// 3.12: `_PyCFrame` on the C stack, and a shim frame ends the activation.
pub const CHAIN_CFRAME_SHIM: u32 = 2;
/// 3.13: a shim frame on the C stack ends the activation; there is no `_PyCFrame`.
pub const CHAIN_SHIM: u32 = 3;

/// Largest `_PyInterpreterFrame` head that the signal half reads.
pub const FRAME_BYTES: usize = 96;
/// Largest `PyCodeObject` head that the signal half reads.
pub const CODE_BYTES: usize = 224;

/// Facts of one object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// `size_of::<Facts>()` as the analyser was built.
    pub size: u32,
    /// [`FACTS_VERSION`].
    pub version: u32,
    /// `PY_VERSION_HEX`.
    pub python: u32,
    /// How activations are marked: one of the `CHAIN_*` numbers.
    pub chain: u32,

    /// File address of `_PyRuntime`.
    pub runtime: u64,
    /// File address of `_PyEval_EvalFrameDefault`.
    pub eval: u64,
    /// File address of `PyCode_Type`.
    pub code_type: u64,

    /// `_PyRuntimeState._finalizing`.
    pub runtime_finalizing: u32,
    /// `_PyRuntimeState.gilstate.tstate_current` (3.11); 0: not used.
    pub runtime_current: u32,
    /// `_PyRuntimeState.autoTSSkey`: a word "is initialised", then the key, 32 bits each.
    pub runtime_tss: u32,
    /// `PyThreadState.thread_id`.
    pub tstate_thread_id: u32,
    /// `PyThreadState.cframe` (3.11, 3.12) or `.current_frame` (3.13).
    pub tstate_entry: u32,
    /// `PyThreadState.datastack_chunk`, followed by `datastack_top` and `datastack_limit`.
    pub tstate_datastack: u32,
    /// `PyThreadState.root_cframe` (3.11, 3.12).
    pub tstate_root_cframe: u32,
    /// `_PyCFrame.current_frame`.
    pub cframe_current: u32,
    /// `_PyCFrame.previous`.
    pub cframe_previous: u32,

    /// Bytes of a frame to read, at most [`FRAME_BYTES`].
    pub frame_bytes: u32,
    /// `_PyInterpreterFrame.f_code` or `.f_executable`.
    pub frame_code: u32,
    /// `_PyInterpreterFrame.previous`.
    pub frame_previous: u32,
    /// `_PyInterpreterFrame.prev_instr` or `.instr_ptr`.
    pub frame_instruction: u32,
    /// `_PyInterpreterFrame.owner` (a byte).
    pub frame_owner: u32,
    /// `_PyInterpreterFrame.is_entry` (a byte, 3.11); 0: not used.
    pub frame_is_entry: u32,
    /// How many bytes before a generator's frame its `gi_frame_state` stands (a byte), at most 8; 0: not used.
    pub frame_generator_state: u32,

    /// `PyCodeObject.co_filename`.
    pub code_filename: u32,
    /// `PyCodeObject.co_qualname`.
    pub code_qualname: u32,
    /// `PyCodeObject.co_firstlineno` (32 bits).
    pub code_first_line: u32,
    /// `PyCodeObject.co_linetable`.
    pub code_line_table: u32,
    /// `PyCodeObject._co_firsttraceable` (32 bits).
    pub code_first_traceable: u32,
    /// `PyCodeObject.co_code_adaptive`: the first code unit. All fields above lie before it.
    pub code_instructions: u32,

    /// `sizeof(PyASCIIObject)`: where the characters of an ASCII `str` begin.
    pub text_ascii: u32,
    /// `sizeof(PyCompactUnicodeObject)`: where the characters of any other compact `str` begin.
    pub text_compact: u32,
}

const _: () = assert!(size_of::<Facts>() == 4 * 4 + 3 * 8 + 24 * 4, "no padding: the bytes are all fields");

impl Facts {
    /// The facts as bytes, as [`Facts::from_bytes`] reads them.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the struct is plain integers without padding (asserted above), borrowed for the slice's life.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Facts>()) }
    }

    /// Reads facts, or `None` when they are cut, of another version, or point outside what the signal half reads.
    /// Async-signal-safe.
    pub fn from_bytes(bytes: &[u8]) -> Option<Facts> {
        let bytes = bytes.get(..size_of::<Facts>())?;
        // SAFETY: there are size_of::<Facts>() bytes, any bytes are valid integers, and the read is unaligned.
        let facts = unsafe { bytes.as_ptr().cast::<Facts>().read_unaligned() };
        facts.plausible().then_some(facts)
    }

    fn plausible(&self) -> bool {
        let word = |offset: u32, limit: u32| offset.checked_add(8).is_some_and(|end| end <= limit);
        let byte = |offset: u32, limit: u32| offset < limit;
        let (frame, code) = (self.frame_bytes, self.code_instructions);
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && matches!(self.chain, CHAIN_CFRAME | CHAIN_CFRAME_SHIM | CHAIN_SHIM)
            && frame as usize <= FRAME_BYTES
            && self.frame_generator_state <= 8
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
        // SAFETY: all-zero bytes are valid integers.
        let mut facts: Facts = unsafe { core::mem::zeroed() };
        facts.size = size_of::<Facts>() as u32;
        facts.version = FACTS_VERSION;
        facts.chain = CHAIN_SHIM;
        facts.frame_bytes = 80;
        facts.code_instructions = 200;
        facts
    }

    #[test]
    fn bytes_round_trip_and_bad_ones_are_refused() {
        let facts = sample();
        assert_eq!(Facts::from_bytes(facts.as_bytes()), Some(facts));
        assert_eq!(Facts::from_bytes(facts.as_bytes().get(1..).unwrap_or(&[])), None, "cut");
        for spoil in [
            |f: &mut Facts| f.version += 1,
            |f: &mut Facts| f.size -= 4,
            |f: &mut Facts| f.chain = 9,
            |f: &mut Facts| f.frame_bytes = 97,
            |f: &mut Facts| f.frame_owner = 80,
            |f: &mut Facts| f.frame_generator_state = 9,
            |f: &mut Facts| f.frame_previous = 73,
            |f: &mut Facts| f.code_line_table = u32::MAX - 3,
            |f: &mut Facts| f.code_instructions = 225,
        ] {
            let mut bad = facts;
            spoil(&mut bad);
            assert_eq!(Facts::from_bytes(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
