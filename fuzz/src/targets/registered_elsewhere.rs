//! Code registered at run time, as it is found in another process's memory: libuunwind's windows, GDB's list, libgcc's
//! lists and trees.
//!
//! | bytes | |
//! |---|---|
//! | 4 x 2 | pcs to look up, relative to `START` |
//! | rest | the memory, from `START` on: the windows' description; at 0x100 GDB's head; at 0x130 that of a list, and of a tree |

use super::lookup::START;
use crate::input::Input;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::Regs;
use uunwind_core::span::Span;
use uunwind_live::skipped::{Place, Surroundings};
use uunwind_live::window_rule;
use uunwind_remote::registered::rule_by_lists;
use uunwind_remote::registered::windows::{undescribed_functions, Answer, Root};

/// Most windows, and functions of one, that are asked for.
const MOST: usize = 64;

/// No object is loaded anywhere.
struct Nowhere;

impl Surroundings for Nowhere {
    fn place(&mut self, _: u64, _: &mut Reader<'_>) -> Place {
        Place::Unowned
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let pcs: [u32; 2] = std::array::from_fn(|_| input.u32());
    let regions = [Region { address: START, bytes: input.rest() }];
    let (mut reader, mut again) = (Reader::recorded(&regions), Reader::recorded(&regions));
    let mut taken = false;
    let root = Root::read(START, &mut reader);
    let mut read = |at: u64, out: &mut [u8]| reader.read(at, out);
    let mut cells = Vec::new();
    root.inspect(|root| _ = root.cells(MOST, &mut read, &mut |cell, start| cells.push((cell, start))));
    assert!(cells.len() <= MOST, "{} cells", cells.len());
    for (cell, start) in cells {
        let Some(window) = root.and_then(|root| root.window_at(cell, start, &mut read)) else { continue };
        let functions = undescribed_functions(&window, MOST, &mut read).unwrap_or_default();
        let is_inside = |span: &Span| window.start <= span.start && span.start < span.end && span.end <= window.end;
        assert!(functions.len() <= MOST && functions.iter().all(is_inside), "{window:?}: {functions:?}");
    }
    for pc in pcs.map(|pc| START + u64::from(pc)) {
        let registers = std::array::from_fn(|r| START + 8 * r as u64);
        let cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
        match root.map(|root| root.find(pc, &mut reader, &mut |at| again.word(at))) {
            Some(Answer::Window(window)) => {
                assert!((window.start..window.end).contains(&pc), "{window:?} does not cover {pc:#x}");
                taken |= window_rule::find(&window, &cursor, &mut Nowhere, &mut reader, None).is_ok();
            }
            // A cell may have no window in it, or one that was removed.
            Some(Answer::None | Answer::Changed) | None => {}
        }
        let rule = rule_by_lists([START + 0x100, START + 0x130, START + 0x138], &cursor, &mut reader);
        taken |= rule.is_some_and(|rule| !rule.is_failed());
    }
    taken
}
