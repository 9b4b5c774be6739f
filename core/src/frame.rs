//! One line of a stack, as one or two 64-bit words: the form in which a walk leaves frames in its buffer, in the ring
//! and in the recording.
//!
//! ```text
//! bits 63..60  flags            bits 59..56  kind            bits 55..0  payload
//! native   (kind 1): payload = address
//! semantic (kind 2): payload = name id (32 bits) | plugin index << 32 (8 bits); the next word is the position, a
//!                    byte offset into the code object, whose meaning belongs to the plugin
//! window   (kind 3): a native frame in a window: payload = address; the next word is the window's generation (its low
//!                    32 bits, never 0) << 32 | name id of the function (0: none)
//! omitted  (kind 4): payload = number of frames that were left out here (32 bits), at least 1
//! ```
//! Frames stand leaf first. The semantic frames of one interpreter activation come just before (nearer the leaf than)
//! the native frame that hosts them.

const KIND_SHIFT: u32 = 56;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;

/// Kind of a native frame word.
pub const KIND_NATIVE: u8 = 1;
/// Kind of a semantic frame word; one position word follows.
pub const KIND_SEMANTIC: u8 = 2;
/// Kind of the word of a frame in a window; the word with its generation and name follows.
pub const KIND_WINDOW: u8 = 3;
/// Kind of the word that stands for frames that were left out, between the innermost and the outermost part of a deep
/// stack.
pub const KIND_OMITTED: u8 = 4;

/// Native: the address is the interrupted instruction itself, not a return address. Look up `pc`, not `pc - 1`.
pub const FLAG_EXACT: u64 = 1 << 60;
/// Native: this frame was reached by the frame-pointer chain, or by the word at the stack pointer of an interrupted
/// address that is not code, for want of unwind information in its callee.
pub const FLAG_BY_FRAME_POINTER: u64 = 1 << 61;
/// Native: an interpreter's own frame that hosts semantic frames; viewers may hide it.
pub const FLAG_INTERPRETER: u64 = 1 << 62;
/// Native, in no object: the walk has gone on from this frame by a rule made from its machine code. Of frames in
/// objects, the object's rule table says it (`uunwind_tables::Table::is_by_code`): walks do not look which source a
/// rule has.
pub const FLAG_BY_CODE: u64 = 1 << 63;

/// Semantic: no frame of the stack, but one that waits for the semantic frames before it to end (a coroutine that
/// awaits another task). It was read from the runtime's memory.
pub const FLAG_AWAITING: u64 = 1 << 60;

/// A decoded frame: one or two frame words ([`frames`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// A machine frame in an object or in unowned code: one word.
    Native {
        /// Interrupted instruction (if `exact`) or return address, in the process's address space.
        address: u64,
        /// The address is the instruction itself.
        exact: bool,
        /// Reached by following a frame pointer.
        by_frame_pointer: bool,
        /// Hosts semantic frames.
        interpreter: bool,
        /// Left by a rule made from its machine code. Only of code outside of objects.
        by_code: bool,
    },
    /// A frame of an interpreted language.
    Semantic {
        /// Index of the plugin that emitted it.
        plugin: u8,
        /// Process-wide id under which the name was described.
        name: u32,
        /// Position in the code object, in the plugin's unit: a line, or an offset that its line table has the line of.
        position: u64,
        /// It is no frame of the stack: it awaits those before it.
        awaiting: bool,
    },
    /// A machine frame in a window.
    Window {
        /// Interrupted instruction (if `exact`) or return address (process address).
        address: u64,
        /// The address is the instruction itself.
        exact: bool,
        /// Reached by following a frame pointer.
        by_frame_pointer: bool,
        /// Hosts semantic frames.
        interpreter: bool,
        /// Left by a rule made from its machine code.
        by_code: bool,
        /// The lower half of the window's generation: distinguishes it from others that were or will be at the same
        /// place.
        generation: u32,
        /// Process-wide id under which the function's name was described; 0: it has none.
        name: u32,
    },
    /// Frames that were left out: the stack has more than are kept.
    Omitted {
        /// Number of frames, at least 1.
        frames: u32,
    },
}

impl Frame {
    /// Its kind, as in its first word.
    pub fn kind(&self) -> u8 {
        match self {
            Frame::Native { .. } => KIND_NATIVE,
            Frame::Semantic { .. } => KIND_SEMANTIC,
            Frame::Window { .. } => KIND_WINDOW,
            Frame::Omitted { .. } => KIND_OMITTED,
        }
    }
}

/// All flags of a frame's word.
pub(crate) const FLAGS: u64 = FLAG_EXACT | FLAG_BY_FRAME_POINTER | FLAG_INTERPRETER | FLAG_BY_CODE;

/// The word of a native frame.
pub const fn native_word(address: u64, flags: u64) -> u64 {
    (address & PAYLOAD) | ((KIND_NATIVE as u64) << KIND_SHIFT) | flags
}

