//! Two sources side by side, and how much of the text a source covers.

use super::binary::Text;
use super::unwind_row::Piece;
use uunwind_sframe::row::Unwind;

/// A range for which two sources say different things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// What the first source says.
    pub first: Unwind,
    /// What the second source says.
    pub second: Unwind,
}

/// Where both sources have a rule, and not the same one. Both must be sorted and without overlaps.
pub fn compare(first: &[Piece], second: &[Piece]) -> Vec<Disagreement> {
    let mut found: Vec<Disagreement> = Vec::new();
    let (mut one, mut other) = (first.iter().peekable(), second.iter().peekable());
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        if let (true, Ok(first), Ok(second)) = (start < end, a.rule, b.rule) {
            if first != second {
                match found.last_mut().filter(|d| d.end == start && d.first == first && d.second == second) {
                    Some(last) => last.end = end,
                    None => found.push(Disagreement { start, end, first, second }),
                }
            }
        }
        if a.end <= b.end {
            one.next();
        } else {
            other.next();
        }
    }
    found
}

/// Bytes of text, and those of them that one of the sources has a rule for.
pub fn coverage(text: &[Text], sources: &[&[Piece]]) -> (u64, u64) {
    let mut ranges: Vec<(u64, u64)> =
        sources.iter().flat_map(|pieces| pieces.iter()).filter(|p| p.rule.is_ok()).map(|p| (p.start, p.end)).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => merged.push((start, end)),
        }
    }
    let total = text.iter().map(|t| t.end - t.start).sum();
    let mut covered = 0;
    let mut next = 0;
    for text in text {
        while merged.get(next).is_some_and(|range| range.1 <= text.start) {
            next += 1;
        }
        for range in merged.get(next..).unwrap_or(&[]) {
            if range.0 >= text.end {
                break;
            }
            covered += range.1.min(text.end) - range.0.max(text.start);
        }
    }
    (total, covered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_sframe::row::{Base, Location};

    fn piece(start: u64, end: u64, offset: i64) -> Piece {
        let at = |offset, deref| Location { base: Base::Cfa, offset, deref };
        let rule = Unwind::Caller { cfa: at(offset, false), ra: Some(at(-8, true)), fp: None };
        Piece { start, end, function: start, signal: false, rule: Ok(rule) }
    }

    #[test]
    fn disagreements_are_where_both_speak() {
        let first = [piece(0, 10, 8), piece(10, 20, 16), piece(30, 40, 8)];
        let second = [piece(5, 12, 8), piece(12, 15, 24), piece(18, 35, 16)];
        let ranges: Vec<_> = compare(&first, &second).iter().map(|d| (d.start, d.end)).collect();
        assert_eq!(ranges, [(10, 12), (12, 15), (30, 35)]);
        assert_eq!(compare(&first, &first), []);
    }

    #[test]
    fn coverage_counts_every_byte_once() {
        let text = |start, end| Text { name: String::new(), start, end };
        let text = [text(0, 10), text(20, 30)];
        let mut beyond = piece(25, 30, 8);
        beyond.rule = Err("no");
        assert_eq!(coverage(&text, &[&[piece(5, 22, 8)], &[piece(0, 6, 8), beyond]]), (20, 12));
        assert_eq!(coverage(&text, &[]), (20, 0));
    }
}
