//! Windows that are replaced by others, and windows that grow, against the library that `ci/build` laid out. The code
//! is called, and the stack that it calls back from has the names that the window had at that time.
#![cfg(target_arch = "x86_64")]

mod code;

use code::{called_back, Code};
use std::sync::Arc;
use uunwind::{Error, Kind, Stack, Unwind, Window};

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
    #[allow(clippy::arc_with_non_send_sync, reason = "Shared says why it may be shared")]
    Shared(Arc::new(Code::of(&CALLS_BACK.repeat(copies))))
}

/// The name of the window's frame in a stack that the code at this distance calls back for.
fn shown(code: &Shared, at: u32) -> String {
    // SAFETY: a function of this type begins there.
    let call: extern "C" fn(extern "C" fn(*mut Option<Stack>), *mut Option<Stack>) =
        unsafe { std::mem::transmute(code.0 .0.add(at as usize)) };
    let mut stack = None;
    call(called_back, &raw mut stack);
    let stack = stack.expect("it was called back");
    assert!(stack.is_complete(), "{stack}");
    let frames = stack.symbolize().expect("names");
    frames.into_iter().find(|frame| frame.kind == Kind::Window).expect("a frame in the window").function
}

fn failed<T>(result: Result<T, Error>) -> i32 {
    match result.err() {
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
    let (before, error) = *refused.err().expect("they overlap");
    assert_eq!(error, Error::Os { call: "uu_replace_windows", errno: libc::EEXIST });
    assert_eq!(shown(&code, 0), "before");

    // The same memory has two functions from now on.
    let two = Window::of(code.clone(), Unwind::FramePointer).function(0, LEN, "first").function(LEN, LEN, "second");
    let (old, new) = Window::replace(before, vec![two]).map_err(|failed| failed.1).expect("other windows");
    assert_eq!((shown(&code, 0), shown(&code, LEN)), ("first".into(), "second".into()));

    // The old one is out of the table: it is not taken for the one that has its address now.
    let (old, error) = *Window::replace(old, vec![window("third")]).err().expect("it is gone");
    assert_eq!(error, Error::Os { call: "uu_replace_windows", errno: libc::ENOENT });
    assert_eq!(shown(&code, 0), "first");
    for window in old {
        assert_eq!(window.unregister().map_err(|failed| failed.1).expect("no walk is under way").as_ref().len(), 28);
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

    let window = window.seal().map_err(|failed| failed.1).expect("a whole window");
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
