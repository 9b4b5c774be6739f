//! x86-64.

use super::Words;

/// Whether the time stamp counter may be read: a process may forbid itself that (prctl(2), PR_SET_TSC; strict seccomp(2) does),
/// and then the vDSO's clocks fault. Faults must be led to [`mend`].
#[inline(always)]
pub fn may_read_tsc() -> bool {
    let mut failed = 0u32;
    // SAFETY: it writes nothing but its outputs; a fault is moved to the fix-up.
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

/// Loads a word; `None` when it faults.
#[inline(always)]
pub(in crate::memory) fn load(address: u64) -> Option<u64> {
    let mut failed = 0;
    let value = load_noting(address, &mut failed);
    (failed == 0).then_some(value)
}

/// Loads a word; 0 when it faults, and `failed` is then 1.
#[inline(always)]
pub(in crate::memory) fn load_noting(address: u64, failed: &mut u32) -> u64 {
    let value: u64;
    // SAFETY: a load that faults is moved to its fix-up by the handler that Reader::new's caller vouched for. It writes
    // nothing but its outputs.
    unsafe {
        core::arch::asm!(
            "4: mov {value}, [{address}]",
            "5:",
            when_failed!("6: xor {value:e}, {value:e}", "mov {failed:e}, 1", "jmp 5b"),
            fixup!("4b", "6b"),
            address = in(reg) address,
            value = out(reg) value,
            failed = inout(reg) *failed,
            options(nostack, readonly)
        );
    }
    value
}

/// One load, without a flag: 0 when it faults.
macro_rules! load_or_zero {
    ($address:literal, $($name:ident = $value:expr),+) => {{
        let value: u64;
        // SAFETY: as for `load`.
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

/// Loads the word below `base` + 8 * `words`; 0 when it faults. One instruction, with all of the address in it.
#[inline(always)]
pub(in crate::memory) fn load_below(base: u64, words: u64) -> u64 {
    load_or_zero!("{base} + 8 * {words} - 8", base = base, words = words)
}

/// Loads the word just below `address`; 0 when it faults.
#[inline(always)]
pub(in crate::memory) fn load_just_below(address: u64) -> u64 {
    load_or_zero!("{base} - 8", base = address)
}

/// Whether one of these words is not what it was any more, or cannot be read. A comparison with memory and its branch are one step to the processor, and of
/// three loads for each word no one waits for another.
#[inline(always)]
pub(in crate::memory) fn any_changed(words: &[Words]) -> bool {
    if words.is_empty() {
        return false;
    }
    let mut changed = 1u32;
    let words = words.as_ptr_range();
    macro_rules! compare {
        ($($load:literal $at:literal $was:literal)+) => {
            // SAFETY: it reads the structures, of which there is one at least; all else as for `load`.
            unsafe {
                core::arch::asm!(
                    "2:",
                    $(
                        concat!("mov {word}, [{words} + ", $at, "]"),
                        concat!("mov {was}, [{words} + ", $was, "]"),
                        concat!($load, ": cmp {was}, [{word} - 8]"),
                        "jne 5f",
                    )+
                    "sub {words}, -128",
                    "cmp {words}, {end}",
                    "jne 2b",
                    "xor {changed:e}, {changed:e}",
                    "5:",
                    $(fixup!(concat!($load, "b"), "5b"),)+
                    words = inout(reg) words.start => _,
                    end = in(reg) words.end,
                    word = out(reg) _,
                    was = out(reg) _,
                    changed = inout(reg) changed,
                    options(nostack, readonly)
                );
            }
        };
    }
    compare!(
        "40" "0" "64" "41" "8" "72" "42" "16" "80" "43" "24" "88"
        "44" "32" "96" "45" "40" "104" "46" "48" "112" "47" "56" "120"
    );
    changed != 0
}

/// Asks for what each of eight words leads to, from `address` on and up to one that cannot be read, to be fetched into the processor's caches: what lies as
/// many bytes behind `base` as its bits in `mask` say.
#[inline(always)]
pub(in crate::memory) fn prefetch_by_words(address: u64, mask: u32, base: *const u8) {
    macro_rules! words {
        ($($load:literal $at:literal)+) => {
            // SAFETY: to prefetch is not to read; all else as for `load`.
            unsafe {
                core::arch::asm!(
                    $(
                        concat!($load, ": mov {word:e}, [{address} + ", $at, "]"),
                        "and {word:e}, {mask:e}",
                        "prefetcht0 [{base} + {word}]",
                    )+
                    "5:",
                    $(fixup!(concat!($load, "b"), "5b"),)+
                    address = in(reg) address,
                    base = in(reg) base,
                    mask = in(reg) mask,
                    word = out(reg) _,
                    options(nostack, readonly)
                );
            }
        };
    }
    words!("40" "0" "41" "8" "42" "16" "43" "24" "44" "32" "45" "40" "46" "48" "47" "56");
}

/// Copies `len` bytes; false when a byte could not be read.
///
/// # Safety
/// `out` must be valid for writes of `len` bytes.
pub(in crate::memory) unsafe fn copy(out: *mut u8, address: u64, len: usize) -> bool {
    let mut left = len;
    // SAFETY: as for `load`; the caller vouches for `out`. A fault leaves in rcx what was not copied, and the fix-up is the
    // next instruction.
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
