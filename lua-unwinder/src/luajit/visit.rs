//! One native frame in the VM, or in a trace: the Lua frames that it hosts, and its caller.

use super::cursor::{Chain, Cursor};
use super::frames::{Frame, Frames, GroupEnd};
use super::native::{self, Saved, Zone};
use super::proto::CodePosition;
use super::state::{Thread, FRAME_PC, FRAME_PREVIOUS};
use super::top::{self, Top, TopOfTrace};
use super::trace::{State, Trace};
use super::{area, callback, Vm, RBX};
use crate::overlay::NO_STEP;
use uunwind_core::plugin::{Caller, OVERLAY_DESYNC, OVERLAY_INTERPRETER, STEP_DONE, STEP_LOST, STEP_NATIVE};

/// DWARF number of rdx: the interpreter's base.
pub const RDX: u8 = 1;
/// Flags in the low bits of a C frame's link to the previous one.
const FRAME_FLAGS: u64 = 3;

/// The step from a frame whose pc lies in the VM's object: `STEP_*` and flags of `OVERLAY_*`.
// Not inlined, so that it takes no stack for other frames.
#[inline(never)]
pub fn in_object(vm: &Vm<'_>, cursor: &mut Cursor, caller: &mut Caller) -> u32 {
    let pc = vm.pc_in_file();
    if pc < vm.facts.start || pc >= vm.facts.end {
        if callback::leave_call(vm, caller, pc).is_some() {
            cursor.hint = 0;
            return STEP_DONE;
        }
        // C has called the leaf function, so the register held no base. The walk's memory changes, which `NO_STEP`
        // would deny.
        return match core::mem::replace(&mut cursor.hint, 0) {
            0 => NO_STEP,
            _ => STEP_NATIVE,
        };
    }
    let zone = native::zone(vm, pc);
    let sp = vm.guest.view().sp;
    let (doubt, stepped) = match zone {
        Zone::Enter(depth) => (0, native::leave_partial(vm, caller, depth, Saved::InRegisters)),
        Zone::EnterCallback(depth) => (0, native::leave_partial(vm, caller, depth, Saved::OnlyRbp)),
        Zone::Leave(depth) => (0, native::leave_partial(vm, caller, depth, Saved::InSlots)),
        Zone::Helper => {
            // The interpreter's base is still in its register, but not available any more in the next frame, which
            // needs it.
            cursor.hint = vm.register(RDX).unwrap_or(0);
            (0, native::leave_partial(vm, caller, 8, Saved::InRegisters))
        }
        // Only C calls it.
        Zone::HelperPushed => (0, native::leave_partial(vm, caller, 16, Saved::OnlyRbx)),
        Zone::Exit => match native::frame_above(vm, sp, None) {
            Some((frame, thread)) => {
                let exit = pc.wrapping_add(u64::from(!vm.guest.exact()));
                (exiting(vm, cursor, frame, &thread, exit), native::leave_trace(vm, caller, frame))
            }
            None => (OVERLAY_DESYNC, None),
        },
        Zone::Body => {
            let frame = native::frame_in_body(vm, sp, vm.guest.exact());
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

/// The step from a frame whose pc no object covers, if it is in a trace of this VM.
#[inline(never)]
pub fn in_area(vm: &Vm<'_>, cursor: &mut Cursor, caller: &mut Caller) -> u32 {
    let view = vm.guest.view();
    let lookup = view.pc.wrapping_sub(u64::from(!vm.guest.exact()));
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
        Some(trace) => trace.state_at(vm, lookup, !vm.guest.exact()),
        // An exit stub, which gives the number of the exit.
        None => Trace::running(vm, global)
            .and_then(|trace| trace.snapshot(vm, top::exit_of_stub(vm, view.pc, view.sp)?))
            .map(|snapshot| State { snapshot, place: CodePosition::At(snapshot.pc), moved: 0 }),
    };
    let top = match (base, state) {
        (Some(base), Some(state)) if thread.holds(base.wrapping_sub(state.moved)) => {
            top::in_snapshot(base.wrapping_sub(state.moved), state.snapshot, state.place)
        }
        (Some(base), None) if thread.holds(base) => {
            (Top { doubt: OVERLAY_DESYNC, ..Top::at(Frame { base, place: CodePosition::Unknown }) }, None)
        }
        _ => (Top::nothing(OVERLAY_DESYNC), None),
    };
    let doubt = emit(vm, cursor, (frame, true), &thread, |_| top);
    match native::leave_trace(vm, caller, frame) {
        Some(()) => STEP_DONE | OVERLAY_INTERPRETER | doubt,
        None => STEP_LOST | OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    }
}

/// Emits frames while the interpreter executes, with its C frame at `frame`. Returns flags of the answer.
fn interpreting(vm: &Vm<'_>, cursor: &mut Cursor, frame: u64) -> u32 {
    // While the VM is being entered or left, the frame is not linked and hosts nothing.
    let exact = vm.guest.exact();
    let Some(thread) = Thread::on_frame(vm, frame) else { return if exact { 0 } else { OVERLAY_DESYNC } };
    let hint = match cursor.hint {
        0 if exact => vm.register(RDX),
        0 => None,
        hint => Some(hint),
    };
    emit(vm, cursor, (frame, false), &thread, |frames| (top::interpreted(frames, frame, hint), None))
}

/// Emits frames in a side exit of a trace, at the file address `pc`. Returns flags of the answer.
fn exiting(vm: &Vm<'_>, cursor: &mut Cursor, frame: u64, thread: &Thread, pc: u64) -> u32 {
    emit(vm, cursor, (frame, true), thread, |frames| {
        if vm.guest.exact() && pc >= vm.facts.exit_restored {
            (top::resuming(frames, frame), None)
        } else {
            top::exiting(frames, pc)
        }
    })
}

/// Emits the Lua frames that the C frame at `frame` hosts. `in_trace`: a trace has saved registers there, and not the
/// interpreter. `innermost` finds the thread's innermost frame, if none of its frames was emitted before. Returns flags
/// of the answer.
fn emit(
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
        // Not linked yet, or not any more: an error has left it, and unwinds to the innermost linked one.
        return if vm.guest.exact() || thread.cframe > frame { 0 } else { OVERLAY_DESYNC };
    }
    let mut doubt = 0;
    let mut top = Some(Frame { base: chain.base, place: CodePosition::Unknown });
    if chain.base == thread.base {
        // No frame of this thread was emitted before.
        let (found, inlined) = innermost(&frames);
        frames.inlined = inlined;
        (top, doubt) = (found.frame, found.doubt);
        chain.base = found.frame.map_or(found.next, |frame| frame.base);
    } else if let Some(top) = &mut top {
        // A Lua function whose instruction has called C.
        top.place = interpreter_place(&frames, top.base, frame);
    }
    let end = match top {
        // The stack is being moved.
        Some(top) if !thread.holds(top.base) => GroupEnd::Torn,
        Some(top) if thread.has_group(vm, frame, top.base) => {
            frames.group(top, true, doubt == 0, &mut |steps| cursor.step(steps))
        }
        _ => GroupEnd::Next(chain.base),
    };
    cursor.end(thread.address);
    match end {
        GroupEnd::Next(base) if previous != 0 => {
            cursor.begin(Chain { thread: thread.address, base, cframe: previous });
        }
        GroupEnd::Torn => doubt |= OVERLAY_DESYNC,
        _ => {}
    }
    doubt
}

/// Advances `chain` along the thread's C frames to the current one, past those that the walk did not meet. False: it is
/// none of them.
#[inline(never)]
fn seek(frames: &Frames<'_, '_>, cursor: &mut Cursor, chain: &mut Chain, frame: u64) -> bool {
    while chain.cframe != frame {
        // C frames of one thread have ascending addresses.
        if chain.cframe == 0 || chain.cframe > frame || !cursor.step(1) {
            return false;
        }
        if frames.thread.has_group(frames.vm, chain.cframe, chain.base) {
            let top = Frame { base: chain.base, place: CodePosition::Unknown };
            match frames.group(top, false, false, &mut |steps| cursor.step(steps)) {
                GroupEnd::Next(base) => chain.base = base,
                _ => return false,
            }
        }
        let previous = frames.vm.word(chain.cframe.wrapping_add(FRAME_PREVIOUS));
        chain.cframe = previous.unwrap_or(0) & !FRAME_FLAGS;
    }
    true
}

/// The place of a C frame's innermost Lua function: the interpreter's PC, in its register or saved.
pub fn interpreter_place(frames: &Frames<'_, '_>, base: u64, frame: u64) -> CodePosition {
    let vm = frames.vm;
    let register = vm.register(RBX);
    let saved = vm.word(frame.wrapping_add(FRAME_PC));
    let places = [register, saved].map(|pc| pc.map_or(CodePosition::Unknown, CodePosition::After));
    places.into_iter().find(|place| frames.is_lua_at(base, *place)).unwrap_or(CodePosition::Unknown)
}

impl Top {
    /// The innermost frame is this one.
    pub fn at(frame: Frame) -> Top {
        Top { frame: Some(frame), next: frame.base, doubt: 0 }
    }

    /// There is no frame, or it was not found.
    pub fn nothing(doubt: u32) -> Top {
        Top { frame: None, next: 0, doubt }
    }

    /// There is no frame yet, or none any more; the next group's innermost frame has the base `next`.
    pub fn between(next: u64) -> Top {
        Top { frame: None, next, doubt: 0 }
    }
}
