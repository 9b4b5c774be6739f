//! The contract between the walk and an unwinder in a DSO: version 1. `ffi/include/uu_plugin.h` is its C form.
//!
//! A plugin is a shared object that exports one function, [`ENTRY_SYMBOL`], of type [`Entry`]. It gets the newest
//! version that the host supports and returns its table, or null if it cannot serve that host. The table holds its own
//! version and size; fields after its end count as null, and a null function does nothing.
//!
//! A plugin has two halves. The *analyse* half runs outside handlers, in the recorder or in a setup call, and turns an
//! ELF file into *facts*: bytes whose layout only the plugin knows. An object for which it has facts is *claimed*.
//! It also says what reports must know of the language, [`Language`], and decodes its line tables.
//! The signal half is called from the walk, inside a handler, for each frame in a claimed object:
//!
//! * `step` may move the cursor itself, where unwind tables are wrong or absent;
//! * `rule` may give the rule of a pc, as data, which the core caches and executes;
//! * `overlay` adds semantic frames to a native frame whose CFA was computed, and leaves the step to the core;
//! * `lock`, once a sample and after its walk, says how the thread stands to the lock that the runtime runs code under.
//!
//! The signal half must not allocate, lock, use thread-locals or call anything but the [`Host`] functions, and it reads
//! foreign memory only through them. A call that faults, or during which several ticks of the sampling timer arrive, is
//! abandoned: the frames that it emitted are removed, the native frame is stepped natively, and after three such
//! failures the plugin is off.

mod c_rule;
mod description;
mod frame_record;
pub mod guest;
pub mod installed;
mod language;
mod object_file;
mod reading_host;
mod view;

pub use c_rule::CRule;
pub use description::{Description, Text, OWN_TEXT, TABLE_LIMIT, TABLE_NONE, TEXT_LIMIT};
pub use frame_record::FrameRecord;
pub use language::{Language, Line, Position, LIST_LIMIT};
pub use object_file::ObjectFile;
pub use reading_host::READING_HOST;
pub use view::{
    Caller, Host, Owner, View, AWAITING, OWNER_NONE, OWNER_OBJECT, OWNER_WINDOW, STACK_CUT, STACK_FRAMES, WANT_AWAITING,
};

use crate::memory::guarded::Fixups;
use core::ffi::c_void;
use core::mem::offset_of;

/// The version described here, and the newest that this host supports.
pub const ABI: u32 = 1;
/// The oldest version that this host supports.
pub const ABI_OLDEST: u32 = 1;

/// Name of the function that a plugin exports.
pub const ENTRY_SYMBOL: &core::ffi::CStr = c"uu_plugin";

/// Type of [`ENTRY_SYMBOL`]: `const struct uu_plugin *uu_plugin(uint32_t host_abi)`.
pub type Entry = unsafe extern "C" fn(host_abi: u32) -> *const Plugin;

/// Bytes of scratch memory that one walk keeps for each plugin, zeroed when the plugin is first called in it.
pub const SCRATCH_BYTES: usize = 512;

/// Limit of the facts of one object, in bytes.
pub const FACTS_LIMIT: usize = 64 * 1024;

/// Type of [`Plugin::overlay`] and [`Plugin::step`], and of a window's stepper.
pub type Visit = unsafe extern "C" fn(view: *mut View) -> u32;
/// Type of [`Plugin::lock`].
pub type LockState = unsafe extern "C" fn(view: *mut View) -> u32;
/// Type of [`Plugin::rule`]. 1: `*rule` was filled; 0: there is none, the next source is tried. Any other value is
/// invalid.
pub type GiveRule = unsafe extern "C" fn(view: *mut View, rule: *mut CRule) -> u32;
/// Type of [`Plugin::analyse`]: number of bytes of facts written to `facts` (at most `capacity`); 0: the object is not
/// claimed; negative: it is, but it cannot be served, for the reason passed to `ObjectFile::note`.
pub type Analyse = unsafe extern "C" fn(object: *const ObjectFile, facts: *mut u8, capacity: usize) -> isize;
/// Type of [`Plugin::call`].
pub type Call = unsafe extern "C" fn(what: u32, argument: *mut c_void, size: usize) -> i32;

