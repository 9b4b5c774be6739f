//! Emission of one frame: its line, and what names its function. Lua functions have no names; one is inferred from the calling
//! instruction when the function is first seen, as LuaJIT's debug library does it (`lj_debug_funcname`).

use super::bytecode::{self as bc, Instruction};
use super::proto::{string, utf8, Code, Place, Proto, EMPTY};
use super::state::{kind, Kind, Thread};
use super::Vm;
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::{Description, Text, TABLE_NONE};

/// What stands for the file of the VM's own functions.
const BUILTIN: &[u8] = b"builtin";
/// Instructions of the caller that are looked through.
const LOOKED_AT: u64 = 1024;
/// Moves from slot to slot that are followed.
const MOVES: u32 = 8;
/// Bytes of a prototype's names that are looked through.
const NAMES: u32 = 4096;
/// Names of variables that have none in the source, by number from 1.
const UNNAMED: [&[u8]; 6] =
    [b"(for index)", b"(for limit)", b"(for step)", b"(for generator)", b"(for state)", b"(for control)"];

/// A function, and where it stands.
pub type Caller = (Code, Place);

/// The function objects of a frame and of its caller, whose call instruction has led from one to the other, as they stand on the stack.
#[derive(Clone, Copy)]
pub struct Called {
    /// The function; 0: not on the stack.
    pub object: u64,
    /// Its caller; 0: not called by an instruction, or not on the stack.
    pub caller: u64,
}

impl Called {
    /// What the name and the line of a function at `place` are remembered by, called before `from`.
    #[inline(always)]
    pub fn key(self, vm: &Vm<'_>, place: Place, from: Place) -> Option<[u64; KEY]> {
        Some([self.object, place.word()?, self.caller, from.word()?, vm.identity()])
    }

    fn has_objects(self) -> bool {
        self.object != 0 && self.caller != 0
    }

    /// Do the objects still say that these functions run there? What they say is read anew.
    #[inline(never)]
    fn proves(self, vm: &Vm<'_>, thread: &Thread, function: Caller, caller: Caller) -> bool {
        let is = |object, (code, place): Caller| {
            let proto = match kind(vm, thread.global, object) {
                Some(Kind::Lua(proto)) => Proto::read(vm, proto),
                _ => None,
            };
            proto.is_some_and(|proto| proto.code() == code && proto.instruction(place).is_some())
        };
        is(self.object, function) && is(self.caller, caller)
    }
}

/// Emits a frame of a Lua function; describes it if it was never seen to be called like this. False: the stack is full.
pub fn emit_lua(vm: &Vm<'_>, thread: &Thread, called: Called, function: Caller, caller: Option<Caller>) -> bool {
    if let Some([name, line]) = recall(vm, called, function, caller) {
        return vm.walk.emit(name as u32, line);
    }
    // One behind the other, not one within the other: a handler's stack is short.
    let (mut name, fingerprint, line) = look_up_lua(vm, function, caller);
    if name == 0 {
        let called_as = called_as(vm, caller);
        name = describe_lua(vm, function.0, called_as, fingerprint);
    }
    if name != 0 {
        remember(vm, thread, called, function, caller, &[u64::from(name), u64::from(line)]);
    }
    vm.walk.emit(name, u64::from(line))
}

// Not inlined: the key then takes no stack beneath what looks the function up.
#[inline(never)]
fn recall(vm: &Vm<'_>, called: Called, function: Caller, caller: Option<Caller>) -> Option<[u64; ANSWER]> {
    vm.walk.recall(&key(vm, called, function, caller)?)
}

#[inline(never)]
fn remember(
    vm: &Vm<'_>,
    thread: &Thread,
    called: Called,
    function: Caller,
    caller: Option<Caller>,
    answer: &[u64; ANSWER],
) {
    // That these functions run there was read before, where the key is of the objects.
    let proved = |caller| called.proves(vm, thread, function, caller);
    if caller.filter(|_| called.has_objects()).is_none_or(proved) {
        if let Some(key) = key(vm, called, function, caller) {
            vm.walk.remember(&key, answer);
        }
    }
}

