//! x86-64.

use super::Words;
use crate::memory::group::{Member, MEMBER_WORDS};
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_set1_epi64x, _mm_setzero_si128};

/// Whether the time stamp counter is readable: a process may forbid it to itself
/// ([PR_SET_TSC](https://man7.org/linux/man-pages/man2/PR_SET_TSC.2const.html); strict seccomp(2) does), and then the
/// vDSO's clocks fault. Faults must reach [`super::mend`].
#[inline(always)]
pub fn may_read_tsc() -> bool {
    let mut failed = 0u32;
    // SAFETY: it writes only its outputs; a fault is moved to the fix-up.
    unsafe {
        core::arch::asm!(
            "4: rdtsc",
            "5:",
            when_failed!("6: mov {failed:e}, 1", "jmp 5b"),
            fixup!("4b", "6b"),
            failed = inout(reg) failed,
            out("eax") _,
            out("edx") _,
            options(nostack, nomem, preserves_flags)
        );
    }
    failed == 0
}

/// Loads a word; `None` if the load faults.
#[inline(always)]
pub(in crate::memory) fn load(address: u64) -> Option<u64> {
    let mut failed = 0;
    let value = load_noting(address, &mut failed);
    (failed == 0).then_some(value)
}

/// One load with a flag: 0 if it faults, and the flag becomes 1.
macro_rules! load_or_fail {
    ($address:literal, $failed:expr, $($name:ident = $value:expr),+) => {{
        let value: u64;
        // SAFETY: a load that faults is moved to its fix-up by the handler that Reader::new's caller guaranteed. It
        // writes only its outputs.
        unsafe {
            core::arch::asm!(
                concat!("4: mov {value}, [", $address, "]"),
                "5:",
                when_failed!("6: xor {value:e}, {value:e}", "mov {failed:e}, 1", "jmp 5b"),
                fixup!("4b", "6b"),
                $($name = in(reg) $value,)+
                value = out(reg) value,
                failed = inout(reg) *$failed,
                options(nostack, readonly)
            );
        }
        value
    }};
}

/// Loads a word; if the load faults, 0, and `failed` becomes 1.
#[inline(always)]
pub(in crate::memory) fn load_noting(address: u64, failed: &mut u32) -> u64 {
    load_or_fail!("{address}", failed, address = address)
}

/// As [`load_noting`], of the word at an offset from an address: one instruction has the whole computation.
#[inline(always)]
pub(in crate::memory) fn load_at(address: u64, offset: u64, failed: &mut u32) -> u64 {
    load_or_fail!("{address} + {offset}", failed, address = address, offset = offset)
}

/// One load without a flag: 0 if it faults.
macro_rules! load_or_zero {
    ($address:literal, $($name:ident = $value:expr),+) => {{
        let value: u64;
        // SAFETY: as for `load_or_fail`.
        unsafe {
            core::arch::asm!(
                concat!("4: mov {value}, [", $address, "]"),
                "5:",
                when_failed!("6: mov {value:e}, 0", "jmp 5b"),
                fixup!("4b", "6b"),
                $($name = in(reg) $value,)+
                value = out(reg) value,
                options(nostack, readonly, preserves_flags)
            );
        }
        value
    }};
}

/// Loads the word that ends at `base` + 8 * `words`; 0 if the load faults. One instruction, which contains the whole
/// address computation.
#[inline(always)]
pub(in crate::memory) fn load_below(base: u64, words: u64) -> u64 {
    load_or_zero!("{base} + 8 * {words} - 8", base = base, words = words)
}

/// Loads the word that ends at `address`; 0 if the load faults.
#[inline(always)]
pub(in crate::memory) fn load_just_below(address: u64) -> u64 {
    load_or_zero!("{base} - 8", base = address)
}

