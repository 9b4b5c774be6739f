//! A function's name, inferred from the calling instruction as LuaJIT's debug library does it (`lj_debug_funcname` in
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_debug.c>): by a backward search for the instruction that set the
//! called slot.
//!
//! Such a search reads many single bytes. Its result, an [`Origin`], has the ranges that hold them: while these are
//! unchanged, so is the name.

use super::bytecode::{self as bc, Instruction};
use super::name::Caller;
use super::proto::{own, string, utf8, Proto, EMPTY};
use super::Vm;
use uunwind_core::plugin::Text;

/// Limit of the caller's instructions that are searched.
const SEARCHED: u64 = 1024;
/// Limit of moves from slot to slot that are followed.
const MOVES: u32 = 8;
/// Limit of bytes of a prototype's names that are searched.
const NAMES: u32 = 4096;
/// Names of variables that have none in the source, by number from 1 (`VARNAMEDEF` in
/// <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_obj.h>).
const UNNAMED: [&[u8]; 6] =
    [b"(for index)", b"(for limit)", b"(for step)", b"(for generator)", b"(for state)", b"(for control)"];

/// The name that a caller gives a function, and the memory that it follows from.
pub struct Origin {
    /// The name; empty: there is none.
    pub name: Text,
    /// Ranges that were read: of the caller's instructions up to the call; of its variables; and of the value's name, a
    /// constant or the names of upvalues.
    seen: [Text; 3],
}

/// Indices in [`Origin::seen`].
const INSTRUCTIONS: usize = 0;
const VARIABLES: usize = 1;
const SOURCE: usize = 2;

impl Origin {
    /// The origin of a function without a name.
    pub fn new() -> Origin {
        Origin { name: EMPTY, seen: [EMPTY; 3] }
    }

    /// Searches for the name in the caller's code.
    #[cold]
    #[inline(never)]
    pub fn find(&mut self, vm: &Vm<'_>, caller: Option<Caller>) {
        let found = caller.and_then(|(code, place)| {
            let proto = &Proto::read(vm, code.proto)?;
            let index = code.instruction(place)?;
            self.add(INSTRUCTIONS, proto.code().start().wrapping_add(index.wrapping_mul(4)), 4);
            let instruction = Instruction::read(vm, proto, index)?;
            match instruction.opcode {
                bc::ITERC | bc::ITERN => self.slot(vm, proto, index, u64::from(instruction.a).checked_sub(3)?),
                bc::CALLM..=bc::CALLT => self.slot(vm, proto, index, u64::from(instruction.a)),
                opcode => bc::metamethod(opcode).map(own),
            }
        });
        self.name = found.unwrap_or(EMPTY);
    }

    /// Reads all that the name follows from again, so that a cached answer depends on it. `caller` is that of the
    /// search. Returns a hash of the name. `None`: it is unreadable.
    #[inline(never)]
    pub fn verify(&self, vm: &Vm<'_>, caller: Option<Caller>) -> Option<u64> {
        if let Some((code, _)) = caller {
            let proto = Proto::read(vm, code.proto)?;
            proto.constants(vm)?;
            proto.upvalues(vm)?;
            proto.variables(vm)?;
        }
        for seen in &self.seen {
            vm.guest.hash(seen.address, seen.len as usize)?;
        }
        vm.guest.sum(&self.name)
    }

    /// Extends the range of one kind by bytes that were read.
    fn add(&mut self, kind: usize, address: u64, len: u32) {
        let Some(seen) = self.seen.get_mut(kind) else { return };
        let end = address.wrapping_add(len.into());
        let (first, last) = match seen.len {
            0 => (address, end),
            _ => (seen.address.min(address), seen.address.wrapping_add(seen.len.into()).max(end)),
        };
        *seen = utf8(first, last.wrapping_sub(first) as u32);
    }

    /// The name of the value in a slot at an instruction: that of the local variable, or of the place that the value
    /// was loaded from.
    fn slot(&mut self, vm: &Vm<'_>, proto: &Proto, index: u64, slot: u64) -> Option<Text> {
        let (mut index, mut slot, mut moves) = (index, slot, 0);
        if let Some(name) = self.local(vm, proto, index, slot) {
            return Some(name);
        }
        let last = index.saturating_sub(SEARCHED);
        while index > last.saturating_add(1) {
            index = index.wrapping_sub(1);
            self.add(INSTRUCTIONS, proto.code().start().wrapping_add(index.wrapping_mul(4)), 4);
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
                    if let Some(name) = self.local(vm, proto, index, slot) {
                        return Some(name);
                    }
                }
                bc::GGET => return self.constant(vm, proto, u64::from(i.d)),
                bc::TGETS => return self.constant(vm, proto, u64::from(i.d & 0xff)),
                bc::UGET => return self.upvalue(vm, proto, u64::from(i.d)),
                _ => return None,
            }
        }
        None
    }

    /// The string constant with this number.
    fn constant(&mut self, vm: &Vm<'_>, proto: &Proto, number: u64) -> Option<Text> {
        let place = proto.constants(vm)?.wrapping_sub(number.wrapping_add(1).wrapping_mul(8));
        self.add(SOURCE, place, 8);
        string(vm, vm.word(place)?)
    }

    /// The name of the local variable that is in a slot at an instruction.
    #[inline(never)]
    fn local(&mut self, vm: &Vm<'_>, proto: &Proto, index: u64, slot: u64) -> Option<Text> {
        let first = proto.variables(vm)?;
        let mut bytes = Bytes::at(vm, first)?;
        let name = local_in(&mut bytes, index, slot);
        self.add(VARIABLES, first, bytes.address().wrapping_sub(first) as u32);
        name
    }

    /// The name of an upvalue.
    #[inline(never)]
    fn upvalue(&mut self, vm: &Vm<'_>, proto: &Proto, number: u64) -> Option<Text> {
        let first = proto.upvalues(vm)?;
        let mut bytes = Bytes::at(vm, first)?;
        for _ in 0..number {
            let start = bytes.address();
            bytes.text(start)?;
        }
        let start = bytes.address();
        let name = bytes.text(start);
        self.add(SOURCE, first, bytes.address().wrapping_sub(first) as u32);
        name
    }
}

/// A reader of adjacent bytes, which loads them in pieces.
struct Bytes<'a, 'v> {
    vm: &'a Vm<'v>,
    next: u64,
    left: u32,
    piece: [u8; 32],
    /// Number of bytes of `piece` that were not returned yet: the last ones.
    ready: usize,
}

impl<'a, 'v> Bytes<'a, 'v> {
    fn at(vm: &'a Vm<'v>, address: u64) -> Option<Bytes<'a, 'v>> {
        (address != 0).then_some(Bytes { vm, next: address, left: NAMES, piece: [0; 32], ready: 0 })
    }

    /// Address of the next byte.
    fn address(&self) -> u64 {
        self.next.wrapping_sub(self.ready as u64)
    }

    fn byte(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        if self.ready == 0 {
            // Up to the next multiple of the piece's size, so that no page is read on which there is no name.
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

    /// The text that begins at `start` and ends in 0, of which the rest is read.
    fn text(&mut self, start: u64) -> Option<Text> {
        while self.byte()? != 0 {}
        Some(utf8(start, u32::try_from(self.address().wrapping_sub(start)).ok()?.wrapping_sub(1)))
    }
}

/// The search of [`Origin::local`] in the bytes of `GCproto.varinfo` (`debug_varname` in lj_debug.c).
fn local_in(bytes: &mut Bytes<'_, '_>, index: u64, slot: u64) -> Option<Text> {
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
