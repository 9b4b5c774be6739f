//! Windows that are replaced by others, and windows that grow, against the library that `ci/build` laid out. The code
//! is called, and the stack that it calls back from has the names that the window had at that time.
#![cfg(target_arch = "x86_64")]

mod code;

use code::{called_back, Code};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use uunwind::{
    Cursor, Error, Function, Kind, Rule, Stack, Stepped, Stepper, StopReason, Unwind, Unwinder, Window, WindowBuilder,
};

/// push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret
const CALLS_BACK: [u8; 14] = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3];
const LEN: u32 = CALLS_BACK.len() as u32;

/// Code that a window shares with the test.
#[derive(Clone)]
struct Shared(Arc<Code>);

// SAFETY: memory that nobody changes while it is mapped.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// `copies` of the function that calls back, one after the other.
fn block(copies: usize) -> Shared {
    Shared(block_of(&CALLS_BACK.repeat(copies)))
}

#[allow(clippy::arc_with_non_send_sync, reason = "Shared says why it may be shared")]
fn block_of(code: &[u8]) -> Arc<Code> {
    Arc::new(Code::of(code))
}

/// The stack that the code at this distance calls back for.
fn called(code: &Shared, at: u32) -> Stack {
    // SAFETY: a function of this type begins there.
    let call: extern "C" fn(extern "C" fn(*mut Option<Stack>), *mut Option<Stack>) =
        unsafe { std::mem::transmute(code.0 .0.add(at as usize)) };
    let mut stack = None;
    call(called_back, &raw mut stack);
    stack.expect("it was called back")
}

/// The name of the window's frame in such a stack.
fn shown(code: &Shared, at: u32) -> String {
    let stack = called(code, at);
    assert!(stack.is_complete(), "{stack}");
    let frames = stack.symbolize().expect("names");
    frames.into_iter().find(|frame| frame.kind == Kind::Window).expect("a frame in the window").function
}

