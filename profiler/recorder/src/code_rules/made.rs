//! Rules of one function, from its machine code.

use std::collections::HashMap;
use uunwind_core::span::Span;
use uunwind_from_code::{analyse, Budget, Code, Fault, Found, Part};
use uunwind_ring::code_rules::{RuleWords, LARGEST_PIECE, MOST_PIECES, NO_RULE};

/// Instructions that are carried out for one function: this number, and this number for each byte.
const STEPS: u64 = 10_000;
const STEPS_PER_BYTE: u64 = 20;

/// Bytes at a process address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Address of the first one.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    fn part(&self) -> Part<'_> {
        Part { start: self.start, bytes: &self.bytes }
    }
}

/// The rules of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Offset from the function's start, and the rule's number or [`NO_RULE`], by offset.
    pub rows: Vec<(u32, u32)>,
    /// The words of a `uunwind_core::rule::Packed` each.
    pub rules: Vec<RuleWords>,
    /// They depend on the constants, too.
    pub reads_constants: bool,
}

impl Made {
    /// The rule for an offset from the function's start.
    pub fn rule_at(&self, offset: u32) -> Option<RuleWords> {
        let before = self.rows.partition_point(|(at, _)| *at <= offset);
        let (_, number) = self.rows.get(before.checked_sub(1)?)?;
        self.rules.get(*number as usize).copied()
    }
}

/// The rules of a function, which is analysed alone: they follow from its own code. `constants`: where its tables of
/// jumps may lie, which are looked at only if there is an indirect jump. `None`: nothing is known of it, or it is too
/// large.
pub fn made(function: &Piece, constants: &[Piece]) -> Option<Made> {
    let size = function.bytes.len();
    if size == 0 || size > LARGEST_PIECE {
        return None;
    }
    let budget = Budget { steps: STEPS + STEPS_PER_BYTE * size as u64 };
    let code = |constants: &'_ [Piece]| -> Found {
        let constants = constants.iter().map(Piece::part).collect();
        let text = vec![function.part()];
        analyse(&Code { text, constants, entries: vec![function.start], ..Code::default() }, budget)
    };
    let found = code(&[]);
    let jumps = found.functions.iter().any(|f| f.entry == function.start && f.fault == Some(Fault::IndirectJump));
    let reads_constants = jumps && !constants.is_empty() && constants.len() < MOST_PIECES;
    let found = if reads_constants { code(constants) } else { found };
    let mut numbers: HashMap<RuleWords, u32> = HashMap::new();
    let (mut rows, mut rules): (Vec<(u32, u32)>, Vec<RuleWords>) = (Vec::new(), Vec::new());
    let span = Span::sized(function.start, size as u64);
    let mut end = function.start;
    let mut put = |at: u64, number: u32| {
        if rows.last().is_none_or(|(_, last)| *last != number) {
            rows.push(((at - span.start) as u32, number));
        }
    };
    for row in found.rows() {
        let (Some(rule), true) = (row.rule, span.contains(row.span.start)) else { continue };
        if row.span.start > end {
            put(end, NO_RULE);
        }
        let words = rule.pack().words();
        let number = *numbers.entry(words).or_insert_with(|| {
            rules.push(words);
            rules.len() as u32 - 1
        });
        put(row.span.start, number);
        end = row.span.end;
    }
    if end < span.end {
        put(end, NO_RULE);
    }
    (!rules.is_empty()).then_some(Made { rows, rules, reads_constants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::regs::RSP;
    use uunwind_core::rule::Rule;

    fn piece(start: u64, bytes: &[u8]) -> Piece {
        Piece { start, bytes: bytes.to_vec() }
    }

    #[test]
    fn rows_of_a_function() {
        // push %rbx; mov %edi,%ebx; pop %rbx; ret; and a byte that no way leads to.
        let made = made(&piece(0x1000, &[0x53, 0x89, 0xfb, 0x5b, 0xc3, 0xcc]), &[]).expect("rules");
        let mut pushed = Rule::simple(RSP, 16);
        pushed.slots[0] = -2;
        assert_eq!(made.rules, [Rule::simple(RSP, 8), pushed].map(|rule| rule.pack().words()));
        assert_eq!(made.rows, [(0, 0), (1, 1), (4, 0), (5, NO_RULE)]);
        assert!(!made.reads_constants);
    }

    #[test]
    fn tables_of_jumps_are_read_where_there_is_an_indirect_jump() {
        // push %rbx; cmp $1,%edi; ja 1f; lea table(%rip),%rax; movslq (%rax,%rdi,4),%rdx; add %rax,%rdx; jmp *%rdx;
        // 1: pop %rbx; ret
        let mut code = vec![0x53, 0x89, 0xff, 0x83, 0xff, 0x01, 0x77, 0x10];
        code.extend([0x48, 0x8d, 0x05, 0xf1, 0x0f, 0, 0, 0x48, 0x63, 0x14, 0xb8, 0x48, 0x01, 0xc2, 0xff, 0xe2]);
        code.extend([0x5b, 0xc3]);
        let (start, table) = (0x1000, 0x2000u64);
        let target = (start + 24i64 - table as i64) as i32;
        let constants = piece(table, [target, target].map(i32::to_le_bytes).as_flattened());
        assert_eq!(made(&piece(0x1000, &code), &[]), None, "the jump may lead anywhere");
        let made = made(&piece(0x1000, &code), &[constants]).expect("rules");
        assert!(made.reads_constants && made.rows.len() == 3, "{made:?}");
    }

    #[test]
    fn what_is_no_function_has_no_rules() {
        for bytes in [&[][..], &[0x5b, 0xc3], &[0x06], &[0xff, 0xe0, 0x53], &vec![0x90; LARGEST_PIECE + 1]] {
            assert_eq!(made(&piece(0x1000, bytes), &[]), None, "{:?}", bytes.get(..4));
        }
    }
}
