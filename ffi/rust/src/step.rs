//! A frame, as its words say.

use crate::sys::FrameInfo;
use crate::{Description, Kind, Stack};
use uunwind_core::frame::{self, frame_words, FLAG_BY_CODE, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};

/// A frame of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'w> {
    words: &'w [u64],
    cfa: u64,
}

/// The frames of words that were kept, as from [`native`](crate::native) or
/// [`Delivery::words`](crate::Delivery::words). Ends where the words are no frame's. Async-signal-safe.
///
/// ```
/// uunwind::load()?;
/// let mut words = [0; 64];
/// let captured = uunwind::native(&mut words).expect("it is loaded");
/// let leaf = uunwind::steps(&words[..captured.words]).next().expect("this function");
/// assert_eq!(leaf.kind(), Some(uunwind::Kind::Native));
/// assert!(!leaf.is_exact() && !leaf.is_by_frame_pointer() && !leaf.is_interpreter());
/// # Ok::<(), uunwind::Error>(())
/// ```
pub fn steps(words: &[u64]) -> impl Iterator<Item = Step<'_>> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let (frame, further) = rest.split_at_checked(frame_words(*rest.first()?))?;
        rest = further;
        Some(Step::of(frame, 0))
    })
}

impl Stack {
    /// Its frames one by one, without names. They have no CFAs: [`Walk::steps`](crate::Walk::steps) has.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        steps(self.words())
    }
}

impl<'w> Step<'w> {
    /// Of a frame's words. A CFA of 0: none.
    pub(crate) fn of(words: &'w [u64], cfa: u64) -> Step<'w> {
        Step { words, cfa }
    }

    /// Its words (`UU_FRAME_*` of `uu.h`).
    pub fn words(self) -> &'w [u64] {
        self.words
    }

    fn decoded(self) -> Option<frame::Frame> {
        frame::frames(self.words).next()
    }

    /// What it is; `None`: the library knows a kind that this crate does not. Never [`Kind::Inlined`].
    pub fn kind(self) -> Option<Kind> {
        Some(match self.decoded()? {
            frame::Frame::Native { .. } => Kind::Native,
            frame::Frame::Window { .. } => Kind::Window,
            frame::Frame::Semantic { .. } => Kind::Semantic,
            frame::Frame::Omitted { frames } => Kind::Omitted(frames),
        })
    }

    /// Machine frames: the return address, or the interrupted instruction ([`is_exact`](Step::is_exact)).
    pub fn address(self) -> Option<u64> {
        match self.decoded()? {
            frame::Frame::Native { address, .. } | frame::Frame::Window { address, .. } => Some(address),
            frame::Frame::Semantic { .. } | frame::Frame::Omitted { .. } => None,
        }
    }

    /// Whether the address is the interrupted instruction itself; otherwise the call is before it.
    pub fn is_exact(self) -> bool {
        self.has(FLAG_EXACT)
    }

    /// Whether a machine frame was found by following a frame pointer, or after a call to a wild address in the word
    /// at the stack pointer: no unwind information vouches for it.
    pub fn is_by_frame_pointer(self) -> bool {
        self.has(FLAG_BY_FRAME_POINTER)
    }

    /// Whether the caller of a machine frame outside of objects was found by a rule made from its machine code. Of
    /// frames in objects, [`Description::is_by_code`](crate::Description::is_by_code) says it.
    pub fn is_by_code(self) -> bool {
        self.has(FLAG_BY_CODE)
    }

    /// Whether a machine frame is an interpreter's own, whose frames of the language, if any, stand just before it.
    pub fn is_interpreter(self) -> bool {
        self.has(FLAG_INTERPRETER)
    }

    fn has(self, flag: u64) -> bool {
        self.address().is_some() && self.words.first().is_some_and(|word| word & flag != 0)
    }

    /// Frames in windows: the lower half of the window's generation, a number that no other window at the same place
    /// has.
    pub fn generation(self) -> Option<u32> {
        match self.decoded()? {
            frame::Frame::Window { generation, .. } => Some(generation),
            _ => None,
        }
    }

    /// Frames of languages: the position in the function, in the unit of the plugin that emitted the frame.
    pub fn position(self) -> Option<u64> {
        match self.decoded()? {
            frame::Frame::Semantic { position, .. } => Some(position),
            _ => None,
        }
    }

    /// The canonical frame address: the stack pointer of the caller when this frame returns. `None`: frames of
    /// languages, an outermost frame whose caller nothing describes, and steps that do not come from
    /// [`Walk::steps`](crate::Walk::steps).
    pub fn cfa(self) -> Option<u64> {
        (self.cfa != 0).then_some(self.cfa)
    }

    /// The frame in words, without the names of native functions, which [`Stack::symbolize`] has. Async-signal-safe.
    /// `None`: the library is not loaded, or the frame is of no kind that it knows.
    pub fn describe(self) -> Option<Description> {
        Description::of(self.words)
    }
}

/// What [`Step::describe`] needs of the stack.
const _: () = assert!(size_of::<FrameInfo>() < 2048);