/// Whether one of the words in `count` structures from `words` on changed, or is unreadable. The processor fuses a
/// comparison with memory and its branch into one step, and the three loads for each word do not depend on those for
/// other words.
///
/// # Safety
/// The structures must be there; others may write them meanwhile.
#[inline(always)]
pub(in crate::memory) unsafe fn any_changed(words: *const Words, count: usize) -> bool {
    if count == 0 {
        return false;
    }
    let end = words.wrapping_add(count);
    let at: *const Words;
    macro_rules! compare {
        ($($load:literal $at:literal $was:literal)+) => {
            // SAFETY: it reads the structures, of which there is at least one, up to `end` or to the first difference;
            // otherwise as for `load`.
            unsafe {
                core::arch::asm!(
                    "2:",
                    $(
                        concat!("mov {word}, [{words} + ", $at, "]"),
                        concat!("mov {was}, [{words} + ", $was, "]"),
                        concat!($load, ": cmp {was}, [{word} - 8]"),
                        "jne 5f",
                    )+
                    "add {words}, 64",
                    "cmp {words}, {end}",
                    "jne 2b",
                    "5:",
                    $(fixup!(concat!($load, "b"), "5b"),)+
                    words = inout(reg) words => at,
                    end = in(reg) end,
                    word = out(reg) _,
                    was = out(reg) _,
                    options(nostack, readonly)
                );
            }
        };
    }
    compare!(
        "40" "0" "32" "41" "8" "40" "42" "16" "48" "43" "24" "56"
    );
    at != end
}

/// Compares memory with the `count` words of `was`: the word that lies just below each address of `above` with the one
/// of the same index; and writes the words of `was` to `to`, with `bits` set in each. False: one differs or cannot be
/// read; then it is not defined how many were written. Two words are compared and written at once, out of one register,
/// so that what is written is what was compared, which takes five loads for two words. It begins with the first words,
/// whose places do not depend on the count, and looks at the differences of all at the end.
///
/// # Safety
/// There must be `count` words, at least 8, in all three places; others may write those of the first two meanwhile.
#[inline(always)]
pub(in crate::memory) unsafe fn copy_same(
    above: *const u64,
    was: *const u64,
    to: *mut u64,
    count: usize,
    bits: u64,
) -> bool {
    let (at, differences): (usize, __m128i);
    // A pair: `at` is the place of its first word, in bytes.
    macro_rules! pair {
        ($at:literal $next:literal $first:literal $second:literal) => {
            concat!(
                concat!("mov {address}, [{above} + {at} + ", $at, "]\n"),
                concat!($first, ": movq {now}, qword ptr [{address} - 8]\n"),
                concat!("mov {address}, [{above} + {at} + ", $next, "]\n"),
                concat!($second, ": movhps {now}, qword ptr [{address} - 8]\n"),
                concat!("movups {words}, [{was} + {at} + ", $at, "]\n"),
                "pxor {now}, {words}\n",
                "por {words}, {bits}\n",
                concat!("movups [{to} + {at} + ", $at, "], {words}\n"),
                "por {differences}, {now}"
            )
        };
    }
    // SAFETY: it reads and writes what the caller guarantees; otherwise as for `load`.
    unsafe {
        core::arch::asm!(
            // Eight words an iteration. The first iteration also loads words of the second, where the number of words
            // is no multiple of eight: so no tail is left.
            "2:",
            pair!("0" "8" "40" "41"),
            pair!("16" "24" "42" "43"),
            pair!("32" "40" "44" "45"),
            pair!("48" "56" "46" "47"),
            "add {at}, {step}",
            "mov {step:e}, 64",
            "cmp {at}, {end}",
            "jne 2b",
            "5:",
            fixup!("40b", "5b"),
            fixup!("41b", "5b"),
            fixup!("42b", "5b"),
            fixup!("43b", "5b"),
            fixup!("44b", "5b"),
            fixup!("45b", "5b"),
            fixup!("46b", "5b"),
            fixup!("47b", "5b"),
            at = inout(reg) 0usize => at,
            step = inout(reg) (count.wrapping_sub(1) & 7) * 8 + 8 => _,
            end = in(reg) count * 8,
            above = in(reg) above,
            was = in(reg) was,
            to = in(reg) to,
            address = out(reg) _,
            now = out(xmm_reg) _,
            words = out(xmm_reg) _,
            differences = inout(xmm_reg) _mm_setzero_si128() => differences,
            bits = in(xmm_reg) _mm_set1_epi64x(bits as i64),
            options(nostack)
        );
    }
    // SAFETY: every x86-64 has these instructions.
    let equal = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi32(differences, _mm_setzero_si128())) };
    at == count * 8 && equal == 0xffff
}

