//! `__register_frame` and its family, the compiler runtimes' interface by which JITs register unwind data
//! ([libgcc](https://github.com/gcc-mirror/gcc/blob/releases/gcc-14/libgcc/unwind-dw2-fde.c), [LLVM
//! libunwind](https://github.com/llvm/llvm-project/blob/llvmorg-19.1.0/libunwind/src/UnwindLevel1-gcc-ext.c)). What is
//! registered there becomes windows here. The real function is always called; its result, or its abort, is left to the
//! program.
//!
//! The real functions are libgcc's or LLVM libunwind's, whichever the *caller* would have been bound to. The caller's
//! object may have been opened with a local scope, where
//! [RTLD_NEXT](https://man7.org/linux/man-pages/man3/dlsym.3.html) finds nothing; then they are searched from the
//! caller's object. Naked entries preserve the return address for that.
//!
//! `__unw_add_dynamic_fde` and related functions are not interposed: JITs look up such a name to find out whose
//! unwinder they run with, and would find ours.

use crate::cpu::RETURN_ADDRESS;
use crate::real::{self, of_loaded};
use crate::{allocator, process};
use core::ffi::{c_void, CStr};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use uunwind_core::loaded::PhdrInfo;
use uunwind_core::opening::Opening;

const LIST: u64 = 0;
const ONE: u64 = 1;
const TABLE: u64 = 2;

/// An interposed function.
struct Function {
    name: &'static CStr,
    /// What it registers; `None`: it deregisters.
    shape: Option<u64>,
}

static FUNCTIONS: [Function; 9] = [
    Function { name: c"__register_frame", shape: Some(LIST) },
    Function { name: c"__register_frame_info", shape: Some(LIST) },
    Function { name: c"__register_frame_info_bases", shape: Some(LIST) },
    Function { name: c"__register_frame_table", shape: Some(TABLE) },
    Function { name: c"__register_frame_info_table", shape: Some(TABLE) },
    Function { name: c"__register_frame_info_table_bases", shape: Some(TABLE) },
    Function { name: c"__deregister_frame", shape: None },
    Function { name: c"__deregister_frame_info", shape: None },
    Function { name: c"__deregister_frame_info_bases", shape: None },
];

/// The entries pass the function's number as fifth argument, and as sixth where the return address is. None of the
/// functions has more than four arguments.
macro_rules! entries {
    ($($name:ident = $number:literal;)*) => { $(
        /// See the module.
        ///
        /// # Safety
        /// As the compilers' function of this name.
        #[unsafe(naked)]
        #[no_mangle]
        pub unsafe extern "C" fn $name() {
            crate::cpu::call_with_place!($number, call)
        }
    )* };
}

entries! {
    __register_frame = 0;
    __register_frame_info = 1;
    __register_frame_info_bases = 2;
    __register_frame_table = 3;
    __register_frame_info_table = 4;
    __register_frame_info_table_bases = 5;
    __deregister_frame = 6;
    __deregister_frame_info = 7;
    __deregister_frame_info_bases = 8;
}

/// Calls `real` with these arguments, and keeps its address on the stack. Where one of these functions ends in a tail
/// call of another, the entry of the other one finds the address there.
///
/// # Safety
/// As `real`.
#[unsafe(naked)]
unsafe extern "C" fn invoke(real: *mut c_void, begin: u64, b: u64, c: u64, d: u64) -> u64 {
    crate::cpu::call_and_keep!()
}

/// Upper limit of the size of `invoke`'s code, in bytes.
const INVOKE: u64 = 48;

