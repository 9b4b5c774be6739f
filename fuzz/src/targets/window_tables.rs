//! A window as C describes it, with its table of functions and its unwind data.
//!
//! | bytes | |
//! |---|---|
//! | 1 | kind |
//! | 1 | flags: of the window (2 bits); 4: a counter although it does not grow; 8: no text |
//! | 4 | distance of the text from the unwind data (signed) |
//! | 4 | bytes of text |
//! | 4 | capacity of the table |
//! | 8 | the counter of published functions |
//! | 2 | bytes of the table that exist |
//! | 4 x 3 | pcs to look up, relative to the text |
//! | rest | the table, then the unwind data |

use super::lookup::{by_eh_frame, by_sframe, check, START};
use crate::input::Input;
use core::ffi::c_void;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::CRule;
use uunwind_core::registry::c_window::CWindow;
use uunwind_core::registry::functions;
use uunwind_core::registry::window::{Kind, Window, NO_UNWIND};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_sframe::Section;

/// Address of the table; the counter precedes it, unwind data is at `START`.
const TABLE: u64 = 0x30_0000_0008;

unsafe extern "C" fn rule(_: *mut c_void, _: u64, _: *mut CRule) -> u32 {
    0
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (kind, flags, distance, text_len) = (input.u8(), input.u8(), input.u32() as i32, input.u32());
    let (room, published, table_len) = (input.u32(), input.u64(), input.u16());
    let given: [u32; 3] = std::array::from_fn(|_| input.u32());
    let table = [&published.to_le_bytes(), input.bytes(usize::from(table_len))].concat();
    let unwind = input.rest();
    let text = if flags & 8 != 0 { 0 } else { START.wrapping_add_signed(i64::from(distance)) };
    let counted = flags & 5 != 0;
    let place = |address: u64, is: bool| if is { address as *const c_void } else { std::ptr::null() };
    // SAFETY: all-zero is a window without any of its parts.
    let zero: CWindow = unsafe { std::mem::zeroed() };
    let c = CWindow {
        size: size_of::<CWindow>() as u32,
        kind: u32::from(kind),
        text: text as *const c_void,
        text_len: text_len as usize,
        flags: u32::from(flags & 3),
        unwind: place(START, !unwind.is_empty()),
        unwind_len: unwind.len(),
        functions: place(TABLE, room != 0).cast(),
        functions_room: room as usize,
        published: place(TABLE - 8, counted).cast(),
        rule: (kind == Kind::Rule as u8).then_some(rule),
        ..zero
    };
    let Ok(window) = c.to_window() else { return false };
    assert!(window.start <= window.end && window.generation == 0);
    let regions = [Region { address: START, bytes: unwind }, Region { address: TABLE - 8, bytes: &table }];
    let mut reader = Reader::recorded(&regions);
    let mut taken = false;
    for pc in given.map(|pc| window.start.wrapping_add(u64::from(pc))) {
        if !(window.start..window.end).contains(&pc) {
            continue;
        }
        let answer = match functions::find(&window, pc, &mut reader) {
            Some(function) => {
                let start = window.start + u64::from(function.start);
                assert!(start <= pc && pc < start + u64::from(function.len), "{function:?} does not cover {pc:#x}");
                taken = true;
                in_function(&window, function.unwind, pc, &mut reader)
            }
            None if window.functions == 0 => without_table(&window, pc, &mut reader),
            None => continue,
        };
        taken |= check(pc, answer, &mut reader).is_some();
    }
    taken
}

fn in_function(
    window: &Window,
    unwind: u32,
    pc: u64,
    reader: &mut Reader<'_>,
) -> Result<super::lookup::Answer, StopReason> {
    if window.kind != Kind::EhFrame || unwind == NO_UNWIND {
        return without_table(window, pc, reader);
    }
    let bounds = Span::sized(window.unwind, window.unwind_len);
    by_eh_frame(uunwind_eh_frame::find_at(window.unwind + u64::from(unwind), bounds, pc, pc, reader))
}

fn without_table(window: &Window, pc: u64, reader: &mut Reader<'_>) -> Result<super::lookup::Answer, StopReason> {
    let bounds = Span::sized(window.unwind, window.unwind_len);
    match window.kind {
        Kind::EhFrame => by_eh_frame(uunwind_eh_frame::find_in_list(bounds, pc, pc, reader)),
        Kind::SFrame => {
            let section =
                Section::new(Span::sized(window.unwind, window.unwind_len), Span::new(window.start, window.end));
            by_sframe(uunwind_sframe::find(&section, pc, reader))
        }
        _ => Err(StopReason::NoRule),
    }
}
