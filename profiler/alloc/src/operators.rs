//! Operators new and delete of C++, where they are an allocator's own: those of jemalloc, tcmalloc and mimalloc, and of
//! a library that keeps a pool, do not call malloc by its name, so that nothing of them would be seen. Those of the C++
//! runtime do: they are only passed on, by a jump.
//!
//! The real operators are called as the program calls them, the throwing ones, too: the frame between is one of
//! assembly that an exception passes, and whose personality routine ends what the call has begun.
//!
//! A program of C has none of them, and may load several libraries that each have their own: a definition of ours would
//! stand before all of these. So where none comes after ours when the process begins, ours is taken out of the symbol
//! table.

use crate::counted::{counted, forgotten};
use crate::cpu;
use crate::interpose::{free, malloc, memalign};
use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};
use uunwind_core::loaded::PhdrInfo;
use uunwind_core::syscall::{self, nr};
use uunwind_preload::events;

/// Bytes of a page. Where they are larger, nothing is withdrawn.
const PAGE: u64 = 4096;

/// What an operator does.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    New,
    NewAligned,
    Delete,
}

/// An operator. The functions in assembly know where its first two words are.
#[repr(C)]
pub struct Operator {
    /// Where a call goes on: at [`look`], at the real one, or at what counts it.
    next: AtomicPtr<c_void>,
    /// The real one; null: it was not looked for, or there is none.
    real: AtomicPtr<c_void>,
    name: &'static CStr,
    kind: Kind,
}

const _: () = assert!(core::mem::offset_of!(Operator, next) == 0 && core::mem::offset_of!(Operator, real) == 8);

/// Declares all operators, each with the function that stands before it.
macro_rules! operators {
    ($($index:literal $name:ident $kind:ident)*) => {
        static ALL: [Operator; 20] = [$(Operator {
            next: AtomicPtr::new(look as *mut c_void),
            real: AtomicPtr::new(core::ptr::null_mut()),
            // It has no other NUL.
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            kind: Kind::$kind,
        }),*];
        $(
            /// The interposed operator with this name.
            ///
            /// # Safety
            /// As the real one.
            #[allow(non_snake_case, reason = "the name of a function of C++")]
            #[cfg_attr(panic = "abort", no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                cpu::enter!(ALL, $index)
            }
        )*
    };
}

operators! {
    0 _Znwm New
    1 _Znam New
    2 _ZnwmRKSt9nothrow_t New
    3 _ZnamRKSt9nothrow_t New
    4 _ZnwmSt11align_val_t NewAligned
    5 _ZnamSt11align_val_t NewAligned
    6 _ZnwmSt11align_val_tRKSt9nothrow_t NewAligned
    7 _ZnamSt11align_val_tRKSt9nothrow_t NewAligned
    8 _ZdlPv Delete
    9 _ZdaPv Delete
    10 _ZdlPvm Delete
    11 _ZdaPvm Delete
    12 _ZdlPvRKSt9nothrow_t Delete
    13 _ZdaPvRKSt9nothrow_t Delete
    14 _ZdlPvSt11align_val_t Delete
    15 _ZdaPvSt11align_val_t Delete
    16 _ZdlPvmSt11align_val_t Delete
    17 _ZdaPvmSt11align_val_t Delete
    18 _ZdlPvSt11align_val_tRKSt9nothrow_t Delete
    19 _ZdaPvSt11align_val_tRKSt9nothrow_t Delete
}

/// Bytes of an operator, of which the assembly asks for the one with an index.
pub(crate) const BYTES: usize = core::mem::size_of::<Operator>();

/// The real ones are looked for here, as the search is none for handlers. A constructor that runs before this one may
/// call an operator all the same.
#[cfg(panic = "abort")]
#[used]
#[link_section = ".init_array"]
static FIND: extern "C" fn() = find_all;

#[cfg_attr(panic = "unwind", allow(dead_code, reason = "the constructor's"))]
extern "C" fn find_all() {
    ALL.iter().for_each(|operator| _ = find(operator));
    withdraw();
}

/// The definition of an operator after ours, and whether it is one that calls malloc: that of a C++ runtime, which
/// defines what throws exceptions, too, but no malloc.
fn next_of(name: &'static CStr) -> Option<(*mut c_void, bool)> {
    let real = events::address_of_next(name);
    let calls_malloc = |object: &PhdrInfo| {
        // SAFETY: the loader's structure, during its iteration.
        let dynamic = unsafe { object.covers(real as u64).then(|| object.dynamic()) }?;
        Some(dynamic.symbol(c"__cxa_throw").is_some() && dynamic.symbol(c"malloc").is_none())
    };
    let calls_malloc = if real.is_null() { None } else { events::of_loaded(calls_malloc) };
    calls_malloc.map(|calls_malloc| (real, calls_malloc))
}

