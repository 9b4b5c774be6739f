//! Offsets of the structures, per release: x86-64, default configuration (`luaconf.h`).
//!
//! Printed by `offsetof` against the headers of 5.1.5, 5.2.4, 5.3.6, 5.4.9 and 5.5.1; the differences of earlier
//! releases of a version are in [`of`]. A build with another configuration fails the signal half's checks, and shows
//! native frames. The structures are in lstate.h and lobject.h: <https://github.com/lua/lua/tree/v5.1.1>, v5.2.3, v5.3.6,
//! v5.4.8 and v5.5.0; `ASSUMPTIONS.md` links each of them.

use super::opcodes;
use crate::detect::Version;
use uunwind_lua::facts::FactsHead;
use uunwind_lua::facts::FAMILY_PUC;
use uunwind_lua::puc::facts::{Extent, Facts, InfoLayout, Location, ProtoLayout, StateLayout};

/// Facts with a release's layout, and no addresses and places. `None`: the version is not served. Without a release,
/// the layout is that of the version's latest.
pub fn of(version: Version) -> Option<Facts> {
    let release = version.release.unwrap_or(9);
    let (state, info, proto) = match (version.minor, release) {
        (1, _) => (STATE_5_1, INFO_5_1, PROTO_5_1),
        (2, 0) => (STATE_5_2, InfoLayout { saved_pc: 48, ..INFO_5_2 }, PROTO_5_2),
        (2, _) => (STATE_5_2, INFO_5_2, PROTO_5_2),
        (3, 0..=1) => (
            StateLayout { status: 10, ..STATE_5_3 },
            // `CIST_REENTRY`, the opposite of `CIST_FRESH`, in the same bit.
            InfoLayout { status_bytes: 1, fresh: 0, finalizer: 0, ..INFO_5_3 },
            PROTO_5_3,
        ),
        (3, 2) => (STATE_5_3, InfoLayout { status_bytes: 1, finalizer: 0, ..INFO_5_3 }, PROTO_5_3),
        (3, 3) => (STATE_5_3, InfoLayout { finalizer: 0, ..INFO_5_3 }, PROTO_5_3),
        (3, _) => (STATE_5_3, INFO_5_3, PROTO_5_3),
        (4, 0) => (StateLayout { stack: 56, stack_last: 48, ..STATE_5_4 }, INFO_5_4_0, PROTO_5_4),
        (4, 1) => (StateLayout { error_jump: 80, base_ci: 88, ..STATE_5_4 }, INFO_5_4_0, PROTO_5_4),
        (4, 2) => (StateLayout { error_jump: 80, base_ci: 88, ..STATE_5_4 }, INFO_5_4, PROTO_5_4),
        (4, _) => (STATE_5_4, INFO_5_4, PROTO_5_4),
        (5, _) => (STATE_5_5, INFO_5_5, PROTO_5_4),
        _ => return None,
    };
    Some(Facts {
        head: FactsHead::of::<Facts>(FAMILY_PUC),
        execute: [Extent::default(); 4],
        resume: [Extent::default(); 2],
        marking: Extent::default(),
        execute_state: [Location::NONE; 4],
        execute_info: [Location::NONE; 4],
        resume_state: [Location::NONE; 4],
        execute_pc: Location::NONE,
        execute_frame: 0,
        execute_prologue: 0,
        minor: u32::from(version.minor),
        state,
        info,
        proto,
        code: opcodes::code(version.minor),
        roles: opcodes::roles(version.minor),
        execute_marked: 0,
        execute_loop: 0,
    })
}

const STATE_5_1: StateLayout =
    StateLayout { status: 10, error_jump: 168, ci: 40, stack: 64, stack_last: 56, base_ci: 80, saved_pc: 48, base: 24 };
const STATE_5_2: StateLayout =
    StateLayout { error_jump: 112, ci: 32, stack: 56, stack_last: 48, base_ci: 128, saved_pc: 0, base: 0, ..STATE_5_1 };
