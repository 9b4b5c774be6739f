//! The contract between the walk and an unwinder in a DSO: version 1. `ffi/include/uu_plugin.h` says the same in C.
//!
//! A plugin is a shared object that exports one function, [`ENTRY_SYMBOL`], of type [`Entry`]. It gets the newest version
//! that the host speaks and returns its table, or null when it cannot serve that host. The table says its own version and
//! size; what lies behind its end counts as null, and every null function as "does nothing".
//!
//! A plugin has two halves. The *analyse* half runs outside handlers, in the recorder or in a setup call, and turns an
//! ELF file into *facts*: plain bytes, whose layout only the plugin knows. An object for which it has facts is *claimed*.
//! The signal half is called from the walk, inside a handler, for each frame in a claimed object:
//!
//! * `step` may move the cursor itself, where unwind tables are wrong or absent;
//! * `rule` may give the rule of a pc, as data, which the core then remembers and executes;
//! * `overlay` adds semantic frames to a native frame whose CFA is known, and leaves the step to the core.
//!
//! The signal half must not allocate, lock, use thread-locals or call anything but the [`Host`] functions, and it reads
//! foreign memory only through them. A call that faults, or that several ticks of the sampling timer meet, is left behind:
//! what it emitted is taken back, the frame is stepped natively, and after three such failures the plugin is off.

mod c_rule;
mod description;
mod frame_record;
pub mod installed;
mod object_file;
mod view;

pub use c_rule::CRule;
pub use description::{Description, Text, TABLE_LIMIT, TABLE_NONE, TABLE_PYTHON_311, TEXT_LIMIT};
pub use frame_record::FrameRecord;
pub use object_file::ObjectFile;
pub use view::{Caller, Host, Owner, View, OWNER_NOBODY, OWNER_OBJECT, OWNER_WINDOW};

use crate::memory::guarded::Fixups;
use core::ffi::c_void;
use core::mem::offset_of;

/// The version described here, and the newest that this host speaks.
pub const ABI: u32 = 1;
/// The oldest version that this host speaks.
pub const ABI_OLDEST: u32 = 1;

/// Name of the function that a plugin exports.
pub const ENTRY_SYMBOL: &core::ffi::CStr = c"uu_plugin";

/// Type of [`ENTRY_SYMBOL`]: `const struct uu_plugin *uu_plugin(uint32_t host_abi)`.
pub type Entry = unsafe extern "C" fn(host_abi: u32) -> *const Plugin;

/// Bytes of scratch memory that one walk keeps for each plugin, zeroed when the plugin is first called in it.
pub const SCRATCH_BYTES: usize = 512;

/// Most bytes of facts that one object may have.
pub const FACTS_LIMIT: usize = 64 * 1024;

/// Type of [`Plugin::overlay`] and [`Plugin::step`], and of a window's stepper.
pub type Visit = unsafe extern "C" fn(view: *mut View) -> u32;
/// Type of [`Plugin::rule`]. 1: `*rule` was filled; 0: none here, ask the next source. Anything else is nonsense.
pub type GiveRule = unsafe extern "C" fn(view: *mut View, rule: *mut CRule) -> u32;
/// Type of [`Plugin::analyse`]: bytes of facts written to `facts` (at most `capacity`); 0: not mine; negative: mine, but not
/// served, and `ObjectFile::note` tells why.
pub type Analyse = unsafe extern "C" fn(object: *const ObjectFile, facts: *mut u8, capacity: usize) -> isize;
/// Type of [`Plugin::call`].
pub type Call = unsafe extern "C" fn(what: u32, argument: *mut c_void, size: usize) -> i32;

/// A plugin's table. Lives as long as the process (plugins are never unloaded). `repr(C)`: the same as `struct uu_plugin`.
#[repr(C)]
pub struct Plugin {
    /// Bytes of the table as the plugin was built; what lies behind them is taken for null.
    pub size: u32,
    /// The version that the plugin speaks: between [`ABI_OLDEST`] and [`ABI`].
    pub abi: u32,
    /// Short name, NUL-padded: it labels frames ("python"), faults and facts.
    pub name: [u8; 16],
    /// A sum of [`NO_REGISTERS`], [`PLUGIN_STRAYS`] and [`NO_FUNCTION`].
    pub flags: u32,
    /// How many bytes of its scratch memory the plugin uses, from the first on, at most [`SCRATCH_BYTES`]; 0: all. The fewer,
    /// the cheaper is reuse of the last walk.
    pub scratch_bytes: u32,
    /// Signal code. Called for each native frame in a claimed object, once its CFA is known. An answer is a sum of
    /// `OVERLAY_*`.
    pub overlay: Option<Visit>,
    /// Signal code. Called for each frame in a claimed object before any rule is looked for; `View::cfa` is 0. An answer
    /// is one of `STEP_*` and flags of `OVERLAY_*`. See also [`PLUGIN_STRAYS`].
    pub step: Option<Visit>,
    /// Signal code. A pure function of the pc, the facts and memory that does not change while the object is loaded: asked
    /// once for a pc, and its answer remembered. Of the [`Host`] functions, only `read_word` and `read` do anything.
    pub rule: Option<GiveRule>,
    /// Not signal code: the analyse half. It runs in the recorder, in a process of its own.
    pub analyse: Option<Analyse>,
    /// Not signal code, unless the plugin says so of a `what`: requests of the program to the plugin (`uu_plugin_call`).
    /// 0 or a negative errno; -ENOSYS for a `what` that it does not know.
    pub call: Option<Call>,
    /// Loads in the plugin's own signal code that may fault, and where execution then goes on: [`Fixups::NONE`] if it has none.
    pub fixups: Fixups,
}

