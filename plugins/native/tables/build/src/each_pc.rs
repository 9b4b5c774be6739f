//! Rows of `.debug_frame` whose rule depends on the very pc: on the code there, or on an expression that names the pc.
//!
//! Rows of `.eh_frame` that do so are left to the interpreter, which has both at hand in a process. `.debug_frame` is
//! not mapped there, so that its rows are run here, for each pc.

use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::bytes::Input;
use uunwind_eh_frame::cpu::{Cpu, Native};
use uunwind_eh_frame::entry::Entry;
use uunwind_eh_frame::row::Row;
use uunwind_elf::Image;

/// Where a `.debug_frame` is taken to lie: it has no address, and no code lies here.
pub const ADDRESS: u64 = 1 << 62;
/// Bytes of code of one object that are looked at. Functions whose stack GCC realigns have such rows; a file that has
/// many more was made to keep us busy.
const MOST: u64 = 4 << 20;
/// Bytes after a function that are read with it: a rule may depend on the instructions that follow.
const AFTER: u64 = 64;

/// What the rows of one object may still take.
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Budget {
        Budget(MOST)
    }
}

/// A row of a section, its function, and the row that its CIE's functions begin with.
pub struct Of<'a> {
    pub row: &'a Row<Native>,
    pub initial: &'a Row<Native>,
    pub entry: &'a Entry,
    /// The bytes of the section, which lies at [`ADDRESS`].
    pub section: &'a [u8],
}

impl Of<'_> {
    /// Calls `add` with each pc (file address) at which another rule than before holds, and with that rule or the
    /// reason why there is none. `span`: the pcs of the row, within its function.
    pub fn rules(
        &self,
        span: Span,
        image: Option<&Image>,
        budget: &mut Budget,
        mut add: impl FnMut(u64, Result<Rule, StopReason>),
    ) {
        let Some(left) = budget.0.checked_sub(span.end - span.start) else {
            return add(span.start, Err(StopReason::UnsupportedRule));
        };
        budget.0 = left;
        let Some(code) = image.and_then(|image| self.code(image)) else {
            return add(span.start, Err(StopReason::UnsupportedRule));
        };
        let regions =
            [Region { address: ADDRESS, bytes: self.section }, Region { address: self.entry.start, bytes: &code }];
        let mut reader = Reader::recorded(&regions);
        let mut input = Input::new(&mut reader, Span::new(0, u64::MAX));
        for pc in span.start..span.end {
            let rule = if Native::replaces_its_caller(self.row, self.initial, self.entry, pc, &mut input) {
                Err(StopReason::StackInTransit)
            } else {
                Native::rule(self.row, self.entry, pc, &mut input)
            };
            add(pc, rule);
        }
    }

    /// The function's code, and what follows it as far as the file has it.
    fn code(&self, image: &Image) -> Option<Vec<u8>> {
        let len = self.entry.end - self.entry.start;
        [len + AFTER, len].into_iter().filter(|len| *len <= MOST + AFTER).find_map(|len| {
            let mut code = vec![0; len as usize];
            image.read_address(self.entry.start, &mut code).then_some(code)
        })
    }
}
