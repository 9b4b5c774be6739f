//! Callers that a frame pointer would skip.
//!
//! Where no unwind data describes the code, its frame pointer is followed. Of a function that has no frame of its own,
//! it is an outer one's: a leaf of a JIT or of hand-written assembly, or any function of a compiler that counts from
//! the stack pointer (Mono's). The callers between the two are missing then. But their return addresses lie on the
//! stack, between the stack pointer and the frame that the frame pointer leads to. So the words there are looked at
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

    /// A read of what is no memory costs a fault, as in the process itself.
    fn reads_may_fault(&self) -> bool {
        true
    }

    /// The stack is a copy: it lacks the words that are no addresses of code or of the stack.
    fn is_copy(&self) -> bool {
        false
    }

    /// The copy may lack return addresses, too.
    fn may_lack_calls(&self) -> bool {
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
    match cpu::look(cursor, fp, places, reader) {
        Passed::Nothing if fp.is_some() && places.may_lack_calls() => Passed::Doubt,
        passed => passed,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::Regs;

    const CODE: u64 = 0x40_0000;
    const STACK: u64 = 0x7000_0000;

    /// The same place everywhere.
    struct All(Place);

    impl Surroundings for All {
        fn place(&mut self, _: u64, _: &mut Reader<'_>) -> Place {
            self.0
        }

        fn is_copy(&self) -> bool {
            self.0 == Place::Called
        }
    }

    /// What the words of a stack say of the function at `pc`, interrupted there, and of code at [`CODE`].
    fn said(place: Place, code: &[u8], pc: u64, words: &[u64]) -> Passed {
        let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let regions = [Region { address: CODE, bytes: code }, Region { address: STACK, bytes: &stack }];
        let fp = STACK + 8 * words.len() as u64 - 16;
        let cursor = Cursor { regs: Regs::new(pc, STACK, fp), exact: true };
        look(&cursor, Some(fp), &mut All(place), &mut Reader::recorded(&regions))
    }

    /// Sixteen bytes at a time: a leaf that only returns; a leaf that is interrupted at its third byte; a function that
    /// calls the second one, one that calls the first one, and one that calls through rbx.
    fn code() -> Vec<u8> {
        let call = |at: u64, to: u64| [&[0xe8][..], &((to as i64 - at as i64 - 5) as i32).to_le_bytes()].concat();
        let parts: [Vec<u8>; 5] =
            [vec![0xc3], vec![0x90, 0x90, 0x90, 0xc3], call(0x20, 0x10), call(0x30, 0), vec![0xff, 0xd3]];
        parts.into_iter().flat_map(|part| [part.clone(), vec![0xcc; 16 - part.len()]].concat()).collect()
    }
    const PC: u64 = CODE + 0x12;
    const FROM_SECOND: u64 = CODE + 0x25;
    const FROM_FIRST: u64 = CODE + 0x35;
    const FROM_REGISTER: u64 = CODE + 0x42;

    #[test]
    fn a_proof_needs_the_call_and_the_place() {
        let code = code();
        assert!(matches!(said(Place::Code, &code, PC, &[FROM_SECOND, 0, 0, 0]), Passed::Caller(_)));
        assert_eq!(said(Place::Code, &code, PC, &[1, FROM_SECOND, 0, 0]), Passed::Doubt, "at another place");
        assert_eq!(said(Place::Code, &code, PC, &[FROM_FIRST, 0, 0, 0]), Passed::Doubt, "a return stands between");
        assert!(matches!(said(Place::Code, &code, CODE, &[FROM_FIRST, 0, 0, 0]), Passed::Caller(_)));
        assert_eq!(said(Place::Code, &code, PC, &[FROM_REGISTER, 0, 0, 0]), Passed::Doubt);
        assert_eq!(said(Place::Code, &code, PC, &[FROM_SECOND + 1, 7, 0, 0]), Passed::Nothing, "after no call");
        assert_eq!(said(Place::Data, &code, PC, &[FROM_SECOND, FROM_REGISTER, 0, 0]), Passed::Nothing);
    }

    #[test]
    fn what_cannot_be_looked_at_is_doubtful() {
        let code = code();
        let words = |count: u64, word| vec![word; count as usize + 2];
        assert_eq!(said(Place::Code, &code, PC, &words(WORDS, 1)), Passed::Nothing);
        assert_eq!(said(Place::Code, &code, PC, &words(WORDS + 1, 1)), Passed::Doubt);
        let calls = |count: u32| words(count.into(), FROM_SECOND + 1);
        assert_eq!(said(Place::Code, &code, PC, &calls(CALLS)), Passed::Nothing);
        assert_eq!(said(Place::Code, &code, PC, &calls(CALLS + 1)), Passed::Doubt);
        // Code that a copy lacks: its words were kept for the calls before them.
        assert_eq!(said(Place::Called, &[], PC, &[1, FROM_SECOND, 0, 0]), Passed::Doubt);
        assert_eq!(said(Place::Called, &[], PC, &[1, 1, 0, 0]), Passed::Nothing);
    }
}
