//! The CFA program, which gives the row for a pc when it is run up to it ([DWARF
//! 5](https://dwarfstd.org/doc/DWARF5.pdf), 6.4.2 and 6.4.3).

use crate::bytes::Input;
use crate::cpu::Cpu;
use crate::entry::Entry;
use crate::row::{Cfa, Kind, Location, Row};
use uunwind_core::array_vec::Few;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Limit of the instructions that are run for one lookup, in bytes. There are no loops in a program.
pub const MAX_BYTES: u64 = 1 << 16;
/// Depth of DW_CFA_remember_state that is supported (compilers use 1, hand-written code a few).
const STATES: usize = 6;
/// Limit of the alignment factors by which operands of one byte are multiplied without a check.
const SMALL_FACTOR: u64 = 1 << 16;

/// The rows lie with the caller: a handler's stack is short. `KEYED`: rows need their hash.
struct Machine<'m, C: Cpu, const KEYED: bool> {
    row: &'m mut Row<C>,
    /// What DW_CFA_restore refers to.
    initial: &'m Row<C>,
    saved: Few<Row<C>, STATES>,
    location: u64,
}

/// Runs the CIE's and the FDE's instructions up to `lookup`.
pub fn run<C: Cpu>(entry: &Entry, lookup: u64, input: &mut Input<'_, '_>) -> Result<Row<C>, StopReason> {
    let initial = initial(entry, input)?;
    let mut row = initial;
    go_to(&mut row, &initial, entry, lookup, input)?;
    Ok(row)
}

/// Runs the FDE's instructions up to `lookup`. `row` is a copy of `initial`, the [`initial`] row of its CIE, and
/// becomes that of `lookup`. Not inlined: it needs much stack, as reading the CIE does, and a handler's is short.
#[inline(never)]
pub(crate) fn go_to<C: Cpu>(
    row: &mut Row<C>,
    initial: &Row<C>,
    entry: &Entry,
    lookup: u64,
    input: &mut Input<'_, '_>,
) -> Result<(), StopReason> {
    let mut machine = Machine::<C, false>::new(row, initial, entry.start);
    machine.run(entry.instructions, entry, lookup, input, &mut |_, _, _, _| {})
}

/// Address of the first row after that of `lookup` for which `wanted` is true. `initial` as for [`go_to`].
/// Async-signal-safe.
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "x86-64's exceptions alone need it"))]
#[inline(never)]
pub(crate) fn first_row<C: Cpu>(
    initial: &Row<C>,
    entry: &Entry,
    lookup: u64,
    input: &mut Input<'_, '_>,
    wanted: impl Fn(&Row<C>) -> bool,
) -> Option<u64> {
    let (mut row, mut first) = (*initial, None);
    let mut machine = Machine::<C, false>::new(&mut row, initial, entry.start);
    let run = machine.run(entry.instructions, entry, u64::MAX, input, &mut |from, _, row, _| {
        if from > lookup && first.is_none() && wanted(row) {
            first = Some(from);
        }
    });
    let last = run.is_ok() && machine.location > lookup && wanted(machine.row);
    first.or_else(|| last.then_some(machine.location))
}

/// Runs a CIE's instructions: the row that its FDEs begin with.
pub fn initial<C: Cpu>(cie: &Entry, input: &mut Input<'_, '_>) -> Result<Row<C>, StopReason> {
    let mut row = Row::EMPTY;
    begin(&mut row, cie, input)?;
    Ok(row)
}

/// Runs a CIE's instructions: `row` becomes the one that its FDEs begin with. Not inlined, as [`go_to`].
#[inline(never)]
pub(crate) fn begin<C: Cpu>(row: &mut Row<C>, cie: &Entry, input: &mut Input<'_, '_>) -> Result<(), StopReason> {
    *row = Row::EMPTY;
    let empty = Row::EMPTY;
    let mut machine = Machine::<C, true>::new(row, &empty, 0);
    machine.run(cie.initial, cie, u64::MAX, input, &mut |_, _, _, _| {})
}

