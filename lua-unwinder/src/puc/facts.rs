//! The analyse half's facts about an object that holds a PUC Lua. Addresses are file addresses (add the load bias);
//! offsets are in bytes from the start of the structure. The comments give Lua's names of the fields;
//! `analyse/src/puc/layout.rs` has the numbers of each version, and `ASSUMPTIONS.md` the source files.

use crate::facts::{FactsHead, Family, FAMILY_PUC};
use core::mem::size_of;
pub use uunwind_core::plugin::guest::Extent;

uunwind_core::plain! {
    /// The place of a function's variable: a register or a stack slot.
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct Location(pub u32);
}

impl Location {
    const REGISTER: u32 = 0x100;
    const SLOT: u32 = 0x1_0000;
    /// No place: the entry is unused.
    pub const NONE: Location = Location(0);

    /// The place of a variable in a register, by DWARF number.
    pub const fn register(number: u8) -> Location {
        Location(Self::REGISTER + number as u32)
    }

    /// The place of a variable in the stack slot at CFA - `below` bytes.
    pub const fn slot(below: u16) -> Location {
        Location(Self::SLOT + below as u32)
    }

    /// The DWARF number of the register, if the place is one.
    pub fn as_register(self) -> Option<u8> {
        u8::try_from(self.0.wrapping_sub(Self::REGISTER)).ok().filter(|number| *number < 16)
    }

    /// The distance in bytes from the slot up to the CFA, if the place is a slot.
    pub fn as_slot(self) -> Option<u64> {
        u16::try_from(self.0.wrapping_sub(Self::SLOT)).ok().map(u64::from)
    }
}

/// Places of one variable, tried in order.
pub type Places = [Location; 4];

uunwind_core::plain! {
    /// Offsets in `lua_State`.
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct StateLayout {
        /// `status`, one byte.
        pub status: u32,
        /// `errorJmp`, the innermost protected call's `lua_longjmp`.
        pub error_jump: u32,
        /// `ci`, the running function's CallInfo.
        pub ci: u32,
        /// `stack`, the first slot.
        pub stack: u32,
        /// `stack_last`, the end of the usable slots.
        pub stack_last: u32,
        /// `base_ci`: the embedded CallInfo; 5.1: a pointer to the first one.
        pub base_ci: u32,
        /// 5.1: `savedpc` of the running function; else 0.
        pub saved_pc: u32,
        /// 5.1: `base` of the running function; else 0.
        pub base: u32,
    }
}

uunwind_core::plain! {
    /// Offsets in `CallInfo`, and what its status bits mean.
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct InfoLayout {
        /// `func`, the function's slot on the Lua stack.
        pub func: u32,
        /// `previous`, the caller's CallInfo; 5.1: 0, since the structures are an array.
        pub previous: u32,
        /// `next`, the callee's CallInfo, or the one to be used for the next call.
        pub next: u32,
        /// `u.l.savedpc`.
        pub saved_pc: u32,
        /// `callstatus`; 5.1: `tailcalls`.
        pub status: u32,
        /// Size of `callstatus` in bytes.
        pub status_bytes: u32,
        /// 5.1: size of the structure in bytes; else 0.
        pub bytes: u32,
        /// `callstatus & kind_mask == kind_lua`: a Lua function.
        pub kind_mask: u32,
        /// The value under `kind_mask` of a Lua function.
        pub kind_lua: u32,
        /// `callstatus & fresh_mask == fresh`: the outermost function of its activation. 5.1 has no such mark:
        /// `fresh_mask` is `u32::MAX`, and the caller's instruction decides.
        pub fresh_mask: u32,
        /// The value under `fresh_mask` of an outermost function.
        pub fresh: u32,
        /// Bit of `callstatus`: the function was tail called, so the previous CallInfo's function did not call it.
        pub tail: u32,
        /// Bit of `callstatus`: this function's callee is a debug hook.
        pub hooked: u32,
        /// Bit of `callstatus`: this function's callee is a finalizer.
        pub finalizer: u32,
    }
}

