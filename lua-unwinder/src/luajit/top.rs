//! A thread's innermost Lua frame, and the place in it. While the interpreter executes, both are in registers only
//! (<https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/vm_x64.dasc>: BASE is rdx, PC is rbx); while a trace executes, in its
//! snapshots.

use super::frames::{Frame, Frames, Inlined, C, LINK_KIND, VARARGS};
use super::proto::CodePosition;
use super::state::FRAME_PC;
use super::trace::{Snapshot, Trace};
use super::visit::{interpreter_place, RDX};
use super::{Vm, RBP, RBX};
use uunwind_core::plugin::OVERLAY_DESYNC;

/// A thread's innermost frame, and the inlined frames, in a trace.
pub type TopOfTrace = (Top, Option<Inlined>);

/// A thread's innermost frame.
#[derive(Clone, Copy)]
pub struct Top {
    /// The frame; `None`: the current C frame hosts none, or it was not found.
    pub frame: Option<Frame>,
    /// The base of the frame; without one, that of the next group's innermost frame.
    pub next: u64,
    /// `OVERLAY_DESYNC`, if there is doubt; else 0.
    pub doubt: u32,
}

/// The interpreter's dispatch of the next bytecode instruction (`ins_NEXT`): `mov eax, [rbx]; movzx ecx, ah; movzx ebp,
/// al; add rbx, 4`. Until the last of these is executed, the PC is that of the instruction that begins.
const DISPATCH: [u8; 12] = [0x8b, 0x03, 0x0f, 0xb6, 0xcc, 0x0f, 0xb6, 0xe8, 0x48, 0x83, 0xc3, 0x04];
const DISPATCH_STEPS: [usize; 4] = [0, 2, 5, 8];

/// The store of the called function's link (`ins_callt`): `mov [rdx-8], rbx`.
const LINK: [u8; 4] = [0x48, 0x89, 0x5a, 0xf8];

/// The interpreter's PC as a place, depending on the machine code that is about to execute.
fn place(vm: &Vm<'_>, pc: u64) -> CodePosition {
    let mut ahead = [0u8; DISPATCH.len()];
    let dispatching = vm.guest.exact()
        && vm.bytes(vm.guest.view().pc, &mut ahead)
        && DISPATCH_STEPS.iter().any(|at| DISPATCH.get(*at..).is_some_and(|rest| ahead.starts_with(rest)));
    if dispatching {
        CodePosition::At(pc)
    } else {
        CodePosition::After(pc)
    }
}

/// The innermost frame while the interpreter executes. `hint`: the value of its base register, if that is available.
pub fn interpreted(frames: &Frames<'_, '_>, cframe: u64, hint: Option<u64>) -> Top {
    let (vm, thread) = (frames.vm, frames.thread);
    let pc = vm.register(RBX).unwrap_or(0);
    if let Some(base) = hint.filter(|base| thread.holds(*base)) {
        if let Some(top) = by_registers(frames, cframe, base, pc) {
            return top;
        }
    }
    // The VM has just been entered, and the base is not in its register yet.
    let is_link = pc < thread.maxstack.wrapping_sub(thread.stack) && pc & 3 == C;
    if vm.guest.exact() && is_link && is_entered(frames, cframe) {
        return Top::between(thread.base);
    }
    // C functions that do not use the Lua stack are called without a store of the base, which is kept in rbp.
    let stored = vm.register(RBP).filter(|base| thread.holds(*base) && frames.is_frame(*base)).unwrap_or(thread.base);
    if !thread.holds(stored) || !frames.is_frame(stored) {
        // One of the VM's own functions has overwritten its frame with its results; or there was no frame yet.
        return match calling(frames, stored, pc) {
            Some(top) => top,
            None if is_entered(frames, cframe) => Top::between(stored),
            None => Top { doubt: OVERLAY_DESYNC, ..Top::between(stored) },
        };
    }
    let place = interpreter_place(frames, stored, cframe);
    let sure = hint.is_none() || frames.is_lua_at(stored, place) || vm.word(stored.wrapping_sub(8)) == Some(pc);
    Top { doubt: if sure { 0 } else { OVERLAY_DESYNC }, ..Top::at(Frame { base: stored, place }) }
}

