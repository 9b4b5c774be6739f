//! Recovery points: a call that can be left after a fault or an endless loop in it, without setjmp.
//!
//! [`call`] stores the stack pointer in the slot, sets `armed` and calls. A fault handler or a nested sampling signal
//! that finds the slot armed rewrites the interrupted context with [`Recovery::redirect`]; after its sigreturn the
//! thread continues after the call, with a reason. Within such a call, a call of foreign code has a recovery point of
//! its own ([`Protector::call`]): a failure there costs that call only.

use crate::regs::{UCONTEXT_PC, UCONTEXT_SP};
use crate::span::Span;
use crate::stop_reason::StopReason;
use core::sync::atomic::{AtomicU64, Ordering};

/// Limit of the stack that a protected call may use, in bytes, two signal frames included.
const DEPTH: u64 = 64 * 1024;

/// State of one thread's recovery point. Only its own thread uses it.
#[repr(C)]
#[derive(Debug)]
pub struct Recovery {
    sp: AtomicU64,
    armed: AtomicU64,
    reason: AtomicU64,
    /// Text range of the foreign object that is being called: a fault there belongs to the call, whatever the stack
    /// pointer is.
    text: AtomicU64,
    text_len: AtomicU64,
    /// The call's return value. Stored by the assembly, because foreign code may return with every register destroyed.
    answer: AtomicU64,
}

#[cfg_attr(target_arch = "x86_64", path = "recovery/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "recovery/aarch64.rs")]
mod cpu;

extern "C" {
    fn uu_protected_call(recovery: &Recovery, call: &Call) -> u64;
    static uu_protected_recover: u8;
    fn uu_protected_abandon(sp: u64) -> !;
}

/// A function and its arguments, as words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    function: usize,
    arguments: [u64; 5],
}

impl Call {
    /// A call of the function at this address with these first arguments. Arguments that the function does not take are
    /// ignored.
    pub fn new<const N: usize>(function: usize, arguments: [u64; N]) -> Call {
        let mut call = Call { function, arguments: [0; 5] };
        for (to, from) in call.arguments.iter_mut().zip(arguments) {
            *to = from;
        }
        call
    }
}

const _: () = assert!(core::mem::size_of::<Call>() == 48 && core::mem::offset_of!(Recovery, answer) == 40);

/// Calls. `Ok(answer)` if the function returned; `answer` is its result register, of which only the part that the
/// function's type defines is valid. `Err(reason)` if [`Recovery::redirect`] left the call.
///
/// # Safety
/// The function must have the C ABI and take such arguments in integer registers. It may be left at any instruction: it
/// must hold no lock and leave nothing half done that other code relies on. `recovery` must belong to the calling
/// thread and not be armed.
pub unsafe fn call(recovery: &Recovery, call: &Call) -> Result<u64, u64> {
    // SAFETY: the caller's contract; the assembly keeps the callee-saved registers of the System V ABI.
    match unsafe { uu_protected_call(recovery, call) } {
        0 => Ok(recovery.answer.load(Ordering::Relaxed)),
        reason => Err(reason),
    }
}

impl Recovery {
    /// A recovery point that is not armed.
    pub const fn new() -> Recovery {
        Recovery {
            sp: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            reason: AtomicU64::new(0),
            text: AtomicU64::new(0),
            text_len: AtomicU64::new(0),
            answer: AtomicU64::new(0),
        }
    }

    /// Whether a protected call is in progress on this thread.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// Forgets a call that was left in another way.
    pub fn disarm(&self) {
        self.armed.store(0, Ordering::Relaxed);
        self.text_len.store(0, Ordering::Relaxed);
    }

    /// Text of the foreign object that is being called; empty if none is, or if it is not available.
    pub fn called_text(&self) -> Span {
        let start = self.text.load(Ordering::Relaxed);
        match self.text_len.load(Ordering::Relaxed) {
            0 => Span::EMPTY,
            len => Span::new(start, start.wrapping_add(len)),
        }
    }

    /// Whether a stack pointer of this thread lies where that of the call in progress may lie.
    pub fn is_near(&self, sp: u64) -> bool {
        self.is_armed() && self.sp.load(Ordering::Relaxed).wrapping_sub(sp) <= DEPTH
    }

