//! Callers that a frame pointer would skip.
//!
//! Where no unwind data describes the code, its frame pointer is followed. Of a function that has no frame of its own,
//! it is an outer one's: a leaf of a JIT or of hand-written assembly, or any function of a compiler that counts from the
//! stack pointer (Mono's). The callers between the two are missing then. But their return addresses lie on the stack,
//! between the stack pointer and the frame that the frame pointer leads to. So the words there are looked at
//! ([`look`]): one that follows a call is perhaps a caller's.
//!
//! Where the call leads to the function of the current frame, and the function's own first instructions put the return
//! address at this very place, the caller is proved, and the walk goes on there. Otherwise the word may as well be left
//! of a call that has returned: then the frame pointer is followed, and the stack is doubtful
//! ([`DOUBTFUL`](uunwind_core::rule::DOUBTFUL)). Nothing is guessed.

#[cfg(target_arch = "x86_64")]
mod entry_code;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod cpu;
#[cfg(target_arch = "x86_64")]
use x86_64 as cpu;

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;

/// Bytes of a function from its first instruction on in which its pc is recognised.
pub(crate) const NEAR: u64 = 4096;
/// Words of the stack that are looked at.
pub const WORDS: u64 = 512;
/// Words among them whose code is looked at.
pub const CALLS: u32 = 64;

/// What lies at an address, as far as loaded objects say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A part of an object that is not executable.
    Data,
    /// A function that the object's unwind data describes.
    Described,
    /// Code of an object that nothing describes.
    Code,
    /// No object covers it.
    Unowned,
    /// Code that cannot be read here, of a copied stack. Its words were kept because they follow calls.
    Called,
}

/// The process whose stack it is, or what is left of it.
pub trait Surroundings {
    /// What lies at a process address.
    fn place(&mut self, address: u64, reader: &mut Reader<'_>) -> Place;

    /// The stack is a copy: it lacks the words that are no addresses of code or of the stack.
    fn is_copy(&self) -> bool {
        false
    }
}

/// What the words say of a step by the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// None of them speaks against it.
    Nothing,
    /// A caller may be skipped.
    Doubt,
    /// This is the rule that leads to the caller.
    Caller(Rule),
}

/// Looks at the words between the stack pointer and the frame that `fp` leads to; `None`: the frame pointer's value is
/// none, and only a proof is looked for. At most [`WORDS`] words of the stack and [`CALLS`] places in code are read.
/// Async-signal-safe.
#[cold]
#[inline(never)]
pub fn look(cursor: &Cursor, fp: Option<u64>, places: &mut dyn Surroundings, reader: &mut Reader<'_>) -> Passed {
    cpu::look(cursor, fp, places, reader)
}