/// # Safety
/// As the function of that number.
unsafe extern "C" fn call(begin: u64, b: u64, c: u64, d: u64, number: u32, place: *const u64) -> u64 {
    let Some(function) = FUNCTIONS.get(number as usize) else { return 0 };
    // SAFETY: the entry passes where its return address is. If the return address lies in `invoke`, the word after it
    // is the one that `invoke` keeps.
    let (caller, jumped) = unsafe {
        let caller = place.add(RETURN_ADDRESS).read();
        let jumped = caller.wrapping_sub(invoke as *const () as u64) < INVOKE;
        (if jumped { place.add(RETURN_ADDRESS + 1).read() } else { caller }, jumped)
    };
    // A library's own call of another of its functions belongs to a registration that has been counted already.
    let found = Found::get(number, function, caller);
    let inner = jumped || found.own;
    // No such function exists in the program. Start files of old compilers call it if the weak symbol is defined, and
    // now find ours: nothing is registered.
    let Some(real) = found.address else { return 0 };
    if inner {
        // SAFETY: the real function, with the program's arguments. All nine take at most four words and return at most
        // one.
        return unsafe { invoke(real, begin, b, c, d) };
    }
    match function.shape {
        Some(shape) => {
            // SAFETY: as above.
            let result = unsafe { invoke(real, begin, b, c, d) };
            registered(begin, if found.one && shape == LIST { ONE } else { shape });
            result
        }
        None => {
            // Removed here first: the program may free the data as soon as the real function returns.
            deregistered(begin);
            // SAFETY: as above.
            unsafe { invoke(real, begin, b, c, d) }
        }
    }
}

/// The real function that one of ours interposes.
#[derive(Clone, Copy)]
struct Found {
    address: Option<*mut c_void>,
    /// `__register_frame` takes a single FDE (LLVM libunwind) instead of a list (libgcc).
    one: bool,
    /// The function lies in the caller's own object.
    own: bool,
}

/// A cached result for one caller: the key (return address and function number), the function's address, and the bits
/// of [`Found`].
struct Memory {
    key: AtomicU64,
    address: AtomicU64,
    bits: AtomicU64,
}

const MEMORIES: usize = 64;
static MEMORY: [Memory; MEMORIES] =
    [const { Memory { key: AtomicU64::new(0), address: AtomicU64::new(0), bits: AtomicU64::new(0) } }; MEMORIES];

impl Found {
    /// The function that this caller would have been bound to without our interposers.
    fn get(number: u32, function: &Function, caller: u64) -> Found {
        // User-space addresses have 47 bits (https://docs.kernel.org/arch/x86/x86_64/mm.html), or 48
        // (https://docs.kernel.org/arch/arm64/memory.html).
        let key = caller | u64::from(number + 1) << 48;
        let place = MEMORY.get((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % MEMORIES);
        if let Some(place) = place.filter(|place| place.key.load(Ordering::Acquire) == key) {
            let address = place.address.load(Ordering::Relaxed) as *mut c_void;
            let bits = place.bits.load(Ordering::Relaxed);
            return Found { address: Some(address), one: bits & 1 != 0, own: bits & 2 != 0 };
        }
        let address = find(function.name, caller);
        let own = address.is_some_and(|address| base_of(address as u64) == base_of(caller));
        let found = Found { address, one: address.is_some_and(is_llvm), own };
        if let (Some(place), Some(address)) = (place, address) {
            // Only into an empty entry: an entry that is written once cannot be read half-written.
            if place.key.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                place.address.store(address as u64, Ordering::Relaxed);
                place.bits.store(u64::from(found.one) | u64::from(found.own) << 1, Ordering::Relaxed);
                place.key.store(key, Ordering::Release);
            }
        }
        found
    }
}

/// Load address of the object that covers an address: of its first segment; 0 if none does.
fn base_of(address: u64) -> u64 {
    // SAFETY: the loader's structure, during its iteration.
    let look = |object: &PhdrInfo| unsafe { object.covers(address).then(|| object.segments().next()) };
    of_loaded(look).flatten().map_or(0, |segment| segment.start)
}

/// A handle of the object that covers an address. It is pinned in memory, because addresses found in it are cached.
/// Null, and not pinned, where nothing may allocate: what is loaded then, before `main`, the program began with.
fn open(opening: &Opening, address: u64) -> *mut c_void {
    let Some(path) = real::path_of(address).filter(|_| allocator::is_usable()) else { return core::ptr::null_mut() };
    // SAFETY: the loader's string, of an object that runs; the allocator may be called.
    unsafe { opening.open(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) }
}