/// Runs the FDE's instructions to the end, starting with the [`initial`] row of its CIE, and passes every row to
/// `each`: `[from, to)`, in the program's order, not empty. An error comes with the address from which on there is no
/// row; the rows before it are valid.
pub fn rows<C: Cpu>(
    entry: &Entry,
    initial: Row<C>,
    input: &mut Input<'_, '_>,
    mut each: impl FnMut(u64, u64, &Row<C>, &mut Input<'_, '_>),
) -> Result<(), (u64, StopReason)> {
    let mut row = initial;
    let mut machine = Machine::<C, true>::new(&mut row, &initial, entry.start);
    let run = machine.run(entry.instructions, entry, u64::MAX, input, &mut each);
    run.map_err(|reason| (machine.location, reason))?;
    if machine.location < entry.end {
        each(machine.location, entry.end, machine.row, input);
    }
    Ok(())
}

impl<'m, C: Cpu, const KEYED: bool> Machine<'m, C, KEYED> {
    #[inline(always)]
    fn new(row: &'m mut Row<C>, initial: &'m Row<C>, location: u64) -> Self {
        Machine { row, initial, saved: Few::new(), location }
    }

    #[inline(always)]
    fn set(&mut self, register: u64, location: Location) {
        self.row.put::<KEYED>(C::column(register), location);
    }

    fn restore(&mut self, register: u64) {
        let index = C::column(register);
        if let Some(initial) = self.initial.locations().as_ref().get(index) {
            self.row.put::<KEYED>(index, *initial);
        }
    }

    /// Runs the instructions in `span` until an advance passes `lookup`. Each advance passes the row that it ends to
    /// `each`.
    fn run(
        &mut self,
        span: Span,
        entry: &Entry,
        lookup: u64,
        input: &mut Input<'_, '_>,
        each: &mut impl FnMut(u64, u64, &Row<C>, &mut Input<'_, '_>),
    ) -> Result<(), StopReason> {
        let bad = StopReason::BadUnwindInfo;
        let mut at = span.start;
        let end = span.end.min(at.saturating_add(MAX_BYTES));
        let is_small = entry.code_align <= SMALL_FACTOR && entry.data_align.unsigned_abs() <= SMALL_FACTOR;
        let (code_align, data_align) = (entry.code_align, entry.data_align as i32);
        while at < end {
            input.at = at;
            let (mut bytes, count) = input.ahead()?;
            let count = count.min(end - at);
            // Most instructions are one byte, or one with an operand of one byte, so a word has several. Its last byte
            // is the next word's first, since an operand may follow. The most frequent ones come first.
            let mut left = if is_small { count } else { 0 };
            while left >= 2 {
                let (op, operand) = (bytes as u8, (bytes >> 8) as u8);
                let from = self.location;
                if op & 0xc0 == 0x40 {
                    self.location = from.checked_add(u64::from(op & 0x3f) * code_align).ok_or(bad)?;
                    if self.has_passed(lookup, from, input, each) {
                        return Ok(());
                    }
                } else if op == 0x0e && operand < 0x80 {
                    let Cfa::Offset(_, n) = &mut self.row.cfa else { return Err(bad) };
                    *n = i32::from(operand); // def_cfa_offset
                    (bytes, left) = (bytes >> 8, left - 1);
                } else if op & 0xc0 == 0x80 && operand < 0x80 {
                    let n = i32::from(operand).wrapping_mul(data_align);
                    self.set(u64::from(op & 0x3f), Location::new(Kind::Offset, n));
                    (bytes, left) = (bytes >> 8, left - 1);
                } else if op == 0x0a {
                    self.remember()?;
                } else if op == 0x0b {
                    self.go_back()?;
                } else if op == 0x02 {
                    self.location = from.checked_add(u64::from(operand) * code_align).ok_or(bad)?; // advance_loc1
                    if self.has_passed(lookup, from, input, each) {
                        return Ok(());
                    }
                    (bytes, left) = (bytes >> 8, left - 1);
                } else {
                    break;
                }
                (bytes, left) = (bytes >> 8, left - 1);
            }
            let done = if is_small { count - left } else { 0 };
            at = at.wrapping_add(done);
            if left >= 2 || done == 0 {
                let from = self.location;
                input.at = at.wrapping_add(1);
                self.other(bytes as u8, span, entry, input)?;
                at = input.at;
                if self.has_passed(lookup, from, input, each) {
                    return Ok(());
                }
            }
        }
        if end < span.end {
            return Err(bad);
        }
        Ok(())
    }

