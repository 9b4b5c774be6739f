//! x86-64 code that no unwind information describes, or that it describes wrongly. It is recognised by its bytes, so
//! nothing is guessed.

mod clone;
mod delivery;
mod fcontext;
mod go;
mod greenlet;
mod jumpto;
mod non_local_exit;
mod plt;
mod pops;
mod program_start;
mod start_files;
mod swapcontext;

pub use delivery::deliver;
pub use greenlet::{is_in_transit, transit};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// A sequence of instructions: its bytes (`None`: any byte), and the offsets at which it can be interrupted.
struct Instructions<const N: usize> {
    code: &'static [Option<u8>],
    starts: [u8; N],
}

const ANY: Option<u8> = None;
const fn b(byte: u8) -> Option<u8> {
    Some(byte)
}

/// Length of the longest sequence in bytes.
const LONGEST: usize = 96;

impl<const N: usize> Instructions<N> {
    /// The offset of `pc` in the sequence, if `pc` is one of its instructions. At most N + 2 reads, mostly one.
    #[inline(always)]
    fn find(&self, pc: u64, reader: &mut Reader<'_>) -> Option<u8> {
        let first = reader.u8(pc)?;
        let matches = |at: usize, wanted: u8| self.code.get(at).is_some_and(|byte| byte.is_none_or(|b| b == wanted));
        if !self.starts.iter().any(|start| matches(usize::from(*start), first)) {
            return None;
        }
        self.find_after(first, reader.u8(pc.wrapping_add(1)), pc, reader)
    }

    /// As [`Instructions::find`], given the byte at `pc` and the next one.
    #[inline(never)]
    fn find_after(&self, first: u8, second: Option<u8>, pc: u64, reader: &mut Reader<'_>) -> Option<u8> {
        let may_be = |start: &u8| {
            let mut from = self.code.get(usize::from(*start)..).unwrap_or_default().iter();
            let mut matches = |read: Option<u8>| match (from.next(), read) {
                (Some(Some(wanted)), Some(read)) => *wanted == read,
                (Some(Some(_)), None) => false,
                (Some(None) | None, _) => true,
            };
            matches(Some(first)) && matches(second)
        };
        self.starts.into_iter().filter(may_be).find(|start| {
            let mut bytes = [0; LONGEST];
            let Some(room) = bytes.get_mut(..self.code.len()) else { return false };
            reader.read(pc.wrapping_sub(u64::from(*start)), room)
                && room.iter().zip(self.code).all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte))
        })
    }
}

/// The rule at `pc` if it lies in code whose tables are wrong: the end of `swapcontext`. Async-signal-safe.
#[inline]
pub fn overrides_tables(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let was = reader.pause(true);
    let rule = swapcontext::rule(pc, reader);
    reader.pause(was);
    rule
}

/// As [`overrides_tables`], in code that no object covers: where signal handlers return to may lie there, too.
pub fn outside_of_objects(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    overrides_tables(pc, reader).or_else(|| at_sigreturn(pc, reader))
}

/// The rule of code without tables, and the range of its function: where signal handlers return to, and a compiler's
/// start files. Async-signal-safe.
#[cold]
pub fn not_covered(lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<(Rule, Span)> {
    let signal = at_sigreturn(pc, reader).map(|rule| (rule, Span::EMPTY));
    signal.or_else(|| start_files::rule(lookup, pc, reader))
}

fn at_sigreturn(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let was = reader.pause(true);
    let rule = Rule::at_sigreturn(pc, reader);
    reader.pause(was);
    rule
}

/// As [`overrides_tables`], given the address to search with: that code calls nothing, so return addresses are never in
/// it.
#[inline(always)]
pub(crate) fn overrides(lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    if lookup == pc {
        overrides_tables(pc, reader)
    } else {
        None
    }
}

/// The rule of a frame that no unwind data describes, or the reason why its caller cannot be determined, if its code is
/// recognised: the end of `clone`, where its registers decide the rule; where Go's runtime and Boost.Context change
/// stacks; where the loader begins a program; where registers are popped; a stub of the procedure linkage table; the
/// end of an exception's delivery by LLVM's libunwind. Async-signal-safe.
#[cold]
#[inline(never)]
pub fn by_registers_or_bytes(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Result<Rule, StopReason>> {
    let was = reader.pause(true);
    let pc = cursor.regs.pc;
    let rule = clone::rule(cursor, reader).map(Ok).or_else(|| go::rule(pc, cursor.exact, reader));
    let rule = rule.or_else(|| fcontext::rule(cursor, reader));
    let rule = rule.or_else(|| program_start::rule(pc, reader).map(Ok));
    let rule = rule.or_else(|| pops::rule(cursor, reader).map(Ok));
    // A stub can be interrupted, but no call returns to it.
    let rule = rule.or_else(|| if cursor.exact { plt::rule(pc, reader).map(Ok) } else { None });
    let rule = rule.or_else(|| jumpto::is_at(cursor, reader).then_some(Err(StopReason::StackInTransit)));
    reader.pause(was);
    rule
}

/// Whether the frame's instruction, interrupted or a call, belongs to code that leaves for another frame, whose frame
/// pointer it loads.
/// Async-signal-safe.
#[cold]
#[inline(never)]
pub fn is_leaving(cursor: &Cursor, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let leaves = non_local_exit::is_at(cursor.regs.pc, cursor.exact, reader);
    reader.pause(was);
    leaves
}

/// The rule of an interrupted function at its end, where registers are popped up to the return. Async-signal-safe.
pub fn at_pops(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    let was = reader.pause(true);
    let rule = if cursor.exact { pops::rule(cursor, reader) } else { None };
    reader.pause(was);
    rule
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    impl<const N: usize> Instructions<N> {
        /// The code, with an arbitrary byte where any byte matches.
        pub fn bytes(&self) -> Vec<u8> {
            self.code.iter().map(|byte| byte.unwrap_or(0x5a)).collect()
        }

        /// Calls `found` with each address of the code: it must accept exactly the offsets in `starts`, and none once
        /// any byte is changed.
        pub fn are_exactly<T>(&self, found: impl Fn(u64, &mut Reader<'_>) -> Option<T>) {
            let bytes = self.bytes();
            for at in 0..bytes.len() as u8 {
                let regions = [Region { address: 0x1000, bytes: &bytes }];
                let accepted = found(0x1000 + u64::from(at), &mut Reader::recorded(&regions)).is_some();
                assert_eq!(accepted, self.starts.contains(&at), "+{at}");
            }
            for at in (0..bytes.len()).filter(|at| self.code[*at].is_some()) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                let regions = [Region { address: 0x1000, bytes: &other }];
                let start = 0x1000 + u64::from(self.starts[0]);
                assert!(found(start, &mut Reader::recorded(&regions)).is_none(), "byte {at} is another");
            }
        }
    }
}
