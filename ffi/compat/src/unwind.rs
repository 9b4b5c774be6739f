//! `_Unwind_Backtrace` of the unwinder's interface
//! ([level I](https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html)), and the functions by which its callbacks look at
//! a frame. They are those of personality routines, too, which pass contexts of the unwinder's own: these go on to it.

use crate::library::library;
use crate::next::Next;
use crate::part::Part;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::caller::Caller;
use uunwind_core::entry_with_caller;
use uunwind_core::regs::RA;
use uunwind_core::steps::{Step, EXACT, WINDOW};
use uunwind_core::stop_reason::StopReason;

/// `_Unwind_Reason_Code` (unwind.h).
const NO_REASON: c_int = 0;
const FATAL_PHASE1_ERROR: c_int = 3;
const END_OF_STACK: c_int = 5;

/// `_Unwind_Trace_Fn`. It may throw: the frames of this object that the exception passes have unwind data, and nothing
/// to clean up. (`C-unwind` would need a personality routine, which no signal object has.)
type Trace = unsafe extern "C" fn(*const Context, *mut c_void) -> c_int;

/// What a context of this object begins with. Those of other unwinders begin with addresses, or with the values of
/// registers: neither word is an address.
const MARK: u64 = u64::from_le_bytes(*b"uu frame");

/// A frame, for a callback. Other unwinders' contexts are larger than its first two words.
#[repr(C)]
pub struct Context {
    mark: u64,
    /// [`MARK`] exclusive-or its own address: a copy elsewhere is none.
    own: u64,
    here: Step,
    part: *mut Part,
}

/// The context, if it is of this object.
///
/// # Safety
/// It must be a context of some unwinder.
unsafe fn ours<'c>(context: *const Context) -> Option<&'c Context> {
    // SAFETY: the first two words of any context are readable.
    let (mark, own) = unsafe { ((&raw const (*context).mark).read(), (&raw const (*context).own).read()) };
    let is_ours = mark == MARK && own == MARK ^ context.addr() as u64;
    // SAFETY: a context of this object, whose callback runs.
    is_ours.then(|| unsafe { &*context })
}

static BACKTRACE: Next = Next::of(c"_Unwind_Backtrace");
static FUNCTION: Next = Next::of(c"_Unwind_FindEnclosingFunction");
/// Where `_Unwind_Backtrace` goes on to, if not to the library; null: nowhere else.
static ELSEWHERE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// To be called when it is clear whether there is a library.
pub fn begin(with_library: bool) {
    FUNCTION.get();
    for next in ACCESSORS {
        next.get();
    }
    // Contexts of this object may only reach its own functions.
    if !with_library || ACCESSORS.iter().any(|next| next.is_defined_before()) {
        ELSEWHERE.store(BACKTRACE.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
    }
}

entry_with_caller! {
    /// See [`self`].
    ///
    /// # Safety
    /// `trace` must be callable with `argument`.
    #[cfg_attr(not(test), no_mangle)]
    #[allow(non_snake_case, reason = "a C symbol")]
    _Unwind_Backtrace(trace: Trace, argument: *mut c_void) -> c_int = traced, ELSEWHERE
}

/// # Safety
/// As `_Unwind_Backtrace`; `caller` must be the entry's registers.
unsafe extern "C" fn traced(trace: Trace, argument: *mut c_void, caller: *const Caller) -> c_int {
    let Some(library) = library() else {
        let Some(next) = BACKTRACE.get() else { return FATAL_PHASE1_ERROR };
        // SAFETY: the same function of another unwinder, with the caller's arguments.
        return unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(Trace, *mut c_void) -> c_int>(next)(
                trace, argument,
            )
        };
    };
    // SAFETY: the entry's registers.
    let mut part = Part::new(&unsafe { &*caller }.regs(), 0);
    if part.begin(library).is_err() {
        // The thread is inside the sampler's walk, or there are too many threads.
        return FATAL_PHASE1_ERROR;
    }
    loop {
        // SAFETY: the caller's function and argument.
        if unsafe { shown(part.here(), &mut part, trace, argument) } != NO_REASON {
            return FATAL_PHASE1_ERROR;
        }
        let Err(stop) = part.step(library) else { continue };
        // As libgcc does, which shows the caller that the outermost frame lacks.
        let outermost = Step { pc: 0, flags: 0, ..part.here() };
        // SAFETY: as above.
        if stop == StopReason::Complete && unsafe { shown(outermost, &mut part, trace, argument) } != NO_REASON {
            return FATAL_PHASE1_ERROR;
        }
        return END_OF_STACK;
    }
}

