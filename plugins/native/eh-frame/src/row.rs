//! The rows of the unwind table: where the CFA and the registers of the caller are at a pc ([DWARF
//! 5](https://dwarfstd.org/doc/DWARF5.pdf), 6.4.1).

use crate::cpu::{Cpu, Native};

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
    /// The expression at this address (its length first); and the offset before it, which counts again once a program
    /// names a register.
    Expression(u64, i32),
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

    /// A hash of the locations; rows with other locations seldom have the same. Of the rows of
    /// [`rows`](crate::program::rows) only: a lookup needs none.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Says where a register is. `KEYED`: the hash is needed.
    #[inline(always)]
    pub(crate) fn put<const KEYED: bool>(&mut self, index: usize, location: Location) {
        let Some(place) = self.locations.as_mut().get_mut(index) else { return };
        let old = core::mem::replace(place, location);
        if KEYED {
            let factor = FACTORS.get(index).copied().unwrap_or(0);
            self.key = self.key.wrapping_add(location.0.wrapping_sub(old.0).wrapping_mul(factor));
        }
    }
}
