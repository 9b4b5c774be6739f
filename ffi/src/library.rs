//! The private table for the sampler of the same build (`uunwind_core::library`).

use crate::init::dl_iterate_phdr;
use crate::{own_faults, registered};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::cursor::Cursor;
use uunwind_core::errno::{EINVAL, ENOEXEC};
use uunwind_core::library::{
    Client, Library, Request, BUILD, CHECKED, NESTED, NO_SLOT, PROBED, REQUEST_AWAITING, RESULT_DESYNC, SAMPLED,
    WALK_ROOM, WANT_CODE,
};
use uunwind_core::loaded::PhdrInfo;
use uunwind_core::memory::{guarded, Mode, Reader};
use uunwind_core::objects::Object;
use uunwind_core::plugin::Entry;
use uunwind_core::recovery::{self, Call, Recovery};
use uunwind_core::regs::Regs;
use uunwind_core::slots::{Refused, Slot};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk_part, Exchange, Setting, EMBEDDER};
use uunwind_live::env::{Calls, Live};
use uunwind_live::runtime_locks::Sampled;
use uunwind_live::state::{DUE, OBJECTS, PLUGINS, REGISTRY, SLOTS, TSD_OFFSET};

/// Number of ticks of the sampling timer after which a walk is abandoned.
const TICK_LIMIT: u32 = 8;

/// An address in the sampler's object; 0 before its first sample.
static SAMPLER: AtomicU64 = AtomicU64::new(0);

/// The functions that the sampler's object gets from this library.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
#[allow(non_upper_case_globals, reason = "a C symbol")]
pub static uu_private_library_0: Library = TABLE;

/// The functions of this library where the loader knows it.
pub(crate) const TABLE: Library = Library {
    size: core::mem::size_of::<Library>() as u32,
    build: BUILD,
    add_plugin,
    add_initial_objects,
    home,
    ready,
    sample,
    copy: crate::copy::copy,
    on_fault,
    on_tick,
    forget,
    thread_ended,
    after_fork,
    add_table: uunwind_live::tables::add,
    add_facts: uunwind_stacks::facts::add,
    plugin_index,
    due: &raw const DUE,
    name_crashes: crate::crashes::name,
    capture_for: crate::capture::capture_for,
    steps: crate::steps::steps,
    whole_steps: crate::steps::whole::whole_steps,
    step_text: crate::steps::text::step_text,
    setup_with: crate::setup::uu_setup_with,
    set_recorder: crate::recording::set_recorder,
    frames_registered: registered::add,
    frames_deregistered: registered::remove,
};

unsafe extern "C" fn add_plugin(index: u32, entry: Entry) -> i32 {
    if index == 0 || index >= u32::from(EMBEDDER) {
        return -EINVAL;
    }
    // The object that the entry lies in: its text is where the plugin's own faults happen.
    let text = OBJECTS.range(entry as usize as u64);
    // SAFETY: the caller found the entry in an object that it never closes.
    match unsafe { PLUGINS.add(index as usize, entry, text) } {
        Ok(true) => {
            uunwind_live::replay_dependencies::changed();
            0
        }
        Ok(false) => -EINVAL,
        Err(_) => -ENOEXEC,
    }
}

unsafe extern "C" fn plugin_index(name: *const [u8; 16]) -> u32 {
    // SAFETY: the caller passes a name.
    let name = unsafe { &*name };
    PLUGINS
        .from(1)
        .find(|index| PLUGINS.get_any(*index).is_some_and(|plugin| plugin.name == *name))
        .map_or(0, u32::from)
}

unsafe extern "C" fn home() -> *const Library {
    crate::home::elsewhere().map_or(&raw const uu_private_library_0, |home| core::ptr::from_ref(home.library))
}

struct Initial {
    context: *mut c_void,
    seen: unsafe extern "C" fn(*mut c_void, *const Object),
    /// Objects that never go away and are still to come.
    permanent: usize,
}

unsafe extern "C" fn add_initial_objects(context: *mut c_void, seen: unsafe extern "C" fn(*mut c_void, *const Object)) {
    // A constructor that ran before the sampler's may have opened more, which may be closed again.
    let mut initial = Initial { context, seen, permanent: crate::initial::count() };
    // SAFETY: normal context (see `Library`); the callback gets `initial`.
    unsafe { dl_iterate_phdr(add_initial_object, (&raw mut initial).cast()) };
}

