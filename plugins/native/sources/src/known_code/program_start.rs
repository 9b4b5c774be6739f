//! Where glibc's loader begins a program, `_dl_start_user`
//! (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86_64/dl-machine.h;hb=refs/tags/glibc-2.36>, `RTLD_START`):
//! no unwind information describes it in some versions. It calls the constructors of the program's libraries, by
//! `_dl_init`, and is the outermost frame of their stacks.

use super::{b, Instructions, ANY};
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;

/// xor %ebp,%ebp; call _dl_init; lea _dl_fini(%rip),%rdx; mov %r13,%rsp; jmp *%r12: where the call returns to.
const AFTER_CONSTRUCTORS: Instructions<1> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0x31), b(0xed), b(0xe8), ANY, ANY, ANY, ANY, b(0x48), b(0x8d), b(0x15), ANY, ANY, ANY, ANY,
        b(0x4c), b(0x89), b(0xec), b(0x41), b(0xff), b(0xe4),
    ],
    starts: [7],
};

/// The rule at this return address: the frame has no caller.
pub fn rule(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    AFTER_CONSTRUCTORS.find(pc, reader).map(|_| Rule::end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_address_is_found_and_nothing_else() {
        AFTER_CONSTRUCTORS.are_exactly(rule);
    }
}
