//! States that the program has registered (`uu_lua.h`), and the place at which a walk found one where the analyse
//! half had found none.
//!
//! States are registered outside handlers, by the plugin's `call`; walks only read the table. What is learned about a
//! build is the place, a register or a slot of `luaV_execute`'s frame, that held a state with a registered
//! `global_State`.

use crate::puc::facts::Location;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::errno::{EINVAL, ENOENT, ENOMEM, ENOSYS};
use uunwind_core::memory::Reader;

/// `what` of `uu_plugin_call`: registers a state. The same number as in `uu_lua.h`.
pub const REGISTER: u32 = 1;
/// `what` of `uu_plugin_call`: unregisters a state.
pub const UNREGISTER: u32 = 2;

/// Limit of states that are registered at the same time.
const STATES: usize = 64;
/// Limit of Lua builds in one process for which a place is learned.
const BUILDS: usize = 4;

/// A registered state.
struct Entry {
    /// Process address of the `lua_State`; [`FREE`], or [`BUSY`] while the entry is written.
    state: AtomicU64,
    /// Process address of its `global_State`; 0 in an entry that is not used.
    global: AtomicU64,
}

const FREE: u64 = 0;
const BUSY: u64 = 1;

static REGISTERED: [Entry; STATES] =
    [const { Entry { state: AtomicU64::new(FREE), global: AtomicU64::new(0) } }; STATES];

/// `call` of the plugin. `argument` is a `lua_State`, `size` is 0. Thread-safe. Not async-signal-safe.
/// The memory at `argument` is read by probed reads.
pub extern "C" fn call(what: u32, argument: *mut c_void, size: usize) -> i32 {
    let state = argument as u64;
    match what {
        REGISTER | UNREGISTER if size != 0 || state == 0 => -EINVAL,
        REGISTER => {
            let mut reader = Reader::probed();
            match global_of(&mut reader, state) {
                Some(global) => add(state, global),
                None => -EINVAL,
            }
        }
        UNREGISTER => remove(state),
        _ => -ENOSYS,
    }
}

fn add(state: u64, global: u64) -> i32 {
    // It may have been closed without being unregistered, and another state made at the same address: the new one
    // counts.
    remove(state);
    for entry in &REGISTERED {
        if entry.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            entry.global.store(global, Ordering::Relaxed);
            entry.state.store(state, Ordering::Release);
            return 0;
        }
    }
    -ENOMEM
}

fn remove(state: u64) -> i32 {
    let mut answer = -ENOENT;
    for entry in &REGISTERED {
        if state > BUSY && entry.state.compare_exchange(state, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            entry.global.store(0, Ordering::Relaxed);
            entry.state.store(FREE, Ordering::Release);
            answer = 0;
        }
    }
    answer
}

/// Is it the `global_State` of a registered state? Async-signal-safe.
pub fn is_global_of_registered(global: u64) -> bool {
    global != 0 && REGISTERED.iter().any(|entry| entry.global.load(Ordering::Relaxed) == global)
}

/// Is any state registered? Async-signal-safe.
pub fn any() -> bool {
    REGISTERED.iter().any(|entry| entry.global.load(Ordering::Relaxed) != 0)
}

// ---- How a state is recognised without the facts of its build
// ------------------------------------------------------------- https://github.com/lua/lua/blob/v5.4.0/lstate.h,
// https://github.com/lua/lua/blob/v5.1.1/lstate.h, https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_obj.h

/// Offset of an object's type: in PUC Lua the byte here (`tt`, `LUA_TTHREAD`), in LuaJIT the byte after (`gct`,
/// `~LJ_TTHREAD`).
const TYPE: u64 = 8;
const THREAD: u64 = 8;
const LUAJIT_THREAD: u64 = 6;
/// Limit of CallInfos in a state's chain: more than a stack of `LUAI_MAXSTACK` slots has room for.
const CHAIN: u32 = 1 << 19;

/// Process address of the `global_State` of the `lua_State` at `state`. `None`: `state` is no `lua_State`, that is,
/// no object of this type whose fields agree in the layout of one of the supported versions.
pub fn global_of(reader: &mut Reader<'_>, state: u64) -> Option<u64> {
    if !is_pointer(state) {
        return None;
    }
    let head = reader.word(state.checked_add(TYPE)?)?;
    let found = if head & 0xff == THREAD {
        of_chain(reader, state).or_else(|| of_array(reader, state))
    } else if head >> 8 & 0xff == LUAJIT_THREAD {
        of_luajit(reader, state)
    } else {
        None
    };
    // At least its first word must be readable.
    found.filter(|global| is_pointer(*global) && reader.word(*global).is_some())
}