/// A plugin's table. It is valid as long as the process runs (plugins are never unloaded). `repr(C)`: the same as
/// `struct uu_plugin`.
#[repr(C)]
pub struct Plugin {
    /// Size of the table in bytes at the time the plugin was built; fields after it count as null.
    pub size: u32,
    /// The version that the plugin implements: between [`ABI_OLDEST`] and [`ABI`].
    pub abi: u32,
    /// Short name, NUL-padded: it labels faults and facts, and frames unless their language has a label.
    pub name: [u8; 16],
    /// A sum of [`NO_REGISTERS`], [`PLUGIN_UNOWNED`], [`NO_FUNCTION`], [`STEP_UNOWNED_ONLY`],
    /// [`CHECKED_READS`], [`LINE_IN_HANDLERS`] and [`UNOWNED_FACTS`].
    pub flags: u32,
    /// Number of bytes of its scratch memory that the plugin uses, from the first on, at most [`SCRATCH_BYTES`]; 0:
    /// all. The fewer, the cheaper is the reuse of the last walk.
    pub scratch_bytes: u32,
    /// Signal code. Called for each native frame in a claimed object, once its CFA was computed. The answer is a sum of
    /// `OVERLAY_*`.
    pub overlay: Option<Visit>,
    /// Signal code. Called for each frame in a claimed object before a rule is looked up; `View::cfa` is 0. The answer
    /// is one of `STEP_*` and flags of `OVERLAY_*`. See also [`PLUGIN_UNOWNED`].
    pub step: Option<Visit>,
    /// Signal code. A pure function of the pc, the facts and memory that does not change while the object is loaded:
    /// called once for a pc, and its answer is cached. Of the [`Host`] functions, only `read_word` and `read` may be
    /// used.
    pub rule: Option<GiveRule>,
    /// Not signal code: the analyse half. It runs in the recorder, in a process of its own.
    pub analyse: Option<Analyse>,
    /// Not signal code, unless the plugin says otherwise for a `what`: requests of the program to the plugin
    /// (`uu_plugin_call`). Returns 0 or a negative errno; -ENOSYS for an undefined `what`.
    pub call: Option<Call>,
    /// Loads in the plugin's own signal code that may fault, with the addresses at which execution then continues:
    /// [`Fixups::NONE`] if there are none.
    pub fixups: Fixups,
    /// What reports must know of the plugin's language; null: nothing. Read where `analyse` runs.
    pub language: *const Language,
    /// Decodes the plugin's line tables. Runs where `analyse` runs, when the recording ends; with [`LINE_IN_HANDLERS`],
    /// in any program (`uu_describe`), too.
    pub line: Option<Line>,
    /// Signal code. Called after the walk of a sample, for each loaded object that the plugin claims and that some walk
    /// of the process has met: how the thread stands to the lock that the runtime in this object runs code under. The
    /// view has the interrupted registers, the object's facts, bias and range, the sample's innermost native frames
    /// ([`View::stack`]), and no frame of its own: `cfa` is 0, `scratch` null. Of the [`Host`] functions, only
    /// `read_word`, `read` and `read_words` may be used. The answer is one of `LOCK_*`.
    pub lock: Option<LockState>,
}

/// [`Plugin::flags`]: no function of the plugin reads `View::registers` (it may read pc, sp and CFA). Walks are then
/// reused more often.
pub const NO_REGISTERS: u32 = 1;

// SAFETY: a table is immutable data and function pointers.
unsafe impl Sync for Plugin {}

/// Size of the fields that every table has: those before the functions.
const SMALLEST: usize = offset_of!(Plugin, overlay);

impl Plugin {
    /// A table of this version without functions.
    pub const fn new(name: [u8; 16]) -> Plugin {
        Plugin {
            size: core::mem::size_of::<Plugin>() as u32,
            abi: ABI,
            name,
            flags: 0,
            scratch_bytes: 0,
            overlay: None,
            step: None,
            rule: None,
            analyse: None,
            call: None,
            fixups: Fixups::NONE,
            language: core::ptr::null(),
            line: None,
            lock: None,
        }
    }

