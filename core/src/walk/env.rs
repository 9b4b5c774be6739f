//! The environment of a walk: a live process, a test, or a fuzzer.
//!
//! A walk makes one call a frame, [`Env::look`]. Its result is a value, and whatever else the walk needs of the frame
//! is asked with that value; so the environment keeps no state that means "the frame last asked for", and a plugin that
//! looks up other addresses in the middle of a frame does not change which frame a later question is about.

use super::Delivery;
use crate::cache::short::Short;
use crate::cursor::Cursor;
use crate::memory::{Reader, StackWords};
use crate::plugin::{Description, Owner, Visit};
use crate::recovery::Protector;
use crate::rule::Packed;
use crate::span::Span;
use crate::stop_reason::StopReason;
use core::ffi::c_void;

/// A claim on the code under a pc: a plugin's on an object, a plugin's that steps frames in unowned code, or a window's
/// own functions.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The function that moves the cursor to the caller itself; `None`: the frame is stepped by its rule.
    pub step: Option<Visit>,
    /// The function that adds semantic frames to a frame with a CFA; `None`: there is none.
    pub overlay: Option<Visit>,
    /// Index of the plugin; 0 for a window's functions.
    pub index: u8,
    /// What its analyse half found in the object: a process address; null for unowned code.
    pub facts: *const u8,
    /// Length of the facts, in bytes.
    pub facts_len: usize,
    /// Load bias of the object: process address minus file address; 0 for a window.
    pub bias: u64,
    /// [`crate::plugin::Plugin::flags`].
    pub flags: u32,
    /// [`crate::plugin::Plugin::scratch_bytes`].
    pub scratch_bytes: u32,
    /// The object's or window's text range (process addresses); empty for unowned code.
    pub range: Span,
    /// Generation of the object's load, or of the window; 0 for unowned code.
    pub generation: u64,
    /// The window's user pointer.
    pub user: *mut c_void,
}

impl Claim {
    /// A claim that asks for nothing.
    pub const NOTHING: Claim = Claim {
        step: None,
        overlay: None,
        index: 0,
        facts: core::ptr::null(),
        facts_len: 0,
        bias: 0,
        flags: 0,
        scratch_bytes: 0,
        range: Span::EMPTY,
        generation: 0,
        user: core::ptr::null_mut(),
    };
}

/// Whose functions are called for a frame.
#[derive(Clone, Copy)]
pub enum Claimed {
    /// There is no claim: no function is called.
    No,
    /// Those of a plugin that is off, after failures, or that may not be called in this walk: the frames that it would
    /// emit are missing.
    Off,
    /// The functions of this claim.
    By(Claim),
}

/// What an environment says of a frame.
pub struct Look {
    /// The rule that leads to the caller, or the reason why there is none.
    pub rule: Packed,
    /// The second word of the frame ([`crate::frame::window_identity`]), if it lies in a window.
    pub window: Option<u64>,
    /// Whose functions are called for it.
    pub claim: Claimed,
    /// There is no rule but one that [`Env::guess`] may find, which is asked only if no function steps the frame.
    pub unguessed: bool,
    /// The frame lies in no object, and its rule was made from its machine code.
    pub by_code: bool,
}

impl Look {
    /// At a frame that has a rule only: it lies in no window, and there is no claim.
    #[inline(always)]
    pub fn at(rule: Packed) -> Look {
        Look { rule, window: None, claim: Claimed::No, unguessed: false, by_code: false }
    }
}