/// The innermost frame, by base and PC in their registers, at any instruction of the VM.
#[inline(never)]
fn by_registers(frames: &Frames<'_, '_>, cframe: u64, base: u64, pc: u64) -> Option<Top> {
    let (vm, thread) = (frames.vm, frames.thread);
    let place = place(vm, pc);
    if frames.is_lua_at(base, place) {
        // A function that calls itself: without its link, which is not stored yet, the callee looks as if it were at
        // its caller's place.
        let mut ahead = [0; LINK.len()];
        if vm.guest.exact() && vm.bytes(vm.guest.view().pc, &mut ahead) && ahead == LINK {
            if let Some(caller) = calling(frames, base, pc) {
                return Some(caller);
            }
        }
        let left = frames.link(base) == Some(pc) && frames.is_below_copy(base);
        let caller = if left { calling(frames, base, pc) } else { None };
        return caller.or(Some(Top::at(Frame { base, place })));
    }
    // Returning to C: the PC's register holds the base of the frame below.
    if thread.holds(pc) && pc < base {
        return Some(Top::between(pc));
    }
    // A call or return by a link of another kind than `FRAME_LUA`: the PC's register holds the link, or a part of it.
    if pc < thread.maxstack.wrapping_sub(thread.stack) {
        return Some(linking(frames, cframe, base, pc));
    }
    calling(frames, base, pc).or_else(|| {
        (frames.is_frame(base) && !frames.is_lua(base)).then(|| Top::at(Frame { base, place: CodePosition::Unknown }))
    })
}

/// A call, or a return from one, while the base is the called function's and the PC is the caller's.
fn calling(frames: &Frames<'_, '_>, base: u64, pc: u64) -> Option<Top> {
    let call = frames.vm.half(pc.wrapping_sub(4)).filter(|_| pc.is_multiple_of(4))?;
    let caller = base.wrapping_sub(16).wrapping_sub(u64::from(call >> 8 & 0xff).wrapping_mul(8));
    let place = CodePosition::After(pc);
    if !frames.thread.holds(caller) || !frames.is_lua_at(caller, place) {
        return None;
    }
    let builtin = frames.is_frame(base) && !frames.is_lua(base) && frames.link(base) == Some(pc);
    Some(Top::at(if builtin { Frame { base, place: CodePosition::Unknown } } else { Frame { base: caller, place } }))
}

/// A frame with a link of another kind than `FRAME_LUA` is being made or left. The upper bits of `link` are the
/// distance between its base and that of the frame below, and `base` is one of the two. Or `link` is the number of a
/// coroutine's results, and `base` that of the function that has resumed it.
fn linking(frames: &Frames<'_, '_>, cframe: u64, base: u64, link: u64) -> Top {
    let (vm, thread) = (frames.vm, frames.thread);
    let distance = link & !LINK_KIND;
    if frames.link(base).is_some_and(|own| own & 3 != 0 && own & !LINK_KIND == distance) {
        return frames.returning(base);
    }
    if link & 3 == C && is_entered(frames, cframe) {
        return Top::between(thread.base);
    }
    // The PC at which a continuation's caller resumes is stored below the base of the function that it called.
    let at = |base: u64, called: u64| {
        let place = vm.word(called.wrapping_sub(24)).map_or(CodePosition::Unknown, CodePosition::After);
        let holds = thread.holds(base) && called.wrapping_sub(base) == distance;
        (holds && frames.is_lua_at(base, place)).then(|| Top::at(Frame { base, place }))
    };
    let builtin = |base: u64| {
        (thread.holds(base) && frames.is_builtin(base)).then(|| Top::at(Frame { base, place: CodePosition::Unknown }))
    };
    let below = base.wrapping_sub(distance);
    let found = builtin(base).or_else(|| {
        // Its copy above the variable arguments was left already.
        let left = link & LINK_KIND == VARARGS && frames.is_lua(base);
        left.then(|| frames.returning(base)).or_else(|| at(base, base.wrapping_add(distance)))
    });
    let found = found.or_else(|| builtin(below)).or_else(|| at(below, base));
    found.unwrap_or(Top { doubt: OVERLAY_DESYNC, ..Top::between(thread.base) })
}

/// Has no bytecode executed on the C frame yet? Then the thread's address, or 0, is in the slot of the saved PC.
fn is_entered(frames: &Frames<'_, '_>, cframe: u64) -> bool {
    let saved = frames.vm.word(cframe.wrapping_add(FRAME_PC));
    saved.is_some_and(|saved| saved == 0 || saved == frames.thread.address)
}