fn find(name: &CStr, caller: u64) -> Option<*mut c_void> {
    // What nobody defines is not asked for: dlsym would allocate a message.
    // SAFETY: the loader's structure, during its iteration.
    of_loaded(|object| unsafe { (!object.covers(find as *const () as u64)).then(|| object.dynamic().symbol(name))? })?;
    let opening = real::opening()?;
    // SAFETY: not a handler.
    let next = unsafe { opening.next(name) }.unwrap_or_else(|| real::address_of_next(name));
    if !next.is_null() {
        return Some(next);
    }
    let handle = open(&opening, caller);
    // SAFETY: the search covers the caller's object and its dependencies only, so it does not find our interposer.
    let found = (!handle.is_null()).then(|| unsafe { opening.symbol(handle, name) });
    // SAFETY: clears the message of a failure above, which the program must not see.
    unsafe { opening.forget_error() };
    found.filter(|found| !found.is_null())
}

/// Whether a function is LLVM libunwind's: its object also exports LLVM's own interface.
fn is_llvm(function: *mut c_void) -> bool {
    real::opening().map(|opening| open(&opening, function as u64));
    // SAFETY: the loader's structure, during its iteration.
    let look = |object: &PhdrInfo| unsafe {
        object.covers(function as u64).then(|| object.dynamic().symbol(c"__unw_add_dynamic_fde").is_some())
    };
    of_loaded(look) == Some(true)
}

/// Capacity for registrations from before our constructor ran. They wait in `WAITING`: `begin`, and shape + 1.
const EARLY: usize = 256;
static WAITING: [(AtomicU64, AtomicU64); EARLY] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; EARLY];
static TOO_MANY: AtomicU32 = AtomicU32::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

fn registered(begin: u64, shape: u64) {
    if STARTED.load(Ordering::Acquire) {
        return report(begin, shape);
    }
    for (of, place) in &WAITING {
        if place.compare_exchange(0, shape + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            of.store(begin, Ordering::Release);
            return;
        }
    }
    TOO_MANY.fetch_add(1, Ordering::Relaxed);
}

fn deregistered(begin: u64) {
    if STARTED.load(Ordering::Acquire) {
        if let Some(process) = recording() {
            // SAFETY: libuunwind's function; not a handler.
            unsafe { (process.library.frames_deregistered)(begin) };
        }
        return;
    }
    let waiting = WAITING.iter().rev().find(|(of, _)| of.load(Ordering::Relaxed) == begin);
    if let Some((of, place)) = waiting {
        of.store(0, Ordering::Relaxed);
        place.store(0, Ordering::Release);
    }
}

/// The process, if it records. `None` in a vfork child, which shares our memory but is another process.
fn recording() -> Option<&'static process::Process> {
    process::process().filter(|_| process::is_own())
}

fn report(begin: u64, shape: u64) {
    let Some(process) = recording() else { return };
    // SAFETY: libuunwind's function; not a handler; the program keeps what it registered until it deregisters it.
    let lost = unsafe { (process.library.frames_registered)(begin, shape as u32) };
    if let Some(block) = process::block() {
        block.frames_lost.fetch_add(lost, Ordering::Relaxed);
    }
}

/// Called at the end of the constructor: what was registered before it becomes windows, if this process records.
pub fn started() {
    STARTED.store(true, Ordering::Release);
    for (of, place) in &WAITING {
        let (begin, shape) = (of.load(Ordering::Acquire), place.load(Ordering::Acquire));
        if let (Some(shape), true) = (shape.checked_sub(1), begin != 0) {
            report(begin, shape);
        }
    }
    let many = TOO_MANY.load(Ordering::Relaxed);
    if let Some(block) = process::block().filter(|_| many > 0) {
        block.frames_lost.fetch_add(many, Ordering::Relaxed);
    }
}