const STATE_5_3: StateLayout = StateLayout { status: 12, error_jump: 88, base_ci: 96, ..STATE_5_2 };
const STATE_5_4: StateLayout = StateLayout { status: 10, stack: 48, stack_last: 40, ..STATE_5_3 };
const STATE_5_5: StateLayout = StateLayout { status: 11, ..STATE_5_4 };

const INFO_5_1: InfoLayout = InfoLayout {
    func: 8,
    previous: 0,
    next: 0,
    saved_pc: 24,
    status: 36,
    status_bytes: 4,
    bytes: 40,
    kind_mask: 0,
    kind_lua: 0,
    fresh_mask: u32::MAX,
    fresh: 0,
    tail: 0,
    hooked: 0,
    finalizer: 0,
};
const INFO_5_2: InfoLayout = InfoLayout {
    func: 0,
    previous: 16,
    next: 24,
    saved_pc: 56,
    status: 34,
    status_bytes: 1,
    bytes: 0,
    kind_mask: 1,
    kind_lua: 1,
    fresh_mask: 4,
    fresh: 0,
    tail: 0x40,
    hooked: 2,
    finalizer: 0,
};
const INFO_5_3: InfoLayout = InfoLayout {
    saved_pc: 40,
    status: 66,
    status_bytes: 2,
    kind_mask: 2,
    kind_lua: 2,
    fresh_mask: 8,
    fresh: 8,
    tail: 0x20,
    hooked: 4,
    finalizer: 0x100,
    ..INFO_5_2
};
const INFO_5_4: InfoLayout = InfoLayout {
    saved_pc: 32,
    status: 62,
    kind_mask: 2,
    kind_lua: 0,
    fresh_mask: 4,
    fresh: 4,
    tail: 0x20,
    hooked: 8,
    finalizer: 0x80,
    ..INFO_5_3
};
/// 5.4.0 and 5.4.1 call `luaV_execute` for each Lua function, so each is its activation's outermost.
const INFO_5_4_0: InfoLayout =
    InfoLayout { fresh_mask: 0, fresh: 0, tail: 0x10, hooked: 4, finalizer: 0x40, ..INFO_5_4 };
const INFO_5_5: InfoLayout = InfoLayout {
    status: 60,
    status_bytes: 4,
    kind_mask: 0x8000,
    fresh_mask: 0x1_0000,
    fresh: 0x1_0000,
    tail: 0x40_0000,
    hooked: 0x10_0000,
    finalizer: 0x100_0000,
    ..INFO_5_4
};

const PROTO_5_1: ProtoLayout = ProtoLayout {
    closure: 32,
    constants: 16,
    constants_len: 76,
    code: 24,
    code_len: 80,
    lines: 40,
    lines_len: 84,
    bases: 0,
    bases_len: 0,
    first_line: 96,
    source: 64,
    locals: 48,
    locals_len: 92,
    upvalues: 56,
    upvalues_len: 72,
    upvalue_bytes: 8,
};
const PROTO_5_2: ProtoLayout = ProtoLayout {
    closure: 24,
    constants_len: 84,
    code_len: 88,
    lines_len: 92,
    first_line: 104,
    source: 72,
    locals_len: 100,
    upvalues_len: 80,
    upvalue_bytes: 16,
    ..PROTO_5_1
};
const PROTO_5_3: ProtoLayout = ProtoLayout {
    constants: 48,
    constants_len: 20,
    code: 56,
    code_len: 24,
    lines: 72,
    lines_len: 28,
    first_line: 40,
    source: 104,
    locals: 80,
    locals_len: 36,
    upvalues: 88,
    upvalues_len: 16,
    ..PROTO_5_2
};
const PROTO_5_4: ProtoLayout = ProtoLayout {
    constants: 56,
    code: 64,
    lines: 88,
    bases: 96,
    bases_len: 40,
    first_line: 44,
    source: 112,
    locals: 104,
    upvalues: 80,
    ..PROTO_5_3
};