/// Takes our definitions of operators that no object defines after ours out of this object's symbol table, so that
/// nobody finds them from now on. If the page cannot be written, they stay, and call what comes after ours first.
fn withdraw() {
    const READ: i32 = libc::PROT_READ;
    // SAFETY: the loader's structure, during its iteration.
    let own = |object: &PhdrInfo| unsafe { object.covers((&raw const ALL) as u64).then(|| object.dynamic()) };
    let Some(own) = events::of_loaded(own) else { return };
    let lacking = || ALL.iter().filter(|operator| operator.real.load(Ordering::Relaxed).is_null());
    let places = || lacking().filter_map(|operator| own.definition(operator.name));
    let range = |(first, end): (u64, u64), (value, section): (u64, u64)| {
        (first.min(value.min(section) & !(PAGE - 1)), end.max((value.max(section) | (PAGE - 1)) + 1))
    };
    let (first, end) = places().fold((u64::MAX, 0), range);
    let protect = |rights: i32| {
        let arguments = [first as usize, (end - first) as usize, rights as usize, 0, 0, 0];
        // SAFETY: pages of this object, in which symbols lie and no code, so that nobody runs there meanwhile.
        unsafe { syscall::call(nr::MPROTECT, arguments) == 0 }
    };
    if end == 0 || !protect(READ | libc::PROT_WRITE) {
        return;
    }
    for (value, section) in places() {
        // SAFETY: the two fields of an entry, which others only read. One without a value is passed over, whatever its
        // section, so that no state between is wrong.
        unsafe {
            (*(value as *const AtomicU64)).store(0, Ordering::Release);
            (*(section as *const AtomicU16)).store(0, Ordering::Release);
        }
    }
    // As it was; where changed pages may not be executed, read-only.
    let _ = protect(READ | libc::PROT_EXEC) || protect(READ);
}

/// Looks for the real operator; returns where its calls go on.
extern "C" fn find(operator: &Operator) -> *const c_void {
    let is_new = operator.kind != Kind::Delete;
    let Some((real, calls_malloc)) = next_of(operator.name) else {
        return match operator.kind {
            Kind::New => lacks_new as *const c_void,
            Kind::NewAligned => lacks_aligned_new as *const c_void,
            Kind::Delete => free as *const c_void,
        };
    };
    let next = match (calls_malloc, is_new) {
        (true, _) => real,
        (false, true) => new as *mut c_void,
        (false, false) => delete as *mut c_void,
    };
    if !calls_malloc {
        events::nest();
    }
    operator.real.store(real, Ordering::Relaxed);
    operator.next.store(next, Ordering::Release);
    next
}

/// The first call of an operator.
#[unsafe(naked)]
unsafe extern "C" fn look() {
    cpu::find!(find)
}

/// An operator new that is counted.
#[unsafe(naked)]
unsafe extern "C" fn new() {
    cpu::new!(events::enter_allocator, made, passed)
}

/// An operator delete that is counted.
#[unsafe(naked)]
unsafe extern "C" fn delete() {
    cpu::delete!(gone)
}

/// Counts what an operator new has returned.
extern "C" fn made(block: *mut c_void, size: usize) -> *mut c_void {
    events::leave_allocator();
    counted(block, size, None)
}

/// Counts what an operator delete is about to free.
extern "C" fn gone(block: *mut c_void) {
    if let Some(id) = forgotten(block) {
        events::freed(id);
    }
}

/// The personality routine of [`new`]'s frame
/// ([Itanium C++ ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html#base-personality)): no exception ends
/// there, and the one that unwinds it ends the call.
extern "C" fn passed(_: c_int, actions: c_int, _: u64, _: *mut c_void, _: *mut c_void) -> c_int {
    const UA_CLEANUP_PHASE: c_int = 2;
    const URC_CONTINUE_UNWIND: c_int = 8;
    if actions & UA_CLEANUP_PHASE != 0 {
        events::leave_allocator();
    }
    URC_CONTINUE_UNWIND
}

/// What an operator new does that no object defines, and that a library has found here before it was withdrawn.
unsafe extern "C" fn lacks_new(size: usize) -> *mut c_void {
    // SAFETY: the caller's own argument; one of no bytes has an address, too.
    unsafe { malloc(size.max(1)) }
}

/// The same of one with an alignment.
unsafe extern "C" fn lacks_aligned_new(size: usize, alignment: usize) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    unsafe { memalign(alignment, size.max(1)) }
}