    /// Whether the interrupted code is the foreign code that is being called, or code that it calls: then its stack
    /// pointer may have any value.
    ///
    /// # Safety
    /// As for [`Recovery::redirect`].
    unsafe fn is_in_foreign(&self, ucontext: *const u8, is_host: impl FnOnce(u64) -> bool) -> bool {
        // SAFETY: the caller guarantees the context; the register lies in it.
        let pc = unsafe { ucontext.add(UCONTEXT_PC as usize).cast::<u64>().read() };
        let distance = pc.wrapping_sub(self.text.load(Ordering::Relaxed));
        let len = self.text_len.load(Ordering::Relaxed);
        self.is_armed() && len != 0 && (distance < len || is_host(pc))
    }

    /// Rewrites an interrupted context so that the thread continues after its protected call, which returns
    /// `Err(reason)`. False, with the context unchanged, if no call is in progress. A call is in progress only while
    /// the stack pointer is below its frame, and not far below: a call that was left in another way (a handler of the
    /// program that interrupted it by a sent signal may call siglongjmp) is forgotten here. `is_host`: whether a pc
    /// lies in the code that foreign code calls for its purposes.
    ///
    /// # Safety
    /// `ucontext` must be the context of a signal that interrupted the calling thread, inside the protected call.
    pub unsafe fn redirect(&self, ucontext: *mut u8, reason: u64, is_host: impl FnOnce(u64) -> bool) -> bool {
        if !self.is_armed() || reason == 0 {
            return false;
        }
        // SAFETY: the caller guarantees the context; the register lies in it.
        let sp = unsafe { ucontext.add(UCONTEXT_SP as usize).cast::<u64>().read() };
        let depth = self.sp.load(Ordering::Relaxed).wrapping_sub(sp);
        // Foreign code may have lost its stack pointer, or used up the whole stack. It runs in walks only.
        // SAFETY: passed on.
        if depth > DEPTH && !unsafe { self.is_in_foreign(ucontext, is_host) } {
            self.disarm();
            return false;
        }
        self.reason.store(reason, Ordering::Relaxed);
        // A failure on the way back must not be redirected again and again.
        self.armed.store(0, Ordering::Relaxed);
        // SAFETY: the caller guarantees the context; both registers lie in it.
        unsafe {
            ucontext.add(UCONTEXT_PC as usize).cast::<u64>().write(&raw const uu_protected_recover as u64);
            ucontext.add(UCONTEXT_SP as usize).cast::<u64>().write(self.sp.load(Ordering::Relaxed));
        }
        true
    }
}

/// Calls foreign code in the middle of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Protector {
    recovery: *const Recovery,
    text: Span,
}

impl Protector {
    /// Plain calls, without a recovery point.
    pub const fn none() -> Protector {
        Protector { recovery: core::ptr::null(), text: Span::EMPTY }
    }

    /// Calls with the recovery point of the calling thread. `text`: the range of the foreign object's code; empty if
    /// it is not available.
    ///
    /// # Safety
    /// Faults and ticks on this thread must reach [`Recovery::redirect`] of this `recovery`, which must outlive the
    /// protector.
    pub unsafe fn new(recovery: &Recovery, text: Span) -> Protector {
        Protector { recovery, text }
    }