    /// The functions that the table has, as a table of this build.
    ///
    /// # Safety
    /// `table` must point to `size` bytes of a plugin's table, `size` being its first field.
    unsafe fn complete(table: *const Plugin) -> Plugin {
        let mut whole = Plugin::new([0; 16]);
        // SAFETY: the table has `size` bytes; a prefix of it is a prefix of ours, and null functions are `None`.
        unsafe {
            let size = ((*table).size as usize).min(core::mem::size_of::<Plugin>()) & !7;
            core::ptr::copy_nonoverlapping(table.cast::<u8>(), core::ptr::from_mut(&mut whole).cast::<u8>(), size);
        }
        whole
    }
}

/// [`Plugin::flags`]: `step` is also called for frames whose pc is unowned (no object and no window covers it), with
/// null facts: a JIT's code without registration. Plugins are called in order of their indices until one steps.
pub const PLUGIN_UNOWNED: u32 = 2;

/// [`Plugin::flags`]: no function of the plugin reads `View::function_start` and `View::function_end`: they are 0,
/// which saves a search in the object's tables.
pub const NO_FUNCTION: u32 = 4;

/// [`Plugin::flags`], with [`PLUGIN_UNOWNED`]: `step` is called for such frames only, not for frames in claimed
/// objects.
pub const STEP_UNOWNED_ONLY: u32 = 8;

/// [`Plugin::flags`]: the signal half reads foreign memory by [`Host`] functions only, so that it raises no fault
/// whatever it is shown. It is then also called where nothing contains faults.
pub const CHECKED_READS: u32 = 16;

/// [`Plugin::flags`]: `line` is signal code, too: a bounded, pure function of what it is passed.
pub const LINE_IN_HANDLERS: u32 = 32;

/// [`Plugin::flags`], with [`PLUGIN_UNOWNED`]: in unowned code `step` is called once for each claimed object that is
/// loaded, with its facts, bias and generation, and an empty range; not at all while there is none. For a runtime whose
/// memory says where the code is that it makes.
pub const UNOWNED_FACTS: u32 = 64;

/// Answer of [`Plugin::overlay`]: the frame is not an activation of this interpreter.
pub const OVERLAY_NONE: u32 = 0;
/// Answer, or part of one: the native frame belongs to the interpreter and may be hidden (its semantic frames, if any,
/// were emitted).
pub const OVERLAY_INTERPRETER: u32 = 1;
/// Flag that may be added to an answer: semantic frames are missing or doubtful here. Counted and reported.
pub const OVERLAY_DESYNC: u32 = 2;

/// Answer of [`Plugin::step`]: the frame is not the plugin's; the core steps it.
pub const STEP_NATIVE: u32 = 0;
/// Answer: `*View::caller` is the caller's frame. Its sp must lie above this frame's.
pub const STEP_DONE: u32 = 0x100;
/// Answer: this is the outermost frame.
pub const STEP_END: u32 = 0x200;
/// Answer: the frame is the plugin's, but its caller cannot be determined. The walk ends with that reason.
pub const STEP_LOST: u32 = 0x300;
/// The bits of an answer that hold the kind of step.
pub const STEP_MASK: u32 = 0x300;
/// Flag with [`STEP_DONE`]: the caller is on another stack, so its sp may have any value.
pub const STEP_OTHER_STACK: u32 = 0x400;

/// Flag that may be added to any answer of `overlay` and `step`: the call did not change the scratch memory.
pub const UNTOUCHED: u32 = 0x1000;

/// Answer of [`Plugin::lock`]: it cannot be determined at this instruction.
pub const LOCK_UNKNOWN: u32 = 0;
/// Answer: the thread neither holds the lock nor waits for it.
pub const LOCK_NONE: u32 = 1;
/// Answer: the thread holds the lock.
pub const LOCK_HELD: u32 = 2;
/// Answer: the thread waits for the lock.
pub const LOCK_WAITING: u32 = 3;

/// Whether an answer of `overlay` is defined.
pub const fn is_overlay_answer(answer: u32) -> bool {
    answer & !(OVERLAY_INTERPRETER | OVERLAY_DESYNC | UNTOUCHED) == 0
}

