//! `.eh_frame_hdr` and `.eh_frame`: the bytes are an object's image.
//!
//! | bytes | |
//! |---|---|
//! | 4 | where in the image `.eh_frame_hdr` begins |
//! | 4 x 3 | pcs to look up, relative to the image (signed) |
//! | rest | the image |
//!
//! More pcs are taken from the index itself, since few numbers are covered by any entry.

use super::lookup::{by_eh_frame, check, START};
use crate::input::Input;
use uunwind_core::memory::{Reader, Region};
use uunwind_eh_frame::find;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let hdr = START + u64::from(input.u32());
    let given: [u32; 3] = std::array::from_fn(|_| input.u32());
    let image = input.rest();
    let regions = [Region { address: START, bytes: image }];
    let bounds = (START, START + image.len() as u64);
    let mut reader = Reader::recorded(&regions);
    let mut pcs: Vec<u64> = given.iter().map(|pc| START.wrapping_add_signed(i64::from(*pc as i32))).collect();
    // The usual form: a table of 32-bit offsets from the header, behind 12 bytes of it.
    let count = reader.u32(hdr + 8).unwrap_or(0).clamp(1, 1 << 16);
    for (n, offset) in (0u32..).zip(given) {
        let index = [0, count - 1, offset % count][n as usize];
        let function = reader.u32(hdr + 12 + u64::from(index) * 8).unwrap_or(0) as i32;
        pcs.push(hdr.wrapping_add_signed(i64::from(function)).wrapping_add(u64::from(offset >> 24)));
    }
    let mut taken = false;
    while let Some(pc) = pcs.pop() {
        let answer = by_eh_frame(find(hdr, bounds, pc, pc, &mut reader));
        if let Some((_, end)) = check(pc, answer, &mut reader) {
            if !taken {
                // The whole program of one entry is run at its end.
                pcs.push(end - 1);
            }
            taken = true;
        }
    }
    taken
}