unsafe extern "C" fn add_initial_object(info: *mut PhdrInfo, _size: usize, initial: *mut c_void) -> c_int {
    // SAFETY: the loader passes its structure; `add_initial_objects` passed `initial`.
    let (info, initial) = unsafe { (&*info, &mut *initial.cast::<Initial>()) };
    let permanent = initial.permanent > 0;
    initial.permanent = initial.permanent.saturating_sub(1);
    // SAFETY: the loader's own structure.
    for segment in unsafe { info.segments() }.filter(|s| s.executable) {
        // SAFETY: the sampler has installed its fault handlers (see `Library::add_initial_objects`).
        let mut reader = unsafe { Reader::new(Mode::Guarded) };
        if let Some(object) = OBJECTS.add(segment.start, permanent, &mut reader) {
            if object.reported.load(Ordering::Relaxed) == 0 {
                // SAFETY: the sampler's function and context.
                unsafe { (initial.seen)(initial.context, object) };
            }
        }
    }
    0
}

unsafe extern "C" fn ready() -> bool {
    #[cfg(not(feature = "no-entry-points"))]
    crate::init::init();
    OBJECTS.has_finder()
}

/// See [`Library::sample`].
///
/// # Safety
/// As there.
pub unsafe extern "C" fn sample(request: *mut Request) -> u32 {
    let walking = match SLOTS.enter(request as u64, REGISTRY.epoch()) {
        Ok(walking) => walking,
        Err(Refused::Nested) => return NESTED,
        Err(Refused::Full) => return NO_SLOT,
    };
    // SAFETY: `walk_request` allocates nothing and locks nothing, so it may be left at any instruction; the slot is
    // this thread's, and `enter` made sure that it is not armed.
    let mut work = Work { request, slot: walking.slot };
    let call = Call::new(walk_request as *const () as usize, [(&raw mut work) as u64]);
    // SAFETY: as said.
    let called = unsafe { recovery::call(&walking.slot.recovery, &call) };
    if let Err(reason) = called {
        // SAFETY: the sampler passed a valid request.
        let request = unsafe { &mut *request };
        request.stop = reason as u32;
    }
    walking.leave();
    SAMPLED
}

/// What a protected walk gets.
struct Work<'s> {
    request: *mut Request,
    slot: &'s Slot,
}

/// What lies in the sampler's room for a walk, so that it does not lie on its stack.
struct Room<'w> {
    env: MaybeUninit<Live<'w>>,
    reader: MaybeUninit<Reader<'w>>,
    setting: MaybeUninit<Setting>,
    exchange: MaybeUninit<Exchange>,
    cursor: MaybeUninit<Cursor>,
}

