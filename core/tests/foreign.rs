//! Steppers and overlays inside a walk: what they may do, and what the walk makes of nonsense.
#![cfg(target_arch = "x86_64")]

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Read, Reader, Recalled, Region};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{
    Caller, View, Visit, OVERLAY_INTERPRETER, STEP_DONE, STEP_END, STEP_LOST, STEP_NATIVE, STEP_OTHER_STACK,
};
use uunwind_core::recovery::{Protector, Recovery};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{
    walk, Claim, Claimed, Env, Look, Names, Outcome, Replay, Setting, DEEP_WORDS, MAX_FRAMES, OUTERMOST, SCRATCH,
};

const STACK: u64 = 0x7000_0000;
/// Code in [FOREIGN, FOREIGN + 0x1000) belongs to the stepper; all other code has frames of two words.
const FOREIGN: u64 = 0x50_0000;

struct Process {
    step: Visit,
    keeps: bool,
    off: bool,
    failed: Vec<(u8, StopReason)>,
    recovery: Recovery,
}

impl Env for Process {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        match cursor.lookup_pc() {
            0x9000..=0x9fff => Rule::end().pack(),
            _ => Rule::simple(RSP, 16).pack(),
        }
    }
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let claim = match (FOREIGN..FOREIGN + 0x1000).contains(&cursor.lookup_pc()) {
            true if self.off => Claimed::Off,
            true => Claimed::By(Claim {
                step: Some(self.step),
                index: 2,
                range: Span::sized(FOREIGN, 0x1000),
                ..Claim::NOTHING
            }),
            false => Claimed::No,
        };
        Look { claim, ..Look::at(self.rule(cursor, reader)) }
    }
    fn protector(&self, _: u8) -> Protector {
        // SAFETY: no call of these tests faults, and the walk ends before this process.
        unsafe { Protector::new(&self.recovery, Span::EMPTY) }
    }
    fn failed(&mut self, claim: &Claim, reason: StopReason) {
        self.failed.push((claim.index, reason));
    }
}

impl Names for Process {
    fn keeps_semantic_frames(&self) -> bool {
        self.keeps
    }
    fn find_name(&mut self, _: u8, _: u64, _: u64) -> u32 {
        7
    }
}

impl Replay for Process {}

type Change = fn(&mut Caller, &View);

thread_local! {
    /// What the stepper answers, and how it changes the caller.
    static SCRIPT: RefCell<(u32, Change)> = const { RefCell::new((0, |_, _| {})) };
}

unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: the walk's view, with a caller, since this is a step.
    let (view, caller) = unsafe { (&*view, &mut *(*view).caller) };
    assert_eq!((view.cfa, view.plugin), (0, 2));
    assert_eq!((view.range_start, view.range_end), (FOREIGN, FOREIGN + 0x1000));
    // SAFETY: the host's functions on this very walk.
    unsafe {
        let name = ((*view.host).find_name)(view.walk, 1, 2);
        assert!(((*view.host).emit)(view.walk, name, 11));
    }
    // A copy: a call that is abandoned gives nothing back.
    let (answer, change) = SCRIPT.with_borrow(|script| *script);
    change(caller, view);
    answer
}

/// leaf (native, 0x1000) -> FOREIGN + 0x10 -> whatever the stepper says; 0x9010 lies in the outermost function.
fn run(answer: u32, change: Change) -> (Outcome, Vec<Frame>, Vec<(u8, StopReason)>) {
    run_from(0, answer, change)
}

/// The same, with `depth` native frames more between the leaf and the stepper's.
fn run_from(depth: usize, answer: u32, change: Change) -> (Outcome, Vec<Frame>, Vec<(u8, StopReason)>) {
    run_in((true, false), depth, answer, change)
}

