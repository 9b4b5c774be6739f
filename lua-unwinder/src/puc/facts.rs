//! What the analyse half tells about one object that holds a PUC Lua. Addresses are file addresses (add the load bias);
//! offsets are in bytes from the start of the structure. Lua's names of the fields stand in the comments.

use crate::facts::{Head, Plain, FAMILY_PUC};
use core::mem::size_of;

/// Addresses `[start, end)`; both 0: unused.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
}

impl Extent {
    /// Is an address inside?
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// Where a function keeps one of its variables.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(pub u32);

impl Place {
    const REGISTER: u32 = 0x100;
    const SLOT: u32 = 0x1_0000;
    /// Unused.
    pub const NONE: Place = Place(0);

    /// A register, by DWARF number.
    pub const fn register(number: u8) -> Place {
        Place(Self::REGISTER + number as u32)
    }

    /// The stack slot at CFA - `below`, which is at most 64 KiB.
    pub const fn slot(below: u16) -> Place {
        Place(Self::SLOT + below as u32)
    }

    /// The register.
    pub fn as_register(self) -> Option<u8> {
        u8::try_from(self.0.wrapping_sub(Self::REGISTER)).ok().filter(|number| *number < 16)
    }

    /// How far below the CFA the slot lies.
    pub fn as_slot(self) -> Option<u64> {
        u16::try_from(self.0.wrapping_sub(Self::SLOT)).ok().map(u64::from)
    }
}

/// Places tried in order.
pub type Places = [Place; 4];

/// `lua_State`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateLayout {
    /// `status`, a byte.
    pub status: u32,
    /// `errorJmp`.
    pub error_jump: u32,
    /// `ci`.
    pub ci: u32,
    /// `stack`.
    pub stack: u32,
    /// `stack_last`.
    pub stack_last: u32,
    /// `base_ci`: the embedded CallInfo; 5.1: a pointer to the first one.
    pub base_ci: u32,
    /// 5.1: `savedpc`, that of the running function; else 0.
    pub saved_pc: u32,
    /// 5.1: `base`, of the running function; else 0.
    pub base: u32,
}

/// `CallInfo`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InfoLayout {
    /// `func`.
    pub func: u32,
    /// `previous`; 5.1: 0, the structures stand in an array.
    pub previous: u32,
    /// `next`.
    pub next: u32,
    /// `u.l.savedpc`.
    pub saved_pc: u32,
    /// `callstatus`; 5.1: `tailcalls`.
    pub status: u32,
    /// Bytes of `callstatus`.
    pub status_bytes: u32,
    /// 5.1: bytes of the structure; else 0.
    pub bytes: u32,
    /// `callstatus & kind_mask == kind_lua`: a Lua function.
    pub kind_mask: u32,
    /// See `kind_mask`.
    pub kind_lua: u32,
    /// `callstatus & fresh_mask == fresh`: the outermost function of its activation. 5.1: `fresh_mask` is `u32::MAX`, and the
    /// caller's instruction tells.
    pub fresh_mask: u32,
    /// See `fresh_mask`.
    pub fresh: u32,
    /// In `callstatus`: the function was tail called, so its caller is not what called it.
    pub tail: u32,
    /// In `callstatus`: a debug hook runs, called from here.
    pub hooked: u32,
    /// In `callstatus`: a finalizer runs, called from here.
    pub finalizer: u32,
}

/// `Proto`, and the closure that holds it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtoLayout {
    /// `LClosure.p`.
    pub closure: u32,
    /// `k`.
    pub constants: u32,
    /// `sizek`.
    pub constants_len: u32,
    /// `code`.
    pub code: u32,
    /// `sizecode`.
    pub code_len: u32,
    /// `lineinfo`.
    pub lines: u32,
    /// `sizelineinfo`.
    pub lines_len: u32,
    /// `abslineinfo`; 0 before 5.4: `lineinfo` has whole lines.
    pub bases: u32,
    /// `sizeabslineinfo`.
    pub bases_len: u32,
    /// `linedefined`.
    pub first_line: u32,
    /// `source`.
    pub source: u32,
    /// `locvars`.
    pub locals: u32,
    /// `sizelocvars`.
    pub locals_len: u32,
    /// `upvalues`, `{ name, ... }`.
    pub upvalues: u32,
    /// `sizeupvalues`.
    pub upvalues_len: u32,
    /// Bytes of one upvalue description.
    pub upvalue_bytes: u32,
}

/// How an instruction is coded: opcode in the lowest bits.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeLayout {
    /// Bits of the opcode. `A`, of 8 bits, follows.
    pub opcode_bits: u32,
    /// First bit of `B`.
    pub b: u32,
    /// First bit of `C`.
    pub c: u32,
    /// Bits of `B` and of `C`; with 9, the highest says that it is a constant.
    pub bc_bits: u32,
    /// First bit of `Bx` and `sBx`, which end at bit 31.
    pub bx: u32,
    /// First bit of the jump distance `sJ` or `sBx`, which ends at bit 31.
    pub jump: u32,
}