unsafe extern "C" fn walk_request(work: *mut c_void) {
    // SAFETY: `sample` passes its work, with its request.
    let (request, slot) = unsafe {
        let work = work.cast::<Work<'_>>();
        (&mut *(*work).request, (*work).slot)
    };
    const { assert!(size_of::<Room<'_>>() <= WALK_ROOM && align_of::<Room<'_>>() <= 64) };
    // SAFETY: the sampler passes WALK_ROOM bytes, 64-aligned, used by nothing else during the walk; what lies in it may
    // be anything.
    let room = unsafe { &mut *request.room.cast::<Room<'_>>() };
    // SAFETY: the sampler passes its table, or null.
    let client = unsafe { request.client.as_ref() }.map(|client| (client, request.context));
    if let Some((client, _)) = client {
        SAMPLER.store(client.describe as *const () as u64, Ordering::Relaxed);
    }
    // SAFETY: as `walk_request`.
    unsafe { prepare(room, request, client, slot) };
    // SAFETY: just written.
    let (env, reader, setting) =
        unsafe { (room.env.assume_init_mut(), room.reader.assume_init_mut(), room.setting.assume_init_ref()) };
    // SAFETY: the sampler passes the kernel's ucontext.
    let regs = unsafe { Regs::from_ucontext(request.ucontext) };
    let cursor = room.cursor.write(Cursor { regs, exact: true });
    if request.flags & WANT_CODE != 0 {
        request.code = reader.word(cursor.regs.pc.wrapping_sub(8)).unwrap_or(0);
    }
    // SAFETY: the sampler passes a buffer of `capacity` words that nothing else uses now.
    let frames = unsafe { core::slice::from_raw_parts_mut(request.frames, request.capacity) };
    // SAFETY: scratch is null or SCRATCH bytes.
    // Not by `walk`: its cursor would lie on the handler's stack.
    let outcome = unsafe { walk_part(cursor, env, reader, frames, setting) };
    request.words = outcome.words;
    (request.frames_emitted, request.reused) = (outcome.frames, outcome.reused);
    request.interpreted = env.interpreted;
    request.stop = u32::from(outcome.stop.number());
    let words = frames.get(..outcome.words).unwrap_or(&[]);
    // SAFETY: as above.
    request.lock = unsafe { lock(request.ucontext, (words, outcome.stop), env, reader) };
    request.result = env.result | if outcome.desync > 0 { RESULT_DESYNC } else { 0 };
}

/// [`Request::lock`]. A function of its own, so that nothing of it lies on the walk's stack.
///
/// # Safety
/// `ucontext` must be the kernel's.
#[inline(never)]
unsafe fn lock(
    ucontext: *const u8,
    (words, stop): (&[u64], StopReason),
    env: &mut Live<'_>,
    reader: &mut Reader<'_>,
) -> u32 {
    // SAFETY: passed on.
    let cursor = Cursor { regs: unsafe { Regs::from_ucontext(ucontext) }, exact: true };
    env.lock(&Sampled::this(cursor, words, stop), reader)
}

/// Writes what the walk needs into the sampler's room. A function of its own, so that nothing of it lies on the walk's
/// stack.
///
/// # Safety
/// The request must be the sampler's.
#[inline(never)]
unsafe fn prepare<'w>(
    room: &mut Room<'w>,
    request: &mut Request,
    client: Option<(&'w Client, *mut c_void)>,
    slot: &'w Slot,
) {
    let calls = match (request.flags & CHECKED != 0, request.flags & PROBED != 0) {
        (true, _) => Calls::Checked,
        (false, true) => Calls::None,
        (false, false) => Calls::All,
    };
    let probed = calls != Calls::All;
    let env = room.env.write(Live::new(client, (request.epoch, request.time), Some(&slot.recovery), calls));
    env.awaiting = request.flags & REQUEST_AWAITING != 0;
    // SAFETY: the sampler says PROBED or CHECKED unless faults reach `on_fault`.
    room.reader.write(unsafe { Reader::new(if probed { Mode::Probed } else { Mode::Guarded }) });
    room.setting.write(Setting {
        thread_pointer: syscall::thread_pointer(),
        tsd_offset: TSD_OFFSET.load(Ordering::Relaxed),
        ucontext: request.ucontext,
        scratch: if calls == Calls::None { core::ptr::null_mut() } else { request.scratch },
        exchange: room.exchange.as_mut_ptr(),
        progress: &raw mut request.words,
        last_walk: request.last_walk,
        keep_outermost: true,
        by_frame_pointer: false,
    });
}

/// See [`Library::on_fault`].
///
/// # Safety
/// As there.
pub unsafe extern "C" fn on_fault(ucontext: *mut u8, in_sample: bool) -> bool {
    // SAFETY: the handler passes the kernel's ucontext.
    if unsafe { guarded::mend(ucontext) } {
        return true;
    }
    let Some(slot) = SLOTS.find(syscall::thread_pointer()) else { return false };
    let in_own = !in_sample && own_faults::is_walking(slot);
    // SAFETY: as above.
    if (in_sample || in_own) && unsafe { PLUGINS.mend(ucontext) } {
        return true;
    }
    // SAFETY: as above; the context is that of a fault on this thread.
    let in_own = in_own && unsafe { own_faults::is_of_walk(slot, ucontext) };
    let recovery = if in_own { &slot.own_recovery } else { &slot.recovery };
    (in_sample || in_own) && redirect(recovery, ucontext, StopReason::Fault)
}

/// See [`Library::on_tick`].
///
/// # Safety
/// As there.
pub unsafe extern "C" fn on_tick(ucontext: *mut u8) {
    if let Some(slot) = SLOTS.find(syscall::thread_pointer()) {
        if slot.recovery.is_armed()
            && slot.tick() >= TICK_LIMIT
            && redirect(&slot.recovery, ucontext, StopReason::Watchdog)
        {
            // What follows a plugin's call has ticks of its own.
            slot.clear_ticks();
        }
    }
}

/// Out of the protected call of this thread.
fn redirect(recovery: &Recovery, ucontext: *mut u8, reason: StopReason) -> bool {
    // SAFETY: called by handlers that interrupted this thread; the recovery point is armed only inside such a walk.
    unsafe { recovery.redirect(ucontext, u64::from(reason.number()), is_host) }
}

/// Whether a pc lies in the code that plugins call: here, and in the sampler's object.
fn is_host(pc: u64) -> bool {
    let sampler = SAMPLER.load(Ordering::Relaxed);
    own_faults::is_ours(pc) || (sampler != 0 && OBJECTS.are_of_one(pc, sampler))
}

unsafe extern "C" fn forget() {
    if let Some(slot) = SLOTS.find(syscall::thread_pointer()) {
        slot.forget_protected();
    }
}

unsafe extern "C" fn thread_ended() {
    SLOTS.release(syscall::thread_pointer());
}

unsafe extern "C" fn after_fork() {
    SLOTS.after_fork();
    REGISTRY.after_fork();
    registered::after_fork();
}