/// The same; `state`: whether semantic frames are kept, and whether the plugin is off.
fn run_in(
    state: (bool, bool),
    depth: usize,
    answer: u32,
    change: Change,
) -> (Outcome, Vec<Frame>, Vec<(u8, StopReason)>) {
    let (keeps, off) = state;
    SCRIPT.set((answer, change));
    let returns = std::iter::repeat_n(0x2000, depth).chain([FOREIGN + 0x10, 0x9010, 0, 0]);
    let stack: Vec<u8> = returns.flat_map(|address: u64| [0, address]).flat_map(u64::to_le_bytes).collect();
    let regions = [Region { address: STACK, bytes: &stack }];
    let mut reader = Reader::recorded(&regions);
    let (mut log, mut recalled) = (Vec::<Read>::with_capacity(64), Box::new(Recalled::new()));
    // SAFETY: both outlive the reader, and have no other user.
    unsafe {
        reader.write_down(log.as_mut_ptr(), log.capacity());
        reader.keep_answers(&raw mut *recalled);
    }
    let mut scratch = vec![0u128; SCRATCH / 16];
    let mut exchange = MaybeUninit::uninit();
    let setting = Setting {
        scratch: scratch.as_mut_ptr().cast(),
        exchange: exchange.as_mut_ptr(),
        keep_outermost: true,
        by_frame_pointer: false,
        ..Setting::EMPTY
    };
    let mut process = Process { step, keeps, off, failed: Vec::new(), recovery: Recovery::new() };
    let mut words = vec![0; DEEP_WORDS];
    let registers = std::array::from_fn(|r| if r == usize::from(RSP) { STACK } else { r as u64 });
    let leaf = Cursor { regs: Regs::full(0x1000, registers), exact: true };
    // SAFETY: SCRATCH bytes, 16-aligned.
    let outcome = unsafe { walk(leaf, &mut process, &mut reader, &mut words, &setting) };
    (outcome, frames(&words[..outcome.words]).collect(), process.failed)
}

fn addresses(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(|f| if let Frame::Native { address, .. } = f { *address } else { 0 }).collect()
}

#[test]
fn a_stepper_moves_the_cursor_and_emits() {
    let (outcome, frames, failed) = run(STEP_DONE | OVERLAY_INTERPRETER, |caller, view| {
        caller.pc = 0x9010;
        caller.registers[7] = view.sp + 8;
    });
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10, 0x9010]);
    assert_eq!(frames[1], Frame::Semantic { plugin: 2, name: 7, position: 11, awaiting: false });
    assert!(matches!(frames[2], Frame::Native { interpreter: true, .. }));
}

#[test]
fn the_host_steps_natively_for_a_stepper() {
    let (outcome, frames, failed) = run(STEP_DONE, |caller, view| {
        // SAFETY: the host's function on this very walk.
        assert_eq!(unsafe { ((*view.host).native_step)(view.walk, caller) }, 0);
    });
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10, 0x9010]);
}

#[test]
fn a_stepper_may_end_a_walk_or_lose_it() {
    for (answer, stop) in [(STEP_END, StopReason::Complete), (STEP_LOST, StopReason::PluginLost)] {
        let (outcome, frames, failed) = run(answer, |_, _| {});
        assert_eq!((outcome.stop, failed), (stop, vec![]));
        assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10]);
    }
}

#[test]
fn a_frame_that_is_not_the_steppers_is_stepped_natively() {
    let (outcome, frames, failed) = run(STEP_NATIVE, |_, _| {});
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10, 0x9010]);
}

#[test]
fn nonsense_is_counted_taken_back_and_stepped_around() {
    let nonsense: [(u32, Change); 7] = [
        (0x2000, |_, _| {}),
        (STEP_END | STEP_OTHER_STACK, |_, _| {}),
        (STEP_DONE, |caller, view| (caller.pc, caller.registers[7]) = (0x9010, view.sp)),
        (STEP_DONE, |caller, view| (caller.pc, caller.registers[7]) = (0x9010, view.sp - 64)),
        (STEP_DONE, |caller, view| (caller.pc, caller.registers[7]) = (0x9010, view.sp + 4)),
        (STEP_DONE, |caller, view| (caller.pc, caller.registers[7]) = (0, view.sp + 8)),
        (STEP_DONE, |caller, view| (caller.pc, caller.registers[7], caller.known) = (0x9010, view.sp + 8, 0)),
    ];
    for (i, (answer, change)) in nonsense.into_iter().enumerate() {
        let (outcome, frames, failed) = run(answer, change);
        assert_eq!(failed, [(2, StopReason::PluginNonsense)], "case {i}");
        assert_eq!((outcome.stop, outcome.desync), (StopReason::Complete, 1), "case {i}");
        assert_eq!(addresses(&frames), [0x1000, FOREIGN + 0x10, 0x9010], "case {i}: its frames are taken back");
    }
}

