//! The machine code of libffi's closures, by which C calls functions of Python (ctypes, cffi). Each is a copy of a few
//! instructions, in memory that no object covers and no unwind data describes, and jumps to a function of libffi:
//!
//! ```text
//! one by one (ffi_prep_closure_loc)            from a table (trampoline_code_table)
//!   +0  endbr64             [rsp]                +0  endbr64                  [rsp]
//!   +4  lea  -11(%rip), %r10  [rsp]              +4  sub  $16, %rsp           [rsp]
//!  +11  jmp  *7(%rip)       [rsp]                +8  mov  %r10, (%rsp)        [rsp + 16]
//!                                               +12  mov  4077(%rip), %r10    [rsp + 16]
//!                                               +19  mov  %r10, 8(%rsp)       [rsp + 16]
//!                                               +24  mov  4073(%rip), %r10    [rsp + 16]
//!                                               +31  jmp  *%r10               [rsp + 16]
//! ```
//! On the right: where the return address is (<https://github.com/libffi/libffi/blob/v3.4.4/src/x86/ffi64.c>,
//! <https://github.com/libffi/libffi/blob/v3.4.4/src/x86/unix64.S>). They call nothing, so only an interrupted pc lies in
//! one.

use uunwind_core::plugin::guest::Guest;

/// One form of the code.
struct Form {
    /// Eight bytes of it at each of these offsets, which together are all of it.
    words: &'static [(u32, u64)],
    /// Offset of each instruction, with the distance in bytes from the stack pointer to the return address before it.
    places: &'static [(u64, u64)],
}

const FORMS: [Form; 2] = [
    Form {
        words: &[
            (0, word([0xf3, 0x0f, 0x1e, 0xfa, 0x4c, 0x8d, 0x15, 0xf5])),
            (8, word([0xff, 0xff, 0xff, 0xff, 0x25, 7, 0, 0])),
            (9, word([0xff, 0xff, 0xff, 0x25, 7, 0, 0, 0])),
        ],
        places: &[(0, 0), (4, 0), (11, 0)],
    },
    Form {
        words: &[
            (0, word([0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 16])),
            (8, word([0x4c, 0x89, 0x14, 0x24, 0x4c, 0x8b, 0x15, 0xed])),
            (16, word([0x0f, 0, 0, 0x4c, 0x89, 0x54, 0x24, 8])),
            (24, word([0x4c, 0x8b, 0x15, 0xe9, 0x0f, 0, 0, 0x41])),
            (26, word([0x15, 0xe9, 0x0f, 0, 0, 0x41, 0xff, 0xe2])),
        ],
        places: &[(0, 0), (4, 0), (8, 16), (12, 16), (19, 16), (24, 16), (31, 16)],
    },
];

const fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// The distance in bytes from the stack pointer to the return address, if the frame's pc is in a closure.
#[inline(never)]
pub fn place(guest: &Guest<'_>) -> Option<u64> {
    if !guest.exact() {
        return None;
    }
    FORMS.iter().find_map(|form| {
        let is_code = |start: u64| {
            let mut words = form.words.iter();
            words.all(|(at, word)| guest.word(start.wrapping_add(u64::from(*at))) == Some(*word))
        };
        let found = form.places.iter().find(|(offset, _)| is_code(guest.view().pc.wrapping_sub(*offset)));
        found.map(|(_, above)| *above)
    })
}
