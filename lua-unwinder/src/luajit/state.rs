//! The fields of LuaJIT's structures that are read here: at the same offsets in all builds of 2.1 with 64-bit
//! references (<https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_obj.h>).

use super::Vm;

/// Bits of a tagged value that hold its pointer.
const POINTER: u64 = (1 << 47) - 1;
/// The tag of a function (`LJ_TFUNC`), in the bits above the pointer.
const TAG_FUNCTION: u64 = 0x1_fff7;
/// Values of `GCHeader.gct`, and the offset of the word that holds it.
const TYPE_STRING: u64 = 4;
const TYPE_THREAD: u64 = 6;
const TYPE_PROTO: u64 = 7;
const TYPE_FUNCTION: u64 = 8;
const TYPE_TRACE: u64 = 9;
pub const TYPE: u32 = 8;

/// Offsets in `lua_State`: `glref`, `base`, `maxstack`, `stack`, `cframe`.
const L_GLOBAL: u64 = 16;
const L_BASE: u32 = 32;
const L_MAXSTACK: u32 = 48;
const L_STACK: u32 = 56;
const L_CFRAME: u64 = 80;
/// Offsets in the VM's C frame (`CFRAME_OFS_*` in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_frame.h>): number of
/// results, `L`, saved PC, previous C frame.
pub const FRAME_NRES: u64 = 8;
pub const FRAME_L: u64 = 16;
pub const FRAME_PC: u64 = 24;
pub const FRAME_PREVIOUS: u64 = 32;
/// Size of the VM's C frame in bytes, return address included (`CFRAME_SIZE`).
pub const FRAME_BYTES: u64 = 80;
/// Flags in the low bits of `lua_State.cframe`.
const FRAME_FLAGS: u64 = 3;

/// A Lua thread that was read and checked.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Process address of its `lua_State`.
    pub address: u64,
    /// Process address of the global state.
    pub global: u64,
    /// `base`: while the interpreter executes, as of the last call of C.
    pub base: u64,
    /// `stack`: the first slot.
    pub stack: u64,
    /// `maxstack`: the last slot that may be a frame's base.
    pub maxstack: u64,
    /// `cframe`: the thread's innermost C frame of the VM; 0: there is none.
    pub cframe: u64,
}

/// Is it a possible address of an object: aligned, and within 47 bits?
pub fn plausible(address: u64) -> bool {
    address.is_multiple_of(8) && (0x1000..=POINTER).contains(&address)
}

/// Is there an object with this `gct` at the address?
fn has_type(vm: &Vm<'_>, object: u64, kind: u64) -> bool {
    plausible(object) && vm.word(object.wrapping_add(u64::from(TYPE))).is_some_and(|word| (word >> 8) & 0xff == kind)
}

impl Thread {
    /// Reads the thread at a process address. `None`: there is none of a VM with these facts.
    pub fn read(vm: &Vm<'_>, address: u64) -> Option<Thread> {
        if !has_type(vm, address, TYPE_THREAD) {
            return None;
        }
        let mut words = [0; 5];
        vm.words(address, [L_GLOBAL as u32, L_BASE, L_MAXSTACK, L_STACK, L_CFRAME as u32], &mut words)?;
        let [global, base, maxstack, stack, cframe] = words;
        let thread = Thread { address, global, base, stack, maxstack, cframe: cframe & !FRAME_FLAGS };
        let sane = plausible(thread.stack) && thread.stack < thread.maxstack && is_global(vm, thread.global);
        sane.then_some(thread)
    }

    /// The thread whose innermost C frame is at `frame`.
    pub fn of_frame(vm: &Vm<'_>, frame: u64) -> Option<Thread> {
        let address = vm.word(frame.wrapping_add(FRAME_L)).filter(|address| plausible(*address))?;
        let cframe = vm.word(address.wrapping_add(L_CFRAME))? & !FRAME_FLAGS;
        if cframe != frame {
            return None;
        }
        Thread::read(vm, address)
    }

    /// The thread that the C frame at `frame` refers to.
    pub fn on_frame(vm: &Vm<'_>, frame: u64) -> Option<Thread> {
        Thread::read(vm, vm.word(frame.wrapping_add(FRAME_L))?)
    }

