//! Emission of one frame: its line, and its function's name. Lua functions have no names; one is inferred from the
//! calling instruction ([`super::origin`]) when the function is first emitted.

use super::origin::Origin;
use super::proto::{own, Code, CodePosition, Proto, EMPTY};
use super::state::{kind, Kind, Thread};
use super::Vm;
use crate::hash::mixed;
use crate::source::{Source, Style, ID_SIZE};
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::{Description, Text, TABLE_NONE};

/// File name of the VM's own functions.
const BUILTIN: &[u8] = b"builtin";
/// Name of one of them that no instruction calls.
const BUILTIN_FUNCTION: &[u8] = b"builtin function";
/// Name of a chunk's main function that no instruction calls.
const MAIN: &[u8] = b"main chunk";

/// A Lua function's bytecode, and the current place in it.
pub type Caller = (Code, CodePosition);

/// The function objects of a frame and of its caller, as they are on the Lua stack; an instruction of the caller made
/// the call.
#[derive(Clone, Copy)]
pub struct Called {
    /// Address of the function's object; 0: it is not on the stack.
    pub object: u64,
    /// Address of its caller's object; 0: not called by an instruction, or not on the stack.
    pub caller: u64,
}

impl Called {
    /// The key that the name and the line of a function at `place` are cached under, which was called before the place
    /// `from`.
    #[inline(always)]
    pub fn key(self, vm: &Vm<'_>, place: CodePosition, from: CodePosition) -> Option<[u64; KEY]> {
        Some([self.object, place.word()?, self.caller, from.word()?, vm.identity()])
    }

    fn has_objects(self) -> bool {
        self.object != 0 && self.caller != 0
    }

