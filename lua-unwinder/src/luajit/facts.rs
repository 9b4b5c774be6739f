//! What the analyse half tells about one object that holds a LuaJIT. Addresses are file addresses (add the load bias).
//!
//! LuaJIT's interpreter is one block of hand-made machine code, the *VM*, with one unwind entry that is right only where the
//! stack pointer stands at the VM's C frame. The fields say where it does not.

use crate::facts::{Head, Plain, FAMILY_LUAJIT};

/// Instructions that push the VM's C frame: `push rbp; push rbx; push r15; push r14; sub rsp, 40`.
pub const ENTER: [u8; 10] = [0x55, 0x53, 0x41, 0x57, 0x41, 0x56, 0x48, 0x83, 0xec, 0x28];
/// Instructions that drop it: `add rsp, 40; pop r14; pop r15; pop rbx; pop rbp`.
pub const LEAVE: [u8; 10] = [0x48, 0x83, 0xc4, 0x28, 0x41, 0x5e, 0x41, 0x5f, 0x5b, 0x5d];
/// The helper that asks the processor what it can do, behind its first instruction: `push rbx; xor ecx, ecx; cpuid`, four stores,
/// `pop rbx; ret`.
pub const ASK: [u8; 18] =
    [0x53, 0x31, 0xc9, 0x0f, 0xa2, 0x89, 6, 0x89, 0x5e, 4, 0x89, 0x4e, 8, 0x89, 0x56, 12, 0x5b, 0xc3];
/// At most so many places of each kind.
pub const PLACES: usize = 6;

/// Facts of one object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size, version, family.
    pub head: Head,
    /// First address of the VM.
    pub start: u64,
    /// Its end, exclusive: there the function that makes FFI calls begins, whose unwind entry is right.
    pub end: u64,
    /// Where [`ENTER`] stands; 0 = none.
    pub enter: [u64; PLACES],
    /// Where [`LEAVE`] stands; 0 = none.
    pub leave: [u64; PLACES],
    /// The entry of FFI callbacks: [`ENTER`] without its first instruction, which the callback's stub has done. 0 = none.
    pub callback: u64,
    /// Where a side exit of a trace arrives. The stack pointer is anywhere below the C frame until [`Facts::exit_end`].
    pub exit_start: u64,
    /// The trace and the exit that was taken stand in the VM's state from here on.
    pub exit_told: u64,
    /// From here on the Lua stack is as the interpreter wants it.
    pub exit_restored: u64,
    /// From here on the stack pointer stands at the C frame.
    pub exit_end: u64,
    /// First of the leaf functions that the VM, traces and C call: their return address is at the stack pointer.
    pub helpers_start: u64,
    /// End of the last one.
    pub helpers_end: u64,
    /// Where [`ASK`] stands, the one helper that pushes something; 0 = nowhere.
    pub ask: u64,
    /// Distance from the global state to what the VM's r14 holds.
    pub dispatch: u32,
    /// Offset of `global_State.vmstate`; `.mainthref` follows.
    pub vmstate: u32,
    /// Offset of `global_State.cur_L`.
    pub cur_l: u32,
    /// Offset of `global_State.jit_base`.
    pub jit_base: u32,
    /// Offset of `jit_State.trace` from the global state.
    pub trace: u32,
    /// Offset of `jit_State.parent`, likewise.
    pub parent: u32,
    /// Offset of `jit_State.exitno`, likewise.
    pub exitno: u32,
    /// Bytes of the `endbr64` that stands before each [`ENTER`]; 0 = there is none.
    pub lead: u32,
}

// SAFETY: integers without padding.
unsafe impl Plain for Facts {
    const FAMILY: u32 = FAMILY_LUAJIT;
}

impl Facts {
    /// Is a JIT compiler there?
    pub fn has_jit(&self) -> bool {
        self.exit_start != 0
    }
}
