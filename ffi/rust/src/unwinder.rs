//! Unwinders in Rust: a window whose rules and names a value gives.

use crate::held::Held;
use crate::sys::{GiveName, GiveRule, RULE_DEREF, RULE_END, RULE_SIGNAL, WINDOW_RULE, WINDOW_STEPPER};
use std::ffi::c_void;
use uunwind_core::plugin::{CRule, Visit};
use uunwind_core::regs::{CALLEE_SAVED, FP, RA, SP};
use uunwind_core::rule::{RA_SLOT, SAME, UNKNOWN};

/// Knows how code of a window is stepped, and what its functions are called: for a JIT that keeps its own tables
/// (`rule` and `name` of `struct uu_window` in `uu.h`). See [`Window::stepped_by`](crate::Window::stepped_by).
///
/// ```
/// use uunwind::{Function, Rule, Unwinder, Window};
///
/// /// Functions of 32 bytes, each of which keeps the frame pointer.
/// struct Slots(Vec<String>);
///
/// // SAFETY: both functions compute, and read what does not change; they neither panic, allocate nor lock.
/// unsafe impl Unwinder for Slots {
///     fn rule(&self, _: u64) -> Option<Rule> {
///         Some(Rule::frame_pointer())
///     }
///     fn name(&self, offset: u64) -> Option<Function<'_>> {
///         let name = self.0.get((offset / 32) as usize)?;
///         Some(Function { name, start: offset / 32 * 32 })
///     }
/// }
///
/// let code = vec![0xc3; 64]; // (The code of a JIT lies in memory that is executable.)
/// let window = Window::stepped_by(code, Slots(vec!["first".into(), "second".into()])).register()?;
/// drop(window); // it is not registered any more, and no walk is inside the unwinder
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Safety
/// Walks call these functions in signal handlers, on any thread, at any instruction of the program. They must be
/// async-signal-safe: no allocation, no lock, no thread-local that is made at its first use, no panic (which ends the
/// process), little stack (1 KiB). They must do no harm when they are abandoned at any instruction: while the program
/// is recorded, a call that faults, or does not come back, is. Memory that may be unmapped they must not read.
pub unsafe trait Unwinder: Send + Sync + 'static {
    /// The rule at a distance in bytes from the code's first byte; `None`: there is none, and the walk ends here. For
    /// a return address it is that of the byte before it, inside the call. Always the same for the same distance:
    /// answers are cached.
    fn rule(&self, offset: u64) -> Option<Rule>;

    /// The function at a distance in bytes from the code's first byte; `None`: it has no name.
    fn name(&self, offset: u64) -> Option<Function<'_>> {
        let _ = offset;
        None
    }
}

/// A function of an [`Unwinder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'u> {
    /// Its name, of which 256 bytes are shown.
    pub name: &'u str,
    /// Distance in bytes of its first byte from the code's.
    pub start: u64,
}

/// How to get from a frame to its caller (`struct uu_rule` of `uu.h`). A register that the rule says nothing about is
/// the caller's still; the return address lies just below the CFA, the stack pointer of the caller when it returns.
///
/// ```
/// use uunwind::Rule;
/// // After `push rbp; mov rbp, rsp; push rbx`: rbp (DWARF register 6) was saved at CFA-16, rbx (3) at CFA-24.
/// assert_eq!(Rule::frame_pointer(), Rule::from_frame_pointer(16).saved(6, -2));
/// let rule = Rule::frame_pointer().saved(3, -3);
/// # let _ = rule;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(CRule);

impl Rule {
    /// The CFA is `offset` bytes above the stack pointer: 8 at a function's first instruction on x86-64.
    #[must_use]
    pub const fn from_stack_pointer(offset: i32) -> Rule {
        Rule(CRule::simple(SP, offset))
    }

    /// The CFA is `offset` bytes above the frame pointer: 16 in a function that has saved its caller's there.
    #[must_use]
    pub const fn from_frame_pointer(offset: i32) -> Rule {
        Rule(CRule::simple(FP, offset))
    }

