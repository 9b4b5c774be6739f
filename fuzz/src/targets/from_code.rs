//! Rows made from machine code.
//!
//! | bytes | |
//! |---|---|
//! | 1 | 0: the rest is an ELF file; else: instructions |
//! | 1 | where a function begins in them |
//! | rest | the file, or the instructions |

use crate::input::Input;
use uunwind_from_code::{analyse, row, Budget, Code, Part};

/// Address of the instructions.
const TEXT: u64 = 0x1000;
/// Instructions that are carried out.
const BUDGET: Budget = Budget { steps: 20_000 };

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (kind, entry) = (input.u8(), input.u8());
    let bytes = input.rest();
    let code = if kind == 0 {
        Code::of_file(bytes, &[])
    } else {
        let part = Part { start: TEXT, bytes };
        let entries = vec![TEXT + u64::from(entry)];
        Code { text: vec![part], constants: vec![part], entries, ..Code::default() }
    };
    let found = analyse(&code, BUDGET);
    for claim in &found.claims {
        assert!(code.part(claim.address).is_some(), "{claim:x?} outside of the code");
        let Some(facts) = found.facts_of(claim) else { continue };
        if let Some(rule) = row::rule(facts) {
            assert!(row::follows(facts, &rule), "{rule:?} does not follow from {facts:?}");
        }
    }
    let rows = found.rows();
    assert!(rows.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start), "rows overlap");
    assert!(rows.iter().all(|row| row.span.start < row.span.end), "a row without code");
    rows.iter().any(|row| row.rule.is_some())
}