    /// Passes the row that an advance from `from` ended to `each`. Whether the location is beyond `lookup`.
    #[inline(always)]
    fn has_passed(
        &self,
        lookup: u64,
        from: u64,
        input: &mut Input<'_, '_>,
        each: &mut impl FnMut(u64, u64, &Row<C>, &mut Input<'_, '_>),
    ) -> bool {
        // An advance changes only the location, so the row is still the one that it ends.
        if self.location > from {
            each(from, self.location, self.row, input);
        }
        self.location > lookup
    }

    /// DW_CFA_remember_state.
    #[inline(always)]
    fn remember(&mut self) -> Result<(), StopReason> {
        if self.saved.push(self.row) {
            Ok(())
        } else {
            Err(StopReason::UnsupportedRule)
        }
    }

    /// DW_CFA_restore_state.
    #[inline(always)]
    fn go_back(&mut self) -> Result<(), StopReason> {
        *self.row = *self.saved.pop().ok_or(StopReason::BadUnwindInfo)?;
        Ok(())
    }

    /// Moves the location by a number of units of code.
    #[inline(always)]
    fn advance(&mut self, delta: u64, entry: &Entry) -> Result<(), StopReason> {
        let delta = delta.checked_mul(entry.code_align).ok_or(StopReason::BadUnwindInfo)?;
        self.location = self.location.checked_add(delta).ok_or(StopReason::BadUnwindInfo)?;
        Ok(())
    }

    /// Runs an instruction that [`Machine::run`] does not run itself, or one at the end of what can be read at once,
    /// after its first byte.
    #[inline(never)]
    fn other(&mut self, op: u8, span: Span, entry: &Entry, input: &mut Input<'_, '_>) -> Result<(), StopReason> {
        let low = u64::from(op & 0x3f);
        match op >> 6 {
            1 => self.advance(low, entry),
            2 => {
                let n = offset(input.uleb()? as i64, entry.data_align)?;
                self.set(low, Location::new(Kind::Offset, n));
                Ok(())
            }
            3 => {
                self.restore(low);
                Ok(())
            }
            _ => self.extended(op, span, entry, input),
        }
    }