/// Whether an answer of `step` is defined.
pub const fn is_step_answer(answer: u32) -> bool {
    let plain = answer & !(OVERLAY_INTERPRETER | OVERLAY_DESYNC | STEP_OTHER_STACK | STEP_MASK | UNTOUCHED) == 0;
    plain && (answer & STEP_OTHER_STACK == 0 || answer & STEP_MASK == STEP_DONE)
}

/// Why a plugin cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The entry function returned null: the plugin cannot serve this host.
    Declined,
    /// The table has this other ABI.
    Abi(u32),
    /// The table has this size in bytes, smaller than any version's.
    Size(u32),
}

/// Calls a plugin's entry function and checks its table: the one version check, for every loader. The result is a
/// table of this build's size, whatever the size of the plugin's.
///
/// # Safety
/// `entry` must be the [`ENTRY_SYMBOL`] of a shared object that is never unloaded.
pub unsafe fn negotiate(entry: Entry) -> Result<Plugin, Refusal> {
    // SAFETY: the caller guarantees `entry`.
    let table = unsafe { entry(ABI) };
    if table.is_null() {
        return Err(Refusal::Declined);
    }
    // SAFETY: a non-null answer points to a table, which begins with its size and version and lives as long as the
    // process.
    let (size, abi) = unsafe { ((*table).size, (*table).abi) };
    if !(ABI_OLDEST..=ABI).contains(&abi) {
        return Err(Refusal::Abi(abi));
    }
    if (size as usize) < SMALLEST {
        return Err(Refusal::Size(size));
    }
    // SAFETY: as above; the size was checked.
    Ok(unsafe { Plugin::complete(table) })
}

/// A name as a NUL-padded field, cut where it is longer.
pub fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    for (to, from) in padded.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    padded
}

/// The name in a NUL-padded field.
pub fn trimmed(name: &[u8; 16]) -> &[u8] {
    let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    name.get(..len).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn declines(_: u32) -> *const Plugin {
        core::ptr::null()
    }

    unsafe extern "C" fn visit(_: *mut View) -> u32 {
        0
    }

    macro_rules! entry {
        ($name:ident, $table:expr) => {
            unsafe extern "C" fn $name(_: u32) -> *const Plugin {
                static TABLE: Plugin = $table;
                &TABLE
            }
        };
    }
    const NAME: [u8; 16] = *b"test\0\0\0\0\0\0\0\0\0\0\0\0";
    entry!(newer, Plugin { abi: ABI + 1, ..Plugin::new(NAME) });
    entry!(tiny, Plugin { size: 31, ..Plugin::new(NAME) });
    entry!(short, Plugin { size: 40, overlay: Some(visit), step: Some(visit), ..Plugin::new(NAME) });
    entry!(whole, Plugin { size: 4096, overlay: Some(visit), step: Some(visit), ..Plugin::new(NAME) });

    #[test]
    fn versions_and_sizes_are_negotiated() {
        // SAFETY: functions of the right type, with tables that live for ever.
        unsafe {
            assert_eq!(negotiate(declines).err(), Some(Refusal::Declined));
            assert_eq!(negotiate(newer).err(), Some(Refusal::Abi(ABI + 1)));
            assert_eq!(negotiate(tiny).err(), Some(Refusal::Size(31)));
            let short = negotiate(short).expect("an older, smaller table");
            assert!(short.overlay.is_some() && short.step.is_none(), "fields after the end count as null");
            let whole = negotiate(whole).expect("a newer, larger table");
            assert!(whole.overlay.is_some() && whole.step.is_some() && whole.call.is_none());
        }
    }

    #[test]
    fn undefined_answers_are_distinguished_from_others() {
        for answer in [STEP_NATIVE, STEP_DONE | OVERLAY_INTERPRETER, STEP_END, STEP_LOST, STEP_DONE | STEP_OTHER_STACK]
        {
            assert!(is_step_answer(answer), "{answer:#x}");
        }
        for answer in [4, STEP_OTHER_STACK, STEP_END | STEP_OTHER_STACK, 0x800, u32::MAX] {
            assert!(!is_step_answer(answer), "{answer:#x}");
        }
        assert!(is_step_answer(UNTOUCHED) && is_overlay_answer(UNTOUCHED));
        assert!(is_overlay_answer(3) && !is_overlay_answer(4) && !is_overlay_answer(STEP_DONE));
    }
}
