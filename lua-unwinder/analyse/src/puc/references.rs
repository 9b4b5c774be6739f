//! The functions that refer to a string or to another function: those whose code computes its address.

use memchr::memmem::{find, find_iter};
use uunwind_elf::{Elf, Function, Span};

/// Limit of bytes of a segment that are searched.
const LIMIT: u64 = 1 << 30;

/// The functions whose code refers to a string that ends in `text`.
pub fn to_text(elf: &dyn Elf, functions: &[Function], text: &[u8]) -> Vec<Function> {
    let mut targets = Vec::new();
    for segment in elf.loaded().iter().filter(|s| !s.writable) {
        let Some(bytes) = load(elf, segment.span) else { continue };
        targets.extend(find(&bytes, text).map(|at| segment.span.start + at as u64));
    }
    to_addresses(elf, functions, &targets)
}

fn load(elf: &dyn Elf, range: Span) -> Option<Vec<u8>> {
    let mut bytes = vec![0; (range.end.saturating_sub(range.start)).min(LIMIT) as usize];
    elf.read(range.start, &mut bytes).then_some(bytes)
}

/// The functions whose code refers to one of these addresses.
pub fn to_addresses(elf: &dyn Elf, functions: &[Function], targets: &[u64]) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    for segment in elf.loaded().iter().filter(|s| s.executable) {
        let Some(bytes) = load(elf, segment.span) else { continue };
        for target in targets {
            for place in places(&bytes, segment.span.start, *target) {
                let before = functions.partition_point(|f| f.span.start <= place);
                let holder = before.checked_sub(1).and_then(|at| functions.get(at)).filter(|f| f.span.contains(place));
                found.extend(holder.filter(|holder| !found.contains(holder)));
            }
        }
    }
    found
}

/// Addresses of instructions that compute `target`: `lea register, [rip + distance]`, or a move of the address itself
/// in programs that are not position-independent.
fn places(code: &[u8], start: u64, target: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for at in find_iter(code, &[0x8d]) {
        let Some([rex, _, form, d0, d1, d2, d3]) = at.checked_sub(1).and_then(|from| code.get(from..from + 7)) else {
            continue;
        };
        let distance = i32::from_le_bytes([*d0, *d1, *d2, *d3]);
        let end = start.wrapping_add(at as u64).wrapping_add(6);
        if rex & 0xf8 == 0x48 && form & 0xc7 == 5 && end.wrapping_add_signed(i64::from(distance)) == target {
            found.push(start + at as u64);
        }
    }
    if let Ok(absolute) = u32::try_from(target) {
        let address = absolute.to_le_bytes();
        let at = find_iter(code, &address)
            .filter(|at| at.checked_sub(1).and_then(|before| code.get(before)).is_some_and(|byte| byte & 0xf8 == 0xb8));
        found.extend(at.map(|at| start + at as u64));
    }
    found
}