uunwind_core::plain! {
    /// Offsets in `Proto`, and in the closure that refers to it.
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct ProtoLayout {
        /// `LClosure.p`, the closure's `Proto`.
        pub closure: u32,
        /// `k`, the constants.
        pub constants: u32,
        /// `sizek`, the number of constants.
        pub constants_len: u32,
        /// `code`, the instructions.
        pub code: u32,
        /// `sizecode`, the number of instructions.
        pub code_len: u32,
        /// `lineinfo`, the line table.
        pub lines: u32,
        /// `sizelineinfo`, the number of its entries.
        pub lines_len: u32,
        /// `abslineinfo`; 0 before 5.4, whose `lineinfo` has whole lines.
        pub bases: u32,
        /// `sizeabslineinfo`, the number of its entries.
        pub bases_len: u32,
        /// `linedefined`, the line of the definition.
        pub first_line: u32,
        /// `source`, a string.
        pub source: u32,
        /// `locvars`, the local variables.
        pub locals: u32,
        /// `sizelocvars`, their number.
        pub locals_len: u32,
        /// `upvalues`, structures whose first field is the name; 5.1: the names.
        pub upvalues: u32,
        /// `sizeupvalues`, their number.
        pub upvalues_len: u32,
        /// Size in bytes of an element of `upvalues`.
        pub upvalue_bytes: u32,
    }
}

uunwind_core::plain! {
    /// How an instruction of 32 bits is encoded, the opcode in the lowest bits
    /// (<https://github.com/lua/lua/blob/v5.4.0/lopcodes.h>).
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct CodeLayout {
        /// Number of the opcode's bits. `A`, of 8 bits, follows.
        pub opcode_bits: u32,
        /// First bit of `B`.
        pub b: u32,
        /// First bit of `C`.
        pub c: u32,
        /// Number of bits of `B` and of `C`; if 9, the highest bit says that the operand is a constant.
        pub bc_bits: u32,
        /// First bit of `Bx` and `sBx`, which end at bit 31.
        pub bx: u32,
        /// First bit of the jump distance `sJ` or `sBx`, which ends at bit 31.
        pub jump: u32,
    }
}

/// What an opcode means for the search for names, in the low seven bits of its role, as `getobjname`, `findsetreg`
/// and `funcnamefromcode` in <https://github.com/lua/lua/blob/v5.4.0/ldebug.c> treat it.
pub mod role {
    /// Flag: the instruction sets register A.
    pub const SETS_A: u8 = 0x80;
    /// No meaning but the flag's.
    pub const PLAIN: u8 = 0;
    /// `OP_LOADNIL`: sets registers A to A + B (5.1: A to B).
    pub const LOAD_NIL: u8 = 1;
    /// `OP_TFORCALL` (5.2 and later): calls an iterator, and sets all registers from A + 2 on.
    pub const FOR_CALL: u8 = 2;
    /// `OP_CALL`, `OP_TAILCALL`: calls A, and sets all registers from A on.
    pub const CALL: u8 = 3;
    /// `OP_JMP`: jumps.
    pub const JUMP: u8 = 4;
    /// `OP_MOVE`: A = B.
    pub const MOVE: u8 = 5;
    /// `OP_GETTABUP`: A = an upvalue's field, named by constant C.
    pub const GET_UPVALUE_FIELD: u8 = 6;
    /// `OP_GETTABLE`: A = B's field, named by register C; by a constant, where `bc_bits` is 9 and the highest bit set.
    pub const GET_FIELD_BY_REGISTER: u8 = 7;
    /// `OP_GETFIELD`: A = B's field, named by constant C.
    pub const GET_FIELD: u8 = 8;
    /// `OP_GETUPVAL`: A = upvalue B.
    pub const GET_UPVALUE: u8 = 9;
    /// `OP_LOADK`: A = constant Bx.
    pub const LOAD_CONSTANT: u8 = 10;
    /// `OP_SELF`: A = B's method, named by constant C.
    pub const METHOD: u8 = 11;
    /// `OP_GETGLOBAL` (5.1): A = the global named by constant Bx.
    pub const GET_GLOBAL: u8 = 12;
    /// `OP_GETI`: A = the element of B with the integer key C.
    pub const GET_INTEGER: u8 = 13;
    /// `OP_MMBIN` and its family (5.4 and later): calls the metamethod of event C for the operation before it.
    pub const META_BY_C: u8 = 14;
    /// `OP_SELF` of 5.4: bit 15 says that C is a constant, and not a register.
    pub const METHOD_54: u8 = 15;
    /// `OP_TFORLOOP` of 5.1: calls the iterator A, and sets all registers from A + 2 on.
    pub const FOR_LOOP_51: u8 = 16;
    /// `OP_CLOSURE` of 5.1: A = a closure of inner function Bx. For each of its upvalues, a word follows that says
    /// where it comes from; it has the form of an instruction, and is not executed.
    pub const CLOSURE_51: u8 = 17;
    /// From this role on: the instruction may call the metamethod of event `role - META`.
    pub const META: u8 = 32;
}