fn is_pointer(address: u64) -> bool {
    address >= 0x1000 && address.is_multiple_of(8)
}

/// 5.2 and later: the chain of CallInfos ends in `base_ci`, which lies in the state.
fn of_chain(reader: &mut Reader<'_>, state: u64) -> Option<u64> {
    const CI: u64 = 32;
    const PREVIOUS: u64 = 16;
    const BASE: [u64; 3] = [88, 96, 128];
    let mut info = reader.word(state.wrapping_add(CI))?;
    for _ in 0..CHAIN {
        if !is_pointer(info) {
            return None;
        }
        match reader.word(info.wrapping_add(PREVIOUS))? {
            0 => {
                let base = BASE.contains(&info.wrapping_sub(state));
                return if base { reader.word(state.wrapping_add(GLOBAL)) } else { None };
            }
            previous => info = previous,
        }
    }
    None
}

/// 5.1: the CallInfos are an array, from `base_ci` to `end_ci`.
fn of_array(reader: &mut Reader<'_>, state: u64) -> Option<u64> {
    const BYTES: u64 = 40;
    let mut field = |offset: u64| reader.word(state.wrapping_add(offset));
    let (info, end, base) = (field(40)?, field(72)?, field(80)?);
    let inside = is_pointer(base) && base <= info && info <= end;
    if !inside || !info.wrapping_sub(base).is_multiple_of(BYTES) || !end.wrapping_sub(base).is_multiple_of(BYTES) {
        return None;
    }
    field(GLOBAL_5_1)
}

/// LuaJIT: `global_State.mainthref` refers to the main thread, whose `glref` refers back.
fn of_luajit(reader: &mut Reader<'_>, state: u64) -> Option<u64> {
    const GLOBAL: u64 = 16;
    const MAIN: u64 = 192;
    let global = reader.word(state.wrapping_add(GLOBAL)).filter(|global| is_pointer(*global))?;
    let main = reader.word(global.wrapping_add(MAIN)).filter(|main| is_pointer(*main))?;
    let is_thread = reader.word(main.wrapping_add(TYPE))? >> 8 & 0xff == LUAJIT_THREAD;
    (is_thread && reader.word(main.wrapping_add(GLOBAL))? == global).then_some(global)
}

/// Offset of `lua_State.l_G`: from 5.2 on, and in 5.1.
const GLOBAL: u64 = 24;
const GLOBAL_5_1: u64 = 32;

/// Offset of `lua_State.l_G` in PUC Lua 5.`minor`.
pub fn global_offset(minor: u32) -> u64 {
    if minor == 1 {
        GLOBAL_5_1
    } else {
        GLOBAL
    }
}

// ---- Learned places
// -------------------------------------------------------------------------------------------------------

/// What walks have learned about one build of Lua.
pub struct Learned {
    /// Address of the build's facts in this process; 0: the entry is free.
    facts: AtomicUsize,
    /// The [`Location`] of the state.
    place: AtomicU32,
}

static LEARNED: [Learned; BUILDS] =
    [const { Learned { facts: AtomicUsize::new(0), place: AtomicU32::new(0) } }; BUILDS];

impl Learned {
    /// The entry of the build with these facts, made if there is none. `None`: `BUILDS` others have one, or `facts`
    /// is null. Async-signal-safe.
    pub fn of(facts: *const u8) -> Option<&'static Learned> {
        let key = facts as usize;
        let owns = |build: &&Learned| match build.facts.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == key,
        };
        if key == 0 {
            return None;
        }
        LEARNED.iter().find(owns)
    }

    /// The place where a state was found in a frame of `luaV_execute`; [`Location::NONE`] if none was.
    pub fn place(&self) -> Location {
        Location(self.place.load(Ordering::Relaxed))
    }

    /// Stores the place where a state was found.
    pub fn learn(&self, place: Location) {
        self.place.store(place.0, Ordering::Relaxed);
    }
}
