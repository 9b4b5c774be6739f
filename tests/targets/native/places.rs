//! Stacks that Rust makes: generic recursion, closures through `dyn`, iterators, drops while a panic unwinds, threads.
//! Linked with point.c.

use std::ffi::{c_char, CString};
use std::hint::black_box;

extern "C" {
    fn point(label: *const c_char, chain: *const c_char);
}

fn take(label: &str, chain: &str) {
    let (label, chain) = (CString::new(label).unwrap(), CString::new(chain).unwrap());
    // SAFETY: both are NUL-terminated and outlive the call.
    unsafe { point(label.as_ptr(), chain.as_ptr()) };
    black_box((label, chain));
}

#[no_mangle]
#[inline(never)]
fn rust_recursion(n: u32) -> u32 {
    if black_box(n) == 0 {
        take("rust_recursion", "point,*,rust_recursion,rust_recursion,rust_recursion,rust_recursion,*,main,*");
        return 0;
    }
    let sum = rust_recursion(n - 1) + n;
    black_box(sum)
}

#[no_mangle]
#[inline(never)]
fn rust_dyn(functions: &[Box<dyn Fn(u32) -> u32>]) -> u32 {
    functions.iter().map(|f| f(black_box(1))).sum::<u32>() + black_box(1)
}

struct Guard(u32);

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        take("rust_drop_in_panic", "point,*,rust_panics,*,main,*");
        black_box(self.0);
    }
}

#[no_mangle]
#[inline(never)]
fn rust_panics(n: u32) -> u32 {
    let guard = Guard(n);
    if black_box(n) > 0 {
        std::panic::panic_any(n);
    }
    guard.0
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    rust_recursion(3);
    let offset = black_box(5);
    rust_dyn(&[Box::new(move |x| {
        take("rust_closure", "point,*,rust_dyn,*,main,*");
        x + offset
    })]);
    assert!(std::panic::catch_unwind(|| rust_panics(1)).is_err());
    let thread = std::thread::spawn(|| take("rust_thread", "point,*"));
    thread.join().unwrap();
    println!("done");
}