    /// Runs an instruction whose two high bits are 0.
    #[inline(always)]
    fn extended(&mut self, op: u8, span: Span, entry: &Entry, input: &mut Input<'_, '_>) -> Result<(), StopReason> {
        let bad = StopReason::BadUnwindInfo;
        match op {
            0x00 => return Ok(()), // nop, the padding of entries
            0x01 => {
                // set_loc must go forwards (DWARF 5, 6.4.2.1).
                let to = input.pointer(entry.pointer_encoding, 0)?;
                self.location = Some(to).filter(|to| *to >= self.location).ok_or(bad)?;
                return Ok(());
            }
            0x02 => {
                let delta = u64::from(input.u8()?); // advance_loc1
                return self.advance(delta, entry);
            }
            0x03 => {
                let delta = u64::from(input.u16()?); // advance_loc2
                return self.advance(delta, entry);
            }
            0x04 => {
                let delta = u64::from(input.u32()?); // advance_loc4
                return self.advance(delta, entry);
            }
            0x0a => return self.remember(),
            0x0b => return self.go_back(),
            0x0e => {
                let Cfa::Offset(register, _) = self.row.cfa else { return Err(bad) };
                self.row.cfa = Cfa::Offset(register, small(input.uleb()? as i64)?); // def_cfa_offset
                return Ok(());
            }
            0x05 => {
                // offset_extended
                let register = input.uleb()?;
                let n = offset(input.uleb()? as i64, entry.data_align)?;
                self.set(register, Location::new(Kind::Offset, n));
            }
            0x06 => {
                let register = input.uleb()?; // restore_extended
                self.restore(register);
            }
            0x07 => {
                let register = input.uleb()?; // undefined
                self.set(register, Location::new(Kind::Undefined, 0));
            }
            0x08 => {
                let register = input.uleb()?; // same_value
                self.set(register, Location::new(Kind::Same, 0));
            }
            0x09 => {
                let (register, other) = (input.uleb()?, input.uleb()?); // register
                self.set(register, Location::new(Kind::Register, other.min(255) as i32));
            }
            0x0c | 0x12 => {
                let register = input.uleb()?; // def_cfa, def_cfa_sf
                let n =
                    if op == 0x0c { small(input.uleb()? as i64)? } else { offset(input.sleb()?, entry.data_align)? };
                self.row.cfa = Cfa::Offset(register_number(register)?, n);
            }
            0x0d => {
                // def_cfa_register. DWARF forbids it after an expression; GNU as writes it, and libgcc, gdb and readelf
                // keep the offset.
                let register = register_number(input.uleb()?)?;
                let (Cfa::Offset(_, n) | Cfa::Expression(_, n)) = self.row.cfa else { return Err(bad) };
                self.row.cfa = Cfa::Offset(register, n);
            }
            0x13 => {
                let n = offset(input.sleb()?, entry.data_align)?; // def_cfa_offset_sf
                let Cfa::Offset(register, _) = self.row.cfa else { return Err(bad) };
                self.row.cfa = Cfa::Offset(register, n);
            }
            0x0f => {
                let n = match self.row.cfa {
                    Cfa::Offset(_, n) | Cfa::Expression(_, n) => n,
                    Cfa::Undefined => 0,
                };
                self.row.cfa = Cfa::Expression(skip_block(input)?, n); // def_cfa_expression
            }
            0x10 => {
                let register = input.uleb()?; // expression
                let at = skip_block(input)?;
                let distance = at.wrapping_sub(entry.instructions.start) as i64;
                self.set(register, Location::new(Kind::Expression, small(distance)?));
            }
            0x16 => {
                let register = input.uleb()?; // val_expression
                skip_block(input)?;
                self.set(register, Location::new(Kind::ValExpression, 0));
            }
            0x11 => {
                let register = input.uleb()?; // offset_extended_sf
                let n = offset(input.sleb()?, entry.data_align)?;
                self.set(register, Location::new(Kind::Offset, n));
            }
            0x14 | 0x15 => {
                let register = input.uleb()?; // val_offset, val_offset_sf
                let n = if op == 0x14 { input.uleb()? as i64 } else { input.sleb()? };
                self.set(register, Location::new(Kind::ValOffset, offset(n, entry.data_align)?));
            }
            // AARCH64_negate_ra_state_with_pc, AARCH64_negate_ra_state
            0x2c | 0x2d => C::negate_ra_state(self.row)?,
            0x2e => {
                input.uleb()?; // GNU_args_size
            }
            0x2f => {
                let register = input.uleb()?; // GNU_negative_offset_extended
                let n = offset((input.uleb()? as i64).wrapping_neg(), entry.data_align)?;
                self.set(register, Location::new(Kind::Offset, n));
            }
            _ => return Err(StopReason::UnsupportedRule),
        }
        if input.at > span.end {
            return Err(bad);
        }
        Ok(())
    }
}

fn register_number(register: u64) -> Result<u8, StopReason> {
    u8::try_from(register).map_err(|_| StopReason::BadUnwindInfo)
}

fn small(n: i64) -> Result<i32, StopReason> {
    i32::try_from(n).map_err(|_| StopReason::UnsupportedRule)
}

fn offset(factored: i64, align: i64) -> Result<i32, StopReason> {
    small(factored.checked_mul(align).ok_or(StopReason::UnsupportedRule)?)
}

/// Skips a block; returns the address of its length.
fn skip_block(input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    let at = input.at;
    let len = input.uleb()?;
    input.at = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
    Ok(at)
}
