//! Emission of one frame: its line, and what names its function. Lua functions have no names; one is inferred from the calling
//! instruction when the function is first seen.

use super::proto::{utf8, Place, Proto, EMPTY};
use super::Vm;
use uunwind_core::plugin::{Description, Text, TABLE_NONE};

/// What stands for the file of the VM's own functions.
static BUILTIN: [u8; 7] = *b"builtin";

/// A function that calls, and where it stands.
pub type Caller = (Proto, Place);

/// Emits a frame of a Lua function. False: the stack is full.
pub fn emit_lua(vm: &Vm<'_>, proto: &Proto, place: Place, caller: Option<&Caller>) -> bool {
    let fingerprint = proto.fingerprint();
    let mut id = vm.walk.find_name(proto.address, fingerprint);
    if id == 0 {
        id = vm.walk.describe(&Description {
            code: proto.address,
            fingerprint,
            name: called_as(vm, caller),
            file: proto.file(vm),
            table: EMPTY,
            first_line: proto.first_line,
            table_kind: TABLE_NONE,
        });
    }
    vm.walk.emit(id, u64::from(proto.line(vm, place)))
}

/// Emits a frame of one of the VM's own functions, which have no native frame. False: the stack is full.
pub fn emit_builtin(vm: &Vm<'_>, object: u64, number: u8, caller: Option<&Caller>) -> bool {
    let fingerprint = u64::from(number).wrapping_add(1);
    let mut id = vm.walk.find_name(object, fingerprint);
    if id == 0 {
        id = vm.walk.describe(&Description {
            code: object,
            fingerprint,
            name: called_as(vm, caller),
            file: utf8(BUILTIN.as_ptr() as u64, BUILTIN.len() as u32),
            table: EMPTY,
            first_line: 0,
            table_kind: TABLE_NONE,
        });
    }
    vm.walk.emit(id, 0)
}

/// What the calling instruction calls the function.
fn called_as(_vm: &Vm<'_>, _caller: Option<&Caller>) -> Text {
    EMPTY
}