/// Calls the callback for a frame.
///
/// # Safety
/// As `_Unwind_Backtrace`.
unsafe fn shown(here: Step, part: &mut Part, trace: Trace, argument: *mut c_void) -> c_int {
    let mut context = Context { mark: MARK, own: 0, here, part };
    context.own = MARK ^ core::ptr::from_ref(&context).addr() as u64;
    // SAFETY: passed on.
    let answer = unsafe { trace(&raw const context, argument) };
    // What lies here later is no context.
    // SAFETY: a field of ours.
    unsafe { (&raw mut context.mark).write_volatile(0) };
    answer
}

/// What a callback asks about a context: of this object `$ours`, else the next definition's answer.
macro_rules! accessors {
    ($($(#[$attribute:meta])* $name:ident, $text:literal, $next:ident ($($argument:ident: $type:ty),*) $(-> $result:ty)?
        = $ours:expr;)*) => {
        $(
            static $next: Next = Next::of($text);

            $(#[$attribute])*
            ///
            /// # Safety
            /// `context` must be a context of some unwinder.
            #[cfg_attr(not(test), no_mangle)]
            #[allow(non_snake_case, reason = "a C symbol")]
            pub unsafe extern "C" fn $name(context: *const Context $(, $argument: $type)*) $(-> $result)? {
                // SAFETY: the caller's.
                if let Some(context) = unsafe { ours(context) } {
                    let answer: fn(&Context $(, $type)*) $(-> $result)? = $ours;
                    return answer(context $(, $argument)*);
                }
                let Some(next) = $next.get() else { return Default::default() };
                // SAFETY: a function of this type (unwind.h), and a context that is not of this object.
                unsafe {
                    let next = core::mem::transmute::<
                        *mut c_void, unsafe extern "C" fn(*const Context $(, $type)*) $(-> $result)?>(next);
                    next(context $(, $argument)*)
                }
            }
        )*

        /// All of them.
        static ACCESSORS: &[&Next] = &[$(&$next),*];
    };
}

accessors! {
    /// The frame's address: a return address, or an interrupted instruction.
    _Unwind_GetIP, c"_Unwind_GetIP", GET_IP() -> usize = |context| context.here.pc as usize;
    /// The same; and whether it is an interrupted instruction.
    _Unwind_GetIPInfo, c"_Unwind_GetIPInfo", GET_IP_INFO(before: *mut c_int) -> usize = |context, before| {
        if !before.is_null() {
            // SAFETY: the caller has room for an int.
            unsafe { before.write((context.here.flags & EXACT != 0).into()) };
        }
        context.here.pc as usize
    };
    /// The stack pointer in the frame, after its callee has returned: the CFA of that.
    _Unwind_GetCFA, c"_Unwind_GetCFA", GET_CFA() -> usize = |context| {
        // SAFETY: the part is that of the walk whose callback runs.
        let part = unsafe { context.part.as_mut() };
        part.zip(library()).map_or(0, |(part, library)| part.sp(library)) as usize
    };
    /// A register by its DWARF number; 0: its value is not known.
    _Unwind_GetGR, c"_Unwind_GetGR", GET_GR(register: c_int) -> usize = |context, register| {
        if register == c_int::from(RA) {
            return context.here.pc as usize;
        }
        let Ok(register) = u8::try_from(register) else { return 0 };
        // SAFETY: the part is that of the walk whose callback runs.
        let registers = unsafe { context.part.as_ref() }.zip(library()).and_then(|(part, l)| part.registers(l));
        registers.and_then(|registers| registers.get(register)).unwrap_or(0) as usize
    };
    /// Where the function begins, by the unwinder's own search; 0: not known.
    _Unwind_GetRegionStart, c"_Unwind_GetRegionStart", GET_REGION_START() -> usize = |context| {
        let here = context.here;
        let Some(next) = FUNCTION.get().filter(|_| here.flags & WINDOW == 0) else { return 0 };
        // It looks before the address that it gets, as is right for return addresses.
        let address = here.pc.wrapping_add(u64::from(here.flags & EXACT != 0));
        // SAFETY: `void *_Unwind_FindEnclosingFunction(void *)` (unwind.h).
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> usize>(next)(address as usize) }
    };
    /// For personality routines, which no walk calls: 0.
    _Unwind_GetLanguageSpecificData, c"_Unwind_GetLanguageSpecificData", GET_LSDA() -> usize = |_| 0;
    /// As above.
    _Unwind_GetDataRelBase, c"_Unwind_GetDataRelBase", GET_DATA_BASE() -> usize = |_| 0;
    /// As above.
    _Unwind_GetTextRelBase, c"_Unwind_GetTextRelBase", GET_TEXT_BASE() -> usize = |_| 0;
    /// As above: a walk changes nothing.
    _Unwind_SetGR, c"_Unwind_SetGR", SET_GR(_register: c_int, _value: usize) = |_, _, _| ();
    /// As above.
    _Unwind_SetIP, c"_Unwind_SetIP", SET_IP(_value: usize) = |_, _| ();
}
