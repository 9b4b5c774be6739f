//! The role of each version's opcodes in the search for names. [`A`] marks those that set register A (`luaP_opmodes` in
//! <https://github.com/lua/lua/blob/v5.4.0/lopcodes.c>). The order is that of `OpCode` in lopcodes.h of each version:
//! <https://github.com/lua/lua/blob/v5.1.1/lopcodes.h>, <https://github.com/lua/lua/blob/v5.2.3/lopcodes.h>,
//! <https://github.com/lua/lua/blob/v5.3.6/lopcodes.h>, <https://github.com/lua/lua/blob/v5.4.0/lopcodes.h>,
//! <https://github.com/lua/lua/blob/v5.5.0/lopcodes.h>.

use uunwind_lua::puc::facts::role::*;
use uunwind_lua::puc::facts::CodeLayout;

const A: u8 = SETS_A;

/// The roles of metamethods' events, in the order of `TMS` (<https://github.com/lua/lua/blob/v5.4.0/ltm.h>), as the
/// signal half's list of names.
const INDEX: u8 = META;
const NEWINDEX: u8 = META + 1;
const LEN: u8 = META + 4;
const EQ: u8 = META + 5;
const ADD: u8 = META + 6;
const SUB: u8 = META + 7;
const MUL: u8 = META + 8;
const MOD: u8 = META + 9;
const POW: u8 = META + 10;
const DIV: u8 = META + 11;
const IDIV: u8 = META + 12;
const BAND: u8 = META + 13;
const BOR: u8 = META + 14;
const BXOR: u8 = META + 15;
const SHL: u8 = META + 16;
const SHR: u8 = META + 17;
const UNM: u8 = META + 18;
const BNOT: u8 = META + 19;
const LT: u8 = META + 20;
const LE: u8 = META + 21;
const CONCAT: u8 = META + 22;
const CLOSE: u8 = META + 24;

/// MOVE LOADK LOADBOOL LOADNIL GETUPVAL GETGLOBAL GETTABLE SETGLOBAL SETUPVAL SETTABLE NEWTABLE SELF ADD SUB MUL DIV
/// MOD POW UNM NOT LEN CONCAT JMP EQ LT LE TEST TESTSET CALL TAILCALL RETURN FORLOOP FORPREP TFORLOOP SETLIST CLOSE
/// CLOSURE VARARG. 5.1's debug library names no metamethods.
const LUA_5_1: &[u8] = &[
    A | MOVE,
    A | LOAD_CONSTANT,
    A,
    A | LOAD_NIL,
    A | GET_UPVALUE,
    A | GET_GLOBAL,
    A | GET_FIELD_BY_REGISTER,
    PLAIN,
    PLAIN,
    PLAIN,
    A,
    A | METHOD,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    JUMP,
    PLAIN,
    PLAIN,
    PLAIN,
    A,
    A,
    A | CALL,
    A | CALL,
    PLAIN,
    A,
    A,
    FOR_LOOP_51,
    PLAIN,
    PLAIN,
    A | CLOSURE_51,
    A,
];

/// MOVE LOADK LOADKX LOADBOOL LOADNIL GETUPVAL GETTABUP GETTABLE SETTABUP SETUPVAL SETTABLE NEWTABLE SELF ADD SUB MUL
/// DIV MOD POW UNM NOT LEN CONCAT JMP EQ LT LE TEST TESTSET CALL TAILCALL RETURN FORLOOP FORPREP TFORCALL TFORLOOP
/// SETLIST CLOSURE VARARG EXTRAARG.
const LUA_5_2: &[u8] = &[
    A | MOVE,
    A | LOAD_CONSTANT,
    A,
    A,
    A | LOAD_NIL,
    A | GET_UPVALUE,
    A | GET_UPVALUE_FIELD,
    A | GET_FIELD_BY_REGISTER,
    NEWINDEX,
    PLAIN,
    NEWINDEX,
    A,
    A | METHOD,
    A | ADD,
    A | SUB,
    A | MUL,
    A | DIV,
    A | MOD,
    A | POW,
    A | UNM,
    A,
    A | LEN,
    A | CONCAT,
    JUMP,
    EQ,
    LT,
    LE,
    PLAIN,
    A,
    A | CALL,
    A | CALL,
    PLAIN,
    A,
    A,
    FOR_CALL,
    A,
    PLAIN,
    A,
    A,
    PLAIN,
];