    /// A function that has saved its caller's frame pointer and set its own.
    #[must_use]
    pub const fn frame_pointer() -> Rule {
        Rule::from_frame_pointer(16).saved(FP, -2)
    }

    /// The CFA is the word at `offset` bytes above the register with this DWARF number, plus `addend`: a function that
    /// has realigned its stack, or a trampoline that keeps its caller's stack pointer.
    #[must_use]
    pub const fn from_word(register: u8, offset: i32, addend: i16) -> Rule {
        let mut rule = CRule::simple(register, offset);
        rule.kind = RULE_DEREF;
        rule.addend = addend as i32;
        Rule(rule)
    }

    /// A frame that the kernel has made: a `ucontext_t` lies `offset` bytes above the register with this DWARF number,
    /// and the caller is what the signal has interrupted.
    #[must_use]
    pub const fn signal_frame(register: u8, offset: i32) -> Rule {
        let mut rule = CRule::simple(register, offset);
        rule.kind = RULE_SIGNAL;
        Rule(rule)
    }

    /// The outermost frame.
    #[must_use]
    pub const fn end() -> Rule {
        let mut rule = CRule::simple(SP, 0);
        rule.kind = RULE_END;
        Rule(rule)
    }

    /// The caller's register, by its DWARF number, was saved `words` words of 8 bytes above the CFA (mostly a negative
    /// number). Registers that a function need not keep for its caller, and others that a rule has no place for, are
    /// ignored; the return address is number 16 on x86-64, 30 on AArch64.
    #[must_use]
    pub const fn saved(mut self, register: u8, words: i16) -> Rule {
        if register == RA {
            self.0.slots[RA_SLOT] = words;
        }
        let mut slot = 0;
        while slot < CALLEE_SAVED.len() {
            if CALLEE_SAVED[slot] == register {
                self.0.slots[slot] = words;
            }
            slot += 1;
        }
        self
    }

    /// The caller's register, by its DWARF number, is in it still: what a rule says of all but the return address. Of
    /// this one (30) only AArch64's rules can say it, of a function that has not stored it.
    #[must_use]
    pub const fn kept(self, register: u8) -> Rule {
        self.saved(register, SAME)
    }

    /// The caller's register, by its DWARF number, is lost.
    #[must_use]
    pub const fn lost(self, register: u8) -> Rule {
        self.saved(register, UNKNOWN)
    }
}

/// An unwinder or stepper as the library calls it: what it gets as `user`.
pub struct Registered<U> {
    /// Process address of the code's first byte.
    pub text: u64,
    pub value: U,
}

/// What is registered of an unwinder or stepper.
pub struct Callbacks {
    pub user: Held<dyn Send + Sync>,
    pub rule: Option<GiveRule>,
    pub step: Option<Visit>,
    pub name: GiveName,
}

impl Callbacks {
    /// For code at `text`.
    pub fn of<U: Unwinder>(text: u64, unwinder: U) -> Callbacks {
        Callbacks::with(Registered { text, value: unwinder }, Some(rule::<U>), None, name::<U>)
    }

    /// The functions must be those of this type.
    pub fn with<U: Send + Sync + 'static>(
        registered: Registered<U>,
        rule: Option<GiveRule>,
        step: Option<Visit>,
        name: GiveName,
    ) -> Callbacks {
        let user: Box<dyn Send + Sync> = Box::new(registered);
        Callbacks { user: Held::of(user), rule, step, name }
    }

    /// `UU_WINDOW_*`.
    pub fn kind(&self) -> u32 {
        if self.step.is_some() {
            WINDOW_STEPPER
        } else {
            WINDOW_RULE
        }
    }
}

