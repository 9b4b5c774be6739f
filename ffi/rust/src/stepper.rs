//! Steppers in Rust: a window in which a value moves a walk from frame to frame.

use crate::unwinder::{Callbacks, Function, Registered};
use std::ffi::c_void;
use uunwind_core::plugin::guest::{visit, Guest};
use uunwind_core::plugin::{Caller, View, STEP_DONE, STEP_END, STEP_LOST, STEP_OTHER_STACK};
use uunwind_core::regs::SP;

/// Moves walks from a frame of a window to its caller, for code that no rule describes: where a runtime keeps return
/// addresses elsewhere, or switches stacks (`step` of `struct uu_window` in `uu.h`). Where a
/// [`Rule`](crate::Rule) can say it, an [`Unwinder`](crate::Unwinder) is faster. See
/// [`Window::stepped_freely`](crate::Window::stepped_freely).
///
/// ```
/// use uunwind::{Cursor, Function, Stepped, Stepper, Window};
///
/// /// Code that keeps the frame pointer in every function.
/// struct Chain;
///
/// // SAFETY: it computes, and reads by the cursor; it neither panics, allocates nor locks.
/// unsafe impl Stepper for Chain {
///     fn step(&self, frame: &mut Cursor<'_>) -> Stepped {
///         const RBP: u8 = 6; // DWARF's number
///         let Some(at) = frame.register(RBP) else { return Stepped::Lost };
///         let words = (frame.word(at), frame.word(at.wrapping_add(8)));
///         let (Some(outer), Some(pc)) = words else { return Stepped::Lost };
///         frame.set(RBP, outer);
///         Stepped::Caller { pc, stack_pointer: at.wrapping_add(16) }
///     }
///     fn name(&self, _: u64) -> Option<Function<'_>> {
///         Some(Function { name: "stub", start: 0 })
///     }
/// }
///
/// let code = vec![0xc3; 64]; // (The code of a JIT lies in memory that is executable.)
/// let window = Window::stepped_freely(code, Chain).register()?;
/// drop(window); // it is not registered any more, and no walk is inside the stepper
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Safety
/// As for an [`Unwinder`](crate::Unwinder): walks call these functions in signal handlers, on any thread, at any
/// instruction of the program.
pub unsafe trait Stepper: Send + Sync + 'static {
    /// The caller of this frame. The answer must follow from the frame, from what the cursor reads, and from what does
    /// not change while the window is registered: a walk takes over what an earlier one has found.
    fn step(&self, frame: &mut Cursor<'_>) -> Stepped;

    /// The function at a distance in bytes from the code's first byte; `None`: it has no name.
    fn name(&self, offset: u64) -> Option<Function<'_>> {
        let _ = offset;
        None
    }
}

/// Where a [`Stepper`] has found the caller of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// On the same stack, nearer its base.
    Caller {
        /// Its return address: the process address after the call.
        pc: u64,
        /// Its stack pointer after the return, a multiple of 8.
        stack_pointer: u64,
    },
    /// On another stack, at any address.
    OtherStack {
        /// As above.
        pc: u64,
        /// As above.
        stack_pointer: u64,
    },
    /// Nowhere: this is the outermost frame.
    End,
    /// It is not known. The walk ends here, with that reason.
    Lost,
}

/// A frame of a window, as its [`Stepper`] sees it.
pub struct Cursor<'w> {
    guest: &'w Guest<'w>,
    /// Process address of the code's first byte.
    text: u64,
    caller: &'w mut Caller,
}

impl Cursor<'_> {
    /// Distance in bytes from the code's first byte of the interrupted instruction, or of the last byte of the call
    /// before the return address ([`is_exact`](Cursor::is_exact)).
    pub fn offset(&self) -> u64 {
        self.guest.lookup_pc().wrapping_sub(self.text)
    }

    /// Whether the frame stands at an interrupted instruction; otherwise it has made a call.
    pub fn is_exact(&self) -> bool {
        self.guest.exact()
    }

    /// Its stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.guest.view().sp
    }

    /// The value of a general register, by its DWARF number, in this frame; `None`: it is lost, or there is no such
    /// register.
    pub fn register(&self, number: u8) -> Option<u64> {
        self.guest.register(number)
    }

    /// The word of 8 bytes at a process address; `None`: it cannot be read.
    pub fn word(&self, address: u64) -> Option<u64> {
        self.guest.word(address)
    }

    /// Says that the caller's register, by its DWARF number, has this value. What is not said is as in this frame. The
    /// stack pointer is said by [`Stepped`].
    pub fn set(&mut self, number: u8, value: u64) {
        if let Some(register) = self.caller.registers.get_mut(usize::from(number)) {
            *register = value;
            self.caller.known |= 1 << number;
            self.guest.restored(number);
        }
    }

    /// Says that the caller's register, by its DWARF number, is lost.
    pub fn lose(&mut self, number: u8) {
        if usize::from(number) < self.caller.registers.len() {
            self.caller.known &= !(1 << number);
            self.guest.restored(number);
        }
    }

    fn moved(&mut self, pc: u64, stack_pointer: u64) -> u32 {
        (self.caller.pc, self.caller.exact) = (pc, 0);
        self.set(SP, stack_pointer);
        STEP_DONE
    }
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("offset", &self.offset()).finish_non_exhaustive()
    }
}

impl Callbacks {
    /// For code at `text`.
    pub fn stepping<S: Stepper>(text: u64, stepper: S) -> Callbacks {
        Callbacks::with(Registered { text, value: stepper }, None, Some(step::<S>), name::<S>)
    }
}

/// # Safety
/// `view` must be what the library passes, of a window whose user is a live [`Registered`] of this type.
unsafe extern "C" fn step<S: Stepper>(view: *mut View) -> u32 {
    let step = |guest: &Guest<'_>| {
        // SAFETY: the caller's promise; it is shared with walks on other threads, as `S: Sync` allows.
        let Some(registered) = (unsafe { guest.view().user.cast::<Registered<S>>().as_ref() }) else {
            return STEP_LOST;
        };
        let Some(caller) = guest.caller() else { return STEP_LOST };
        let mut cursor = Cursor { guest, text: registered.text, caller };
        match registered.value.step(&mut cursor) {
            Stepped::Caller { pc, stack_pointer } => cursor.moved(pc, stack_pointer),
            Stepped::OtherStack { pc, stack_pointer } => cursor.moved(pc, stack_pointer) | STEP_OTHER_STACK,
            Stepped::End => STEP_END,
            Stepped::Lost => STEP_LOST,
        }
    };
    // SAFETY: the caller's promise.
    unsafe { visit(view, STEP_LOST, step) }
}

/// # Safety
/// As for [`Registered::write_name`].
unsafe extern "C" fn name<S: Stepper>(
    user: *mut c_void,
    pc: u64,
    buffer: *mut u8,
    room: usize,
    start: *mut u64,
) -> usize {
    // SAFETY: the caller's.
    unsafe { Registered::<S>::write_name(user, pc, (buffer, room), start, S::name) }
}
