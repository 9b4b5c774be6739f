//! `.eh_frame_hdr` and `.eh_frame`: the bytes are an object's image.
//!
//! | bytes | |
//! |---|---|
//! | 4 | where in the image `.eh_frame_hdr` begins |
//! | 4 x 3 | pcs to look up, relative to the image (signed) |
//! | rest | the image |
//!
//! More pcs are taken from the index itself, since entries cover few of all numbers. Each is looked up for this
//! machine, and for AArch64.

use super::lookup::{by_eh_frame, check, START};
use crate::input::Input;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_eh_frame::cpu::AArch64;
use uunwind_eh_frame::{find, find_for, find_form_with, Form, LastCie};

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let hdr = START + u64::from(input.u32());
    let given: [u32; 3] = std::array::from_fn(|_| input.u32());
    let image = input.rest();
    let regions = [Region { address: START, bytes: image }];
    let bounds = Span::sized(START, image.len() as u64);
    let mut reader = Reader::recorded(&regions);
    let mut pcs: Vec<u64> = given.iter().map(|pc| START.wrapping_add_signed(i64::from(*pc as i32))).collect();
    // The usual form: a table of 32-bit offsets from the header, after its first 12 bytes.
    let count = reader.u32(hdr + 8).unwrap_or(0).clamp(1, 1 << 16);
    for (n, offset) in (0u32..).zip(given) {
        let index = [0, count - 1, offset % count][n as usize];
        let function = reader.u32(hdr + 12 + u64::from(index) * 8).unwrap_or(0) as i32;
        pcs.push(hdr.wrapping_add_signed(i64::from(function)).wrapping_add(u64::from(offset >> 24)));
    }
    let mut taken = false;
    while let Some(pc) = pcs.pop() {
        let answer = find(hdr, bounds, pc, pc, &mut reader);
        let form = find_form_with(&mut LastCie::new(), hdr, bounds, pc, pc, &mut reader);
        let packed = form.map(|form| (form.rule.map(Form::pack), form.function));
        assert_eq!(packed, answer.map(|answer| (answer.rule.map(Rule::pack), answer.function)), "two forms of a rule");
        let answer = by_eh_frame(answer);
        let end = check(pc, answer, &mut reader).map(|function| function.end);
        if let Some(end) = end.or_else(|| on_aarch64(hdr, bounds, pc, &mut reader)) {
            if !taken {
                // At an entry's last address its whole program is run.
                pcs.push(end - 1);
            }
            taken = true;
        }
    }
    taken
}

/// Looks a pc up and executes the rule, as on AArch64. Returns the function's end if there is a rule.
fn on_aarch64(hdr: u64, bounds: Span, pc: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let answer = find_for::<AArch64>(hdr, bounds, pc, pc, reader).ok()?;
    let Span { start, end } = answer.function;
    assert!(start <= pc && pc < end, "a rule for {start:#x}..{end:#x}, not for {pc:#x}");
    let rule = answer.rule.ok()?.pack();
    let regs = aarch64::Regs::full(pc, std::array::from_fn(|r| START + 8 * r as u64)).with_pac_mask(0x7f << 48);
    let mut cursor = Cursor { regs, exact: true };
    if let Ok(cfa) = rule.cfa(&cursor, reader) {
        let _ = rule.advance(&mut cursor, cfa, reader);
    }
    Some(end)
}