/// What an opcode means for names: the low seven bits of a role.
pub mod role {
    /// Flag: it sets register A.
    pub const SETS_A: u8 = 0x80;
    /// Nothing more.
    pub const PLAIN: u8 = 0;
    /// Sets A to A + B.
    pub const LOAD_NIL: u8 = 1;
    /// Sets all from A + 2 on, and calls A (5.2 and later).
    pub const FOR_CALL: u8 = 2;
    /// Calls A, sets all from A on.
    pub const CALL: u8 = 3;
    /// Jumps.
    pub const JUMP: u8 = 4;
    /// A = B.
    pub const MOVE: u8 = 5;
    /// A = an upvalue's field, named by constant C.
    pub const GET_UPVALUE_FIELD: u8 = 6;
    /// A = B's field, named by register C; a coded constant where `bc_bits` is 9.
    pub const GET_FIELD_BY_REGISTER: u8 = 7;
    /// A = B's field, named by constant C.
    pub const GET_FIELD: u8 = 8;
    /// A = upvalue B.
    pub const GET_UPVALUE: u8 = 9;
    /// A = constant Bx.
    pub const LOAD_CONSTANT: u8 = 10;
    /// A = B's method, named by constant C, or register C where bit 15 is clear in 5.4.
    pub const METHOD: u8 = 11;
    /// A = the global named by constant Bx (5.1).
    pub const GET_GLOBAL: u8 = 12;
    /// A = C-th integer element of B.
    pub const GET_INTEGER: u8 = 13;
    /// Calls a metamethod whose event is C (5.4 and later), for the operation before it.
    pub const META_BY_C: u8 = 14;
    /// As `METHOD`, in 5.4: bit 15 says that C is a constant.
    pub const METHOD_54: u8 = 15;
    /// Jumps, tested before a for loop (5.1's generic `for`): calls A.
    pub const FOR_LOOP_51: u8 = 16;
    /// From here on: may call a metamethod of the event `role - META`.
    pub const META: u8 = 32;
}

/// Facts of one object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size, version, family.
    pub head: Head,
    /// Code of `luaV_execute`, its first part first.
    pub execute: [Extent; 4],
    /// Code of `lua_resume` or what it calls to go on with a coroutine.
    pub resume: [Extent; 2],
    /// 5.2: where `luaV_execute` has a called function's CallInfo in hand, and has not marked it yet; else unused.
    pub marking: Extent,
    /// Where `luaV_execute` keeps `L`.
    pub execute_state: Places,
    /// Where it keeps `ci`.
    pub execute_info: Places,
    /// Where `lua_resume` keeps `L`.
    pub resume_state: Places,
    /// Where it keeps the bytecode pc; unused where the saved pc is always exact.
    pub execute_pc: Place,
    /// Bytes of its frame in its body, from stack pointer to CFA; 0: unknown.
    pub execute_frame: u32,
    /// Bytes from its start to where its frame is made, and the first places of `L` and `ci` hold them.
    pub execute_prologue: u32,
    /// 1 to 5, as in 5.1.
    pub minor: u32,
    /// `lua_State`.
    pub state: StateLayout,
    /// `CallInfo`.
    pub info: InfoLayout,
    /// `Proto`.
    pub proto: ProtoLayout,
    /// Instructions.
    pub code: CodeLayout,
    /// What each opcode means.
    pub roles: [u8; 128],
    /// 5.3: bytes from the start of `luaV_execute` to where it has marked its CallInfo as fresh; else 0.
    pub execute_marked: u32,
    /// 5.1: bytes from the start of `luaV_execute` to where its loop begins: a function is taken up before, at its saved pc. 0: not known.
    pub execute_loop: u32,
}

const _: () = assert!(size_of::<Facts>() == 16 + 7 * 16 + 16 * 4 + (8 + 14 + 16 + 6) * 4 + 128 + 8, "no padding");

impl Facts {
    /// Does the caller's instruction alone tell where an activation begins? 5.1 marks none.
    pub fn has_no_mark(&self) -> bool {
        self.info.fresh_mask == u32::MAX
    }

    /// Is the bytecode pc of a running function kept in a register, and the saved one stale? (5.2 and 5.3 save it at every
    /// instruction.)
    pub fn pc_is_local(&self) -> bool {
        !matches!(self.minor, 2 | 3)
    }
}

// SAFETY: integers without padding (asserted above).
unsafe impl Plain for Facts {
    const FAMILY: u32 = FAMILY_PUC;
}
