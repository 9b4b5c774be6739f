//! Instructions to lines.
//!
//! Up to 5.3, a Proto has the line of each instruction. From 5.4 on it has a signed byte for each, the distance from the
//! instruction before, and whole lines now and then: `{ pc, line }`, where that byte says so, and at least every 128
//! instructions.

use super::facts::Facts;
use super::function::Proto;
use crate::walk::{Walk, RUN};

/// The byte that says that the line stands in the list of whole lines (`ABSLINEINFO`), as bits.
const WHOLE: u8 = 0x80;
/// At most so many instructions lie between two whole lines (`MAXIWTHABS`).
const DISTANCE: u32 = 128;
/// Whole lines looked at from the first guess on, and longest stretch that is added up.
const GUESSES: u32 = 64;
const STRETCH: u32 = DISTANCE * 2;

/// The line of the instruction in hand. `None`: the compiler's tables were stripped, or make no sense.
#[inline(never)]
pub fn line(walk: &Walk<'_>, facts: &Facts, proto: &Proto) -> Option<u32> {
    if proto.lines == 0 || proto.index >= proto.lines_len {
        return None;
    }
    if facts.proto.bases == 0 {
        return walk.half(proto.lines.wrapping_add(u64::from(proto.index) * 4));
    }
    let (mut at, mut line) = (0, proto.first_line);
    if let Some((base, whole)) = whole_before(walk, proto) {
        (at, line) = (base.wrapping_add(1), whole);
    }
    let left = proto.index.wrapping_add(1).checked_sub(at)?;
    if left > STRETCH {
        return None;
    }
    let start = proto.lines.wrapping_add(u64::from(at));
    u32::try_from(i64::from(line).wrapping_add(sum(walk, start, u64::from(left))?)).ok()
}

/// The sum of so many signed bytes, read in the aligned words that hold them. `None`: one of them is [`WHOLE`], or unreadable.
fn sum(walk: &Walk<'_>, start: u64, count: u64) -> Option<i64> {
    let end = start.checked_add(count)?;
    let first = start & !7;
    let words = end.wrapping_sub(first).div_ceil(8);
    // What the first and the last word hold of others.
    let before = u64::MAX << ((start & 7) * 8);
    let behind = u64::MAX >> ((end.wrapping_neg() & 7) * 8);
    let mut sum = 0;
    let mut at = 0;
    while at < words {
        let mut some = [0; RUN];
        let part = some.get_mut(..(words - at).min(RUN as u64) as usize)?;
        if !walk.run(first.wrapping_add(at * 8), part) {
            return None;
        }
        if let Some(word) = part.first_mut().filter(|_| at == 0) {
            *word &= before;
        }
        at += part.len() as u64;
        if let Some(word) = part.last_mut().filter(|_| at == words) {
            *word &= behind;
        }
        sum += sum_of(&some)?;
    }
    Some(sum)
}

/// The sum of the signed bytes of words: of all that there is room for, which takes fewer instructions than to ask how many there
/// are. `None`: one of the bytes is [`WHOLE`].
fn sum_of(words: &[u64; RUN]) -> Option<i64> {
    const BIASES: u64 = 0x0101_0101_0101_0101 * WHOLE as u64;
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let bytes = words.map(u64::to_le_bytes);
    if bytes.as_flattened().iter().fold(false, |found, byte| found | (*byte == WHOLE)) {
        return None;
    }
    // In four lanes of 16 bits. Each byte counts 128 more than it is, so that none is negative.
    let lanes = words.iter().fold(0u64, |lanes, word| {
        let more = word ^ BIASES;
        lanes.wrapping_add(more & EVEN).wrapping_add(more >> 8 & EVEN)
    });
    let sum = lanes.wrapping_mul(0x0001_0001_0001_0001) >> 48;
    Some(sum as i64 - (RUN * 8 * usize::from(WHOLE)) as i64)
}

/// The last whole line at or before the instruction in hand: its instruction, and the line.
fn whole_before(walk: &Walk<'_>, proto: &Proto) -> Option<(u32, u32)> {
    let count = proto.bases_len;
    if count == 0 {
        return None;
    }
    let bases = proto.bases;
    let entry = |index: u32| {
        let word = walk.word(bases.wrapping_add(u64::from(index) * 8))?;
        Some((word as u32, (word >> 32) as u32))
    };
    // One at least every 128 instructions, so that this one is not behind the one that is looked for.
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
    fn bytes_are_summed_as_one_by_one() {
        let mut random = uunwind_random::Random::new(88172645463325252);
        for round in 0..20_000u64 {
            let words = [(); RUN].map(|()| {
                let seed = random.number();
                // Sometimes extremes only; and seldom the byte that ends the sum.
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
