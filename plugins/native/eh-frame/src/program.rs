//! The CFA program, which gives the row for a pc when it is run up to it ([DWARF
//! 5](https://dwarfstd.org/doc/DWARF5.pdf), 6.4.2 and 6.4.3).

use crate::bytes::Input;
use crate::cpu::{Cpu, Native};
use crate::entry::Entry;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Limit of the instructions that are run for one lookup, in bytes. There are no loops in a program.
pub const MAX_BYTES: u64 = 1 << 16;
/// Depth of DW_CFA_remember_state that is supported (compilers use 1, hand-written code a few).
const STATES: usize = 6;
/// Of an instruction's bytes, the first one lowest: the operand in the second byte goes on in the third.
const LONG_OPERAND: u64 = 0x80 << 8;

/// How a register of the caller is found. "n" is the number in its [`Location`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// No rule: callee-saved registers keep their value (System V ABI).
    Unspecified = 0,
    /// The value is lost (DW_CFA_undefined).
    Undefined = 1,
    /// The register is unchanged (DW_CFA_same_value).
    Same = 2,
    /// It is saved at CFA + n bytes.
    Offset = 3,
    /// Its value is CFA + n bytes.
    ValOffset = 4,
    /// Its value is in register n.
    Register = 5,
    /// It is saved at the address computed by the expression that lies n bytes after the start of the entry's
    /// instructions.
    Expression = 6,
    /// Its value is computed by that expression.
    ValExpression = 7,
}

/// A [`Kind`] with its number, in one word, since tables are built by comparing them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location(u64);

impl Location {
    /// No rule for the register.
    pub const UNSPECIFIED: Location = Location::new(Kind::Unspecified, 0);

    /// The location of this kind with number n; n is 0 for a kind without one.
    #[inline(always)]
    pub const fn new(kind: Kind, n: i32) -> Location {
        Location((kind as u64) << 32 | n as u32 as u64)
    }

    /// How the register is found.
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 >> 32 {
            0 => Kind::Unspecified,
            1 => Kind::Undefined,
            2 => Kind::Same,
            3 => Kind::Offset,
            4 => Kind::ValOffset,
            5 => Kind::Register,
            6 => Kind::Expression,
            _ => Kind::ValExpression,
        }
    }

    /// The number n of the kind: an offset in bytes, or a DWARF register number; see [`Kind`].
    #[inline(always)]
    pub const fn n(self) -> i32 {
        self.0 as u32 as i32
    }

    /// Kind and number in one word.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// How the CFA is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa {
    /// It is not defined yet.
    Undefined,
    /// Register plus offset in bytes.
    Offset(u8, i32),
    /// The expression at this address (its length first).
    Expression(u64),
}

/// One row of the unwind table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<C: Cpu = Native> {
    /// How the CFA is computed.
    pub cfa: Cfa,
    /// The locations of the registers that rows keep, by [`Cpu::column`].
    locations: C::Locations,
    /// A hash of the locations, updated when they change: caches of rows use it as a key.
    key: u64,
}

/// Odd numbers without a pattern, one for each location of a row.
const FACTORS: [u64; 14] = [
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
    0x94d0_49bb_1331_11eb,
    0xbf58_476d_1ce4_e5b9,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0x9e6c_63d0_876a_46d5,
    0x2127_599b_f432_5c37,
    0x8801_55c1_7a4b_9e63,
    0xeb44_acca_b455_d165,
];

impl<C: Cpu> Row<C> {
    pub(crate) const EMPTY: Row<C> = Row { cfa: Cfa::Undefined, locations: C::UNSPECIFIED, key: 0 };

    /// The locations of the registers that rows keep, by [`Cpu::column`].
    #[inline(always)]
    pub fn locations(&self) -> &C::Locations {
        &self.locations
    }

    /// A hash of the locations; rows with other locations seldom have the same.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, index: usize, location: Location) {
        if let (Some(old), Some(factor)) = (self.locations.as_mut().get_mut(index), FACTORS.get(index)) {
            self.key = self.key.wrapping_add(location.0.wrapping_sub(old.0).wrapping_mul(*factor));
            *old = location;
        }
    }
}

/// The rows lie with the caller: a handler's stack is short.
struct Machine<'m, C: Cpu> {
    row: &'m mut Row<C>,
    /// What DW_CFA_restore refers to.
    initial: &'m Row<C>,
    saved: [Row<C>; STATES],
    depth: usize,
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
    Machine::new(row, initial, entry.start).run(entry.instructions, entry, lookup, input, &mut |_, _, _, _| {})
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
    let mut machine = Machine::new(&mut row, initial, entry.start);
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
    Machine::new(row, &Row::EMPTY, 0).run(cie.initial, cie, u64::MAX, input, &mut |_, _, _, _| {})
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
    let mut machine = Machine::new(&mut row, &initial, entry.start);
    let run = machine.run(entry.instructions, entry, u64::MAX, input, &mut each);
    run.map_err(|reason| (machine.location, reason))?;
    if machine.location < entry.end {
        each(machine.location, entry.end, machine.row, input);
    }
    Ok(())
}