    /// The innermost of this thread's C frames that is above a stack pointer.
    pub fn frame_above(&self, vm: &Vm<'_>, sp: u64) -> Option<u64> {
        /// Limit of nested C frames while a side exit is handled.
        const NESTED: u32 = 64;
        let mut frame = self.cframe;
        for _ in 0..NESTED {
            if frame == 0 || frame >= sp {
                return (frame != 0).then_some(frame);
            }
            frame = vm.word(frame.wrapping_add(FRAME_PREVIOUS))? & !FRAME_FLAGS;
        }
        None
    }

    /// Is `base` a possible base of a frame on this thread's stack?
    pub fn holds(&self, base: u64) -> bool {
        base.is_multiple_of(8) && self.stack.wrapping_add(16) <= base && base <= self.maxstack
    }

    /// Does the C frame host a group of Lua frames whose innermost one, of those not emitted yet, has this base? A
    /// protected call of a C function hosts none until that function calls Lua. (`cframe_nres`: negative for such a
    /// call.)
    pub fn has_group(&self, vm: &Vm<'_>, cframe: u64, base: u64) -> bool {
        let Some(word) = vm.word(cframe.wrapping_add(FRAME_NRES)) else { return false };
        let results = word as i32;
        results >= 0 || base.wrapping_sub(8) >= self.stack.wrapping_add_signed(i64::from(results).wrapping_neg())
    }
}

/// Is this a global state? Its main thread must refer back to it.
pub fn is_global(vm: &Vm<'_>, global: u64) -> bool {
    const MAIN_THREAD: u64 = 8;
    let main = || {
        let main = vm.word(global.wrapping_add(u64::from(vm.facts.vmstate)).wrapping_add(MAIN_THREAD))?;
        (plausible(main) && vm.word(main.wrapping_add(L_GLOBAL))? == global).then_some(())
    };
    plausible(global) && main().is_some()
}

/// The address of the function object in a tagged value, if it is a function.
pub fn function(value: u64) -> Option<u64> {
    let pointer = value & POINTER;
    (value >> 47 == TAG_FUNCTION && plausible(pointer)).then_some(pointer)
}

/// The kind of a function.
pub enum Kind {
    /// A Lua function: the address of its prototype.
    Lua(u64),
    /// A C function: it has a native frame of its own.
    C,
    /// A function of the VM's own, which has no native frame: its `ffid`.
    Builtin(u8),
}

/// Offset of `GCfunc.pc`. (`.ffid` is the third byte of the type's word.)
const FUNCTION_PC: u32 = 32;
/// Distance from `global_State.bc_cfunc_int` to `.cur_L`. The `pc` of all C functions refers to it or to
/// `.bc_cfunc_ext`.
const C_CODE: u64 = 8;

/// The kind of the function object at `address`. `None`: there is no function.
pub fn kind(vm: &Vm<'_>, global: u64, address: u64) -> Option<Kind> {
    let mut words = [0; 2];
    vm.words(address, [TYPE, FUNCTION_PC], &mut words)?;
    let [head, pc] = words;
    if (head >> 8) & 0xff != TYPE_FUNCTION {
        return None;
    }
    let id = (head >> 16) as u8;
    match id {
        0 => Some(Kind::Lua(pc.checked_sub(super::proto::CODE)?)),
        1 => Some(Kind::C),
        _ => {
            let c = global.wrapping_add(u64::from(vm.facts.cur_l)).wrapping_sub(C_CODE);
            Some(if pc == c || pc == c.wrapping_add(4) { Kind::C } else { Kind::Builtin(id) })
        }
    }
}

/// Does the word that holds the type say that an object is a prototype?
pub fn is_proto(head: u64) -> bool {
    (head >> 8) & 0xff == TYPE_PROTO
}

/// Is there a string at this address?
pub fn is_string(vm: &Vm<'_>, address: u64) -> bool {
    has_type(vm, address, TYPE_STRING)
}

/// Is there a thread at this address? Unlike [`Thread::read`], also while its stack is moved.
pub fn is_thread(vm: &Vm<'_>, address: u64) -> bool {
    has_type(vm, address, TYPE_THREAD)
}

/// Is there a trace at this address?
pub fn is_trace(vm: &Vm<'_>, address: u64) -> bool {
    has_type(vm, address, TYPE_TRACE)
}