/// How many of these structures, from the first on, have the same words as before: those at these offsets from each.
#[inline(always)]
pub(in crate::memory) fn same_members(members: &[Member], offsets: [u64; MEMBER_WORDS]) -> usize {
    const { assert!(size_of::<Member>() == 48 && MEMBER_WORDS == 4) };
    if members.is_empty() {
        return 0;
    }
    let range = members.as_ptr_range();
    let at: *const Member;
    macro_rules! compare {
        ($($load:literal $was:literal $offset:literal)+) => {
            // SAFETY: it reads the structures, of which there is at least one, up to the end or to the first
            // difference; otherwise as for `load`.
            unsafe {
                core::arch::asm!(
                    "2:",
                    "mov {address}, [{member}]",
                    $(
                        concat!("mov {was}, [{member} + ", $was, "]"),
                        concat!($load, ": cmp {was}, [{address} + ", $offset, "]"),
                        "jne 5f",
                    )+
                    "add {member}, 48",
                    "cmp {member}, {end}",
                    "jne 2b",
                    "5:",
                    $(fixup!(concat!($load, "b"), "5b"),)+
                    member = inout(reg) range.start => at,
                    end = in(reg) range.end,
                    address = out(reg) _,
                    was = out(reg) _,
                    first = in(reg) offsets[0],
                    second = in(reg) offsets[1],
                    third = in(reg) offsets[2],
                    fourth = in(reg) offsets[3],
                    options(nostack, readonly)
                );
            }
        };
    }
    compare!("40" "8" "{first}" "41" "16" "{second}" "42" "24" "{third}" "43" "32" "{fourth}");
    (at as usize).wrapping_sub(range.start as usize) / size_of::<Member>()
}

/// Bytes of the stack that [`prefetch_by_words`] looks at.
pub(in crate::memory) const CANDIDATES_BYTES: u64 = 128;

/// Prefetches what each of eight words selects, up to one that is unreadable: the cache line as many bytes after `base`
/// as its lower bits say, in a table of so many words with two an entry. They lie 16 bytes apart, from `address` on.
#[inline(always)]
pub(in crate::memory) fn prefetch_by_words<const WORDS: usize>(address: u64, base: *const u8) {
    macro_rules! words {
        ($($load:literal $at:literal)+) => {
            // SAFETY: a prefetch reads nothing; otherwise as for `load`.
            unsafe {
                core::arch::asm!(
                    $(
                        concat!($load, ": mov {word:e}, [{address} + ", $at, "]"),
                        "and {word:e}, {mask}",
                        "prefetcht0 [{base} + {word}]",
                    )+
                    "5:",
                    $(fixup!(concat!($load, "b"), "5b"),)+
                    address = in(reg) address,
                    base = in(reg) base,
                    mask = const (WORDS - 2) * 8,
                    word = out(reg) _,
                    options(nostack, readonly)
                );
            }
        };
    }
    words!("40" "0" "41" "16" "42" "32" "43" "48" "44" "64" "45" "80" "46" "96" "47" "112");
}

/// Copies `len` bytes; false if a byte is unreadable.
///
/// # Safety
/// `out` must be valid for writes of `len` bytes.
pub(in crate::memory) unsafe fn copy(out: *mut u8, address: u64, len: usize) -> bool {
    let mut left = len;
    // SAFETY: as for `load`; the caller guarantees `out`. A fault leaves the number of missing bytes in rcx, and the
    // fix-up is the next instruction.
    unsafe {
        core::arch::asm!(
            "4: rep movsb",
            "5:",
            fixup!("4b", "5b"),
            inout("rcx") left,
            inout("rdi") out => _,
            inout("rsi") address => _,
            options(nostack, preserves_flags)
        );
    }
    left == 0
}