/// Emits frames until some may be left out, and leaves these out: 10,000 in all.
fn emit_many(view: &View) {
    let mut left = 10_000u32;
    while left > 0 {
        // SAFETY: the host's functions on this very walk.
        let omitted = unsafe {
            assert!(((*view.host).emit)(view.walk, 7, u64::from(left)));
            ((*view.host).omit)(view.walk, left - 1)
        };
        left -= 1 + omitted;
    }
}

/// Frames nearer the leaf than those left out, how many were left out, and those nearer the root.
fn parts(frames: &[Frame]) -> (&[Frame], usize, &[Frame]) {
    let at = frames.iter().position(|f| matches!(f, Frame::Omitted { .. })).expect("frames were left out");
    let Frame::Omitted { frames: omitted } = frames[at] else { unreachable!("just found") };
    (&frames[..at], omitted as usize, &frames[at + 1..])
}

fn is_semantic(frame: &Frame) -> bool {
    matches!(frame, Frame::Semantic { .. })
}

#[test]
fn a_plugin_leaves_out_the_middle_of_a_deep_stack() {
    for depth in [0, 4000, 4094, 4095, 5000] {
        let (outcome, frames, failed) = run_from(depth, STEP_DONE, |caller, view| {
            emit_many(view);
            (caller.pc, caller.registers[7]) = (0x9010, view.sp + 16);
        });
        assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
        // The leaf, the stepper's frame with what it emitted (`step` emits one itself), and the outermost.
        let total = 1 + depth + 1 + 10_001 + 1;
        let (inner, omitted, outer) = parts(&frames);
        assert_eq!((inner.len(), outer.len()), (MAX_FRAMES as usize, OUTERMOST));
        assert_eq!((outcome.frames as usize, inner.len() + omitted + outer.len()), (total, total), "{depth}");
        assert_eq!(addresses(&outer[OUTERMOST - 2..]), [FOREIGN + 0x10, 0x9010]);
        let positions: Vec<Frame> =
            (1..=62).rev().map(|position| Frame::Semantic { plugin: 2, name: 7, position, awaiting: false }).collect();
        assert_eq!(outer[..62], positions, "{depth}");
    }
}

#[test]
fn what_a_failed_call_left_out_is_taken_back() {
    let fails: [Change; 2] = [|_, view| emit_many(view), |_, _| {}];
    for fail in fails {
        for depth in [0, 4000, 4092, 4093, 4094, 4095, 5000, 6000] {
            let (outcome, frames, failed) = run_from(depth, 0x2000, fail);
            assert_eq!(failed, [(2, StopReason::PluginNonsense)]);
            assert_eq!((outcome.stop, outcome.frames as usize), (StopReason::Complete, depth + 3), "{depth}");
            assert!(!frames.iter().any(is_semantic), "{depth}");
            assert_eq!(addresses(&frames[frames.len() - 2..]), [FOREIGN + 0x10, 0x9010], "{depth}");
            if depth + 3 <= MAX_FRAMES as usize {
                assert_eq!(frames.len(), depth + 3);
            } else if frames.iter().any(|f| matches!(f, Frame::Omitted { .. })) {
                let (inner, omitted, outer) = parts(&frames);
                assert_eq!(inner.len() + omitted + outer.len(), depth + 3, "{depth}");
            } else {
                assert_eq!(frames.len(), depth + 3, "{depth}");
            }
        }
    }
}

/// As in `uu_capture`, whose frames are all native.
#[test]
fn where_semantic_frames_are_not_kept_a_stepper_works_without() {
    let (outcome, frames, failed) = run_in((false, false), 0, STEP_DONE | OVERLAY_INTERPRETER, |caller, view| {
        caller.pc = 0x9010;
        caller.registers[7] = view.sp + 8;
    });
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, FOREIGN + 0x10, 0x9010]);
}

/// The stack is whole, and what the plugin would have said of it is missing.
#[test]
fn frames_of_a_plugin_that_is_off_are_missing() {
    let (outcome, frames, failed) = run_in((true, true), 0, STEP_END, |_, _| {});
    assert_eq!((outcome.stop, outcome.desync, failed), (StopReason::Complete, 1, vec![]));
    assert_eq!(addresses(&frames), [0x1000, FOREIGN + 0x10, 0x9010]);
}

#[test]
fn another_stack_may_lie_anywhere() {
    let (outcome, frames, failed) = run(STEP_DONE | STEP_OTHER_STACK, |caller, _| {
        caller.pc = 0x9010;
        caller.registers[7] = 0x1000;
    });
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10, 0x9010]);
}