/// MOVE LOADK LOADKX LOADBOOL LOADNIL GETUPVAL GETTABUP GETTABLE SETTABUP SETUPVAL SETTABLE NEWTABLE SELF ADD SUB MUL
/// MOD POW DIV IDIV BAND BOR BXOR SHL SHR UNM BNOT NOT LEN CONCAT JMP EQ LT LE TEST TESTSET CALL TAILCALL RETURN
/// FORLOOP FORPREP TFORCALL TFORLOOP SETLIST CLOSURE VARARG EXTRAARG.
const LUA_5_3: &[u8] = &[
    A | MOVE,
    A | LOAD_CONSTANT,
    A,
    A,
    A | LOAD_NIL,
    A | GET_UPVALUE,
    A | GET_UPVALUE_FIELD,
    A | GET_FIELD_BY_REGISTER,
    NEWINDEX,
    PLAIN,
    NEWINDEX,
    A,
    A | METHOD,
    A | ADD,
    A | SUB,
    A | MUL,
    A | MOD,
    A | POW,
    A | DIV,
    A | IDIV,
    A | BAND,
    A | BOR,
    A | BXOR,
    A | SHL,
    A | SHR,
    A | UNM,
    A | BNOT,
    A,
    A | LEN,
    A | CONCAT,
    JUMP,
    EQ,
    LT,
    LE,
    PLAIN,
    A,
    A | CALL,
    A | CALL,
    PLAIN,
    A,
    A,
    FOR_CALL,
    A,
    PLAIN,
    A,
    A,
    PLAIN,
];

/// MOVE LOADI LOADF LOADK LOADKX LOADFALSE LFALSESKIP LOADTRUE LOADNIL GETUPVAL SETUPVAL GETTABUP GETTABLE GETI
/// GETFIELD SETTABUP SETTABLE SETI SETFIELD NEWTABLE SELF, twenty-five arithmetic ones from ADDI to SHR, MMBIN MMBINI
/// MMBINK UNM BNOT NOT LEN CONCAT CLOSE TBC JMP EQ LT LE EQK EQI LTI LEI GTI GEI TEST TESTSET CALL TAILCALL RETURN
/// RETURN0 RETURN1 FORLOOP FORPREP TFORPREP TFORCALL TFORLOOP SETLIST CLOSURE VARARG, and VARARGPREP EXTRAARG (5.4) or
/// GETVARG ERRNNIL VARARGPREP EXTRAARG.
const LUA_5_4: &[u8] = &[
    A | MOVE,
    A,
    A,
    A | LOAD_CONSTANT,
    A,
    A,
    A,
    A,
    A | LOAD_NIL,
    A | GET_UPVALUE,
    PLAIN,
    A | GET_UPVALUE_FIELD,
    A | GET_FIELD_BY_REGISTER,
    A | GET_INTEGER,
    A | GET_FIELD,
    NEWINDEX,
    NEWINDEX,
    NEWINDEX,
    NEWINDEX,
    A,
    A | METHOD_54,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    A,
    META_BY_C,
    META_BY_C,
    META_BY_C,
    A | UNM,
    A | BNOT,
    A,
    A | LEN,
    A | CONCAT,
    CLOSE,
    PLAIN,
    JUMP,
    EQ,
    LT,
    LE,
    PLAIN,
    PLAIN,
    LT,
    LE,
    LT,
    LE,
    PLAIN,
    A,
    A | CALL,
    A | CALL,
    CLOSE,
    PLAIN,
    PLAIN,
    A,
    A,
    PLAIN,
    FOR_CALL,
    A,
    PLAIN,
    A,
    A,
    A,
    PLAIN,
];

/// The roles of a version's opcodes.
pub fn roles(minor: u8) -> [u8; 128] {
    let list = match minor {
        1 => LUA_5_1,
        2 => LUA_5_2,
        3 => LUA_5_3,
        _ => LUA_5_4,
    };
    let mut roles = [PLAIN; 128];
    for (to, from) in roles.iter_mut().zip(list) {
        *to = *from;
    }
    if minor == 5 {
        // A method's name is always a constant; GETVARG sets A, ERRNNIL and VARARGPREP do not.
        roles[20] = A | METHOD;
        roles[82] = PLAIN;
        roles[83] = PLAIN;
    }
    roles
}

/// How a version encodes instructions.
pub fn code(minor: u8) -> CodeLayout {
    if minor <= 3 {
        CodeLayout { opcode_bits: 6, b: 23, c: 14, bc_bits: 9, bx: 14, jump: 14 }
    } else {
        CodeLayout { opcode_bits: 7, b: 16, c: 24, bc_bits: 8, bx: 15, jump: 7 }
    }
}

// Instructions that read tables both set A, which names what they read, and may call `__index`. Their role is that of
// the setter; the signal half adds the event.
const _: u8 = INDEX;
