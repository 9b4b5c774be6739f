//! `struct uu_request`: what is refused, and what a request takes of a walk's frames.
//!
//! | bytes | |
//! |---|---|
//! | 72 | the request; where its pointers are not null, they become a buffer's and a function's |
//! | 2 | stop reason |
//! | 2 | what is doubtful |
//! | rest | the walk's frames |

use crate::input::Input;
use std::ffi::{c_int, c_void};
use uunwind_core::stop_reason::StopReason;
use uunwind_stacks::request::Request;
use uunwind_stacks::walk::Whole;

/// Most words that a buffer has room for.
const WORDS: usize = 64;

/// Ends the request after the number of frames that `left` counts down.
unsafe extern "C" fn frame(left: *mut c_void, words: *const u64, count: usize) -> c_int {
    // SAFETY: the number below, and that many words of a frame.
    unsafe {
        std::hint::black_box(*words.add(count - 1));
        let left = left.cast::<u32>();
        *left = (*left).saturating_sub(1);
        c_int::from(*left == 0)
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (size, flags, ucontext) = (input.u32(), input.u32(), input.u64());
    let (frames, capacity) = (input.u64(), input.u64());
    let (skip, reserved, callback, mut left) = (input.u32(), input.u32(), input.u64(), input.u64() as u32);
    let _written = (input.u64(), input.u32(), input.u16(), input.u16());
    let (stop, doubt) = (input.u16(), input.u16());
    let walked: Vec<u64> = input.rest().chunks(8).map(|word| Input::new(word).u64()).collect();
    let mut buffer = [0u64; WORDS + 1];
    let room = if frames == 0 { 0 } else { capacity as usize % (WORDS + 1) };
    let mut request = Request {
        size,
        flags,
        ucontext: ucontext as *const u8,
        frames: if frames == 0 {
            std::ptr::null_mut()
        } else {
            buffer.as_mut_ptr().wrapping_byte_add(frames as usize % 8)
        },
        capacity: room,
        skip,
        reserved,
        frame: (callback != 0).then_some(frame),
        user: (&raw mut left).cast(),
        words: 7,
        count: 7,
        stop: 7,
        doubt: 7,
    };
    if !request.is_valid() {
        return false;
    }
    assert!(size as usize <= size_of::<Request>() + 8 && reserved == 0 && flags < 64);
    request.begin();
    let stop = StopReason::from_number(stop).unwrap_or(StopReason::Complete);
    let result = u32::from(doubt);
    // SAFETY: an aligned buffer with that room, and a callback with its argument.
    unsafe { request.take(Whole { frames: &walked, stop, desync: doubt & 1 != 0, result, cfas: None }) };
    assert!(request.words <= room && request.words <= walked.len() && request.count as usize <= walked.len());
    assert!(request.stop != 7 || stop.number() == 7);
    assert_eq!(buffer[room..].iter().find(|word| **word != 0), None, "written beyond the capacity");
    request.count != 0
}