fn failed<T>(result: Result<T, impl Into<Error>>) -> i32 {
    match result.err().map(Into::into) {
        Some(Error::Os { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_are_replaced_at_once() {
    uunwind::setup().expect("the set-up object");
    let code = block(2);
    let window = |name: &str| Window::of(code.clone(), Unwind::FramePointer).function(0, 2 * LEN, name);
    let before = window("before").register().expect("a window");
    assert_eq!(shown(&code, 0), "before");

    // Nothing changes when the new ones overlap each other.
    let refused = Window::replace(vec![before], vec![window("one"), window("other")]);
    let refused = refused.err().expect("they overlap");
    let (before, mut new) = refused.value;
    assert_eq!(refused.error, Error::Os { call: "uu_replace_windows", errno: libc::EEXIST });
    assert_eq!(shown(&code, 0), "before");
    // Both came back whole: one of them, alone, takes the place.
    let (before, one) = Window::replace(before, vec![new.swap_remove(0)]).expect("another window");
    drop((before, new));
    assert_eq!(shown(&code, 0), "one");
    let before = one;

    // The same memory has two functions from now on.
    let two = Window::of(code.clone(), Unwind::FramePointer).function(0, LEN, "first").function(LEN, LEN, "second");
    let (old, new) = Window::replace(before, vec![two]).expect("other windows");
    assert_eq!((shown(&code, 0), shown(&code, LEN)), ("first".into(), "second".into()));

    // The old one is out of the table: it is not taken for the one that has its address now.
    let refused = Window::replace(old, vec![window("third")]).err().expect("it is gone");
    let (old, third) = refused.value;
    assert_eq!(third.len(), 1);
    drop(third);
    assert_eq!(refused.error, Error::Os { call: "uu_replace_windows", errno: libc::ENOENT });
    assert_eq!(shown(&code, 0), "first");
    for window in old {
        assert_eq!(window.unregister().expect("no walk is under way").as_ref().len(), 28);
    }
    assert_eq!(shown(&code, LEN), "second");
    drop(new);
    assert_eq!(Arc::strong_count(&code.0), 1, "the code lives as long as its windows");
}

#[test]
fn functions_are_added_until_a_window_is_sealed() {
    uunwind::setup().expect("the set-up object");
    let code = block(3);
    let window = Window::of(code.clone(), Unwind::FramePointer).function(0, LEN, "first");
    let mut window = window.register_growing(1).expect("a window");
    assert_eq!(shown(&code, 0), "first");
    assert_eq!(shown(&code, LEN), "");

    assert_eq!(failed(window.add(LEN - 1, LEN, "overlaps")), libc::EINVAL);
    assert_eq!(failed(window.add(LEN, 0, "empty")), libc::EINVAL);
    assert_eq!(failed(window.add(LEN, u32::MAX, "too long")), libc::EINVAL);
    window.add(LEN, LEN, "second").expect("there is room");
    assert_eq!((shown(&code, 0), shown(&code, LEN)), ("first".into(), "second".into()));
    assert_eq!(failed(window.add(2 * LEN, LEN, "third")), libc::ENOSPC);

    let window = window.seal().expect("a whole window");
    assert_eq!((shown(&code, LEN), window.code().len()), ("second".into(), 42));
    drop(window);
    assert_eq!(Arc::strong_count(&code.0), 1, "the code lives as long as its window");
    for room in [0, 1 << 32] {
        let refused = Window::of(code.clone(), Unwind::FramePointer).register_growing(room);
        assert_eq!(failed(refused), libc::EINVAL);
    }
    // More than this process may have, on whatever machine. (A limit that is lower already may stay.)
    let limit = libc::rlimit { rlim_cur: 64 << 30, rlim_max: 64 << 30 };
    // SAFETY: plain system call; the structure lives during the call.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    let refused = Window::of(code, Unwind::FramePointer).register_growing(u32::MAX as usize);
    assert_eq!(failed(refused), libc::ENOMEM);
}

#[test]
fn functions_are_added_from_the_end_and_retired() {
    uunwind::setup().expect("the set-up object");
    let code = block(4);
    let window = Window::of(code.clone(), Unwind::FramePointer).function(2 * LEN, LEN, "third");
    let mut window = window.function(3 * LEN, LEN, "fourth").register_growing_down(2).expect("a window");
    assert_eq!(failed(window.add(LEN + 1, LEN, "overlaps")), libc::EINVAL);
    assert_eq!(failed(window.add(4 * LEN, LEN, "beyond the code")), libc::EINVAL);
    window.add(LEN, LEN, "second").expect("there is room");
    window.add(0, LEN, "first").expect("there is room");
    assert_eq!(failed(window.add(0, LEN, "again")), libc::EINVAL);
    let names = ["first", "second", "third", "fourth"];
    let found = || [0, 1, 2, 3].map(|at| shown(&code, at * LEN));
    assert_eq!(found(), names);
    drop(window);

    // What has been shown once is kept; so each window is walked through after its functions are retired.
    let all = |builder: WindowBuilder<Shared>| {
        let number = |at: usize| u32::try_from(at).expect("four");
        names.iter().enumerate().fold(builder, |made, (at, name)| made.function(number(at) * LEN, LEN, name))
    };
    for down in [false, true] {
        let made = all(Window::of(code.clone(), Unwind::FramePointer));
        let window = if down { made.register_growing_down(1) } else { made.register_growing(1) };
        let mut window = window.expect("a window");
        let ticket = window.retire(LEN).expect("it is there");
        ticket.synchronize(std::time::Duration::from_secs(60)).expect("no walk is under way");
        assert_eq!(failed(window.retire(LEN)), libc::ENOENT, "it is retired");
        assert_eq!(failed(window.retire(LEN + 1)), libc::ENOENT, "nothing begins there");
        let mut window = window.seal().expect("a whole window");
        window.retire(3 * LEN).expect("it is there");
        assert_eq!(found(), ["first", "", "third", ""], "down: {down}");
    }

    let window = Window::of(code.clone(), Unwind::FramePointer).function(0, LEN, "one").function(LEN, LEN, "two");
    let mut window = window.register().expect("a window");
    window.retire(0).expect("it is there");
    assert_eq!([0, 1].map(|at| shown(&code, at * LEN)), ["", "two"]);
}

/// Says another length each time that it is asked.
struct Unsteady(Vec<u8>, std::sync::atomic::AtomicUsize);

impl AsRef<[u8]> for Unsteady {
    fn as_ref(&self) -> &[u8] {
        let asked = self.1.fetch_add(1, Ordering::Relaxed);
        &self.0[..(16 << asked).min(self.0.len())]
    }
}

#[test]
fn code_that_answers_otherwise_the_next_time_has_its_first_length() {
    let code = Unsteady(vec![0xc3; 4096], std::sync::atomic::AtomicUsize::new(0));
    let mut window = Window::of(code, Unwind::FramePointer).register_growing(4).expect("a window");
    assert!(window.code().len() > 16);
    assert_eq!(failed(window.add(0, 17, "longer")), libc::EINVAL);
    window.add(0, 16, "whole").expect("the code that is registered");
}

/// Steps as a frame pointer does, ends the stack, or does not know.
struct Chain(Arc<[AtomicU32; 3]>);

const ANSWER: usize = 0;
const OFFSET: usize = 1;
const NAMED: usize = 2;

// SAFETY: it computes, and reads by the cursor.
unsafe impl Stepper for Chain {
    fn step(&self, frame: &mut Cursor<'_>) -> Stepped {
        const RBP: u8 = 6;
        self.0[OFFSET].store(frame.offset() as u32, Ordering::Relaxed);
        let at = frame.register(RBP).filter(|at| *at >= frame.stack_pointer() && !frame.is_exact());
        let Some(at) = at else { return Stepped::Lost };
        let (Some(outer), Some(pc)) = (frame.word(at), frame.word(at + 8)) else { return Stepped::Lost };
        frame.set(RBP, outer);
        // What the code does not touch stays as it is; what no register is, is ignored.
        frame.set(200, 1);
        frame.lose(200);
        match self.0[ANSWER].load(Ordering::Relaxed) {
            0 => Stepped::Caller { pc, stack_pointer: at + 16 },
            1 => Stepped::OtherStack { pc, stack_pointer: at + 16 },
            2 => Stepped::End,
            _ => Stepped::Lost,
        }
    }

    fn name(&self, _: u64) -> Option<Function<'_>> {
        self.0[NAMED].fetch_add(1, Ordering::Relaxed);
        Some(Function { name: "stepped", start: 0 })
    }
}

#[test]
fn a_stepper_moves_walks_through_a_window() {
    uunwind::setup().expect("the set-up object");
    let code = block(1);
    for answer in 0..4 {
        let state = Arc::new([answer, 0, 0].map(AtomicU32::new));
        let window = Window::stepped_freely(code.clone(), Chain(Arc::clone(&state))).register().expect("a window");
        let stack = called(&code, 0);
        let outermost = stack.steps().last().and_then(uunwind::Step::kind);
        let found = (stack.stop().expect("a reason"), outermost == Some(Kind::Window));
        let expected = match answer {
            0 | 1 => (StopReason::Complete, false),
            2 => (StopReason::Complete, true),
            _ => (StopReason::PluginLost, true),
        };
        assert_eq!(found, expected, "{answer}: {stack}");
        // The return address is the one after `call *%rax`, which ends at 12.
        assert_eq!(state[OFFSET].load(Ordering::Relaxed), 11);
        let frames = stack.symbolize().expect("names");
        let frame = frames.iter().find(|frame| frame.kind == Kind::Window).expect("a frame in the window");
        assert_eq!((&*frame.function, state[NAMED].load(Ordering::Relaxed) > 0), ("stepped", true));
        drop(window);
        assert_eq!(Arc::strong_count(&state), 1, "the stepper lives as long as its window");
    }
}

/// lea 8(%rsp),%r10; push %r10; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %r10; ret
const KEEPS_ITS_CFA: [u8; 18] =
    [0x4c, 0x8d, 0x54, 0x24, 0x08, 0x41, 0x52, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x41, 0x5a, 0xc3];

/// The CFA is where the code has put it, plus a number.
struct InAWord(i16);

// SAFETY: it computes.
unsafe impl Unwinder for InAWord {
    fn rule(&self, _: u64) -> Option<Rule> {
        const RSP: u8 = 7;
        Some(Rule::from_word(RSP, 0, self.0))
    }
}

#[test]
fn a_rule_finds_the_cfa_in_a_word() {
    uunwind::setup().expect("the set-up object");
    for addend in [0, 8] {
        let code = Shared(block_of(&KEEPS_ITS_CFA));
        let window = Window::stepped_by(code.clone(), InAWord(addend)).register().expect("a window");
        let stack = called(&code, 0);
        let callers = || stack.steps().skip_while(|frame| frame.kind() != Some(Kind::Window)).skip(1);
        let frames = stack.symbolize().expect("names");
        let is_here = frames.iter().any(|frame| frame.function == "generated::called");
        assert_eq!((stack.is_complete(), is_here), (addend == 0, addend == 0), "{addend}: {stack}");
        assert_eq!(callers().count() > 3, addend == 0, "{addend}: {stack}");
        drop(window);
    }
}

/// nop; mov $15,%eax; syscall: rt_sigreturn(2), after a byte that return addresses are looked up by.
const LEAVES_A_HANDLER: [u8; 8] = [0x90, 0xb8, 15, 0, 0, 0, 0x0f, 0x05];

struct OfTheKernel;

// SAFETY: it computes.
unsafe impl Unwinder for OfTheKernel {
    fn rule(&self, _: u64) -> Option<Rule> {
        const RSP: u8 = 7;
        Some(Rule::signal_frame(RSP, 0))
    }
}

static IN_HANDLER: Mutex<Option<Stack>> = Mutex::new(None);

extern "C" fn captures(_: i32) {
    *IN_HANDLER.lock().expect("this thread alone") = Stack::capture().ok();
}

/// Sends this thread a signal, whose handler captures, and returns to the code at `restorer`.
#[inline(never)]
fn is_interrupted(restorer: *const u8) {
    /// struct kernel_sigaction: <https://github.com/torvalds/linux/blob/v6.1/include/linux/signal_types.h>
    #[repr(C)]
    struct Action {
        handler: extern "C" fn(i32),
        flags: u64,
        restorer: *const u8,
        mask: u64,
    }
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = Action { handler: captures, flags: SA_RESTORER, restorer, mask: 0 };
    let none = std::ptr::null_mut::<u8>();
    // SAFETY: a whole action, whose handler is called by the next line only, by this thread, in no other function.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_rt_sigaction, libc::SIGUSR2, &raw const action, none, 8), 0);
        assert_eq!(libc::raise(libc::SIGUSR2), 0);
    }
}

#[test]
fn a_rule_leads_through_a_frame_that_the_kernel_has_made() {
    uunwind::setup().expect("the set-up object");
    let code = Shared(block_of(&LEAVES_A_HANDLER));
    let window = Window::stepped_by(code.clone(), OfTheKernel).register().expect("a window");
    // SAFETY: inside the code.
    is_interrupted(unsafe { code.0 .0.add(1) });
    let stack = IN_HANDLER.lock().expect("no panic").take().expect("the handler captured");
    assert!(stack.is_complete(), "{stack}");
    let mut callers = stack.steps().skip_while(|frame| frame.kind() != Some(Kind::Window)).skip(1);
    let interrupted = callers.next().expect("what was interrupted");
    assert!(interrupted.is_exact(), "{stack}");
    let functions: Vec<String> = stack.symbolize().expect("names").into_iter().map(|frame| frame.function).collect();
    let place = |name: &str| functions.iter().position(|function| function == name);
    let (handler, caller) = (place("generated::captures"), place("generated::is_interrupted"));
    assert!(handler.is_some() && handler < caller, "{functions:#?}");
    drop(window);
}
