//! This library in a sampler that was put into a running process: a copy of its own, linked with the sampler, which the
//! dynamic loader does not know. Nothing of it calls libc.

use crate::library::TABLE;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use uunwind_core::caller::Caller;
use uunwind_core::errno::ENOENT;
use uunwind_core::library::{Library, Request, CHECKED, PROBED};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::objects::{DlFindObjectFn, Object};
use uunwind_core::span::Span;
use uunwind_core::steps::{Step, Steps, WholeSteps};
use uunwind_live::state::{OBJECTS, SLOTS, TSD_OFFSET};

/// All but what needs the loader, or that faults are handled.
static LIBRARY: Library = Library {
    add_initial_objects,
    home,
    sample,
    frames_registered,
    frames_deregistered,
    capture_for,
    steps,
    whole_steps,
    step_text,
    setup_with,
    ..TABLE
};

/// Prepares walks. `find`: the loader's `_dl_find_object`; `None`: it has none (before glibc 2.35). `program`: the
/// extent of the program's image. `tsd_offset`: where a thread keeps its first block of specific values, from its
/// thread pointer on; 0: not known. `loader`: the loader's `_rtld_global`; empty: not known.
///
/// # Safety
/// `find` must be that function, and `loader` that object. On a thread of glibc's.
pub unsafe fn prepare(find: Option<DlFindObjectFn>, program: Span, tsd_offset: u64, loader: Span) -> &'static Library {
    find.into_iter().for_each(|find| OBJECTS.set_finder(find));
    OBJECTS.set_program(program);
    // The loader may not be asked: its locks may be held. Without its counters, each walk asks it for each object.
    if !loader.is_empty() && loader.start & 7 == 0 {
        let (data, len) = (loader.start as *const u64, (loader.end - loader.start) as usize);
        // SAFETY: the loader's data, which stays.
        unsafe { OBJECTS.loads().locate(data, len, None, &mut Reader::new(Mode::Probed)) };
    }
    if find.is_none() {
        OBJECTS.use_list(&mut Reader::probed());
    }
    SLOTS.prepare_for_one_process();
    TSD_OFFSET.store(tsd_offset, Ordering::Release);
    &LIBRARY
}

/// No fault reaches `on_fault` here.
unsafe extern "C" fn sample(request: *mut Request) -> u32 {
    // SAFETY: the sampler passes a valid request.
    unsafe {
        (*request).flags = (*request).flags & !PROBED | CHECKED;
        crate::library::sample(request)
    }
}

/// Objects are reported as walks meet them: to list them, the loader would have to be locked.
unsafe extern "C" fn add_initial_objects(_: *mut c_void, _: unsafe extern "C" fn(*mut c_void, *const Object)) {}

unsafe extern "C" fn home() -> *const Library {
    &raw const LIBRARY
}

/// No drop-in object finds this table.
unsafe extern "C" fn capture_for(_: *mut u64, _: usize, _: *mut u16, _: *const Caller) -> usize {
    0
}

/// As above.
unsafe extern "C" fn steps(_: *mut Steps) {}

/// As above.
unsafe extern "C" fn whole_steps(_: *mut WholeSteps) {}

/// As above.
unsafe extern "C" fn step_text(_: *const Step, _: *mut u8, _: usize) -> usize {
    0
}

/// As above.
extern "C" fn setup_with(_: u32) -> i32 {
    -ENOENT
}

/// The program's own calls go to the program's own library.
unsafe extern "C" fn frames_registered(_: u64, _: u32) -> u32 {
    0
}

unsafe extern "C" fn frames_deregistered(_: u64) {}
