//! A panic that passes two frames and is caught, for transfers.c. Without a hook, and without anything to be dropped on
//! the way.
#![crate_type = "staticlib"]

use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};

#[no_mangle]
#[inline(never)]
#[link_section = "chain_text"]
pub extern "C-unwind" fn rust_throws(n: i32) {
    if black_box(n) > 0 {
        resume_unwind(Box::new(n));
    }
}

#[no_mangle]
#[inline(never)]
#[link_section = "chain_text"]
pub extern "C-unwind" fn rust_calls(n: i32) {
    // With a frame that the caller's registers are needed to leave.
    let many: [i32; 5] = std::array::from_fn(|i| black_box(n + i as i32));
    rust_throws(n);
    black_box(many);
}

#[no_mangle]
#[inline(never)]
#[link_section = "chain_text"]
pub extern "C" fn rust_catches(n: i32) {
    let caught = catch_unwind(|| rust_calls(black_box(n)));
    assert!(caught.is_err());
    black_box(n);
}