thread_local! {
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// Reads by the reader that it is lent, over and over.
fn read_without_end(_: &mut Caller, view: &View) {
    // SAFETY: the walk's view, which nothing else wraps.
    let guest = unsafe { Guest::new(view) }.expect("a host of this version");
    for _ in 0..1 << 12 {
        // SAFETY: the guest is not used until the reader is dropped.
        let mut near = unsafe { guest.near() }.expect("the walk's log is open");
        for nth in 0..1 << 14 {
            let read = if nth % 2 == 0 { near.words(STACK, [0]) } else { near.peek(STACK, [0]) };
            assert_eq!(read, Some([0]));
        }
        drop(near);
        READS.set(READS.get() + (1 << 14));
    }
}

/// Also where no timer runs, and although it calls no function of the host for a single word.
#[test]
fn what_a_plugin_reads_by_a_reader_that_it_is_lent_has_a_limit() {
    let (outcome, frames, failed) = run(STEP_DONE, read_without_end);
    assert_eq!((outcome.stop, outcome.desync), (StopReason::Complete, 1));
    assert_eq!(failed, [(2, StopReason::Watchdog)]);
    assert_eq!(addresses(&frames), [0x1000, FOREIGN + 0x10, 0x9010], "its frames are taken back");
    assert!((2 << 20..5 << 20).contains(&READS.get()), "{} reads", READS.get());
}

/// Drafts frames: some that are never emitted, some that are, and one whose place another frame has taken by then.
fn draft_and_emit(_: &mut Caller, view: &View) {
    // SAFETY: the walk's view, which nothing else wraps.
    let guest = unsafe { Guest::new(view) }.expect("a host of this version");
    let drafted = |positions: &[u64]| {
        // SAFETY: the guest is not used until the reader is dropped.
        let near = unsafe { guest.near() }.expect("the walk's log is open");
        let mut draft = near.draft();
        assert!(draft.is_empty() && draft.room() > positions.len());
        // SAFETY: there is room, and the reader is borrowed.
        positions.iter().for_each(|position| unsafe { draft.put(7, *position) });
        draft
    };
    drafted(&[1, 2]);
    assert!(guest.emit_draft(&drafted(&[3, 4, 5])));
    let late = drafted(&[6]);
    assert!(guest.emit(7, 8));
    assert!(!guest.emit_draft(&late), "it is after the last frame no more");
    assert!(guest.emit_draft(&drafted(&[])), "nothing");
}

fn positions(frames: &[Frame]) -> Vec<u64> {
    let position = |frame: &Frame| match frame {
        Frame::Semantic { plugin: 2, name: 7, position, awaiting: false } => Some(*position),
        _ => None,
    };
    frames.iter().filter_map(position).collect()
}

#[test]
fn a_draft_counts_when_it_is_emitted_behind_the_last_frame() {
    let (outcome, frames, failed) = run(STEP_END, draft_and_emit);
    assert_eq!((outcome.stop, outcome.desync, failed), (StopReason::Complete, 0, vec![]));
    assert_eq!(positions(&frames), [11, 3, 4, 5, 8]);
    assert_eq!((outcome.frames as usize, frames.len()), (7, 7));
    let (outcome, frames, failed) = run(99, draft_and_emit);
    assert_eq!((outcome.desync, failed.len()), (1, 1), "an answer without a meaning");
    assert_eq!(addresses(&frames), [0x1000, FOREIGN + 0x10, 0x9010], "its frames are taken back");
}

/// Where frames are left out, or not kept, a draft has no room.
#[test]
fn there_is_no_room_for_a_draft_where_frames_are_left_out() {
    fn room(view: &View) -> usize {
        // SAFETY: the walk's view, which nothing else wraps.
        let guest = unsafe { Guest::new(view) }.expect("a host of this version");
        // SAFETY: the guest is not used until the reader is dropped.
        let near = unsafe { guest.near() }.expect("the walk's log is open");
        near.draft().room()
    }
    let (outcome, ..) = run(STEP_END, |_, view| {
        // One native frame and one of the plugin's stand before them.
        assert_eq!(room(view), MAX_FRAMES as usize - 2);
        emit_many(view);
        assert_eq!(room(view), 0, "the stack is deep");
    });
    assert_eq!(outcome.stop, StopReason::Complete);
    run_in((false, false), 0, STEP_END, |_, view| assert_eq!(room(view), 0));
}
