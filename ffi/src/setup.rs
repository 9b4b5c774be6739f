//! `uu_setup`, `uu_setup_with`: rule tables, plugins and facts for a program that has no recorder. They come from
//! another object, which is linked with std and reads files; it is opened here, on demand, from the folder `uu` beside
//! this one.

use crate::libc_calls;
use crate::library::uu_private_library_0;
use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::errno::{Errno, EINVAL, ENAMETOOLONG, ENOENT};
use uunwind_core::library::{Library, BY_ITSELF};
use uunwind_core::syscall;
use uunwind_live::state::SHORT_RULES;

extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Calls what opens files and allocates, and leaves the calling thread's errno as it was.
pub fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: the calling thread's errno.
    let was = unsafe { *__errno_location() };
    let result = call();
    // SAFETY: as above.
    unsafe { *__errno_location() = was };
    result
}

const FILE: &CStr = c"uu/libuunwind-setup.so";
const SYMBOL: &CStr = c"uu_setup_process";
type SetupProcess = unsafe extern "C" fn(*const Library, u32) -> c_int;
/// The function [`SYMBOL`]; null: not found so far. Its object is never closed.
static SETUP_PROCESS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_setup() -> c_int {
    match crate::home::elsewhere() {
        Some(home) => (home.setup)(),
        None => uu_setup_with(0),
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_setup_with(flags: u32) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        return (home.setup_with)(flags);
    }
    if flags & !BY_ITSELF != 0 {
        return -EINVAL;
    }
    keeping_errno(|| match setup_process() {
        // SAFETY: the symbol is a function of this type, which checks the table's build.
        Ok(found) => unsafe {
            core::mem::transmute::<*mut c_void, SetupProcess>(found)(&raw const uu_private_library_0, flags)
        },
        Err(error) => -error,
    })
}

fn setup_process() -> Result<*mut c_void, Errno> {
    let is_first = SETUP_PROCESS.load(Ordering::Acquire).is_null();
    let found = entry(&SETUP_PROCESS, SYMBOL)?;
    if is_first {
        make_short_rules_resident();
    }
    Ok(found)
}

/// Asks for the memory of the table of short rules, whose pages a prepared program's walks would touch one by one, each
/// with two faults. Where the kernel cannot do that (before Linux 5.14), they do.
fn make_short_rules_resident() {
    const MADV_POPULATE_WRITE: usize = 23;
    const PAGE: usize = 4096;
    let (start, len) = ((&raw const SHORT_RULES).addr(), size_of_val(&SHORT_RULES));
    let (first, end) = (start.next_multiple_of(PAGE), (start + len) & !(PAGE - 1));
    // SAFETY: whole pages of this object's own writable memory, whose contents do not change.
    unsafe { syscall::call(syscall::nr::MADVISE, [first, end - first, MADV_POPULATE_WRITE, 0, 0, 0]) };
}

/// A function of the set-up object, which is opened for it, and stays. The loader is asked once, and `known` keeps the
/// answer: in the child of a fork its state is as another thread of the parent had left it, perhaps in the middle of a
/// dlopen(3). Not async-signal-safe.
pub fn entry(known: &AtomicPtr<c_void>, symbol: &CStr) -> Result<*mut c_void, Errno> {
    let found = known.load(Ordering::Acquire);
    if !found.is_null() {
        return Ok(found);
    }
    let mut path = [0u8; 4096];
    beside(&mut path)?;
    const RTLD_NOW: c_int = 2;
    const RTLD_NODELETE: c_int = 0x1000;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| ENAMETOOLONG)?;
    // SAFETY: not a handler; an object of ours, which stays.
    let found = unsafe { libc_calls::function(path, RTLD_NOW | RTLD_NODELETE, symbol) };
    if found.is_null() {
        return Err(ENOENT);
    }
    known.store(found, Ordering::Release);
    Ok(found)
}

/// The path of [`FILE`], from the folder of this object.
fn beside(path: &mut [u8; 4096]) -> Result<(), Errno> {
    let own = libc_calls::own_path((&raw const uu_private_library_0).cast()).ok_or(ENOENT)?.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let bytes = own.iter().take(folder).chain(FILE.to_bytes_with_nul());
    if bytes.clone().count() > path.len() {
        return Err(ENAMETOOLONG);
    }
    for (to, from) in path.iter_mut().zip(bytes) {
        *to = *from;
    }
    Ok(())
}
