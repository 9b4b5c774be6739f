//! Where a thread's Lua frames begin: its innermost frame, and the place in it. In the interpreter that is in registers only, in a
//! trace in its snapshots.

use super::frames::{Frame, Frames, Inlined, C, LINK_KIND, VARARGS};
use super::proto::Place;
use super::state::FRAME_PC;
use super::trace::{Snapshot, Trace};
use super::visit::{interpreter_place, RDX};
use super::Vm;
use uunwind_core::plugin::OVERLAY_DESYNC;
use uunwind_core::regs::{RBP, RBX};

/// The beginning of a thread's frames, and inlined ones, in a trace.
pub type TopOfTrace = (Top, Option<Inlined>);

/// The beginning of a thread's frames.
#[derive(Clone, Copy)]
pub struct Top {
    /// The innermost frame; `None`: the C frame in hand hosts none, or none is known.
    pub frame: Option<Frame>,
    /// Without a frame: where the next group begins.
    pub next: u64,
    /// `OVERLAY_DESYNC`, if there is doubt.
    pub doubt: u32,
}

/// How the interpreter goes from one bytecode instruction to the next: `mov eax, [rbx]; movzx ecx, ah; movzx ebp, al;
/// add rbx, 4`. Before the last of these, the PC tells of the instruction that comes.
const DISPATCH: [u8; 12] = [0x8b, 0x03, 0x0f, 0xb6, 0xcc, 0x0f, 0xb6, 0xe8, 0x48, 0x83, 0xc3, 0x04];
const DISPATCH_STEPS: [usize; 4] = [0, 2, 5, 8];

/// The end of a call's making: `mov [rdx-8], rbx`, the called function's link.
const LINK: [u8; 4] = [0x48, 0x89, 0x5a, 0xf8];

/// The interpreter's PC as a place, given what is about to be executed.
fn place(vm: &Vm<'_>, pc: u64) -> Place {
    let mut ahead = [0u8; DISPATCH.len()];
    let dispatching = vm.walk.exact()
        && vm.bytes(vm.walk.view().pc, &mut ahead)
        && DISPATCH_STEPS.iter().any(|at| DISPATCH.get(*at..).is_some_and(|rest| ahead.starts_with(rest)));
    if dispatching {
        Place::At(pc)
    } else {
        Place::Behind(pc)
    }
}

