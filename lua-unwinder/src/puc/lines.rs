//! Instructions to lines.
//!
//! Up to 5.3, `Proto.lineinfo` has the line of each instruction. From 5.4 on it has a signed byte for each, the
//! difference from the previous instruction's line; where that byte is `ABSLINEINFO`, and at least every 128
//! instructions, `Proto.abslineinfo` has the line itself, as `{ pc, line }`. See `luaG_getfuncline` in
//! <https://github.com/lua/lua/blob/v5.4.0/ldebug.c> and `savelineinfo` in
//! <https://github.com/lua/lua/blob/v5.4.0/lcode.c>.

use super::facts::Facts;
use super::function::Proto;
use uunwind_core::plugin::guest::{Guest, RUN};

/// The byte that says that the line is in `abslineinfo` (`ABSLINEINFO`), as bits.
const WHOLE: u8 = 0x80;
/// Limit of instructions between two entries of `abslineinfo` (`MAXIWTHABS`; 120 up to 5.4.2).
const DISTANCE: u32 = 128;
/// Limits: of entries of `abslineinfo` that are searched from the first guess on, and of bytes that are summed.
const GUESSES: u32 = 64;
const STRETCH: u32 = DISTANCE * 2;

/// The line of the current instruction. `None`: the line table was stripped, or is invalid.
#[inline(never)]
pub fn line(guest: &Guest<'_>, facts: &Facts, proto: &Proto) -> Option<u32> {
    if proto.lines == 0 || proto.index >= proto.lines_len {
        return None;
    }
    if facts.proto.bases == 0 {
        return guest.half(proto.lines.wrapping_add(u64::from(proto.index) * 4));
    }
    let (mut at, mut line) = (0, proto.first_line);
    if let Some((base, whole)) = whole_before(guest, proto) {
        (at, line) = (base.wrapping_add(1), whole);
    }
    let left = proto.index.wrapping_add(1).checked_sub(at)?;
    if left > STRETCH {
        return None;
    }
    let start = proto.lines.wrapping_add(u64::from(at));
    u32::try_from(i64::from(line).wrapping_add(sum(guest, start, u64::from(left))?)).ok()
}

/// The sum of `count` signed bytes from the address `start` on, read as the aligned words that hold them. `None`:
/// one of them is [`WHOLE`], or unreadable.
fn sum(guest: &Guest<'_>, start: u64, count: u64) -> Option<i64> {
    let end = start.checked_add(count)?;
    let first = start & !7;
    let words = end.wrapping_sub(first).div_ceil(8);
    // The bytes of the first and of the last word that belong to the sum.
    let of_first = u64::MAX << ((start & 7) * 8);
    let of_last = u64::MAX >> ((end.wrapping_neg() & 7) * 8);
    let mut sum = 0;
    let mut at = 0;
    while at < words {
        let mut some = [0; RUN];
        let part = some.get_mut(..(words - at).min(RUN as u64) as usize)?;
        if !guest.run(first.wrapping_add(at * 8), part) {
            return None;
        }
        if let Some(word) = part.first_mut().filter(|_| at == 0) {
            *word &= of_first;
        }
        at += part.len() as u64;
        if let Some(word) = part.last_mut().filter(|_| at == words) {
            *word &= of_last;
        }
        sum += sum_of(&some)?;
    }
    Some(sum)
}

/// The sum of the signed bytes of all words, unused ones being 0, which takes fewer instructions than a loop over
/// the used ones. `None`: one of the bytes is [`WHOLE`].
fn sum_of(words: &[u64; RUN]) -> Option<i64> {
    const BIASES: u64 = 0x0101_0101_0101_0101 * WHOLE as u64;
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let bytes = words.map(u64::to_le_bytes);
    if bytes.as_flattened().iter().fold(false, |found, byte| found | (*byte == WHOLE)) {
        return None;
    }
    // In four lanes of 16 bits. Each byte is biased by 128, so that none is negative.
    let lanes = words.iter().fold(0u64, |lanes, word| {
        let more = word ^ BIASES;
        lanes.wrapping_add(more & EVEN).wrapping_add(more >> 8 & EVEN)
    });
    let sum = lanes.wrapping_mul(0x0001_0001_0001_0001) >> 48;
    Some(sum as i64 - (RUN * 8 * usize::from(WHOLE)) as i64)
}

/// The last entry of `abslineinfo` at or before the current instruction: its instruction, and the line.
fn whole_before(guest: &Guest<'_>, proto: &Proto) -> Option<(u32, u32)> {
    let count = proto.bases_len;
    if count == 0 {
        return None;
    }
    let bases = proto.bases;
    let entry = |index: u32| {
        let word = guest.word(bases.wrapping_add(u64::from(index) * 8))?;
        Some((word as u32, (word >> 32) as u32))
    };
    // There is one at least every 128 instructions, so that this index is not after the one that is searched.
    let mut index = (proto.index / DISTANCE).saturating_sub(1).min(count.saturating_sub(1));
    let mut found = entry(index).filter(|(pc, _)| *pc <= proto.index)?;
    for _ in 0..GUESSES {
        index = index.wrapping_add(1);
        if index >= count {
            break;
        }
        match entry(index) {
            Some(next) if next.0 <= proto.index => found = next,
            _ => break,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_in_lanes_equals_the_sum_of_single_bytes() {
        let mut random = uunwind_random::Random::new(88172645463325252);
        for round in 0..20_000u64 {
            let words = [(); RUN].map(|()| {
                let seed = random.number();
                // In some rounds extremes only; and rarely the byte that ends the sum.
                match round % 3 {
                    0 => seed,
                    1 => (seed & 0x0101_0101_0101_0101) * 0x7e + 0x8181_8181_8181_8181,
                    _ => 0x7f7f_7f7f_7f7f_7f7f,
                }
            });
            let bytes = || words.iter().flat_map(|word| word.to_le_bytes());
            let whole = bytes().any(|byte| byte == WHOLE);
            let expected = (!whole).then(|| bytes().map(|byte| i64::from(byte as i8)).sum());
            assert_eq!(sum_of(&words), expected, "round {round}");
        }
    }
}
