//! Codes raw stacks as `uu record --unwind offline` does, for bench/copies.py: so that its coding and general
//! compressors have the same bytes.
//!
//! Standard input, words in the machine's order, for each stack: 16 registers in DWARF order, the pc, the number of
//! ranges of executable memory, their starts and ends, the stack's address, its number of words, these. Printed for
//! each: the number of bytes of its copy.

use std::io::{self, Read};
use uunwind_ring::copy::{Encoder, Recent};

/// The words of the input.
struct Words(std::vec::IntoIter<u64>);

impl Words {
    fn next(&mut self) -> Option<u64> {
        self.0.next()
    }

    fn take(&mut self, count: u64) -> Vec<u64> {
        self.0.by_ref().take(count as usize).collect()
    }
}

fn main() -> io::Result<()> {
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input)?;
    let words = input.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes);
    let mut words = Words(words.collect::<Vec<_>>().into_iter());
    let mut recent = Recent::new(0);
    while let Some(first) = words.next() {
        let mut registers = [first; 16];
        for register in &mut registers[1..] {
            *register = words.next().unwrap_or(0);
        }
        let (pc, ranges) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let code = words.take(2 * ranges);
        let (start, count) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let stack = words.take(count);
        println!("{}", coded(&mut recent, (pc, &registers), &code, start, &stack));
    }
    Ok(())
}

/// The length of the copy. What is kept is what ffi/src/copy/filter.rs keeps; in code that no object covers, it keeps
/// only addresses that follow a call, so that its copies are no longer than these.
fn coded(recent: &mut Recent, (pc, registers): (u64, &[u64; 16]), code: &[u64], start: u64, stack: &[u64]) -> usize {
    let mut out = vec![0; 512 + 32 * stack.len()];
    let mut encoder = Encoder::begin(&mut out, recent, 0, pc, registers);
    encoder.stack(start);
    let end = start + 8 * stack.len() as u64;
    for (at, word) in (start..).step_by(8).zip(stack) {
        if (start..=end).contains(word) && word % 8 == 0 {
            encoder.frame(at, *word);
        } else if code.chunks_exact(2).any(|range| range[0] <= *word && *word <= range[1]) {
            encoder.code(*word);
        } else {
            encoder.leave_out();
        }
    }
    encoder.end(None);
    encoder.finish()
}