/// [`Plugin::flags`]: no function of the plugin looks at `View::registers` (pc, sp and CFA it may). Walks are then reused more
/// often.
pub const NO_REGISTERS: u32 = 1;

// SAFETY: a table is immutable data and function pointers.
unsafe impl Sync for Plugin {}

/// Bytes that every table has: up to the functions.
const SMALLEST: usize = offset_of!(Plugin, overlay);

impl Plugin {
    /// A table of this version, in which nothing is done.
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
        }
    }

    /// The functions that the table really has, as a table of this build.
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

/// [`Plugin::flags`]: `step` is also asked about frames whose pc no object and no window covers, with null facts: a JIT's code
/// that was registered nowhere. Plugins are asked by index until one steps.
pub const PLUGIN_STRAYS: u32 = 2;

/// [`Plugin::flags`]: no function of the plugin looks at `View::function_start` and `View::function_end`: they are 0, which spares
/// a search in the object's tables.
pub const NO_FUNCTION: u32 = 4;

/// Answer of [`Plugin::overlay`]: the frame is not an activation of this interpreter.
pub const OVERLAY_NONE: u32 = 0;
/// Answer, or part of one: the native frame belongs to the interpreter and may be hidden (its semantic frames, if any,
/// were emitted).
pub const OVERLAY_INTERPRETER: u32 = 1;
/// Flag that may be added to an answer: semantic frames are missing or doubtful here. Counted, and shown.
pub const OVERLAY_DESYNC: u32 = 2;

/// Answer of [`Plugin::step`]: not mine; the core steps.
pub const STEP_NATIVE: u32 = 0;
/// Answer: `*View::caller` is the caller's frame. Its sp must lie above this frame's.
pub const STEP_DONE: u32 = 0x100;
/// Answer: this is the outermost frame.
pub const STEP_END: u32 = 0x200;
/// Answer: mine, but the caller cannot be told. The walk ends, with that reason.
pub const STEP_LOST: u32 = 0x300;
/// Which bits tell the kind of step.
pub const STEP_MASK: u32 = 0x300;
/// Flag with [`STEP_DONE`]: the caller is on another stack, so its sp may lie anywhere.
pub const STEP_OTHER_STACK: u32 = 0x400;

/// Flag that may be added to any answer of `overlay` and `step`: the call has left the scratch memory as it was.
pub const UNTOUCHED: u32 = 0x1000;

/// Whether an answer of `overlay` has a meaning.
pub const fn is_overlay_answer(answer: u32) -> bool {
    answer & !(OVERLAY_INTERPRETER | OVERLAY_DESYNC | UNTOUCHED) == 0
}

/// Whether an answer of `step` has a meaning.
pub const fn is_step_answer(answer: u32) -> bool {
    let plain = answer & !(OVERLAY_INTERPRETER | OVERLAY_DESYNC | STEP_OTHER_STACK | STEP_MASK | UNTOUCHED) == 0;
    plain && (answer & STEP_OTHER_STACK == 0 || answer & STEP_MASK == STEP_DONE)
}

/// Why a plugin cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The entry function returned null: the plugin cannot serve this host.
    Declined,
    /// The table says another ABI.
    Abi(u32),
    /// The table is smaller than any is.
    Size(u32),
}

/// Asks a plugin's entry function for its table and checks it: the one version check, for every loader. The result is a
/// table of this build's size, whatever the size of the plugin's.
///
/// # Safety
/// `entry` must be the [`ENTRY_SYMBOL`] of a shared object that stays loaded.
pub unsafe fn negotiate(entry: Entry) -> Result<Plugin, Refusal> {
    // SAFETY: the caller vouches for `entry`.
    let table = unsafe { entry(ABI) };
    if table.is_null() {
        return Err(Refusal::Declined);
    }
    // SAFETY: a non-null answer points to a table, which begins with its size and version and lives as long as the process.
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
            assert!(short.overlay.is_some() && short.step.is_none(), "what lies behind the end counts as null");
            let whole = negotiate(whole).expect("a newer, larger table");
            assert!(whole.overlay.is_some() && whole.step.is_some() && whole.call.is_none());
        }
    }

    #[test]
    fn answers_without_a_meaning_are_told_from_others() {
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