    /// Are the objects still those of these functions? They are read again, so that a cached answer depends on these
    /// reads.
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

/// The function of a frame that is emitted.
#[derive(Clone, Copy)]
pub enum Function {
    /// A Lua function, at a place.
    Lua(Code, CodePosition),
    /// One of the VM's own, which have no native frame: the address of the function object, and its `ffid`.
    Builtin(u64, u8),
}

/// How a frame's function was called.
#[derive(Clone, Copy)]
pub struct Call {
    /// The function objects.
    pub objects: Called,
    /// The Lua function that called it, if one did.
    pub caller: Option<Caller>,
}

/// Emits a frame of a function, and describes the function if it was not called in this way before. False: the walk's
/// stack is full.
pub fn emit(vm: &Vm<'_>, thread: &Thread, function: Function, call: Call) -> bool {
    let [name, line] = match recall(vm, function, call) {
        Some(answer) => answer,
        None => look_up(vm, thread, function, call),
    };
    vm.guest.emit(name as u32, line)
}

// Not inlined, so that the key takes no stack while `look_up` runs.
#[inline(never)]
fn recall(vm: &Vm<'_>, function: Function, call: Call) -> Option<[u64; ANSWER]> {
    vm.guest.recall(&key(vm, function, call)?)
}

#[inline(never)]
fn remember(vm: &Vm<'_>, thread: &Thread, function: Function, call: Call, answer: &[u64; ANSWER]) {
    // If the key has the objects, the answer must depend on what they refer to, which was read before the answer's
    // reads began.
    let proved = match (function, call.caller) {
        (Function::Builtin(object, number), _) => {
            matches!(kind(vm, thread.global, object), Some(Kind::Builtin(same)) if same == number)
        }
        (Function::Lua(code, place), Some(caller)) if call.objects.has_objects() => {
            call.objects.proves(vm, thread, (code, place), caller)
        }
        _ => true,
    };
    if let Some(key) = key(vm, function, call).filter(|_| proved) {
        vm.guest.remember(&key, answer);
    }
}

/// The name id of a function, 0 if the name could not be stored, and its line, both from the process's memory.
#[cold]
#[inline(never)]
fn look_up(vm: &Vm<'_>, thread: &Thread, function: Function, call: Call) -> [u64; ANSWER] {
    let mut origin = Origin::new();
    origin.find(vm, call.caller);
    // The answer is cached with the words that are read from here on. The search for the name reads too many.
    let is_missing = recall(vm, function, call).is_none();
    let named = named(vm, function, call, &origin);
    let line = line(vm, function);
    let name = named.as_ref().map_or(0, |named| vm.guest.find_name(named.code, named.fingerprint));
    let answer = [u64::from(name), u64::from(line)];
    match named {
        // It is cached when it is looked up again: to describe it reads the texts, which would be charged to the
        // answer.
        Some(named) if name == 0 => return [u64::from(describe(vm, &named)), answer[1]],
        Some(_) if is_missing => remember(vm, thread, function, call, &answer),
        _ => {}
    }
    answer
}

/// What is emitted of a function, except for the line that executes.
struct Named {
    /// Process address of its prototype; of one of the VM's own functions, of its object.
    code: u64,
    first_line: u32,
    name: Text,
    /// `None`: it is unreadable.
    file: Option<Source>,
    style: Style,
    /// A hash of the name, the file and the first line, of their contents and not of their addresses.
    fingerprint: u64,
}

/// What identifies the function: its contents, since its address may be reused for another one.
#[inline(never)]
fn named(vm: &Vm<'_>, function: Function, call: Call, origin: &Origin) -> Option<Named> {
    let called_as = origin.verify(vm, call.caller)?;
    let is_named = origin.name.len != 0;
    let (mut named, kind) = match function {
        Function::Lua(code, _) => {
            let proto = Proto::read(vm, code.proto)?;
            let name = if !is_named && proto.is_chunk(vm) { own(MAIN) } else { origin.name };
            let style = if proto.is_builtin() { Style::LuaJitBuiltin } else { Style::LuaJit };
            let file = proto.file(vm);
            let first_line = proto.defined_at();
            (Named { code: code.proto, first_line, name, file, style, fingerprint: 0 }, u64::MAX)
        }
        Function::Builtin(object, number) => {
            let name = if is_named { origin.name } else { own(BUILTIN_FUNCTION) };
            let file = Some(Source::named(own(BUILTIN)));
            (Named { code: object, first_line: 0, name, file, style: Style::LuaJit, fingerprint: 0 }, number.into())
        }
    };
    let contents = named.file.and_then(|file| file.sum(vm.guest)).unwrap_or(0);
    let words = [contents, u64::from(named.first_line), called_as, kind];
    named.fingerprint = words.into_iter().fold(SEED, mixed);
    Some(named)
}

const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// The line that executes; 0: not available.
#[inline(never)]
fn line(vm: &Vm<'_>, function: Function) -> u32 {
    match function {
        Function::Lua(code, place) => Proto::read(vm, code.proto).map_or(0, |proto| proto.line(vm, place)),
        Function::Builtin(..) => 0,
    }
}

/// Describes the function to the host. Not inlined, since it needs much stack and is seldom called.
#[cold]
#[inline(never)]
fn describe(vm: &Vm<'_>, named: &Named) -> u32 {
    let mut room = [0; ID_SIZE];
    let file = named.file.and_then(|file| file.shown(vm.guest, named.style, &mut room));
    vm.guest.describe(&Description {
        code: named.code,
        fingerprint: named.fingerprint,
        name: named.name,
        file: file.unwrap_or(EMPTY),
        table: EMPTY,
        first_line: named.first_line,
        table_kind: TABLE_NONE,
    })
}

/// The key that a frame's name and line are cached under. `None`: a place is no possible address.
#[inline(always)]
fn key(vm: &Vm<'_>, function: Function, call: Call) -> Option<[u64; KEY]> {
    // Indices of instructions are lower than all words of places.
    let by = || {
        let number = |(code, place): Caller| (code.proto, code.instruction(place).map_or(0, |number| number + 1));
        call.caller.map_or((0, 0), number)
    };
    match (function, call.caller) {
        (Function::Lua(_, place), Some((_, from))) if call.objects.has_objects() => call.objects.key(vm, place, from),
        (Function::Lua(code, place), _) => {
            let (from, at) = by();
            Some([code.proto, place.word()?, from, at, vm.identity()])
        }
        // No place has the word `u64::MAX`.
        (Function::Builtin(object, _), _) => {
            let (from, at) = by();
            Some([object, u64::MAX, from, at, vm.identity()])
        }
    }
}