impl<U> Registered<U> {
    /// Answers `uu_window.name`.
    ///
    /// # Safety
    /// `user` must be a live [`Registered`] of this type, `buffer` and its size a place for a text, `start` one for an
    /// address.
    pub unsafe fn write_name<'u>(
        user: *mut c_void,
        pc: u64,
        (buffer, room): (*mut u8, usize),
        start: *mut u64,
        name: impl FnOnce(&'u U, u64) -> Option<Function<'u>>,
    ) -> usize
    where
        U: 'u,
    {
        // SAFETY: the caller's promise; it is shared with walks on other threads, as `U: Sync` allows.
        let registered: &'u Registered<U> = unsafe { &*user.cast::<Registered<U>>() };
        let Some(function) = name(&registered.value, pc.wrapping_sub(registered.text)) else { return 0 };
        let mut len = function.name.len().min(room);
        while !function.name.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: `len` bytes of the name, for which there is room; and a place for an address.
        unsafe {
            std::ptr::copy_nonoverlapping(function.name.as_ptr(), buffer, len);
            start.write(registered.text.wrapping_add(function.start));
        }
        len
    }
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unwinder")
    }
}

/// # Safety
/// `user` must be a live [`Registered`] of this type, `out` a place for a rule.
unsafe extern "C" fn rule<U: Unwinder>(user: *mut c_void, pc: u64, out: *mut CRule) -> u32 {
    // SAFETY: the caller's promise; it is shared with walks on other threads, as `U: Sync` allows.
    let registered = unsafe { &*user.cast::<Registered<U>>() };
    let Some(Rule(rule)) = registered.value.rule(pc.wrapping_sub(registered.text)) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { out.write(rule) };
    1
}

/// # Safety
/// As for [`Registered::write_name`].
unsafe extern "C" fn name<U: Unwinder>(
    user: *mut c_void,
    pc: u64,
    buffer: *mut u8,
    room: usize,
    start: *mut u64,
) -> usize {
    // SAFETY: the caller's.
    unsafe { Registered::<U>::write_name(user, pc, (buffer, room), start, U::name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    // SAFETY: it computes.
    unsafe impl Unwinder for Named {
        fn rule(&self, offset: u64) -> Option<Rule> {
            (offset < 8).then(Rule::end)
        }
        fn name(&self, offset: u64) -> Option<Function<'_>> {
            (offset < 8).then_some(Function { name: self.0, start: 4 })
        }
    }

    #[test]
    fn names_are_cut_between_characters_and_addresses_are_the_processs() {
        let callbacks = Callbacks::of(0x1000, Named("abcä"));
        let user = callbacks.user.address();
        let (mut buffer, mut start) = ([0; 8], 0);
        for (room, len) in [(8, 5), (5, 5), (4, 3), (3, 3), (0, 0)] {
            // SAFETY: the unwinder from above, and room for that many bytes.
            let written = unsafe { (callbacks.name)(user, 0x1007, buffer.as_mut_ptr(), room, &raw mut start) };
            assert_eq!((written, start), (len, 0x1004), "{room}");
        }
        let (mut rule, give) = (CRule::simple(0, 0), callbacks.rule.expect("a rule"));
        // SAFETY: as above.
        let answers = [0x1007, 0x1008, 0xfff].map(|pc| unsafe { give(user, pc, &raw mut rule) });
        assert_eq!(answers, [1, 0, 0]);
        assert!(rule.to_rule().is_some());
    }

    #[test]
    fn rules_are_the_librarys() {
        let simple = [Rule::from_stack_pointer(8), Rule::frame_pointer(), Rule::end(), Rule::frame_pointer().lost(3)];
        for rule in simple.into_iter().chain([Rule::from_word(FP, -8, 16), Rule::signal_frame(SP, 0)]) {
            assert!(rule.0.to_rule().is_some(), "{rule:?}");
        }
        assert_eq!(Rule::frame_pointer().saved(0, -9), Rule::frame_pointer());
        assert!(Rule::frame_pointer().lost(RA).0.to_rule().is_none(), "nothing to return to");
    }
}
