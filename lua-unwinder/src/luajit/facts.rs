//! The analyse half's facts about an object that holds a LuaJIT. Addresses are file addresses (add the load bias).
//!
//! LuaJIT's interpreter is one block of hand-written machine code, the *VM*
//! (<https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/vm_x64.dasc>), with one unwind entry that is right only while the
//! stack pointer is at the VM's C frame. The facts say where it is not.

use crate::facts::{FactsHead, Family, FAMILY_LUAJIT};

/// Instructions that push the VM's C frame (`saveregs`): `push rbp; push rbx; push r15; push r14; sub rsp, 40`.
pub const ENTER: [u8; 10] = [0x55, 0x53, 0x41, 0x57, 0x41, 0x56, 0x48, 0x83, 0xec, 0x28];
/// Instructions that pop it (`restoreregs`): `add rsp, 40; pop r14; pop r15; pop rbx; pop rbp`.
pub const LEAVE: [u8; 10] = [0x48, 0x83, 0xc4, 0x28, 0x41, 0x5e, 0x41, 0x5f, 0x5b, 0x5d];
/// `lj_vm_cpuid`, after its first instruction: `push rbx; xor ecx, ecx; cpuid`, four stores, `pop rbx; ret`.
pub const ASK: [u8; 18] =
    [0x53, 0x31, 0xc9, 0x0f, 0xa2, 0x89, 6, 0x89, 0x5e, 4, 0x89, 0x4e, 8, 0x89, 0x56, 12, 0x5b, 0xc3];
/// Limit of places of each kind.
pub const PLACES: usize = 6;

uunwind_core::plain! {
    /// Facts of one object that holds a LuaJIT.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// Size, version and family.
        pub head: FactsHead,
        /// First address of the VM.
        pub start: u64,
        /// Address after the VM: that of `lj_vm_ffi_call`, which has an unwind entry of its own.
        pub end: u64,
        /// Addresses of [`ENTER`]; 0: the entry is unused.
        pub enter: [u64; PLACES],
        /// Addresses of [`LEAVE`]; 0: the entry is unused.
        pub leave: [u64; PLACES],
        /// `lj_vm_ffi_callback`: [`ENTER`] without its first instruction, which the callback's thunk has executed. 0:
        /// there is none.
        pub callback: u64,
        /// `vm_exit_handler`, where a side exit of a trace arrives. The stack pointer is anywhere below the C frame
        /// until [`Facts::exit_end`]. 0: there is no JIT compiler.
        pub exit_start: u64,
        /// From this address on, `jit_State.parent` and `.exitno` hold the trace and the exit that was taken.
        pub exit_stored: u64,
        /// From this address on, `lj_trace_exit` has restored the Lua stack for the interpreter.
        pub exit_restored: u64,
        /// From this address on, the stack pointer is at the C frame.
        pub exit_end: u64,
        /// First of the leaf functions that the VM, traces and C call: their return address is at the stack pointer.
        pub helpers_start: u64,
        /// Address after the last one.
        pub helpers_end: u64,
        /// Address of [`ASK`], the only leaf function that pushes a register; 0: there is none.
        pub ask: u64,
        /// Distance in bytes from the global state to the address that r14 holds in the VM and in traces.
        pub dispatch: u32,
        /// Offset of `global_State.vmstate`; `.mainthref` follows.
        pub vmstate: u32,
        /// Offset of `global_State.cur_L`.
        pub cur_l: u32,
        /// Offset of `global_State.jit_base`.
        pub jit_base: u32,
        /// Offset of `jit_State.trace` from the global state.
        pub trace: u32,
        /// Offset of `jit_State.parent` from the global state.
        pub parent: u32,
        /// Offset of `jit_State.exitno` from the global state.
        pub exitno: u32,
        /// Size in bytes of the `endbr64` before each [`ENTER`]; 0: there is none.
        pub lead: u32,
    }
}

impl Family for Facts {
    const FAMILY: u32 = FAMILY_LUAJIT;
}

impl Facts {
    /// Does the object have a JIT compiler?
    pub fn has_jit(&self) -> bool {
        self.exit_start != 0
    }
}
