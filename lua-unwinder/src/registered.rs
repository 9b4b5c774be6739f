//! States that the program has told of (`uu_lua.h`), and where one was found that the analyse half did not see.
//!
//! A state is registered outside handlers, by the plugin's `call`; walks only look at the table. What was learned of a build is the
//! place, a register or a slot of `luaV_execute`'s frame, at which a state of a registered program was found.

use crate::puc::facts::Place;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::memory::{Mode, Reader};

/// Requests, as `what` of `uu_plugin_call`; `uu_lua.h` says the same in C.
pub const REGISTER: u32 = 1;
/// See [`REGISTER`].
pub const UNREGISTER: u32 = 2;

/// States registered at the same time.
const STATES: usize = 64;
/// Builds of Lua in one process for which places are learned.
const BUILDS: usize = 4;

const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

/// A registered state.
struct Entry {
    /// Its address; [`FREE`], [`BUSY`].
    state: AtomicU64,
    /// Its `global_State`.
    global: AtomicU64,
}

const FREE: u64 = 0;
const BUSY: u64 = 1;

static REGISTERED: [Entry; STATES] =
    [const { Entry { state: AtomicU64::new(FREE), global: AtomicU64::new(0) } }; STATES];

/// `call` of the plugin. `argument` is a `lua_State`, `size` is 0. Thread-safe. Not for handlers.
///
/// # Safety
/// None: what the argument points to is read only where it can be.
pub unsafe extern "C" fn call(what: u32, argument: *mut c_void, size: usize) -> i32 {
    let state = argument as u64;
    match what {
        REGISTER | UNREGISTER if size != 0 || state == 0 => -EINVAL,
        REGISTER => {
            // SAFETY: probed reads need nothing.
            let mut reader = unsafe { Reader::new(Mode::Probed) };
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
    // Closed without a word, and another one made in its place: that one counts.
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
pub fn is_known(global: u64) -> bool {
    global != 0 && REGISTERED.iter().any(|entry| entry.global.load(Ordering::Relaxed) == global)
}

/// Is any state registered? Async-signal-safe.
pub fn any() -> bool {
    REGISTERED.iter().any(|entry| entry.global.load(Ordering::Relaxed) != 0)
}

// ---- What a state looks like, without the facts of its build --------------------------------------------------------------

/// The type of a thread: in PUC Lua at the eighth byte of every object, in LuaJIT another one at the ninth.
const TYPE: u64 = 8;
const THREAD: u64 = 8;
const LUAJIT_THREAD: u64 = 6;
/// CallInfos in the chain of a state (`LUAI_MAXCSTACK` and what a stack of a million slots has room for).
const CHAIN: u32 = 1 << 19;

/// The `global_State` of the `lua_State` at an address, if there is one: an object of the right type whose parts agree, in the
/// layout of one of the versions that are served. `None`: there is none.
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
    // It has a first word, at least.
    found.filter(|global| is_pointer(*global) && reader.word(*global).is_some())
}

fn is_pointer(address: u64) -> bool {
    address >= 0x1000 && address.is_multiple_of(8)
}

/// 5.2 and later: the chain of CallInfos ends in the one that lies in the state.
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

/// 5.1: CallInfos stand in an array.
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

/// LuaJIT: the global state speaks of its main thread, which speaks of it.
fn of_luajit(reader: &mut Reader<'_>, state: u64) -> Option<u64> {
    const GLOBAL: u64 = 16;
    const MAIN: u64 = 192;
    let global = reader.word(state.wrapping_add(GLOBAL)).filter(|global| is_pointer(*global))?;
    let main = reader.word(global.wrapping_add(MAIN)).filter(|main| is_pointer(*main))?;
    let is_thread = reader.word(main.wrapping_add(TYPE))? >> 8 & 0xff == LUAJIT_THREAD;
    (is_thread && reader.word(main.wrapping_add(GLOBAL))? == global).then_some(global)
}

/// `lua_State.l_G`.
const GLOBAL: u64 = 24;
const GLOBAL_5_1: u64 = 32;

/// Where `l_G` stands in a state of PUC Lua 5.`minor`.
pub fn global_offset(minor: u32) -> u64 {
    if minor == 1 {
        GLOBAL_5_1
    } else {
        GLOBAL
    }
}

// ---- What was learned -----------------------------------------------------------------------------------------------------

/// What is known of one build of Lua.
pub struct Learned {
    /// Address of its facts; 0: free.
    facts: AtomicUsize,
    /// The place, a [`Place`].
    place: AtomicU32,
}

static LEARNED: [Learned; BUILDS] =
    [const { Learned { facts: AtomicUsize::new(0), place: AtomicU32::new(0) } }; BUILDS];

impl Learned {
    /// What is known of the build with these facts. `None`: no room, or no facts. Async-signal-safe.
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

    /// Where `luaV_execute` keeps its state.
    pub fn place(&self) -> Place {
        Place(self.place.load(Ordering::Relaxed))
    }

    /// It was found there.
    pub fn learn(&self, place: Place) {
        self.place.store(place.0, Ordering::Relaxed);
    }
}
