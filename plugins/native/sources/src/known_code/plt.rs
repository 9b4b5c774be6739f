//! Stubs of the procedure linkage table
//! ([System V ABI for x86-64](https://gitlab.com/x86-psABIs/x86-64-ABI), 5.2 and 13.1). GNU ld describes them; lld does
//! not, and an option keeps GNU ld from it (`--no-ld-generated-unwind-info`).

use super::{b, Instructions, ANY};
use uunwind_core::memory::Reader;
use uunwind_core::regs::RSP;
use uunwind_core::rule::Rule;

/// jmp *slot(%rip); push index; jmp to the first entry.
const LAZY: Instructions<3> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x68), ANY, ANY, ANY, ANY, b(0xe9), ANY, ANY, ANY, ANY,
    ],
    starts: [0, 6, 11],
};
/// The first entry: push *of_the_object(%rip); jmp *resolver(%rip); nop.
const FIRST: Instructions<2> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xff), b(0x35), ANY, ANY, ANY, ANY, b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x0f), b(0x1f), b(0x40), b(0),
    ],
    starts: [0, 6],
};
/// The same with `bnd`, beside [`LAZY_IBT_BND`].
const FIRST_BND: Instructions<2> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xff), b(0x35), ANY, ANY, ANY, ANY, b(0xf2), b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x0f), b(0x1f), b(0),
    ],
    starts: [0, 6],
};
/// endbr64; push index; jmp to the first entry; xchg %ax,%ax.
const LAZY_IBT: Instructions<3> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xf3), b(0x0f), b(0x1e), b(0xfa), b(0x68), ANY, ANY, ANY, ANY, b(0xe9), ANY, ANY, ANY, ANY, b(0x66), b(0x90),
    ],
    starts: [0, 4, 9],
};
/// The same with `bnd jmp`, and nop.
const LAZY_IBT_BND: Instructions<3> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xf3), b(0x0f), b(0x1e), b(0xfa), b(0x68), ANY, ANY, ANY, ANY, b(0xf2), b(0xe9), ANY, ANY, ANY, ANY, b(0x90),
    ],
    starts: [0, 4, 9],
};
/// `.plt.got`: jmp *slot(%rip); xchg %ax,%ax.
const BOUND: Instructions<1> =
    Instructions { code: &[b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x66), b(0x90)], starts: [0] };
/// `.plt.sec`: endbr64; jmp *slot(%rip); nop.
const BOUND_IBT: Instructions<2> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xf3), b(0x0f), b(0x1e), b(0xfa), b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x66), b(0x0f), b(0x1f), b(0x44),
        b(0), b(0),
    ],
    starts: [0, 4],
};
/// The same with `bnd jmp`.
const BOUND_IBT_BND: Instructions<2> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0xf3), b(0x0f), b(0x1e), b(0xfa), b(0xf2), b(0xff), b(0x25), ANY, ANY, ANY, ANY, b(0x0f), b(0x1f), b(0x44),
        b(0), b(0),
    ],
    starts: [0, 4],
};

/// The rule at `pc`: nothing but the index and the object's address is pushed above the return address.
pub fn rule(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    if !matches!(reader.u8(pc)?, 0x68 | 0xe9 | 0xf2 | 0xf3 | 0xff) {
        return None;
    }
    let bound = BOUND.find(pc, reader).is_some()
        || BOUND_IBT.find(pc, reader).is_some()
        || BOUND_IBT_BND.find(pc, reader).is_some();
    let before_push = |offset: u8, push: u8| if offset <= push { 8 } else { 16 };
    let cfa = if bound {
        8
    } else if let Some(offset) = FIRST.find(pc, reader).or_else(|| FIRST_BND.find(pc, reader)) {
        8 + before_push(offset, 0)
    } else if let Some(offset) = LAZY.find(pc, reader) {
        before_push(offset, 6)
    } else {
        before_push(LAZY_IBT.find(pc, reader).or_else(|| LAZY_IBT_BND.find(pc, reader))?, 4)
    };
    Some(Rule::simple(RSP, cfa))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    #[test]
    fn each_of_their_instructions_is_found_and_nothing_else() {
        LAZY.are_exactly(rule);
        FIRST.are_exactly(rule);
        FIRST_BND.are_exactly(rule);
        LAZY_IBT.are_exactly(rule);
        LAZY_IBT_BND.are_exactly(rule);
        BOUND.are_exactly(rule);
        BOUND_IBT.are_exactly(rule);
        BOUND_IBT_BND.are_exactly(rule);
    }

    #[test]
    fn the_return_address_is_above_what_was_pushed() {
        let cfas = |code: &[u8], starts: &[u8]| -> Vec<Option<i32>> {
            let regions = [Region { address: 0x1000, bytes: code }];
            let cfa = |start: &u8| Some(rule(0x1000 + u64::from(*start), &mut Reader::recorded(&regions))?.cfa_offset);
            starts.iter().map(cfa).collect()
        };
        assert_eq!(cfas(&LAZY.bytes(), &LAZY.starts), [Some(8), Some(8), Some(16)]);
        assert_eq!(cfas(&LAZY_IBT.bytes(), &LAZY_IBT.starts), [Some(8), Some(8), Some(16)]);
        assert_eq!(cfas(&LAZY_IBT_BND.bytes(), &LAZY_IBT_BND.starts), [Some(8), Some(8), Some(16)]);
        assert_eq!(cfas(&FIRST.bytes(), &FIRST.starts), [Some(16), Some(24)]);
        assert_eq!(cfas(&FIRST_BND.bytes(), &FIRST_BND.starts), [Some(16), Some(24)]);
        assert_eq!(cfas(&BOUND.bytes(), &BOUND.starts), [Some(8)]);
        assert_eq!(cfas(&BOUND_IBT.bytes(), &BOUND_IBT.starts), [Some(8), Some(8)]);
        assert_eq!(cfas(&BOUND_IBT_BND.bytes(), &BOUND_IBT_BND.starts), [Some(8), Some(8)]);
    }
}
