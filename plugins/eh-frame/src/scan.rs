//! Every FDE of what a JIT registers: a list of CIEs and FDEs that ends with a length of 0 (libgcc's `__register_frame`), an
//! array of pointers to such lists that ends with a null (`__register_frame_table`), or one FDE (LLVM libunwind's
//! `__register_frame`). Not for handlers: it reads as much as there is, up to its bounds.

use crate::bytes::Input;
use crate::cpu::Native;
use crate::entry::{Entry, Section};
use crate::program::{self, Cfa};
use uunwind_core::memory::{Reader, USER_END};
use uunwind_core::stop_reason::StopReason;

/// Most entries of one registration, CIEs included.
pub const MAX_ENTRIES: usize = 1 << 20;
/// Most entries whose CIE tells nothing, and which are therefore run themselves; others are taken for silent.
const MAX_RUNS: usize = 4096;
/// Most lists of one array.
const MAX_LISTS: usize = 1 << 16;
/// All user addresses: what is registered may name a CIE anywhere.
const ANYWHERE: (u64, u64) = (4096, USER_END);

/// How to understand what is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Shape {
    /// A list that ends with a length of 0.
    List = 0,
    /// One FDE. A CIE in its place is none, and means nothing.
    One = 1,
    /// An array of lists.
    Table = 2,
}

impl Shape {
    /// The shape with this number.
    pub const fn from_number(number: u32) -> Option<Shape> {
        match number {
            0 => Some(Shape::List),
            1 => Some(Shape::One),
            2 => Some(Shape::Table),
            _ => None,
        }
    }
}

/// An FDE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it lies.
    pub fde: u64,
    /// First address of its code.
    pub start: u64,
    /// End of its code, exclusive.
    pub end: u64,
    /// Whether it says how to find the CFA. Some JITs register FDEs that only let exceptions pass.
    pub tells: bool,
}

/// Goes from FDE to FDE.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The next entry; 0: take the next list.
    at: u64,
    /// The next pointer of the array; 0: there is none.
    table: u64,
    one: bool,
    entries: usize,
    lists: usize,
    /// The last CIE, and whether it says how to find the CFA.
    cie: (u64, bool),
    /// Entries whose own instructions were run.
    runs: usize,
    /// Lowest and highest address of the FDEs so far and their CIEs.
    pub span: (u64, u64),
}

impl Scan {
    /// Begins at `begin`.
    pub fn new(begin: u64, shape: Shape) -> Scan {
        let (at, table) = if shape == Shape::Table { (0, begin) } else { (begin, 0) };
        Scan {
            at,
            table,
            one: shape == Shape::One,
            entries: 0,
            lists: 0,
            cie: (0, false),
            runs: 0,
            span: (u64::MAX, 0),
        }
    }

    /// The next FDE with code; `None` at the end. Errors end the scan: [`StopReason::BadUnwindInfo`],
    /// [`StopReason::UnreadableUnwindInfo`], [`StopReason::UnsupportedRule`] (also: too many entries).
    pub fn step(&mut self, reader: &mut Reader<'_>) -> Result<Option<Found>, StopReason> {
        for _ in 0..=MAX_ENTRIES {
            if self.at == 0 && !self.next_list(reader)? {
                return Ok(None);
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(StopReason::UnsupportedRule);
            }
            let at = self.at;
            let mut input = Input::new(reader, ANYWHERE);
            input.at = at;
            let length = match input.u32()? {
                0 => {
                    self.at = 0;
                    continue;
                }
                0xffff_ffff => input.u64()?,
                short => u64::from(short),
            };
            let body = input.at;
            let next = body.checked_add(length).filter(|next| length >= 4 && *next <= ANYWHERE.1);
            let next = next.ok_or(StopReason::BadUnwindInfo)?;
            let distance = u64::from(input.u32()?);
            self.at = if self.one { 0 } else { next };
            // 0 marks a CIE.
            if distance == 0 {
                continue;
            }
            let entry = Entry::read::<Native>(at, Section::EhFrame, &mut input)?;
            // Linkers leave FDEs of functions that they dropped, at 0.
            if entry.start == 0 || entry.start >= entry.end {
                continue;
            }
            let tells = self.tells(body.wrapping_sub(distance), &entry, &mut input)?;
            let (low, high) = self.span;
            let ends = (at.min(body.wrapping_sub(distance)), next.max(entry.initial.1).max(entry.instructions.1));
            self.span = (low.min(ends.0), high.max(ends.1));
            return Ok(Some(Found { fde: at, start: entry.start, end: entry.end, tells }));
        }
        Err(StopReason::UnsupportedRule)
    }

    /// Whether an entry says how to find the CFA: nearly always its CIE does.
    fn tells(&mut self, cie: u64, entry: &Entry, input: &mut Input<'_, '_>) -> Result<bool, StopReason> {
        if self.cie.0 != cie {
            let at = entry.initial.1;
            let row = program::run::<Native>(&Entry { instructions: (at, at), ..*entry }, entry.start, input)?;
            self.cie = (cie, row.cfa != Cfa::Undefined);
        }
        if self.cie.1 {
            return Ok(true);
        }
        self.runs += 1;
        if self.runs > MAX_RUNS {
            return Ok(false);
        }
        Ok(program::run::<Native>(entry, entry.end.wrapping_sub(1), input)?.cfa != Cfa::Undefined)
    }

    /// Goes to the next list of an array.
    fn next_list(&mut self, reader: &mut Reader<'_>) -> Result<bool, StopReason> {
        if self.table == 0 || self.lists >= MAX_LISTS {
            return Ok(false);
        }
        self.at = reader.word(self.table).ok_or(StopReason::UnreadableUnwindInfo)?;
        self.table = self.table.wrapping_add(8);
        self.lists += 1;
        Ok(self.at != 0)
    }
}
