//! `libuunwind-inject.so`: the sampler that `uu` puts into a process that runs already.
//!
//! One object with all that a walk needs: the handler and the ring of the preloaded sampler, a libuunwind of its own,
//! and uu's own plugins. It imports nothing, has no constructor, and makes system calls only. So it can be mapped and
//! started at any instruction of the program, whatever locks of libc, the allocator or the dynamic loader are held;
//! the loader does not know it. `uu` maps and relocates it (`injector/`), calls the functions below
//! on a thread that it has borrowed, and unmaps it when nothing of it runs any more.
//!
//! ```text
//! memory    memcpy and related functions, for which compilers emit calls
//! gate      the code through which a process's functions are called while allocations or waits are sampled
//! redirect  the entries of objects that such a process loads meanwhile
//! ```
#![no_std]

#[cfg(panic = "unwind")]
extern crate std;

#[cfg(target_arch = "x86_64")]
pub mod gate;
#[cfg(all(panic = "abort", target_arch = "x86_64"))]
mod memory;
mod redirect;

use uunwind_core::objects::DlFindObjectFn;
use uunwind_core::plugin::Entry;
use uunwind_core::span::Span;
use uunwind_ffi::injected::prepare;
use uunwind_preload::{events, injected};
use uunwind_ring::gate::{is_waiting, Frame, ASKED, DLOPEN};
use uunwind_ring::injected::Control;
use uunwind_ring::{FLAG_ALLOC, FLAG_LOCK};

/// The plugins by their index.
const PLUGINS: [(u32, Entry); 7] = [(1, python), (2, lua), (3, ruby), (4, v8), (5, hotspot), (6, php), (7, perl)];

unsafe extern "C" fn python(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_python::uu_plugin(host)
}

unsafe extern "C" fn lua(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_lua::uu_plugin(host)
}

unsafe extern "C" fn ruby(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_ruby::uu_plugin(host)
}

unsafe extern "C" fn v8(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_v8::uu_plugin(host)
}

unsafe extern "C" fn hotspot(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_hotspot::uu_plugin(host)
}

unsafe extern "C" fn php(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_php::uu_plugin(host)
}

unsafe extern "C" fn perl(host: u32) -> *const uunwind_core::plugin::Plugin {
    uunwind_perl::uu_plugin(host)
}

/// Installs the handler. Arguments and results are in the control memory.
///
/// # Safety
/// `control` must be the control memory, mapped for as long as this code, with the arguments for this call. Called
/// once, on a thread of the process.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn uu_injected_begin(control: *mut Control) {
    // SAFETY: as the caller says.
    unsafe {
        let find = core::mem::transmute::<usize, Option<DlFindObjectFn>>((*control).find_object as usize);
        let program = Span::sized((*control).program.start, (*control).program.len);
        let loader = Span::sized((*control).loader.start, (*control).loader.len);
        let library = prepare(find, program, (*control).tsd_offset, loader);
        injected::begin(control, library, &PLUGINS);
    }
    // Where there is no memory, each of its samples finds none.
    if events::flags() & FLAG_ALLOC != 0 {
        uunwind_alloc::hooks::prepare();
    }
}

/// The gate calls it before a function.
///
/// # Safety
/// `frame` must be a stub's, with the arguments of a call that is about to be made.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn uu_injected_before(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let function = unsafe { (*frame).function() };
    if function == ASKED {
        // SAFETY: as the caller says, with the arguments of that question.
        unsafe { injected::answer(&mut *frame) };
    } else if function >= DLOPEN {
        redirect::new_objects();
    } else if is_sampled(function) {
        // SAFETY: passed on.
        unsafe {
            if is_waiting(function) {
                uunwind_lock::hooks::before(frame);
            } else {
                uunwind_alloc::hooks::before(frame);
            }
        }
    }
}

/// The gate calls it after a function.
///
/// # Safety
/// `frame` must be a stub's, as [`uu_injected_before`] has left it if it was called.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn uu_injected_after(frame: *mut Frame) {
    // SAFETY: as the caller says.
    let function = unsafe { (*frame).function() };
    if is_sampled(function) {
        // SAFETY: passed on.
        unsafe {
            if is_waiting(function) {
                uunwind_lock::hooks::after(frame);
            } else {
                uunwind_alloc::hooks::after(frame);
            }
        }
    }
}

/// Whether this recording is of what the function does: a stub's address that the program has kept is of an earlier
/// one.
fn is_sampled(function: usize) -> bool {
    let flag = if is_waiting(function) { FLAG_LOCK } else { FLAG_ALLOC };
    events::flags() & flag != 0
}

/// Gives threads timers, or takes them away, as the control memory says.
///
/// # Safety
/// As [`uu_injected_begin`], after it.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn uu_injected_change(control: *mut Control) {
    // SAFETY: as the caller says.
    unsafe { injected::change(control) };
}

/// Deletes all timers and gives the signal back, if no thread is inside a walk; otherwise the last of them does. To be
/// called until the control memory says that all is over.
///
/// # Safety
/// As [`uu_injected_begin`], after it.
#[cfg_attr(panic = "abort", no_mangle)]
pub unsafe extern "C" fn uu_injected_end(_control: *mut Control) {
    injected::end();
}
