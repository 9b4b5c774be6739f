//! Windows against a library that only keeps them, so that Miri can look: another thread reads what they point to, as
//! walks do, while functions are added and retired, and until the library says that no walk reads it any more.

use crate::sys::{Api, Function, Window as CWindow};
use crate::{library, Failed, Unwind, Window};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What is registered. A walk has the lock, and so has whoever changes something; nobody waits for walks elsewhere.
static REGISTERED: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Kept(CWindow);

// SAFETY: a window may be read by any thread, as the library does.
unsafe impl Send for Kept {}

fn registered() -> MutexGuard<'static, Vec<Kept>> {
    REGISTERED.lock().expect("no panic")
}

fn place_of(text: *const c_void) -> Option<usize> {
    registered().iter().position(|kept| kept.0.text == text)
}

unsafe extern "C" fn register(window: *const CWindow) -> c_int {
    // SAFETY: the crate passes a window.
    let window = unsafe { *window };
    if window.text_len == 0 {
        return -libc::EINVAL;
    }
    if place_of(window.text).is_some() {
        return -libc::EEXIST;
    }
    registered().push(Kept(window));
    0
}

unsafe extern "C" fn unlink(text: *const c_void, ticket: *mut u64) -> c_int {
    let Some(place) = place_of(text) else { return -libc::ENOENT };
    registered().swap_remove(place);
    // SAFETY: the crate passes a place for it.
    unsafe { ticket.write(1) };
    0
}

unsafe extern "C" fn replace(
    old: *const *const c_void,
    old_count: usize,
    new: *const CWindow,
    new_count: usize,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the crate passes that many of both.
    let (old, new) =
        unsafe { (std::slice::from_raw_parts(old, old_count), std::slice::from_raw_parts(new, new_count)) };
    if new.iter().any(|window| window.text_len == 0) {
        return -libc::EINVAL;
    }
    for text in old {
        // SAFETY: as above.
        unsafe { unlink(*text, ticket) };
    }
    registered().extend(new.iter().map(|window| Kept(*window)));
    0
}

unsafe extern "C" fn seal(_: *const c_void) -> c_int {
    0
}

unsafe extern "C" fn ticket() -> u64 {
    1
}

unsafe extern "C" fn synchronize(_: u64, _: u64) -> c_int {
    // Once nobody has the lock, nobody reads what was there before.
    drop(registered());
    0
}

unsafe extern "C" fn absent() {
    unreachable!("these tests call only the functions from above");
}

/// Takes the place of the library in this process.
fn use_it() {
    const FUNCTIONS: usize = size_of::<Api>() / size_of::<unsafe extern "C" fn()>();
    // SAFETY: a table of function pointers and nothing else; those of another type are not called.
    let mut api: Api = unsafe { std::mem::transmute([absent as unsafe extern "C" fn(); FUNCTIONS]) };
    api.register_window = register;
    api.unlink_window = unlink;
    api.replace_windows = replace;
    api.seal_window = seal;
    api.ticket = ticket;
    api.synchronize = synchronize;
    library::set(Box::leak(Box::new(api)));
}

/// The names of all functions that walks see now, retired ones without.
fn names() -> Vec<String> {
    let kept = registered();
    let mut names = Vec::new();
    for Kept(window) in kept.iter() {
        // SAFETY: what a window points to is there as long as it is registered: until the lock is free.
        unsafe {
            let count = match window.published.is_null() {
                true => window.functions_room,
                false => (*window.published.cast::<AtomicU64>()).load(Ordering::Acquire) as usize,
            };
            for at in 0..count {
                let function: *mut Function = window.functions.cast_mut().add(at);
                let len = AtomicU32::from_ptr(&raw mut (*function).len).load(Ordering::Acquire);
                let name = std::slice::from_raw_parts((*function).name.cast::<u8>(), (*function).name_len as usize);
                let name = std::str::from_utf8(name).expect("a name").to_owned();
                names.push(if len == 0 { String::new() } else { name });
            }
            let unwind = window.unwind.cast::<u8>();
            assert!(unwind.is_null() || std::slice::from_raw_parts(unwind, window.unwind_len).iter().all(|b| *b == 9));
        }
    }
    names
}

/// Bytes that stand for code.
fn code(len: usize) -> Box<[u8]> {
    vec![0xc3; len].into_boxed_slice()
}

fn failed<T, V>(result: Result<T, Box<Failed<V>>>) -> V {
    result.err().expect("it fails").value
}

/// Functions that are added to a window.
const COUNT: u32 = 30;

/// One test, since the windows of all are in one place.
#[test]
fn what_walks_read_lives_as_long_as_they_read_it() {
    static OVER: AtomicBool = AtomicBool::new(false);
    use_it();
    let reader = std::thread::spawn(|| {
        while !OVER.load(Ordering::Relaxed) {
            let found = names();
            assert!(found.iter().all(|name| name.is_empty() || name.starts_with("function-")), "{found:?}");
            std::thread::yield_now();
        }
    });

    for is_up in [true, false] {
        let builder = Window::of(code(16 * COUNT as usize), Unwind::EhFrame(vec![9; 32].into()));
        let room = COUNT as usize;
        let window = if is_up { builder.register_growing(room) } else { builder.register_growing_down(room) };
        let mut window = window.expect("a window");
        let mut expected = Vec::new();
        for number in 0..COUNT {
            let number = if is_up { number } else { COUNT - 1 - number };
            expected.push(format!("function-{number}"));
            window.add_with_fde(16 * number, 16, &format!("function-{number}"), 0).expect("there is room");
            // The reader meets the table as it grows.
            std::thread::yield_now();
        }
        assert_eq!(names(), expected);
        window.retire(16).expect("it is there");
        assert!(window.retire(16).is_err() && window.retire(15).is_err());
        expected[if is_up { 1 } else { room - 2 }].clear();
        assert_eq!(names(), expected);
        let window = window.seal().expect("a whole window");
        assert_eq!((window.code().len(), window.unregister().expect("nobody reads it").len()), (16 * room, 16 * room));
        assert!(names().is_empty());
    }

    // What is refused comes back as it was, and can be used again.
    let empty = failed(Window::of(code(0), Unwind::Opaque).function(0, 1, "function-3").register());
    let empty = failed(empty.register_growing(0));
    let first = Window::of(code(16), Unwind::EhFrame(vec![9; 8].into())).function(0, 16, "function-4");
    let first = first.register().expect("a window");
    let second =
        Window::of(code(32), Unwind::FramePointer).function(16, 16, "function-6").function(0, 16, "function-5");
    let refused = Window::replace(vec![first], vec![empty, second]).expect_err("one is empty");
    let (old, mut new) = refused.value;
    assert_eq!(names(), ["function-4"]);
    let second = new.pop().expect("both came back");
    assert!(second.code().len() == 32 && new.len() == 1);
    let (old, new) = Window::replace(old, vec![second]).expect("a window");
    assert_eq!(names(), ["function-5", "function-6"]);
    drop(old);
    // A value that moves is not read by another way than before.
    let moved: Vec<Window<Box<[u8]>>> = new.into_iter().map(|window| *Box::new(window)).collect();
    assert_eq!(names(), ["function-5", "function-6"]);
    drop(moved);
    assert!(names().is_empty());

    OVER.store(true, Ordering::Relaxed);
    reader.join().expect("no panic");
}