impl<'m, C: Cpu> Machine<'m, C> {
    #[inline(always)]
    fn new(row: &'m mut Row<C>, initial: &'m Row<C>, location: u64) -> Machine<'m, C> {
        Machine { row, initial, saved: [Row::EMPTY; STATES], depth: 0, location }
    }

    #[inline(always)]
    fn set(&mut self, register: u64, location: Location) {
        if let Some(index) = C::column(register) {
            self.row.put(index, location);
        }
    }

    fn restore(&mut self, register: u64) {
        if let Some(index) = C::column(register) {
            if let Some(initial) = self.initial.locations.as_ref().get(index) {
                self.row.put(index, *initial);
            }
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
        while at < end {
            input.at = at;
            let (mut bytes, count) = input.ahead()?;
            let mut count = count.min(end - at);
            if count < 2 {
                // An operand of one byte has no such bit: this one, elsewhere, is left to `longer`.
                bytes |= LONG_OPERAND;
            }
            // Most instructions are one byte, or one with an operand of one byte, so a word has several. Its last byte
            // is the next word's first, since an operand may follow.
            loop {
                let (op, from) = (bytes as u8, self.location);
                let len = if op & 0xc0 == 0x40 {
                    self.advance(u64::from(op & 0x3f), entry)?;
                    if self.has_passed(lookup, from, input, each) {
                        return Ok(());
                    }
                    1
                } else if op == 0x0e && bytes & LONG_OPERAND == 0 {
                    let Cfa::Offset(_, n) = &mut self.row.cfa else { return Err(bad) };
                    *n = (bytes >> 8 & 0x7f) as i32; // def_cfa_offset
                    2
                } else if op & 0xc0 == 0x80 && bytes & LONG_OPERAND == 0 {
                    let n = offset((bytes >> 8 & 0x7f) as i64, entry.data_align)?;
                    self.set(u64::from(op & 0x3f), Location::new(Kind::Offset, n));
                    2
                } else if op == 0x0a {
                    self.remember()?;
                    1
                } else if op == 0x0b {
                    self.go_back()?;
                    1
                } else {
                    input.at = at.wrapping_add(1);
                    self.longer(op, span, entry, input)?;
                    at = input.at;
                    if self.has_passed(lookup, from, input, each) {
                        return Ok(());
                    }
                    break;
                };
                (at, bytes) = (at.wrapping_add(len), bytes >> (8 * len));
                count = count.wrapping_sub(len);
                if count < 2 {
                    break;
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
        *self.saved.get_mut(self.depth).ok_or(StopReason::UnsupportedRule)? = *self.row;
        self.depth += 1;
        Ok(())
    }

    /// DW_CFA_restore_state.
    #[inline(always)]
    fn go_back(&mut self) -> Result<(), StopReason> {
        self.depth = self.depth.checked_sub(1).ok_or(StopReason::BadUnwindInfo)?;
        *self.row = *self.saved.get(self.depth).ok_or(StopReason::BadUnwindInfo)?;
        Ok(())
    }

    /// Moves the location by a number of units of code.
    #[inline(always)]
    fn advance(&mut self, delta: u64, entry: &Entry) -> Result<(), StopReason> {
        let delta = delta.checked_mul(entry.code_align).ok_or(StopReason::BadUnwindInfo)?;
        self.location = self.location.checked_add(delta).ok_or(StopReason::BadUnwindInfo)?;
        Ok(())
    }

    /// Runs an instruction that [`Machine::run`] does not run itself, after its first byte.
    #[inline(never)]
    fn longer(&mut self, op: u8, span: Span, entry: &Entry, input: &mut Input<'_, '_>) -> Result<(), StopReason> {
        let low = u64::from(op & 0x3f);
        match op >> 6 {
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
                let register = register_number(input.uleb()?)?; // def_cfa_register
                let Cfa::Offset(_, n) = self.row.cfa else { return Err(bad) };
                self.row.cfa = Cfa::Offset(register, n);
            }
            0x13 => {
                let n = offset(input.sleb()?, entry.data_align)?; // def_cfa_offset_sf
                let Cfa::Offset(register, _) = self.row.cfa else { return Err(bad) };
                self.row.cfa = Cfa::Offset(register, n);
            }
            0x0f => self.row.cfa = Cfa::Expression(skip_block(input)?), // def_cfa_expression
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