    /// As [`call`], also from inside a protected call, which continues unchanged afterwards.
    ///
    /// # Safety
    /// As for [`call`].
    pub unsafe fn call(self, foreign: &Call) -> Result<u64, StopReason> {
        // SAFETY: null, or valid by `new`'s contract.
        let Some(recovery) = (unsafe { self.recovery.as_ref() }) else {
            let [a, b, c, d, e] = foreign.arguments;
            // SAFETY: passed on: a function of the C ABI, which ignores arguments that it does not take.
            return Ok(unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn(u64, u64, u64, u64, u64) -> u64>(foreign.function)(
                    a, b, c, d, e,
                )
            });
        };
        let outer = (recovery.sp.load(Ordering::Relaxed), recovery.armed.load(Ordering::Relaxed));
        recovery.text.store(self.text.start, Ordering::Relaxed);
        recovery.text_len.store(self.text.len(), Ordering::Relaxed);
        // SAFETY: passed on; the outer call's recovery point is saved, and restored below.
        let result = unsafe { call(recovery, foreign) };
        recovery.text_len.store(0, Ordering::Relaxed);
        recovery.sp.store(outer.0, Ordering::Relaxed);
        recovery.armed.store(outer.1, Ordering::Relaxed);
        result.map_err(|reason| StopReason::from_number(reason as u16).unwrap_or(StopReason::Fault))
    }

    /// Leaves the innermost protected call immediately, as a fault would. Returns only if there is none.
    ///
    /// # Safety
    /// The frames between here and the call are dropped without running anything: none may hold a resource.
    pub unsafe fn abandon(self, reason: StopReason) {
        // SAFETY: null, or valid by `new`'s contract.
        let Some(recovery) = (unsafe { self.recovery.as_ref() }).filter(|recovery| recovery.is_armed()) else { return };
        recovery.reason.store(u64::from(reason.number()), Ordering::Relaxed);
        // SAFETY: the stack of the call in progress, which is above this frame.
        unsafe { uu_protected_abandon(recovery.sp.load(Ordering::Relaxed)) }
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_void;

    unsafe extern "C" fn double(x: *mut c_void, more: u64) -> u64 {
        // SAFETY: the test passes a u64.
        unsafe { *x.cast::<u64>() *= 2 };
        more + 1
    }

    #[test]
    fn a_call_that_returns_is_ok_and_disarms() {
        let recovery = Recovery::new();
        let mut x = 21u64;
        let doubling = Call::new(double as *const () as usize, [core::ptr::from_mut(&mut x) as u64, 6]);
        // SAFETY: `double` touches only x.
        let r = unsafe { call(&recovery, &doubling) };
        assert_eq!((r, x, recovery.is_armed()), (Ok(7), 42, false));
        let mut context = [0u8; 1024];
        // SAFETY: not armed, so the context is not touched.
        assert!(!unsafe { recovery.redirect(context.as_mut_ptr(), 1, |_| true) });
        assert!(context.iter().all(|b| *b == 0));
    }

    struct Nest<'a> {
        recovery: &'a Recovery,
        inner: Result<u64, StopReason>,
        went_on: bool,
    }

    unsafe extern "C" fn abandons(argument: *mut c_void) {
        // SAFETY: `nests` passes its structure; nothing here has to be released.
        unsafe {
            Protector::new((*argument.cast::<Nest<'_>>()).recovery, Span::EMPTY).abandon(StopReason::PluginNonsense)
        };
    }

    unsafe extern "C" fn nests(argument: *mut c_void) {
        // SAFETY: the test passes its structure.
        let nest = unsafe { &mut *argument.cast::<Nest<'_>>() };
        // SAFETY: `abandons` holds nothing.
        nest.inner = unsafe {
            Protector::new(nest.recovery, Span::EMPTY)
                .call(&Call::new(abandons as *const () as usize, [argument as u64]))
        };
        nest.went_on = nest.recovery.is_armed();
    }

    /// Returns with every callee-saved register destroyed, and the direction flag set.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    unsafe extern "C" fn destroys() -> u64 {
        core::arch::naked_asm!(
            "xor ebx, ebx",
            "xor ebp, ebp",
            "xor r12, r12",
            "xor r13, r13",
            "xor r14, r14",
            "xor r15, r15",
            "std",
            "mov eax, 77",
            "ret",
        )
    }

    /// Returns with every callee-saved register destroyed, except the return address.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(naked)]
    unsafe extern "C" fn destroys() -> u64 {
        core::arch::naked_asm!(
            "mov x19, xzr",
            "mov x20, xzr",
            "mov x21, xzr",
            "mov x22, xzr",
            "mov x23, xzr",
            "mov x24, xzr",
            "mov x25, xzr",
            "mov x26, xzr",
            "mov x27, xzr",
            "mov x28, xzr",
            "mov x29, xzr",
            "fmov d8, xzr",
            "fmov d15, xzr",
            "mov x0, #77",
            "ret",
        )
    }

    #[test]
    fn registers_are_restored_after_a_call() {
        let recovery = Recovery::new();
        let words: Vec<u64> = (0..100).collect();
        // SAFETY: it changes only registers.
        let result = unsafe { call(&recovery, &Call::new(destroys as *const () as usize, [])) };
        assert_eq!(result, Ok(77));
        // With the direction flag set, a copy would run backwards.
        assert_eq!(words.clone(), words);
    }

    #[test]
    fn a_call_within_a_call_is_left_alone() {
        let recovery = Recovery::new();
        let mut nest = Nest { recovery: &recovery, inner: Ok(0), went_on: false };
        let nesting = Call::new(nests as *const () as usize, [core::ptr::from_mut(&mut nest) as u64]);
        // SAFETY: both functions touch only the structure.
        let outer = unsafe { call(&recovery, &nesting) };
        assert_eq!((outer.is_ok(), nest.inner), (true, Err(StopReason::PluginNonsense)));
        assert!(nest.went_on, "the outer call continues, protected");
        assert!(!recovery.is_armed());
    }
}