/// The environment of a walk. All functions are called inside signal handlers. Without plugins, only [`Env::rule`]
/// is needed.
///
/// ```
/// # #[cfg(target_arch = "x86_64")] {
/// use uunwind_core::cursor::Cursor;
/// use uunwind_core::frame::{frames, Frame};
/// use uunwind_core::memory::{Reader, Region};
/// use uunwind_core::regs::{Regs, RSP};
/// use uunwind_core::rule::{Packed, Rule};
/// use uunwind_core::stop_reason::StopReason;
/// use uunwind_core::walk::{walk, Env, Names, Replay, Setting};
///
/// /// Below 0x1000 lie functions without frames, and above it the outermost one.
/// struct Rules;
/// impl Names for Rules {}
/// impl Replay for Rules {}
/// impl Env for Rules {
///     fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
///         if cursor.lookup_pc() < 0x1000 { Rule::simple(RSP, 8).pack() } else { Rule::end().pack() }
///     }
/// }
///
/// let stack: Vec<u8> = [0x200u64, 0x2000].iter().flat_map(|word| word.to_le_bytes()).collect();
/// let regions = [Region { address: 0x7000_0000, bytes: &stack }];
/// let leaf = Cursor { regs: Regs::new(0x100, 0x7000_0000, 0), exact: true };
/// let mut words = [0; 16];
/// // SAFETY: without scratch memory, no plugin is called; the other pointers are null.
/// let outcome = unsafe { walk(leaf, &mut Rules, &mut Reader::recorded(&regions), &mut words, &Setting::EMPTY) };
///
/// assert_eq!(outcome.stop, StopReason::Complete);
/// let pcs: Vec<u64> = frames(&words[..outcome.words])
///     .map(|frame| if let Frame::Native { address, .. } = frame { address } else { 0 })
///     .collect();
/// assert_eq!(pcs, [0x100, 0x200, 0x2000]);
/// # }
/// ```
pub trait Env: Names + Replay {
    /// The rule that leads from the frame to its caller, or the reason why there is none.
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed;
    /// All that is known of the frame, its rule included.
    #[inline(always)]
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        Look::at(self.rule(cursor, reader))
    }
    /// The rule of a frame with [`Look::unguessed`]: by the code and the words of the stack around it, which takes
    /// long.
    fn guess(&mut self, _cursor: &Cursor, _reader: &mut Reader<'_>) -> Packed {
        Packed::failed(StopReason::NoOwner)
    }
    /// The rule for a return address, looked up at `lookup` (the return address - 1), if it is short and cached, and no
    /// plugin overlays its object. This is the fastest way. `None` is always a valid result.
    #[inline(always)]
    fn short_rule_cached(&self, _lookup: u64) -> Option<Short> {
        None
    }
    /// Whether [`Env::short_rule_cached`] is worth a question about this address.
    #[inline(always)]
    fn may_have_short_rule(&self, _lookup: u64, _reader: &Reader<'_>) -> bool {
        true
    }
    /// Says that the rules of return addresses among the stack's next words, at `sp`, will be looked up soon.
    #[inline(always)]
    fn prefetch_short_rules(&self, _sp: u64, _bare: impl StackWords) {}
    /// As [`Env::short_rule_cached`], where that had no rule: looks up the object at `lookup` if necessary, and caches
    /// the rule. `None` is always a valid result.
    fn short_rule(&mut self, _lookup: u64, _reader: &mut Reader<'_>) -> Option<Short> {
        None
    }
    /// Replaces the claim of a plugin that left its frame to others by that of the next one that may step it. False:
    /// there is none. In place, since a handler's stack is short.
    fn next_claim(&mut self, _left: &mut Claim) -> bool {
        false
    }
    /// The unwind range of the function of a claimed frame (process addresses); empty if it is not available.
    fn function(&mut self, _claim: &Claim, _cursor: &Cursor, _reader: &mut Reader<'_>) -> Span {
        Span::EMPTY
    }
    /// The unwind range of the function of an object that covers a process address, as process addresses. `None`: there
    /// is none, or it is not known.
    fn function_at(&mut self, _address: u64, _reader: &mut Reader<'_>) -> Option<Span> {
        None
    }
    /// The object or window that covers a process address.
    fn owner(&mut self, _address: u64, _reader: &mut Reader<'_>) -> Owner {
        Owner::NONE
    }
    /// Whether the stack pointer `sp` lies in the stack that the walked thread was started on, and not in one that the
    /// program made for itself. False: it does not, or it is not known.
    fn is_on_own_stack(&mut self, _sp: u64, _thread_pointer: u64, _reader: &mut Reader<'_>) -> bool {
        false
    }
    /// The alternate signal stack of the walked thread, of a walk that begins with no ucontext: its start and size,
    /// both 0 if there is none. `None`: it is not known.
    fn alternate_stack(&self) -> Option<(u64, u64)> {
        None
    }
    /// Moves the cursor from a frame whose rule fails with [`StopReason::StackInTransit`], since an exception is
    /// delivered there, to one of the two frames that are its caller ([`Delivery`]). False: that one is not known; the
    /// cursor is as it was.
    fn deliver(&mut self, _to: Delivery, _cursor: &mut Cursor, _reader: &mut Reader<'_>) -> bool {
        false
    }
    /// How the functions of the plugin with this index (0: of a window) are called, so that the walk survives their
    /// failures.
    fn protector(&self, _plugin: u8) -> Protector {
        Protector::none()
    }
    /// A call of the claim's functions failed and was abandoned.
    fn failed(&mut self, _claim: &Claim, _reason: StopReason) {}
    /// A plugin learned something, so that its answers may differ from now on.
    fn learned(&mut self) {}
}

/// The names of code objects, which frames of languages refer to by their ids.
pub trait Names {
    /// Whether frames of languages are kept. Where they are not, what plugins and windows' functions emit is dropped.
    fn keeps_semantic_frames(&self) -> bool {
        true
    }
    /// Whether frames that await those of the stack are wanted ([`crate::plugin::WANT_AWAITING`]): the same in all
    /// walks of a recording.
    fn wants_awaiting(&self) -> bool {
        false
    }
    /// Name id of a code object seen before; 0 if it was not.
    fn find_name(&mut self, _plugin: u8, _code: u64, _fingerprint: u64) -> u32 {
        0
    }
    /// Stores what names a code object; 0 if there is no room.
    fn describe(&mut self, _plugin: u8, _description: &Description, _reader: &mut Reader<'_>) -> u32 {
        0
    }
}

/// What a walk's result depends on besides words of memory: what a later walk compares before it takes over a part of
/// this one.
pub trait Replay {
    /// Everything that the answers of this environment depend on besides the pc and what is read through the reader,
    /// but for what [`Replay::depends_on`] lists: while it stays the same, so do they.
    fn stamp(&self) -> u64 {
        0
    }
    /// The windows and objects that this walk depends on. `None`: a repetition may have another result, for no reason
    /// that could be compared. The walk met an unowned address, or more objects than fit, or something is still to
    /// come, such as an object's facts.
    fn depends_on(&self) -> Option<DependsOn<'_>> {
        Some(DependsOn { windows: 0, objects: &[] })
    }
    /// Whether windows are still as [`DependsOn::windows`] says.
    fn windows_hold(&self, _stamp: u64) -> bool {
        true
    }
    /// Whether such an object is still there.
    fn confirm(&mut self, _object: u64, _reader: &mut Reader<'_>) -> bool {
        true
    }
}

/// See [`Replay::depends_on`].
pub struct DependsOn<'e> {
    /// The validity epoch of the windows, as far as the walk depends on them; 0 if it does not.
    pub windows: u64,
    /// Objects that the walk met and that may go away, by a number that is not 0.
    pub objects: &'e [u64],
}