uunwind_core::plain! {
    /// Facts of one object that holds a PUC Lua.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// Size, version and family.
        pub head: FactsHead,
        /// Code of `luaV_execute`, the part with its entry first.
        pub execute: [Extent; 4],
        /// Code of `lua_resume`, or of the function that it calls to continue a coroutine.
        pub resume: [Extent; 2],
        /// 5.2: the code of `luaV_execute` between the call that made a callee's CallInfo and the store of its mark
        /// (`CIST_REENTRY`); else unused.
        pub marking: Extent,
        /// Places of `L` in `luaV_execute`.
        pub execute_state: Places,
        /// Places of `ci` in `luaV_execute`.
        pub execute_info: Places,
        /// Places of `L` in `lua_resume`.
        pub resume_state: Places,
        /// Location of the bytecode pc in `luaV_execute`; unused where the saved pc is always exact.
        pub execute_pc: Location,
        /// Size in bytes of the frame of `luaV_execute` in its body, from stack pointer to CFA; 0: not found.
        pub execute_frame: u32,
        /// Bytes of `luaV_execute` from its start to where its frame is complete and the first places of `L` and `ci`
        /// hold them.
        pub execute_prologue: u32,
        /// The version: 1 to 5 for 5.1 to 5.5.
        pub minor: u32,
        /// Layout of `lua_State`.
        pub state: StateLayout,
        /// Layout of `CallInfo`.
        pub info: InfoLayout,
        /// Layout of `Proto`.
        pub proto: ProtoLayout,
        /// Layout of instructions.
        pub code: CodeLayout,
        /// The role of each opcode.
        pub roles: [u8; 128],
        /// 5.3: bytes of `luaV_execute` from its start to where it has marked its CallInfo as fresh; else 0.
        pub execute_marked: u32,
        /// 5.1: bytes of `luaV_execute` from its start to its loop. Before that it loads a function's state from its
        /// CallInfo, at its saved pc. 0: not found.
        pub execute_loop: u32,
    }
}

const _: () = assert!(size_of::<Facts>() == 16 + 7 * 16 + 16 * 4 + (8 + 14 + 16 + 6) * 4 + 128 + 8, "no padding");

impl Facts {
    /// Does only the caller's instruction show where an activation begins? 5.1 marks none.
    pub fn has_no_mark(&self) -> bool {
        self.info.fresh_mask == u32::MAX
    }

    /// Is the bytecode pc of a running function in a local variable, and the saved one out of date? (5.2 and 5.3 save
    /// it at every instruction: `ci->u.l.savedpc++` in <https://github.com/lua/lua/blob/v5.2.0/lvm.c>.)
    pub fn pc_is_local(&self) -> bool {
        !matches!(self.minor, 2 | 3)
    }
}

impl Family for Facts {
    const FAMILY: u32 = FAMILY_PUC;
}
