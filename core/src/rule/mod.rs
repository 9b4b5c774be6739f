//! A rule: data that describes how to get from a frame to its caller.
//!
//! All native sources (eh_frame, SFrame, frame pointers, JIT tables) answer with rules. A rule is a pure function of
//! the pc, so the core caches it, and executes it here, in one place. Each CPU has its own rules, since each has its
//! own callee-saved registers and its own way to keep a return address; the walk uses only what they have in common.

pub mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

use crate::stop_reason::StopReason;

crate::numbered! {
    /// How the CFA, and with it the caller, is found.
    pub enum RuleKind: u8 {
        /// CFA = register + offset.
        Offset = 0;
        /// CFA = the word at register + offset, plus `cfa_addend` (realigned stacks). x86-64 only.
        Deref = 1;
        /// A signal frame: a ucontext lies at register + offset.
        Signal = 2;
        /// The outermost frame: its return address is undefined.
        End = 3;
    }
}

/// Whether the reason in a failed rule is final: it is one of those for code whose unwind data must not be used, since
/// the rule table describes the code better than that data does.
pub fn is_final(rule: Packed) -> bool {
    rule.failed_for(StopReason::SwitchedStack) || rule.failed_for(StopReason::StackInTransit)
}

/// A slot that leaves its register unchanged.
pub const SAME: i16 = i16::MAX;
/// A slot whose register is unknown in the caller.
pub const UNKNOWN: i16 = i16::MIN;
/// [`Rule::flags`]: the return address is in the register whose number is in its slot.
pub const RA_IN_REGISTER: u8 = 1;
/// [`Rule::flags`]: the rule is the frame-pointer rule, used for lack of unwind information.
pub const BY_FRAME_POINTER: u8 = 2;
/// [`Rule::flags`]: the rule follows a frame pointer, and words of the stack that it passes by look like the return
/// addresses of callers. Depends on registers and memory: such a rule is never cached.
pub const DOUBTFUL: u8 = 16;
