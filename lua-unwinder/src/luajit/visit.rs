//! One native frame in the VM, or in a trace: what Lua frames it hosts, and where its caller is.

use super::cursor::{Chain, Cursor};
use super::frames::{End, Frame, Frames};
use super::native::{self, Saved, Zone};
use super::proto::Place;
use super::state::{Thread, FRAME_PC, FRAME_PREVIOUS};
use super::top::{self, Top, TopOfTrace};
use super::trace::{State, Trace};
use super::{area, Vm};
use crate::overlay::NO_STEP;
use uunwind_core::plugin::{Caller, OVERLAY_DESYNC, OVERLAY_INTERPRETER, STEP_DONE, STEP_LOST, STEP_NATIVE};
use uunwind_core::regs::RBX;

/// DWARF number of rdx: the interpreter's base.
pub const RDX: u8 = 1;
/// Low bits of a C frame's link to the previous one.
const FRAME_FLAGS: u64 = 3;

/// A frame whose pc lies in the object of the VM.
// Not inlined: what is called for other frames then takes no stack for it.
#[inline(never)]
pub fn in_object(vm: &Vm<'_>, cursor: &mut Cursor, caller: &mut Caller) -> u32 {
    let pc = vm.pc_in_file();
    if pc < vm.facts.start || pc >= vm.facts.end {
        // C has called a helper: what was in the register is nobody's base. That is a change of the walk's memory.
        return match core::mem::replace(&mut cursor.hint, 0) {
            0 => NO_STEP,
            _ => STEP_NATIVE,
        };
    }
    let zone = native::zone(vm, pc);
    let sp = vm.walk.view().sp;
    let (doubt, stepped) = match zone {
        Zone::Enter(depth) => (0, native::leave_partial(vm, caller, depth, Saved::InRegisters)),
        Zone::EnterCallback(depth) => (0, native::leave_partial(vm, caller, depth, Saved::OnlyRbp)),
        Zone::Leave(depth) => (0, native::leave_partial(vm, caller, depth, Saved::InSlots)),
        Zone::Helper => {
            // The interpreter's base is still there, and needed in the next frame, where it will not be.
            cursor.hint = vm.register(RDX).unwrap_or(0);
            (0, native::leave_partial(vm, caller, 8, Saved::InRegisters))
        }
        // Nobody but C calls it.
        Zone::HelperPushed => (0, native::leave_partial(vm, caller, 16, Saved::OnlyRbx)),
        Zone::Exit => match native::frame_above(vm, sp, None) {
            Some((frame, thread)) => {
                let exit = pc.wrapping_add(u64::from(!vm.walk.exact()));
                (exiting(vm, cursor, frame, &thread, exit), native::leave_trace(vm, caller, frame))
            }
            None => (OVERLAY_DESYNC, None),
        },
        Zone::Body => {
            let frame = native::frame_in_body(vm, sp, vm.walk.exact());
            (interpreting(vm, cursor, frame), native::leave_frame(vm, caller, frame))
        }
    };
    if zone != Zone::Helper {
        cursor.hint = 0;
    }
    match stepped {
        Some(()) => STEP_DONE | OVERLAY_INTERPRETER | doubt,
        None => STEP_LOST | OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    }
}

/// A frame whose pc no object covers: is it in a trace of this VM?
#[inline(never)]
pub fn in_area(vm: &Vm<'_>, cursor: &mut Cursor, caller: &mut Caller) -> u32 {
    let view = vm.walk.view();
    let lookup = view.pc.wrapping_sub(u64::from(!vm.walk.exact()));
    let Some(global) = vm.global() else { return NO_STEP };
    let trace = Trace::around(vm, global, lookup, || area::holds(vm, lookup));
    if trace.is_none() && !area::holds(vm, lookup) {
        return NO_STEP;
    }
    cursor.hint = 0;
    let base = vm.word(global.wrapping_add(u64::from(vm.facts.jit_base)));
    let found = native::frame_above(vm, view.sp, base).or_else(|| native::frame_above(vm, view.sp, None));
    let Some((frame, thread)) = found else {
        return STEP_LOST | OVERLAY_INTERPRETER | OVERLAY_DESYNC;
    };
    let state = match trace {
        Some(trace) => trace.state_at(vm, lookup, !vm.walk.exact()),
        // An exit stub: it says which exit.
        None => Trace::running(vm, global)
            .and_then(|trace| trace.snapshot(vm, top::exit_of_stub(vm, view.pc, view.sp)?))
            .map(|snapshot| State { snapshot, place: Place::At(snapshot.pc), moved: 0 }),
    };
    let top = match (base, state) {
        (Some(base), Some(state)) if thread.holds(base.wrapping_sub(state.moved)) => {
            top::in_snapshot(base.wrapping_sub(state.moved), state.snapshot, state.place)
        }
        (Some(base), None) if thread.holds(base) => {
            (Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base, place: Place::Unknown }) }, None)
        }
        _ => (Top::nothing(OVERLAY_DESYNC), None),
    };
    let doubt = tell(vm, cursor, (frame, true), &thread, |_| top);
    match native::leave_trace(vm, caller, frame) {
        Some(()) => STEP_DONE | OVERLAY_INTERPRETER | doubt,
        None => STEP_LOST | OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    }
}

