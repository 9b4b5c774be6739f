//! Steppers and overlays inside a walk: what they may do, and what the walk makes of nonsense.
#![cfg(target_arch = "x86_64")]

use std::cell::RefCell;
use std::mem::MaybeUninit;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{
    Caller, Description, View, Visit, OVERLAY_INTERPRETER, STEP_DONE, STEP_END, STEP_LOST, STEP_NATIVE,
    STEP_OTHER_STACK,
};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Claim, Env, Outcome, Setting, SCRATCH};

const STACK: u64 = 0x7000_0000;
/// Code in [FOREIGN, FOREIGN + 0x1000) belongs to the stepper; all other code has frames of two words.
const FOREIGN: u64 = 0x50_0000;

struct Process {
    step: Visit,
    current: u64,
    failed: Vec<(u8, StopReason)>,
}

impl Env for Process {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.current = cursor.lookup_pc();
        match self.current {
            0x9000..=0x9fff => Rule::end().pack(),
            _ => Rule::simple(RSP, 16).pack(),
        }
    }
    fn is_claimed(&self) -> bool {
        (FOREIGN..FOREIGN + 0x1000).contains(&self.current)
    }
    fn claim(&self) -> Option<Claim> {
        Some(Claim { step: Some(self.step), index: 2, range: (FOREIGN, FOREIGN + 0x1000), ..Claim::NOTHING })
    }
    fn function(&mut self, _: &Cursor, _: &mut Reader<'_>) -> (u64, u64) {
        (0, 0)
    }
    fn find_name(&mut self, _: u8, _: u64, _: u64) -> u32 {
        7
    }
    fn describe(&mut self, _: u8, _: &Description, _: &mut Reader<'_>) -> u32 {
        0
    }
    fn learned(&mut self, _: u8) {}
    fn failed(&mut self, plugin: u8, reason: StopReason) {
        self.failed.push((plugin, reason));
    }
}

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
    SCRIPT.with_borrow(|(answer, change)| {
        change(caller, view);
        *answer
    })
}

/// leaf (native, 0x1000) -> FOREIGN + 0x10 -> whatever the stepper says; 0x9010 lies in the outermost function.
fn run(answer: u32, change: Change) -> (Outcome, Vec<Frame>, Vec<(u8, StopReason)>) {
    SCRIPT.set((answer, change));
    let stack: Vec<u8> =
        [0, FOREIGN + 0x10, 0, 0x9010, 0, 0, 0, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let regions = [Region { address: STACK, bytes: &stack }];
    let mut reader = Reader::recorded(&regions);
    let mut scratch = vec![0u128; SCRATCH / 16];
    let mut exchange = MaybeUninit::uninit();
    let setting = Setting {
        thread_pointer: 0,
        tsd_offset: 0,
        scratch: scratch.as_mut_ptr().cast(),
        exchange: exchange.as_mut_ptr(),
        progress: std::ptr::null_mut(),
        trail: std::ptr::null_mut(),
    };
    let mut process = Process { step, current: 0, failed: Vec::new() };
    let mut words = vec![0; 100];
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
    assert_eq!(frames[1], Frame::Semantic { plugin: 2, name: 7, position: 11 });
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

#[test]
fn another_stack_may_lie_anywhere() {
    let (outcome, frames, failed) = run(STEP_DONE | STEP_OTHER_STACK, |caller, _| {
        caller.pc = 0x9010;
        caller.registers[7] = 0x1000;
    });
    assert_eq!((outcome.stop, failed), (StopReason::Complete, vec![]));
    assert_eq!(addresses(&frames), [0x1000, 0, FOREIGN + 0x10, 0x9010]);
}
