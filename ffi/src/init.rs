//! What is found out once, when the object is loaded: in normal context, by the loader.

use crate::descriptor;
use crate::libc_calls::{self, Keys};
use core::ffi::{c_char, c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use uunwind_core::loaded::{self, Callback, PhdrInfo};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::objects::DlFindObjectFn;
use uunwind_core::slots;
use uunwind_core::span::Span;
use uunwind_core::syscall;
use uunwind_live::own_stack;
use uunwind_live::state::{OBJECTS, REGISTRY, SLOTS, TSD_OFFSET};

/// An entry of the auxiliary vector ([getauxval(3)](https://man7.org/linux/man-pages/man3/getauxval.3.html)).
const AT_RANDOM: c_ulong = 25;

/// Finds the loader's counters in its `_rtld_global`, whose size is in the symbol table.
fn watch_loads() {
    let Some((data, size)) = loader_data() else { return };
    let mut adds = 0u64;
    // SAFETY: the function takes the word; the data is the loader's, which stays.
    unsafe {
        dl_iterate_phdr(count_of_loads, (&raw mut adds).cast());
        if adds != 0 {
            OBJECTS.loads().locate(data, size, Some(adds), &mut Reader::new(Mode::Probed));
        }
    }
}

/// Largest size of `_rtld_global`: it has 4 KiB.
const LOADER_DATA: usize = 64 * 1024;

/// `_rtld_global`, and its size in bytes.
fn loader_data() -> Option<(*const u64, usize)> {
    // SAFETY: normal context, libc's function.
    let found = unsafe { loaded::symbol(dl_iterate_phdr, c"_rtld_global") }?;
    (found.size as usize <= LOADER_DATA).then_some((found.address as *const u64, found.size as usize))
}

/// `dlpi_adds`, after the fields of [`PhdrInfo`]. (`dlpi_subs` is wrong where there are several link namespaces.)
unsafe extern "C" fn count_of_loads(info: *mut PhdrInfo, size: usize, adds: *mut c_void) -> c_int {
    const AT: usize = 32;
    if size >= AT + 8 {
        // SAFETY: the structure has `size` bytes; `watch_loads` passes a word.
        unsafe { adds.cast::<u64>().write(info.cast::<u8>().add(AT).cast::<u64>().read_unaligned()) };
    }
    1
}

/// The extent of the program's image: the first object in the loader's list is the program.
fn program_image(program: &PhdrInfo) -> Option<Span> {
    let (mut start, mut end) = (u64::MAX, 0);
    // SAFETY: the program is never unloaded.
    for segment in unsafe { program.segments() } {
        start = start.min(segment.start & !0xfff);
        end = end.max(segment.end);
    }
    Some(Span::new(start, end))
}

extern "C" {
    /// The loader's dl_iterate_phdr(3). It locks: never in a handler.
    pub fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
    fn uu_protected_register_atfork() -> *const c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// `__register_atfork(prepare, parent, child, dso)` of glibc (`posix/register-atfork.c`).
type RegisterAtfork = unsafe extern "C" fn(
    Option<extern "C" fn()>,
    Option<extern "C" fn()>,
    Option<extern "C" fn()>,
    *mut c_void,
) -> c_int;

/// [pthread_atfork(3)](https://man7.org/linux/man-pages/man3/pthread_atfork.3.html).
type PthreadAtfork =
    unsafe extern "C" fn(Option<extern "C" fn()>, Option<extern "C" fn()>, Option<extern "C" fn()>) -> c_int;

// The address of `__register_atfork`; null: libc has none. Weak, because musl's loader would not start a program for
// which it cannot find a function that an object needs, and a program of glibc's passes LD_PRELOAD on to those of
// musl's that it starts.
macro_rules! address_of_register_atfork {
    ($($instruction:literal),*) => {
        core::arch::global_asm!(
            ".pushsection .text.uu_protected_register_atfork,\"ax\",@progbits",
            ".weak __register_atfork",
            ".hidden uu_protected_register_atfork",
            ".globl uu_protected_register_atfork",
            ".type uu_protected_register_atfork,@function",
            "uu_protected_register_atfork:",
            ".cfi_startproc",
            $($instruction,)*
            "ret",
            ".cfi_endproc",
            ".size uu_protected_register_atfork, .-uu_protected_register_atfork",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
address_of_register_atfork!("mov rax, qword ptr [rip + __register_atfork@GOTPCREL]");
#[cfg(target_arch = "aarch64")]
address_of_register_atfork!("adrp x0, :got:__register_atfork", "ldr x0, [x0, :got_lo12:__register_atfork]");

/// Whether libc is musl's, whose threads and loader are other ones. (A static program has no symbols to ask for, and
/// only one of glibc's is linked with this library.)
fn is_musl() -> bool {
    // Others may define the first one, too, in front of libc (tools that wrap `main`). glibc has both.
    let mut starts = false;
    let of_glibc = |object: &PhdrInfo| {
        // SAFETY: the loader's structure, during its iteration.
        let dynamic = unsafe { object.dynamic() };
        dynamic.symbol(c"__libc_start_main")?;
        starts = true;
        dynamic.symbol(c"gnu_get_libc_version").map(|_| ())
    };
    // SAFETY: normal context, libc's function.
    let is_glibc = unsafe { loaded::find(dl_iterate_phdr, of_glibc) }.is_some();
    starts && !is_glibc
}

#[cfg(not(feature = "no-entry-points"))]
#[used]
// With a priority, so that in the static library it runs before constructors of the program.
#[link_section = ".init_array.00001"]
static INIT: extern "C" fn() = init;

/// Whether it ran: the loader calls it, or the sampler's constructor, if that comes first.
static RAN: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, in a program whose allocator may not be ready for calls: nothing here may allocate.
pub extern "C" fn init() {
    if RAN.swap(true, Ordering::AcqRel) {
        return;
    }
    let is_musl = is_musl();
    crate::exports::find();
    watch_forks();
    // SAFETY: normal context, libc's function. `_dl_find_object` exists from glibc 2.35 on, so it is asked for by name
    // and never linked; before, the loader's list is read.
    if let Some(find) = unsafe { loaded::symbol(dl_iterate_phdr, c"_dl_find_object") } {
        // SAFETY: that is the function's type (dlfcn.h).
        OBJECTS.set_finder(unsafe { core::mem::transmute::<usize, DlFindObjectFn>(find.address as usize) });
    }
    // SAFETY: getauxval has no preconditions. The kernel places these bytes on the stack of the main thread, above all
    // frames.
    own_stack::main_stack_is_below(unsafe { getauxval(AT_RANDOM) });
    OBJECTS.populate();
    // SAFETY: normal context, libc's function.
    if let Some(image) = unsafe { loaded::find(dl_iterate_phdr, program_image) } {
        OBJECTS.set_program(image);
    }
    if is_musl {
        // SAFETY: normal context, libc's function; the first object is the program.
        let first = unsafe { loaded::find(dl_iterate_phdr, |program| Some(program.dynamic().first_object())) };
        first.flatten().into_iter().for_each(|first| OBJECTS.use_musl_list(first));
    } else {
        watch_loads();
    }
    if !OBJECTS.has_finder() {
        OBJECTS.use_list(&mut Reader::probed());
    }
    // SAFETY: a NUL-terminated name. Under the sampler, which sets this variable, it lists the initial objects
    // itself.
    if unsafe { getenv(c"UU_SESSION".as_ptr()) }.is_null() {
        crate::initial::add();
    }
    SLOTS.prepare(if is_musl { slots::MUSL } else { slots::GLIBC });
    if !is_musl {
        TSD_OFFSET.store(locate_tsd(), Ordering::Release);
    }
}

/// Has libc call what is to be done around forks.
fn watch_forks() {
    // SAFETY: glibc's function has this type, or is null; functions of this object, which is never unloaded.
    unsafe {
        let register = uu_protected_register_atfork();
        if !register.is_null() {
            let register = core::mem::transmute::<*const c_void, RegisterAtfork>(register);
            register(Some(before_fork), Some(in_parent), Some(in_child), core::ptr::null_mut());
            return;
        }
        // musl has the function of POSIX, which glibc has in a static part of it.
        if let Some(register) = loaded::symbol(dl_iterate_phdr, c"pthread_atfork") {
            let register = core::mem::transmute::<usize, PthreadAtfork>(register.address as usize);
            register(Some(before_fork), Some(in_parent), Some(in_child));
        }
    }
}

/// Whether [`before_fork`] took the registry's lock: the forking thread's own word, since it holds that lock.
static FORKING: AtomicBool = AtomicBool::new(false);

/// A fork copies pages one after the other: a registry that another thread changes meanwhile would be copied half
/// before and half after the change. So no change is under way.
extern "C" fn before_fork() {
    if REGISTRY.fork_begins() {
        FORKING.store(true, Ordering::Relaxed);
    }
}

extern "C" fn in_parent() {
    if FORKING.load(Ordering::Relaxed) && REGISTRY.is_mine() {
        FORKING.store(false, Ordering::Relaxed);
        REGISTRY.fork_is_done();
    }
}

extern "C" fn in_child() {
    SLOTS.after_fork();
    OBJECTS.after_fork();
    uunwind_live::embedder::after_fork();
    crate::faults::after_fork();
    uunwind_crashes::threads::after_fork();
    in_parent();
}

/// Finds where a thread's descriptor keeps the first block of thread-specific values (`struct pthread_key_data { seq,
/// data }[32]`), as a distance from the thread pointer: two keys of our own get values, and the one place where both
/// stand at the distance of their keys is it. 0 if none or several are found. The keys are given back.
///
/// Before glibc 2.34 a program may have no libpthread, and then has no such keys.
fn locate_tsd() -> u64 {
    let Some(Keys { create, delete, set }) = libc_calls::keys() else { return 0 };
    const LIMIT: u64 = 8192;
    const FIRST_BLOCK: u32 = 32;
    let values = [0x7575_0001_dead_0001u64, 0x7575_0002_beef_0002];
    let mut keys = [u32::MAX; 2];
    for (key, value) in keys.iter_mut().zip(values) {
        // SAFETY: a key of our own without a destructor.
        if unsafe { create(key, core::ptr::null_mut()) } != 0 {
            *key = u32::MAX;
        } else if *key < FIRST_BLOCK {
            // SAFETY: a value that is never dereferenced. For a later block, glibc would allocate.
            unsafe { set(*key, value as *const c_void) };
        }
    }
    let mut found = 0;
    let own = descriptor::own();
    if keys.iter().all(|k| *k < FIRST_BLOCK) && own.start < own.end && own.end - own.start <= LIMIT {
        // SAFETY: it lies in the calling thread's descriptor.
        let word = |at: u64| unsafe { (at as *const u64).read_volatile() };
        let mut matches = 0;
        for base in (own.start + 64..own.end).step_by(8) {
            let holds = keys.iter().zip(values).all(|(key, value)| {
                let at = base + 16 * u64::from(*key) + 8;
                at < own.end && word(at) == value
            });
            if holds {
                found = base.wrapping_sub(syscall::thread_pointer());
                matches += 1;
            }
        }
        if matches != 1 {
            found = 0;
        }
    }
    for key in keys {
        if key != u32::MAX {
            // SAFETY: created above.
            unsafe {
                if key < FIRST_BLOCK {
                    set(key, core::ptr::null());
                }
                delete(key);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlclose(handle: *mut c_void) -> c_int;
        fn dlmopen(namespace: isize, name: *const c_char, flags: c_int) -> *mut c_void;
    }

    #[test]
    fn what_another_namespace_unloads_is_seen() {
        let _alone = ONE_AT_A_TIME.lock();
        watch_loads();
        let now = || OBJECTS.loads().now().expect("found in this libc");
        let first = now();
        // SAFETY: a new namespace with a library that nothing here uses; RTLD_NOW.
        let handle = unsafe { dlmopen(-1, c"libm.so.6".as_ptr(), 2) };
        assert!(!handle.is_null());
        let second = now();
        // SAFETY: opened above.
        unsafe { dlclose(handle) };
        let third = now();
        let (loads, unloads) = (|now: u64| now >> 32, |now: u64| now & 0xffff_ffff);
        assert_eq!((unloads(second), loads(third)), (unloads(first), loads(second)));
        assert_eq!(unloads(third) - unloads(second), loads(second) - loads(first), "all that was loaded there");
        assert_ne!(unloads(third), unloads(second));
    }

    /// The tests load and unload what the other's counters count.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// As in a process whose loader cannot be asked.
    #[test]
    fn the_loaders_counters_are_found_without_asking_it() {
        let _alone = ONE_AT_A_TIME.lock();
        watch_loads();
        let (data, size) = loader_data().expect("glibc has it");
        let unasked = uunwind_core::loads::Loads::new();
        // SAFETY: the loader's data, which stays.
        assert!(unsafe { unasked.locate(data, size, None, &mut Reader::new(Mode::Probed)) });
        let asked = OBJECTS.loads();
        assert_eq!((unasked.now(), unasked.now().is_some()), (asked.now(), true));
        let words = |loads: &uunwind_core::loads::Loads| {
            let mut words = std::vec::Vec::new();
            loads.from_words(|address, _| words.push(address));
            words
        };
        assert_eq!(words(&unasked), words(asked));
    }

    #[test]
    fn the_loaders_counters_are_found_and_tell_of_each_load_and_unload() {
        let _alone = ONE_AT_A_TIME.lock();
        watch_loads();
        let first = OBJECTS.loads().now().expect("found in this libc");
        assert_eq!(OBJECTS.loads().now(), Some(first), "they stand still");
        // Some library of glibc or of gcc that this process does not have yet.
        let some =
            [c"libthread_db.so.1", c"libresolv.so.2", c"libnsl.so.1", c"libanl.so.1", c"libm.so.6", c"libstdc++.so.6"];
        let loaded = |name: &CStr| {
            // SAFETY: a NUL-terminated name; RTLD_LAZY | RTLD_NOLOAD loads nothing.
            let handle = unsafe { dlopen(name.as_ptr(), 5) };
            !handle.is_null()
        };
        let mut others = some.into_iter().filter(|name| !loaded(name));
        // SAFETY: libraries that nothing here uses; RTLD_NOW.
        let handle =
            others.find_map(|name| Some(unsafe { dlopen(name.as_ptr(), 2) }).filter(|handle| !handle.is_null()));
        let handle = handle.expect("one of them exists");
        let second = OBJECTS.loads().now().expect("found");
        assert_ne!(second, first, "a load");
        // SAFETY: opened above.
        unsafe { dlclose(handle) };
        let third = OBJECTS.loads().now().expect("found");
        assert!(third != second && third != first, "an unload does not undo a load");
    }
}
