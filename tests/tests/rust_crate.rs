//! The crate `uunwind` declares the structures of `uu.h` by itself: they must be the library's.

use uunwind::sys;

macro_rules! same {
    ($ours:ty, $theirs:ty: $($field:ident),*) => {
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
        $(
            assert_eq!(std::mem::offset_of!($ours, $field), std::mem::offset_of!($theirs, $field), stringify!($field));
        )*
    };
}

#[test]
fn its_structures_are_the_librarys() {
    same!(sys::Request, uunwind_stacks::request::Request:
        size, flags, ucontext, frames, capacity, skip, reserved, frame, user, words, count, stop, doubt);
    same!(sys::RequestWithCfas, uunwind_stacks::request::WithCfas: request, cfas);
    same!(sys::FrameInfo, uunwind_stacks::describe::FrameInfo:
        size, kind, flags, line, first_line, omitted, address, file_address, file_offset, position, build_id_len, reserved,
        build_id, language, function, file);
    same!(sys::Thread, uunwind_crashes::threads::all::CThread: tid, error, name, first, words, count, stop, doubt);
    same!(sys::Delivery, uunwind_deferred::Delivery: size, tid, cookie, frames, words, count, stop, doubt);
    same!(sys::Symbol, uunwind_stacks::symbol::Symbol:
        next, function, file, object, language, problem, address, start, line, frame, kind, flags);
    same!(sys::Function, uunwind_core::registry::window::Function: start, len, unwind, name_len, name);
    same!(sys::Window, uunwind_core::registry::c_window::CWindow:
        size, kind, text, text_len, user, flags, reserved0, unwind, unwind_len, functions, functions_room, published, rule,
        step, name, reserved);
    same!(sys::FrameRecord, uunwind_core::plugin::FrameRecord: outer, activation, name, line);
    assert_eq!(sys::GROWING, uunwind_core::registry::window::GROWING);
    assert_eq!(sys::INLINED, uunwind_stacks::symbol::INLINED);
    assert_eq!(sys::NO_UNWIND, uunwind_core::registry::window::NO_UNWIND);
}