/// The interpreter, with its C frame at `frame`.
fn interpreting(vm: &Vm<'_>, cursor: &mut Cursor, frame: u64) -> u32 {
    // While the VM is being entered or left, the frame is not linked and hosts nothing.
    let exact = vm.walk.exact();
    let Some(thread) = Thread::on_frame(vm, frame) else { return if exact { 0 } else { OVERLAY_DESYNC } };
    let hint = match cursor.hint {
        0 if exact => vm.register(RDX),
        0 => None,
        hint => Some(hint),
    };
    tell(vm, cursor, (frame, false), &thread, |frames| (top::interpreted(frames, frame, hint), None))
}

/// A side exit of a trace, at `pc`.
fn exiting(vm: &Vm<'_>, cursor: &mut Cursor, frame: u64, thread: &Thread, pc: u64) -> u32 {
    tell(vm, cursor, (frame, true), thread, |frames| {
        if vm.walk.exact() && pc >= vm.facts.exit_restored {
            (top::resuming(frames, frame), None)
        } else {
            top::exiting(frames, pc)
        }
    })
}

/// Emits the Lua frames that the C frame at `frame` hosts, whose registers a trace has saved, or the interpreter. `innermost` says where the thread's frames begin, if none was
/// told so far. Returns flags of the answer.
fn tell(
    vm: &Vm<'_>,
    cursor: &mut Cursor,
    (frame, in_trace): (u64, bool),
    thread: &Thread,
    innermost: impl FnOnce(&Frames<'_, '_>) -> TopOfTrace,
) -> u32 {
    let previous = vm.word(frame.wrapping_add(FRAME_PREVIOUS)).unwrap_or(0) & !FRAME_FLAGS;
    let mut frames = Frames { vm, thread, inlined: None, cframe: frame, previous, in_trace };
    let mut chain = cursor.find(thread.address).copied().unwrap_or(Chain {
        thread: thread.address,
        base: thread.base,
        cframe: thread.cframe,
    });
    if !seek(&frames, cursor, &mut chain, frame) {
        // Not linked yet, or no longer: an error has left it, on its way to the innermost that is linked.
        return if vm.walk.exact() || thread.cframe > frame { 0 } else { OVERLAY_DESYNC };
    }
    let mut doubt = 0;
    let mut top = Some(Frame { base: chain.base, place: Place::Unknown });
    if chain.base == thread.base {
        // Nothing of this thread was told so far.
        let (found, inlined) = innermost(&frames);
        frames.inlined = inlined;
        (top, doubt) = (found.frame, found.doubt);
        chain.base = found.frame.map_or(found.next, |frame| frame.base);
    } else if let Some(top) = &mut top {
        // A Lua function that had C called for it, by an instruction.
        top.place = interpreter_place(&frames, top.base, frame);
    }
    let end = match top {
        // The stack is just being moved.
        Some(top) if !thread.holds(top.base) => End::Torn,
        Some(top) if thread.has_group(vm, frame, top.base) => {
            frames.group(top, true, doubt == 0, &mut |steps| cursor.step(steps))
        }
        _ => End::Next(chain.base),
    };
    cursor.end(thread.address);
    match end {
        End::Next(base) if previous != 0 => {
            cursor.begin(Chain { thread: thread.address, base, cframe: previous });
        }
        End::Torn => doubt |= OVERLAY_DESYNC,
        _ => {}
    }
    doubt
}

/// Moves along the thread's C frames to the one in hand, past those that the walk did not meet. False: it is none of them.
#[inline(never)]
fn seek(frames: &Frames<'_, '_>, cursor: &mut Cursor, chain: &mut Chain, frame: u64) -> bool {
    while chain.cframe != frame {
        // C frames of one thread lie one above the other.
        if chain.cframe == 0 || chain.cframe > frame || !cursor.step(1) {
            return false;
        }
        if frames.thread.has_group(frames.vm, chain.cframe, chain.base) {
            let top = Frame { base: chain.base, place: Place::Unknown };
            match frames.group(top, false, false, &mut |steps| cursor.step(steps)) {
                End::Next(base) => chain.base = base,
                _ => return false,
            }
        }
        let previous = frames.vm.word(chain.cframe.wrapping_add(FRAME_PREVIOUS));
        chain.cframe = previous.unwrap_or(0) & !FRAME_FLAGS;
    }
    true
}

/// Where the Lua function whose frame is on top of a C frame stands: the interpreter's PC, in its register or saved.
pub fn interpreter_place(frames: &Frames<'_, '_>, base: u64, frame: u64) -> Place {
    let vm = frames.vm;
    let register = vm.register(RBX);
    let saved = vm.word(frame.wrapping_add(FRAME_PC));
    let places = [register, saved].map(|pc| pc.map_or(Place::Unknown, Place::Behind));
    places.into_iter().find(|place| frames.is_lua_at(base, *place)).unwrap_or(Place::Unknown)
}

impl Top {
    /// A frame to begin with.
    pub fn at(frame: Frame) -> Top {
        Top { frame: Some(frame), next: frame.base, doubt: 0 }
    }

    /// No frame is there, or none is known.
    pub fn nothing(doubt: u32) -> Top {
        Top { frame: None, next: 0, doubt }
    }

    /// No frame is there yet, or it is gone; the group below begins at `next`.
    pub fn between(next: u64) -> Top {
        Top { frame: None, next, doubt: 0 }
    }
}