/// The interpreter. `hint`: what its base register holds, if that is known.
pub fn interpreted(frames: &Frames<'_, '_>, cframe: u64, hint: Option<u64>) -> Top {
    let (vm, thread) = (frames.vm, frames.thread);
    let pc = vm.register(RBX).unwrap_or(0);
    if let Some(base) = hint.filter(|base| thread.holds(*base)) {
        if let Some(top) = by_registers(frames, cframe, base, pc) {
            return top;
        }
    }
    // Entered, and the base is not in its register yet.
    let is_link = pc < thread.maxstack.wrapping_sub(thread.stack) && pc & 3 == C;
    if vm.walk.exact() && is_link && is_entered(frames, cframe) {
        return Top::between(thread.base);
    }
    // Functions of C that never look at the Lua stack are called without the base being stored: it waits in rbp.
    let stored = vm.register(RBP).filter(|base| thread.holds(*base) && frames.is_frame(*base)).unwrap_or(thread.base);
    if !thread.holds(stored) || !frames.is_frame(stored) {
        // A function of the VM's own has written its results over its frame; or there was none yet.
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

/// The base and the PC are in their registers, at some moment between two instructions of the VM.
#[inline(never)]
fn by_registers(frames: &Frames<'_, '_>, cframe: u64, base: u64, pc: u64) -> Option<Top> {
    let (vm, thread) = (frames.vm, frames.thread);
    let place = place(vm, pc);
    if frames.is_lua_at(base, place) {
        // Calling itself, it would seem to stand where its caller does, with a link that is not there yet.
        let mut ahead = [0; LINK.len()];
        if vm.walk.exact() && vm.bytes(vm.walk.view().pc, &mut ahead) && ahead == LINK {
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
    // Calling or returning by a link that is no bytecode's: the PC's register holds the link, or what is left of it.
    if pc < thread.maxstack.wrapping_sub(thread.stack) {
        return Some(linking(frames, cframe, base, pc));
    }
    calling(frames, base, pc).or_else(|| {
        (frames.is_frame(base) && !frames.is_lua(base)).then(|| Top::at(Frame { base, place: Place::Unknown }))
    })
}

/// Calling, or returning from a call, with the called function's base: the PC is the caller's.
fn calling(frames: &Frames<'_, '_>, base: u64, pc: u64) -> Option<Top> {
    let call = frames.vm.half(pc.wrapping_sub(4)).filter(|_| pc.is_multiple_of(4))?;
    let caller = base.wrapping_sub(16).wrapping_sub(u64::from(call >> 8 & 0xff).wrapping_mul(8));
    let place = Place::Behind(pc);
    if !frames.thread.holds(caller) || !frames.is_lua_at(caller, place) {
        return None;
    }
    let builtin = frames.is_frame(base) && !frames.is_lua(base) && frames.link(base) == Some(pc);
    Some(Top::at(if builtin { Frame { base, place: Place::Unknown } } else { Frame { base: caller, place } }))
}

/// A frame is being made or left whose link is no bytecode's: `link`, whose upper bits are the distance between its base and
/// that of the frame below. The base is the one or the other; or `link` is the number of a coroutine's results, and the base that of
/// the function that has resumed it.
fn linking(frames: &Frames<'_, '_>, cframe: u64, base: u64, link: u64) -> Top {
    let (vm, thread) = (frames.vm, frames.thread);
    let distance = link & !LINK_KIND;
    if frames.link(base).is_some_and(|own| own & 3 != 0 && own & !LINK_KIND == distance) {
        return frames.returning(base);
    }
    if link & 3 == C && is_entered(frames, cframe) {
        return Top::between(thread.base);
    }
    // What a continuation's caller goes on with stands below the base of what it called.
    let at = |base: u64, called: u64| {
        let place = vm.word(called.wrapping_sub(24)).map_or(Place::Unknown, Place::Behind);
        let holds = thread.holds(base) && called.wrapping_sub(base) == distance;
        (holds && frames.is_lua_at(base, place)).then(|| Top::at(Frame { base, place }))
    };
    let builtin = |base: u64| {
        (thread.holds(base) && frames.is_builtin(base)).then(|| Top::at(Frame { base, place: Place::Unknown }))
    };
    let below = base.wrapping_sub(distance);
    let found = builtin(base).or_else(|| {
        // Its copy above, with the variable arguments, is gone already.
        let left = link & LINK_KIND == VARARGS && frames.is_lua(base);
        left.then(|| frames.returning(base)).or_else(|| at(base, base.wrapping_add(distance)))
    });
    let found = found.or_else(|| builtin(below)).or_else(|| at(below, base));
    found.unwrap_or(Top { doubt: OVERLAY_DESYNC, ..Top::between(thread.base) })
}

/// Has the C frame not run any bytecode yet? Whoever makes one puts the thread, or nothing, where the PC is saved.
fn is_entered(frames: &Frames<'_, '_>, cframe: u64) -> bool {
    let saved = frames.vm.word(cframe.wrapping_add(FRAME_PC));
    saved.is_some_and(|saved| saved == 0 || saved == frames.thread.address)
}

/// A trace that runs with `base`.
pub fn in_snapshot(base: u64, snapshot: Snapshot, place: Place) -> TopOfTrace {
    let frame = Frame { base: base.wrapping_add(snapshot.depth), place };
    (Top::at(frame), Some(Inlined { base, snapshot }))
}

/// A side exit, until the Lua stack is as the interpreter wants it.
#[inline(never)]
pub fn exiting(frames: &Frames<'_, '_>, pc: u64) -> TopOfTrace {
    let (vm, thread) = (frames.vm, frames.thread);
    let field = |offset: u32| vm.word(thread.global.wrapping_add(u64::from(offset)));
    let base = field(vm.facts.jit_base).filter(|base| *base != 0).unwrap_or(thread.base);
    let unknown = (Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base, place: Place::Unknown }) }, None);
    if pc < vm.facts.exit_told {
        return unknown;
    }
    let snapshot = || {
        let (parent, number) = (field(vm.facts.parent)? as u32, field(vm.facts.exitno)? as u32);
        Trace::numbered(vm, thread.global, parent)?.snapshot(vm, number)
    };
    let Some(snapshot) = snapshot() else { return unknown };
    // Has the inlined frame been made?
    let top = thread.base;
    let restored = snapshot.depth == 0
        || (snapshot.link(vm, snapshot.depth).is_some_and(|link| frames.link(top) == Some(link))
            && frames.is_lua_at(top, Place::At(snapshot.pc)));
    if restored && !vm.walk.exact() {
        (Top::at(Frame { base: top, place: Place::At(snapshot.pc) }), None)
    } else {
        in_snapshot(base, snapshot, Place::At(snapshot.pc))
    }
}

/// The interpreter is about to go on where a trace was left.
#[inline(never)]
pub fn resuming(frames: &Frames<'_, '_>, cframe: u64) -> Top {
    let vm = frames.vm;
    let saved = vm.word(cframe.wrapping_add(FRAME_PC));
    let candidates = [(vm.register(RDX), vm.register(RBX)), (Some(frames.thread.base), saved)];
    let found = candidates.into_iter().find_map(|(base, pc)| {
        let (base, pc) = (base.filter(|base| frames.thread.holds(*base))?, pc?);
        // What the trace ends with a call of, and is none of Lua's.
        if frames.is_no_bytecode(pc) && frames.is_frame(base) && !frames.is_lua(base) {
            return Some(Frame { base, place: Place::Unknown });
        }
        frames.is_lua_at(base, Place::At(pc)).then_some(Frame { base, place: Place::At(pc) })
    });
    match found {
        Some(frame) => Top::at(frame),
        None => Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base: frames.thread.base, place: Place::Unknown }) },
    }
}

/// The exit that an exit stub stands for, at an instruction of it: it pushes the number in two parts, the lower eight bits first.
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
        // jmp, near or through memory.
        [0xe9, ..] | [0xff, 0x25, ..] => Some(pushed(8)? | pushed(0)? << 8),
        _ => None,
    }
}