/// The name of a Lua function, or 0 if it was never seen to be called like this; the fingerprint, and the line.
#[cold]
#[inline(never)]
fn look_up_lua(vm: &Vm<'_>, (code, place): Caller, caller: Option<Caller>) -> (u32, u64, u32) {
    let Some(proto) = Proto::read(vm, code.proto) else { return (0, 0, 0) };
    let fingerprint = mixed(proto.fingerprint(vm), caller);
    (vm.walk.find_name(proto.address, fingerprint), fingerprint, proto.line(vm, place))
}

/// Apart, since it needs much stack and is seldom called.
#[cold]
#[inline(never)]
fn describe_lua(vm: &Vm<'_>, code: Code, called: Option<Text>, fingerprint: u64) -> u32 {
    let Some((file, first_line, is_chunk)) = defined_in(vm, code) else { return 0 };
    vm.walk.describe(&Description {
        code: code.proto,
        fingerprint,
        name: called.unwrap_or(if is_chunk { own(b"main chunk") } else { EMPTY }),
        file,
        table: EMPTY,
        first_line,
        table_kind: TABLE_NONE,
    })
}

/// The file and the line of a function's definition, and whether it is a chunk's main function.
#[inline(never)]
fn defined_in(vm: &Vm<'_>, code: Code) -> Option<(Text, u32, bool)> {
    let proto = Proto::read(vm, code.proto)?;
    Some((proto.file(vm), proto.first_line, proto.is_chunk(vm)))
}

/// Emits a frame of one of the VM's own functions, which have no native frame. False: the stack is full.
pub fn emit_builtin(vm: &Vm<'_>, object: u64, number: u8, caller: Option<Caller>) -> bool {
    let fingerprint = mixed(u64::from(number).wrapping_add(1), caller);
    let mut id = vm.walk.find_name(object, fingerprint);
    if id == 0 {
        let called = called_as(vm, caller);
        id = describe_builtin(vm, object, called, fingerprint);
    }
    vm.walk.emit(id, 0)
}

/// As [`describe_lua`].
#[cold]
#[inline(never)]
fn describe_builtin(vm: &Vm<'_>, object: u64, called: Option<Text>, fingerprint: u64) -> u32 {
    vm.walk.describe(&Description {
        code: object,
        fingerprint,
        name: called.unwrap_or(own(b"builtin function")),
        file: own(BUILTIN),
        table: EMPTY,
        first_line: 0,
        table_kind: TABLE_NONE,
    })
}

/// All that a frame's name and line depend on, besides what is read. `None`: a place is none.
#[inline(always)]
fn key(vm: &Vm<'_>, called: Called, (code, place): Caller, caller: Option<Caller>) -> Option<[u64; KEY]> {
    if let Some((_, from)) = caller.filter(|_| called.has_objects()) {
        return called.key(vm, place, from);
    }
    // Numbers of instructions are less than any place.
    let (from, at) =
        caller.map_or((0, 0), |(code, place)| (code.proto, code.instruction(place).map_or(0, |number| number + 1)));
    Some([code.proto, place.word()?, from, at, vm.identity()])
}