#[cfg(target_arch = "x86_64")]
/// The word of a native frame at a return address below [`crate::memory::USER_END`].
#[inline(always)]
pub(crate) const fn user_word(address: u64) -> u64 {
    address | ((KIND_NATIVE as u64) << KIND_SHIFT)
}

/// The first word of a frame in a window.
pub const fn window_word(address: u64, flags: u64) -> u64 {
    (address & PAYLOAD) | ((KIND_WINDOW as u64) << KIND_SHIFT) | flags
}

/// The second word of a frame in a window.
pub const fn window_identity(generation: u64, name: u32) -> u64 {
    generation << 32 | name as u64
}

/// The first word of a semantic frame.
pub const fn semantic_word(plugin: u8, name: u32) -> u64 {
    name as u64 | ((plugin as u64) << 32) | ((KIND_SEMANTIC as u64) << KIND_SHIFT)
}

/// The word that stands for `frames` frames that were left out.
pub const fn omitted_word(frames: u32) -> u64 {
    frames as u64 | ((KIND_OMITTED as u64) << KIND_SHIFT)
}

/// How many words the frame has that begins with this one.
pub const fn frame_words(first: u64) -> usize {
    match ((first >> KIND_SHIFT) & 0xf) as u8 {
        KIND_SEMANTIC | KIND_WINDOW => 2,
        _ => 1,
    }
}

/// Decodes the frames in `words`; stops (with `None`) at a word of unknown kind or a missing position word.
pub fn frames(words: &[u64]) -> impl Iterator<Item = Frame> + '_ {
    let mut rest = words.iter();
    core::iter::from_fn(move || {
        let word = *rest.next()?;
        match ((word >> KIND_SHIFT) & 0xf) as u8 {
            KIND_NATIVE => Some(Frame::Native {
                address: word & PAYLOAD,
                exact: word & FLAG_EXACT != 0,
                by_frame_pointer: word & FLAG_BY_FRAME_POINTER != 0,
                interpreter: word & FLAG_INTERPRETER != 0,
                by_code: word & FLAG_BY_CODE != 0,
            }),
            KIND_WINDOW => {
                let identity = *rest.next()?;
                Some(Frame::Window {
                    address: word & PAYLOAD,
                    exact: word & FLAG_EXACT != 0,
                    by_frame_pointer: word & FLAG_BY_FRAME_POINTER != 0,
                    interpreter: word & FLAG_INTERPRETER != 0,
                    by_code: word & FLAG_BY_CODE != 0,
                    generation: (identity >> 32) as u32,
                    name: identity as u32,
                })
            }
            KIND_SEMANTIC => {
                let position = *rest.next()?;
                let awaiting = word & FLAG_AWAITING != 0;
                Some(Frame::Semantic { plugin: (word >> 32) as u8, name: word as u32, position, awaiting })
            }
            KIND_OMITTED => Some(Frame::Omitted { frames: word as u32 }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let words =
            [native_word(0x7fff_1234, FLAG_EXACT), semantic_word(3, 77), 12, native_word(0x40_0000, FLAG_INTERPRETER)];
        let mut it = frames(&words);
        assert_eq!(
            it.next(),
            Some(Frame::Native {
                address: 0x7fff_1234,
                exact: true,
                by_frame_pointer: false,
                interpreter: false,
                by_code: false
            })
        );
        assert_eq!(it.next(), Some(Frame::Semantic { plugin: 3, name: 77, position: 12, awaiting: false }));
        assert_eq!(
            it.next(),
            Some(Frame::Native {
                address: 0x40_0000,
                exact: false,
                by_frame_pointer: false,
                interpreter: true,
                by_code: false
            })
        );
        assert_eq!(it.next(), None);
        let awaiting = Frame::Semantic { plugin: 1, name: 2, position: 3, awaiting: true };
        assert_eq!(frames(&[semantic_word(1, 2) | FLAG_AWAITING, 3]).next(), Some(awaiting));
        let flags = FLAG_EXACT | FLAG_BY_CODE;
        let words = [window_word(0x7f00_0000_1234, flags), window_identity(0x12_3456_789a, 7), native_word(1, 0)];
        let window = Frame::Window {
            address: 0x7f00_0000_1234,
            exact: true,
            by_frame_pointer: false,
            interpreter: false,
            by_code: true,
            generation: 0x3456_789a,
            name: 7,
        };
        assert_eq!(frames(&words).next(), Some(window));
        assert_eq!(frames(&words).count(), 2);
        assert_eq!(frames(&[omitted_word(u32::MAX)]).next(), Some(Frame::Omitted { frames: u32::MAX }));
        assert_eq!(frames(&words[..1]).next(), None, "identity missing");
        assert_eq!(frames(&[semantic_word(0, 1)]).next(), None, "position word missing");
        assert_eq!(frames(&[0]).next(), None, "unknown kind");
    }
}
