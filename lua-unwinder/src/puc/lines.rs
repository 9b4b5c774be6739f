//! Instructions to lines.
//!
//! Up to 5.3, a Proto has the line of each instruction. From 5.4 on it has a signed byte for each, the distance from the
//! instruction before, and whole lines now and then: `{ pc, line }`, where that byte says so, and at least every 128
//! instructions.

use super::facts::Facts;
use super::function::Proto;
use crate::walk::Walk;

/// The byte that says that the line stands in the list of whole lines (`ABSLINEINFO`).
const WHOLE: i8 = -128;
/// At most so many instructions lie between two whole lines (`MAXIWTHABS`).
const DISTANCE: u32 = 128;
/// Whole lines looked at from the first guess on, and longest stretch that is added up.
const GUESSES: u32 = 64;
const STRETCH: u32 = DISTANCE * 2;

/// The line of the instruction in hand. `None`: the compiler's tables were stripped, or make no sense.
pub fn line(walk: &Walk<'_>, facts: &Facts, proto: &Proto, first_line: u32) -> Option<u32> {
    let layout = &facts.proto;
    let (lines, len) = (proto.word(walk, layout.lines)?, proto.half(walk, layout.lines_len)?);
    if lines == 0 || proto.index >= len {
        return None;
    }
    if layout.bases == 0 {
        return walk.half(lines.wrapping_add(u64::from(proto.index) * 4));
    }
    let (mut at, mut line) = (0, first_line);
    if let Some((base, whole)) = whole_before(walk, facts, proto) {
        (at, line) = (base.wrapping_add(1), whole);
    }
    let left = proto.index.wrapping_add(1).checked_sub(at)?;
    if left > STRETCH {
        return None;
    }
    let mut sum = 0i64;
    let mut bytes = [0u8; 32];
    let mut done = 0;
    while done < left {
        let some = left.wrapping_sub(done).min(bytes.len() as u32);
        let piece = bytes.get_mut(..some as usize)?;
        if !walk.bytes(lines.wrapping_add(u64::from(at)).wrapping_add(u64::from(done)), piece) {
            return None;
        }
        for byte in piece.iter() {
            if *byte as i8 == WHOLE {
                return None;
            }
            sum = sum.wrapping_add(i64::from(*byte as i8));
        }
        done = done.wrapping_add(some);
    }
    u32::try_from(i64::from(line).wrapping_add(sum)).ok()
}

/// The last whole line at or before the instruction in hand: its instruction, and the line.
fn whole_before(walk: &Walk<'_>, facts: &Facts, proto: &Proto) -> Option<(u32, u32)> {
    let layout = &facts.proto;
    let count = proto.half(walk, layout.bases_len)?;
    if count == 0 {
        return None;
    }
    let bases = proto.word(walk, layout.bases)?;
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
