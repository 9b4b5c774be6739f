//! greenlet's switch of stacks, `slp_switch` in
//! [`platform/switch_amd64_unix.h`](https://github.com/python-greenlet/greenlet/blob/3.0.3/src/greenlet/platform/switch_amd64_unix.h):
//! the stack pointer and rbp are moved to the other stack, and then what lay on that one is restored by a call.
//!
//! ```text
//! add %r, %rsp; add %r, %rbp     the same register; what follows has the other stack's pointer
//! ... call slp_restore_state     up to its end, the other stack's contents are not there
//! ```

use uunwind_core::memory::Reader;

/// `add %r, %rsp`, and the same with rbp.
const ADD: usize = 3;
/// `call rel32`.
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;
/// The call follows both additions after at most this number of bytes.
const BETWEEN: usize = 24;
/// Bytes from the first addition to the end of the call, at most.
const LONGEST: usize = 2 * ADD + BETWEEN + CALL_BYTES;

/// The length of what code begins with, up to the end of the call, if that is a switch: from its second instruction on
/// the stack is in transit.
fn switch(code: &[u8]) -> Option<usize> {
    let [rex @ (0x48 | 0x4c), 0x01, to_sp, other_rex, 0x01, to_fp, rest @ ..] = code else { return None };
    let (sp, fp) = (to_sp & 0xc7 == 0xc4, to_fp & 0xc7 == 0xc5);
    if rex != other_rex || !sp || !fp || to_sp & 0x38 != to_fp & 0x38 {
        return None;
    }
    let call = rest.iter().take(BETWEEN).position(|byte| *byte == CALL)?;
    Some(2 * ADD + call + CALL_BYTES)
}

/// The switch that code begins with: the offsets, from its first byte on, at which the stack is in transit.
pub fn transit(code: &[u8]) -> Option<core::ops::Range<usize>> {
    switch(code).map(|end| ADD..end)
}

/// Whether the stack is in transit at an address to search with, by the code around it. At most 100 reads.
/// Async-signal-safe.
pub fn is_in_transit(lookup: u64, reader: &mut Reader<'_>) -> bool {
    // What lies before, and the rest of a switch that began there.
    let mut code = [0; 2 * LONGEST];
    if !reader.read(lookup.wrapping_sub(LONGEST as u64), &mut code) {
        return false;
    }
    (0..LONGEST).any(|start| {
        let switch = code.get(start..).and_then(transit);
        switch.is_some_and(|transit| transit.contains(&(LONGEST - start)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// add %rax, %rsp; add %rax, %rbp; mov %rbx, %rdi; call; xor %eax, %eax.
    const SWITCH: [u8; 16] =
        [0x48, 0x01, 0xc4, 0x48, 0x01, 0xc5, 0x48, 0x89, 0xdf, 0xe8, 0x11, 0x22, 0x33, 0x44, 0x31, 0xc0];

    #[test]
    fn a_switch_is_known_by_its_two_instructions() {
        assert_eq!(transit(&SWITCH), Some(3..14));
        let with = |registers: [u8; 6]| [&registers[..], &SWITCH[6..]].concat();
        // add %r9, %rsp; add %r9, %rbp.
        assert_eq!(transit(&with([0x4c, 0x01, 0xcc, 0x4c, 0x01, 0xcd])), Some(3..14));
        // Different registers; one of them alone; no call.
        assert_eq!(transit(&with([0x48, 0x01, 0xc4, 0x48, 0x01, 0xdd])), None);
        assert_eq!(transit(&with([0x48, 0x01, 0xc4, 0x90, 0x90, 0x90])), None);
        assert_eq!(transit(&SWITCH[..9]), None);
    }

    #[test]
    fn the_stack_is_in_transit_between_the_addition_and_the_end_of_the_call() {
        let code = [&[0x90; LONGEST][..], &SWITCH, &[0x90; 2 * LONGEST]].concat();
        let regions = [Region { address: 0x1000, bytes: &code }];
        for offset in 0..(LONGEST + SWITCH.len()) as u64 {
            let found = is_in_transit(0x1000 + LONGEST as u64 / 2 + offset, &mut Reader::recorded(&regions));
            let inside = (LONGEST as u64 / 2 + offset).checked_sub(LONGEST as u64);
            assert_eq!(found, inside.is_some_and(|inside| (3..14).contains(&inside)), "{offset}");
        }
        assert!(!is_in_transit(0x9000, &mut Reader::recorded(&regions)), "code that cannot be read");
    }
}