/// A function is known by the place that calls it, which gives it its name.
fn mixed(fingerprint: u64, caller: Option<Caller>) -> u64 {
    let Some((code, place)) = caller else { return fingerprint };
    let place = code.start().wrapping_add(code.instruction(place).unwrap_or(0).wrapping_mul(4));
    let mixed = (fingerprint ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// A text of the plugin's own.
fn own(bytes: &'static [u8]) -> Text {
    utf8(bytes.as_ptr() as u64, bytes.len() as u32)
}

/// What the calling instruction calls the function.
#[cold]
#[inline(never)]
fn called_as(vm: &Vm<'_>, caller: Option<Caller>) -> Option<Text> {
    let (code, place) = caller?;
    let proto = &Proto::read(vm, code.proto)?;
    let index = code.instruction(place)?;
    let instruction = Instruction::read(vm, proto, index)?;
    match instruction.opcode {
        bc::ITERC | bc::ITERN => slot_name(vm, proto, index, u64::from(instruction.a).checked_sub(3)?),
        bc::CALLM..=bc::CALLT => slot_name(vm, proto, index, u64::from(instruction.a)),
        opcode => bc::metamethod(opcode).map(own),
    }
}

/// The name of what a slot holds at an instruction: of the local variable, or of where the value was fetched from.
fn slot_name(vm: &Vm<'_>, proto: &Proto, index: u64, slot: u64) -> Option<Text> {
    let (mut index, mut slot, mut moves) = (index, slot, 0);
    if let Some(name) = local_name(vm, proto, index, slot) {
        return Some(name);
    }
    let last = index.saturating_sub(LOOKED_AT);
    while index > last.saturating_add(1) {
        index = index.wrapping_sub(1);
        let i = Instruction::read(vm, proto, index)?;
        let a = u64::from(i.a);
        if bc::changes_from(i.opcode) && slot >= a && (i.opcode != bc::KNIL || slot <= u64::from(i.d)) {
            return None;
        }
        if !bc::changes(i.opcode) || a != slot {
            continue;
        }
        match i.opcode {
            bc::MOV if moves < MOVES => {
                (slot, moves) = (u64::from(i.d), moves + 1);
                if let Some(name) = local_name(vm, proto, index, slot) {
                    return Some(name);
                }
            }
            bc::GGET => return constant(vm, proto, u64::from(i.d)),
            bc::TGETS => return constant(vm, proto, u64::from(i.d & 0xff)),
            bc::UGET => return upvalue_name(vm, proto, u64::from(i.d)),
            _ => return None,
        }
    }
    None
}

/// The string constant with this number.
fn constant(vm: &Vm<'_>, proto: &Proto, number: u64) -> Option<Text> {
    let place = proto.constants(vm)?.wrapping_sub(number.wrapping_add(1).wrapping_mul(8));
    string(vm, vm.word(place)?)
}

/// Bytes of foreign memory, one after the other.
struct Bytes<'a, 'v> {
    vm: &'a Vm<'v>,
    next: u64,
    left: u32,
    piece: [u8; 32],
    /// Bytes of `piece` that are still to come; the last ones.
    ready: usize,
}

impl<'a, 'v> Bytes<'a, 'v> {
    fn at(vm: &'a Vm<'v>, address: u64) -> Option<Bytes<'a, 'v>> {
        (address != 0).then_some(Bytes { vm, next: address, left: NAMES, piece: [0; 32], ready: 0 })
    }

    /// Address of the byte that comes next.
    fn address(&self) -> u64 {
        self.next.wrapping_sub(self.ready as u64)
    }

    fn byte(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        if self.ready == 0 {
            // To the next multiple of the piece's size, so that no page is touched that the names do not lie in.
            let want = self.piece.len().wrapping_sub((self.next % self.piece.len() as u64) as usize);
            let start = self.piece.len().checked_sub(want)?;
            if !self.vm.bytes(self.next, self.piece.get_mut(start..)?) {
                return None;
            }
            (self.ready, self.next) = (want, self.next.wrapping_add(want as u64));
        }
        let byte = self.piece.get(self.piece.len().checked_sub(self.ready)?).copied();
        self.ready = self.ready.wrapping_sub(1);
        byte
    }

    /// A number in LEB128.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// The rest of a text that ends in 0, from its first byte on.
    fn text(&mut self, start: u64) -> Option<Text> {
        while self.byte()? != 0 {}
        Some(utf8(start, u32::try_from(self.address().wrapping_sub(start)).ok()?.wrapping_sub(1)))
    }
}

/// The name of the local variable that lives in a slot at an instruction.
fn local_name(vm: &Vm<'_>, proto: &Proto, index: u64, slot: u64) -> Option<Text> {
    let mut bytes = Bytes::at(vm, proto.variables(vm)?)?;
    let (mut begins, mut slot) = (0u64, slot);
    loop {
        let start = bytes.address();
        let name = match bytes.byte()? {
            0 => return None,
            number @ 1..=6 => own(UNNAMED.get(usize::from(number).wrapping_sub(1)).copied()?),
            _ => bytes.text(start)?,
        };
        begins = begins.wrapping_add(bytes.number()?);
        if begins > index {
            return None;
        }
        let ends = begins.wrapping_add(bytes.number()?);
        if index < ends {
            if slot == 0 {
                return Some(name);
            }
            slot = slot.wrapping_sub(1);
        }
    }
}

/// The name of an upvalue.
fn upvalue_name(vm: &Vm<'_>, proto: &Proto, number: u64) -> Option<Text> {
    let mut bytes = Bytes::at(vm, proto.upvalues(vm)?)?;
    for _ in 0..number {
        let start = bytes.address();
        bytes.text(start)?;
    }
    let start = bytes.address();
    bytes.text(start)
}