/// The innermost frame of a trace that runs with `base`, by its snapshot.
pub fn in_snapshot(base: u64, snapshot: Snapshot, place: CodePosition) -> TopOfTrace {
    let frame = Frame { base: base.wrapping_add(snapshot.depth), place };
    (Top::at(frame), Some(Inlined { base, snapshot }))
}

/// The innermost frame in a side exit, until the Lua stack is restored for the interpreter.
#[inline(never)]
pub fn exiting(frames: &Frames<'_, '_>, pc: u64) -> TopOfTrace {
    let (vm, thread) = (frames.vm, frames.thread);
    let field = |offset: u32| vm.word(thread.global.wrapping_add(u64::from(offset)));
    let base = field(vm.facts.jit_base).filter(|base| *base != 0).unwrap_or(thread.base);
    let unknown = (Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base, place: CodePosition::Unknown }) }, None);
    if pc < vm.facts.exit_stored {
        return unknown;
    }
    let snapshot = || {
        let (parent, number) = (field(vm.facts.parent)? as u32, field(vm.facts.exitno)? as u32);
        Trace::numbered(vm, thread.global, parent)?.snapshot(vm, number)
    };
    let Some(snapshot) = snapshot() else { return unknown };
    // Was the innermost inlined frame written to the Lua stack already?
    let top = thread.base;
    let restored = snapshot.depth == 0
        || (snapshot.link(vm, snapshot.depth).is_some_and(|link| frames.link(top) == Some(link))
            && frames.is_lua_at(top, CodePosition::At(snapshot.pc)));
    if restored && !vm.guest.exact() {
        (Top::at(Frame { base: top, place: CodePosition::At(snapshot.pc) }), None)
    } else {
        in_snapshot(base, snapshot, CodePosition::At(snapshot.pc))
    }
}

/// The innermost frame in a side exit, when the interpreter is about to continue.
#[inline(never)]
pub fn resuming(frames: &Frames<'_, '_>, cframe: u64) -> Top {
    let vm = frames.vm;
    let saved = vm.word(cframe.wrapping_add(FRAME_PC));
    let candidates = [(vm.register(RDX), vm.register(RBX)), (Some(frames.thread.base), saved)];
    let found = candidates.into_iter().find_map(|(base, pc)| {
        let (base, pc) = (base.filter(|base| frames.thread.holds(*base))?, pc?);
        // The trace ends with a call of a function that is no Lua function.
        if frames.is_no_bytecode(pc) && frames.is_frame(base) && !frames.is_lua(base) {
            return Some(Frame { base, place: CodePosition::Unknown });
        }
        frames.is_lua_at(base, CodePosition::At(pc)).then_some(Frame { base, place: CodePosition::At(pc) })
    });
    match found {
        Some(frame) => Top::at(frame),
        None => {
            Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base: frames.thread.base, place: CodePosition::Unknown }) }
        }
    }
}

/// The number of the exit whose stub executes. A stub pushes the number in two parts, the lower eight bits first
/// (`asm_exitstub_gen` in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_asm_x86.h>).
pub fn exit_of_stub(vm: &Vm<'_>, pc: u64, sp: u64) -> Option<u32> {
    const PUSH: u8 = 0x6a;
    const JUMP: u8 = 0xeb;
    let mut code = [0u8; 4];
    if !vm.bytes(pc, &mut code) {
        return None;
    }
    let pushed = |slot: u64| vm.half(sp.wrapping_add(slot)).map(|word| word & 0xff);
    let high = |at: u64| vm.half(at).filter(|word| *word as u8 == PUSH).map(|word| word & 0xff00);
    let jump = |after: u64, distance: u8| high(pc.wrapping_add(after).wrapping_add_signed(i64::from(distance as i8)));
    match code {
        [PUSH, low, JUMP, distance] => Some(u32::from(low) | jump(4, distance)?),
        [PUSH, low, PUSH, high] => Some(u32::from(low) | u32::from(high) << 8),
        [PUSH, high, ..] => Some(pushed(0)? | u32::from(high) << 8),
        [JUMP, distance, ..] => Some(pushed(0)? | jump(2, distance)?),
        // jmp, direct or through memory.
        [0xe9, ..] | [0xff, 0x25, ..] => Some(pushed(8)? | pushed(0)? << 8),
        _ => None,
    }
}
